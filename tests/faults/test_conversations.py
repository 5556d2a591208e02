"""Processes full of pumps are killed again and again: every conversation is told all, in order, and nothing twice."""

import asyncio
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from ade import ItemKind, NewItem
from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.batch_lease import CachedInbox
from ade.agents.conversations.inbox import Inbox, InboxChange, joined
from ade.agents.conversations.scheduler import NAMESPACE
from tests.depth import IS_DEEP
from tests.domain import DurableInbox, InboxLimits, LockQuery, Stores, open_stores
from tests.faults.conversation_program import CONSUMER, ENDED, ENQUEUED, REMEMBERED, SETTINGS, Line, Part
from tests.faults.programs import Program, Stage, stage
from tests.servers.pool import POOL
from tests.waiting import eventually
from tests.worker.harness import Workshop

pytestmark = pytest.mark.faults

PROCESSES = 4
WITHIN_S = 300.0
_PAGE = 2_000
_SIDE_BY_SIDE = 20  # writes into different inboxes


class Size(Struct, frozen=True, kw_only=True):
    conversations: int
    rounds: int
    each: int = 5  # items of a conversation in a round
    kills: int = 2  # in a round

    @property
    def items(self) -> int:
        """Of a conversation."""
        return self.rounds * self.each

    @property
    def talks(self) -> list[str]:
        return [f"talk-{number}" for number in range(self.conversations)]


PLACES: Mapping[str, tuple[Callable[[Path], str], Size]] = {
    "file": (
        lambda folder: f"sqlite:///{folder / 'ade.db'}",
        Size(conversations=200, rounds=10) if IS_DEEP else Size(conversations=40, rounds=3),  # 10,000 items, or 600
    ),
    "server": (
        lambda _: POOL.standalone("valkey").url,
        Size(conversations=60, rounds=6) if IS_DEEP else Size(conversations=20, rounds=2),
    ),
}


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


class Journal:
    """What the consumers have written; read on from where it was left."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._position = 0
        self.lines: list[Line] = []

    def read(self) -> int:
        with self.path.open("rb") as file:
            file.seek(self._position)
            self.lines += [msgspec.json.decode(line, type=Line) for line in file]
            self._position = file.tell()
        return len(self.lines)


class Crew:
    """Always four processes, whatever is done to them."""

    def __init__(self, programs: Stage, part: Part) -> None:
        self._programs = programs
        self._part = msgspec.json.encode(part).decode()
        self._started = 0
        self.members: list[Program] = []
        for _ in range(PROCESSES):
            self._add()

    def _add(self) -> None:
        self._started += 1
        self.members.append(
            self._programs.start(f"pumps-{self._started}", "tests.faults.conversation_program", self._part)
        )

    async def kill_one(self, randomness: random.Random) -> None:
        """One that is at work, without a word; another one begins at once."""
        at_work = [member for member in self.members if "started" in member.log()]
        victim = randomness.choice(at_work or self.members)
        await victim.until_it_says("started")
        victim.send(signal.SIGKILL)
        self.members.remove(victim)
        self._add()

    async def leave(self) -> None:
        for member in self.members:
            await member.until_it_says("started")
            member.send(signal.SIGTERM)
        codes = [await member.exit_code() for member in self.members]
        assert codes == [0] * PROCESSES, [member.log()[-2000:] for member in self.members]


def some_items(each: int) -> list[NewItem]:
    """Some join those around them, some are turns of their own."""
    return [
        NewItem(kind=ItemKind.MESSAGE, content=f"item {number}", no_coalesce=number % 4 == 1) for number in range(each)
    ]


async def put_in(stores: Stores, size: Size) -> None:
    """One round, while the pumps are at it."""
    limits, gate = InboxLimits(), asyncio.Semaphore(_SIDE_BY_SIDE)

    def decide(inbox: Inbox) -> InboxChange[object]:
        change: InboxChange[object] = conversations_rules.bind(inbox, CONSUMER)
        for item in some_items(size.each):
            change = joined(
                change, conversations_rules.enqueue(change.after, item, limits=limits, now=stores.clock.now())
            )
        return change

    async def put(talk: str) -> None:
        async with gate:
            await CachedInbox(stores, talk).carry_out(decide)

    await asyncio.gather(*(put(talk) for talk in size.talks))


async def kill_some(crew: Crew, journal: Journal, size: Size, randomness: random.Random) -> None:
    """At moments that depend on what was consumed in this round, so that all its kills happen under its load.

    A round has at least one batch for each conversation: there are always so many lines to wait for.
    """
    before = journal.read()
    for count in sorted(randomness.randrange(size.conversations // 2) for _ in range(size.kills)):

        async def goes_on(enough: int = before + count) -> bool:
            return journal.read() >= enough

        await eventually(goes_on, WITHIN_S)
        await crew.kill_one(randomness)


async def all_confirmed(stores: Stores, size: Size) -> None:
    async def look() -> bool:
        listed = await stores.inboxes.list_inboxes("", size.conversations + 1)
        return len(listed) == size.conversations and not any(one.waiting or one.taken for one in listed)

    await eventually(look, WITHIN_S)


async def confirmed_batches(stores: Stores) -> dict[str, list[list[str]]]:
    """By conversation, as the event log has it."""
    found, last = defaultdict[str, list[list[str]]](list), 0
    while page := await stores.events.read(last, _PAGE):
        for event in page:
            if event.type == "inbox.batch_confirmed":
                told = msgspec.convert(event.payload, _Confirmed)
                found[told.inbox_id].append(told.item_ids)
            assert event.type not in ("inbox.item_dropped", "inbox.cleared")
        last = page[-1].seq
    return found


class _Confirmed(Struct):
    inbox_id: str
    item_ids: list[str]


def judge(size: Size, lines: list[Line], confirmed: dict[str, list[list[str]]]) -> None:
    told = defaultdict[str, list[Line]](list)
    for line in lines:
        told[line.inbox_id].append(line)
    for talk in size.talks:
        batches = confirmed[talk]
        in_order = [f"q-{seq}" for seq in range(1, size.items + 1)]
        assert [item for batch in batches for item in batch] == in_order, f"{talk}: confirmed {batches}"
        consumed = [[f"q-{seq}" for seq in line.seqs] for line in told[talk]]
        unheard = [batch for batch in batches if batch not in consumed]
        assert not unheard, f"{talk}: confirmed, but never consumed: {unheard}"
        _judge_order(talk, told[talk])


def _judge_order(talk: str, lines: list[Line]) -> None:
    """Whoever was killed before it confirmed is followed by the same batch, and nobody by one that is out of order."""
    head, expected, turn = 1, 1, 0
    for line in lines:
        first, last = line.seqs[0], line.seqs[-1]
        assert line.seqs == list(range(first, last + 1)), f"{talk}: {line}"
        assert first in (head, expected), f"{talk}: {line} came after {expected - 1}"
        assert line.turn == (turn if first == head and turn else turn + 1), f"{talk}: {line} after turn {turn}"
        head, expected, turn = first, last + 1, line.turn


@pytest.mark.deep
@pytest.mark.parametrize("place", PLACES)
async def test_every_item_is_confirmed_once_and_in_order_whoever_is_killed(
    programs: Stage, place: str, record_property: Callable[[str, object], None]
) -> None:
    url_of, size = PLACES[place]
    seed = int.from_bytes(os.urandom(4))
    randomness = random.Random(seed)
    record_property("seed", seed)
    print("seed", seed)
    url, journal, began = url_of(programs.folder), Journal(programs.folder / "journal"), time.monotonic()
    stores = await open_stores(url, SETTINGS)
    try:
        crew = Crew(programs, Part(url=url, journal=str(journal.path)))
        async with asyncio.timeout(WITHIN_S):
            for _ in range(size.rounds):
                await asyncio.gather(put_in(stores, size), kill_some(crew, journal, size, randomness))
            await all_confirmed(stores, size)
        await crew.leave()
        journal.read()
        judge(size, journal.lines, await confirmed_batches(stores))
        held = await stores.locks.find(LockQuery(namespace=NAMESPACE))
        assert not [request for request in held if request.owner.startswith("pump") and _is_of(crew, request.owner)]
        assert await stores.maintenance.check_invariants() == []
    finally:
        await stores.close()
    print(f"{len(journal.lines)} batches in {time.monotonic() - began:.1f} s")


def _is_of(crew: Crew, owner: str) -> bool:
    """Those who were killed have left their locks to time."""
    return owner.split(":")[2] in {str(member.pid) for member in crew.members}


@pytest.mark.parametrize("moment", [REMEMBERED, ENQUEUED, ENDED])
async def test_a_turn_is_told_once_whenever_its_pump_was_killed(programs: Stage, moment: str) -> None:
    """More items come while nobody is there; they are the next turn, in the same session."""
    url = f"sqlite:///{programs.folder / 'ade.db'}"
    stores = await open_stores(url, SETTINGS)
    shop, told = Workshop(stores), list[tuple[str, str | None]]()

    async def agent(prompt: str, workspace: str, session_id: str | None = None) -> dict[str, str]:
        told.append((prompt, session_id))
        return {"report": "done", "subagent_type": "scribe", "session_id": "s-1"}

    shop.handle(agent, name=CONSUMER)
    inbox = DurableInbox(stores, "talk")

    def pumps(dies_when: str | None) -> Program:
        part = Part(url=url, feeds=True, dies_when=dies_when)
        name = f"pumps-{dies_when}"
        return programs.start(name, "tests.faults.conversation_program", msgspec.json.encode(part).decode())

    async def is_empty() -> bool:
        return not (await stores.inboxes.load("talk")).items

    try:
        async with shop.worker():
            for text in ("one", "two"):
                await inbox.enqueue(NewItem(kind=ItemKind.MESSAGE, content=text), consumer=CONSUMER)
            assert await pumps(moment).exit_code() == -signal.SIGKILL
            await inbox.enqueue(NewItem(kind=ItemKind.MESSAGE, content="three"))
            pumps(None)
            await eventually(is_empty)
    finally:
        await stores.close()

    assert told == [("one\ntwo", None), ("three", "s-1")]
