"""The table of keys is complete and right: whatever the store does, every key it makes is in it."""

import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from msgspec import structs

from ade import ItemKind, NewItem
from ade.errors import NotConfirmed, StoreUnavailable
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.clock import new_token
from ade.stores.redis.codec import APPROVED, LENGTH, NEEDS, STATE_FIELDS, TEAM, TICKET
from ade.stores.redis.keys import ANY, KEYS, families_of, names_of
from ade.stores.redis.scripts import LUA
from ade.testing import TestClock
from docs.generators.redis_store import state_places
from tests.architecture.repository import ROOT, SOURCE
from tests.conformance.scene import Scene, raw
from tests.domain import (
    Agent,
    DocumentWrite,
    DurableInbox,
    LockLimits,
    LockMode,
    OutputLine,
    Queue,
    RedisMaintenance,
    RedisSettings,
    RedisTasks,
    Schedule,
    Stores,
    open_redis,
    validate_request,
)
from tests.servers.pool import POOL

PLAIN = RedisSettings(allow_volatile=True)


class Place(Scene):
    """A scene whose keys can be looked at."""

    def __init__(self, stores: Stores, clock: TestClock) -> None:
        super().__init__(stores, clock)
        assert isinstance(stores.tasks, RedisTasks)
        self.link: RedisClient = stores.tasks._link

    async def command(self, *words: object, partition: int = 0) -> Any:
        return (await self.link.ask(partition, words))[0]

    async def script(self, name: str, **request: object) -> Any:
        return await self.link.run(name, 0, {"now": self.clock.now(), "steady": self.clock.steady(), **request})

    async def patterns(self) -> set[str]:
        """The rows of the table that the keys fit into. Every key fits into one, and has its type."""
        fitted = set()
        for partition, names in enumerate(self.link.names):
            for key in await self._keys(partition):
                families = families_of(key, names)
                assert len(families) == 1, f"{key} is in {len(families)} rows"
                [family] = families
                found = (await self.command("TYPE", key, partition=partition)).decode()
                assert found == family.type or family.type == ANY, f"{key} is a {found}"
                fitted.add(family.pattern)
        return fitted

    async def _keys(self, partition: int) -> list[str]:
        tag = re.search(r"{.*?}", self.link.names[partition].prefix)
        found: list[str] = []
        cursor = 0
        while True:
            cursor, keys = await self.command("SCAN", cursor, "COUNT", 1000, partition=partition)
            found += [key.decode() for key in keys]
            if not int(cursor):
                return [key for key in found if tag is None or tag.group() in key]


async def opened(options: RedisSettings = PLAIN) -> Place:
    clock = TestClock()
    return Place(await open_redis(POOL.standalone("valkey").url, options, clock), clock)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    scene = await opened()
    yield scene
    await scene.stores.close()


async def work_of_every_kind(scene: Place) -> None:
    """Tasks that run, wait, fail, come back, and are listened to."""
    await scene.command("XGROUP", "CREATE", scene.link.names[0].results, "readers", "0", "MKSTREAM")
    first = await scene.start(idempotency_key="k", result_ttl_ms=60_000)
    await scene.add(parent_id=first.id, priority=0, team="payments", ticket_ref="OPS-7")
    await scene.add(author_id="ann", tags=("urgent",), resources=("db:main",), run_after=scene.clock.now() + 60_000)
    await scene.run()
    await scene.succeed(first, '"done"')
    lost = await scene.start()
    await scene.add(depends_on=(lost.id,))
    await scene.fail_for_good(lost)
    await scene.release(await scene.start())
    [again] = await scene.claim()
    await scene.add(run_after=scene.clock.now() + 60_000)
    await scene.add(deadline=scene.clock.now() + 60_000)
    await scene.add(needs=("gpu",), priority=9)
    await scene.script("hand_in", id=again.id, run_id=again.run_id, outcome='{"result": 1}')
    await scene.release(await scene.start(priority=0))


async def limits_and_settings(scene: Place) -> None:
    await scene.define("build", concurrency=2, concurrency_per_key=1, rate_count=10, rate_period_ms=1000)
    await scene.add("build", concurrency_key="one")
    await scene.add("build", concurrency_key="one")
    await scene.add("build", concurrency_key="one", needs=("gpu", "net"))
    await scene.claim(2, names={"build"}, can={"gpu", "net"})
    await scene.stores.queues.configure(Queue(name="slow", paused=True))
    later = Schedule(name="nightly", cron="0 3 * * *", task_name="send", next_at=scene.clock.now())
    await scene.stores.schedules.put(later)
    await scene.stores.sweeps.take_duty("settle", "me", 1000)


async def ledgers(scene: Place) -> None:
    await scene.add("report")
    [running] = await scene.claim(names={"report"})
    line = OutputLine(task_id=running.id, run_id=str(running.run_id), attempt=1, at=scene.clock.now(), text="hello")
    await scene.stores.outputs.append([line])
    await scene.stores.effects.begin("mail", running.id, str(running.run_id))
    await scene.stores.effects.finish("mail", str(running.run_id), raw("1"))
    await scene.stores.effects.forget("other")
    await scene.stores.blobs.put_blob(f"{running.id}.result", b"large")
    await scene.stores.events.advance("reader", 1)


async def locks(scene: Place) -> None:
    limits = LockLimits(acquires=10, acquires_per_ms=1_000)
    for holder in ("first", "second", "third"):
        wanted = [("db:main", LockMode.EXCLUSIVE)]
        request = validate_request(id=holder, owner=holder, scope=holder, wanted=wanted, unattended=holder == "second")
        await scene.stores.locks.acquire(request, wait_ms=None, limits=limits)
    await scene.stores.locks.release("default", ["first"])


async def agents(scene: Place) -> None:
    await scene.stores.agents.register(Agent(id="ada", max_tasks=2))
    await scene.stores.agents.take("ada", ["run-1"], lease_ms=30_000)


async def documents(scene: Place) -> None:
    session = DocumentWrite(kind="session", id="s1", body=raw("{}"), seen=None, expires_at=scene.clock.now() + 60_000)
    gone = DocumentWrite(kind="user", id="ada", seen=None)
    await scene.stores.documents.write([session, structs.replace(gone, body=raw("{}")), gone])
    await scene.stores.documents.take_rate("login:ada", 3, 60_000)


async def inboxes(scene: Place) -> None:
    coder = DurableInbox(scene.stores, "conv:1")
    await coder.enqueue(NewItem(kind=ItemKind.MESSAGE, content="hi"), consumer="agent:coder")
    await coder.take(lease_id="l1", holder="w", lease_ms=30_000)
    await DurableInbox(scene.stores, "conv:2").bind("agent:coder")


async def damage(scene: Place) -> None:
    unreadable = await scene.add("report", priority=0)
    prefix = scene.link.names[0].prefix
    await scene.command("HSET", f"{prefix}task:{unreadable.id}", "detail", "{")
    assert await scene.claim(names={"report"}) == []
    vanished = await scene.add("report", priority=0)
    await scene.command("DEL", f"{prefix}task:{vanished.id}")
    await scene.command("SET", f"{prefix}queue:broken", "of a wrong type")
    assert isinstance(scene.stores.maintenance, RedisMaintenance)
    await scene.stores.maintenance.reconcile()


async def a_recount_on_its_way(scene: Place) -> None:
    await scene.add_many(2)
    assert (await scene.script("rebuild_counters", token=new_token(), after=0, limit=1, repair=False))[0] == b"going"


STORIES: list[Callable[[Place], Coroutine[Any, Any, None]]] = [
    damage,
    work_of_every_kind,
    limits_and_settings,
    ledgers,
    locks,
    agents,
    documents,
    inboxes,
    a_recount_on_its_way,
]


async def keys_of_strong_durability() -> set[str]:
    scene = await opened(RedisSettings(allow_volatile=True, durability="strong", confirm_timeout_s=0.01))
    with pytest.raises(NotConfirmed):
        await scene.add()
    seen = await scene.patterns()
    await scene.stores.close()
    return seen


class DumbLink(RedisClient):
    """Cannot tell other partitions anything, as after a crash at that point."""

    async def run(self, name: str, partition: int, request: dict[str, Any], **options: Any) -> Any:
        if name == "receive_messages":
            raise StoreUnavailable("nobody hears it")
        return await super().run(name, partition, request, **options)


async def keys_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    clock = TestClock()
    monkeypatch.setattr("ade.stores.redis.store.RedisClient", DumbLink)
    options = RedisSettings(allow_volatile=True, partitions=4)
    scene = Place(await open_redis(POOL.cluster("valkey").url, options, clock), clock)
    queues: dict[int, str] = {}
    assert isinstance(scene.stores.tasks, RedisTasks)
    for number in range(100):
        queues.setdefault(scene.stores.tasks._places.of_queue(f"q{number}"), f"q{number}")
    first = await scene.add(queue=queues[0])
    with pytest.raises(StoreUnavailable):
        await scene.add(queue=queues[1], depends_on=(first.id,))
    await scene.run()
    seen = await scene.patterns()
    await scene.stores.close()
    return seen


async def test_every_key_is_in_one_row_of_the_table_and_every_row_is_used(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    for story in STORIES:
        await story(place)
        seen |= await place.patterns()
    seen |= await keys_of_strong_durability()
    seen |= await keys_of_a_cluster(monkeypatch)

    assert sorted({family.pattern for family in KEYS} - seen) == []


async def test_keys_with_names_of_their_own_are_in_the_table_too() -> None:
    own = RedisSettings(
        allow_volatile=True,
        task_stream="stream:task",
        result_stream="stream:result",
        dlq_stream="stream:dlq",
        group="cg:workers",
    )
    scene = await opened(own)
    await work_of_every_kind(scene)

    assert {"queue:tasks:<queue>:<priority>", "queue:results", "queue:dlq"} <= await scene.patterns()
    assert families_of("somebody:elses", names_of(own, None)) == []
    await scene.stores.close()


NAMES = re.compile(r"^\| `redis\.(\w+) = \"([^\"]+)\"` \| `([^`]+)`", re.MULTILINE)


def documented_names() -> dict[str, tuple[str, str]]:
    """Setting -> its value in the example of the reference page, and the name that the page says this makes."""
    page = (ROOT / "docs" / "reference" / "store-redis.md").read_text()
    return {setting: (value, name) for setting, value, name in NAMES.findall(page)}


@pytest.mark.parametrize("kind", ["server", "cluster"])
async def test_streams_and_groups_have_the_names_that_the_reference_page_gives(kind: str) -> None:
    named = documented_names()
    assert set(named) == {"task_stream", "result_stream", "dlq_stream", "group"}
    own = structs.replace(PLAIN, partitions=1, **{setting: value for setting, (value, _) in named.items()})
    url = POOL.standalone("valkey").url if kind == "server" else POOL.cluster("valkey").url
    clock = TestClock()
    scene = Place(await open_redis(url, own, clock), clock)
    await work_of_every_kind(scene)

    tag = "" if kind == "server" else "{p0}:"
    patterns = {name for setting, (_, name) in named.items() if setting != "group"}
    keys = [key for key in await scene._keys(0) if not key.startswith("ade:")]
    found = {_pattern_of(key, tag, patterns) for key in keys}
    assert found == patterns, keys
    for key in keys:
        if key.startswith(f"{tag}stream:task:"):
            [group] = await scene.command("XINFO", "GROUPS", key)
            assert named["group"][1].encode() in group, "the group of the workers"
    await scene.stores.close()


def _pattern_of(key: str, tag: str, patterns: set[str]) -> str:
    """The documented name that a key has."""
    [pattern] = [each for each in patterns if re.fullmatch(re.escape(tag) + re.sub(r"<\w+>", r"[^:]+", each), key)]
    return pattern


def test_scripts_and_modules_name_no_key_that_is_not_in_the_table() -> None:
    whole = {family.pattern for family in KEYS} | {"void"}  # a key that never exists, by design
    begun = {family.fixed for family in KEYS if "<" in family.pattern} | {"task:index:"}  # of a label
    texts = {path.name: path.read_text() for path in LUA.rglob("*.lua")}
    named = [(file, key) for file, text in texts.items() for key in re.findall(r"\bP \.\. '([^']*)'", text)]
    modules = {path.name: path.read_text() for path in (SOURCE / "stores" / "redis").glob("*.py")}
    named += [(file, key) for file, text in modules.items() for key in re.findall(r'prefix\}([\w:]+)(?=["{])', text)]
    channels = {("wakeups.py", "hints"), ("wakeups.py", "hints:rules")}

    assert len(named) > 200
    assert [each for each in named if each[1] not in whole | begun and each not in channels] == []


def test_the_state_lies_where_the_scripts_look_for_it() -> None:
    places = state_places()

    assert sorted(places) == list(range(1, TICKET + 1)), "the last four only for tasks that have them"
    assert tuple(range(LENGTH + 1, LENGTH + 5)) == (NEEDS, APPROVED, TEAM, TICKET)
    assert [field for field, number in STATE_FIELDS.items() if places[number].name not in field.upper()] == []


def test_a_partition_knows_only_its_own_keys() -> None:
    names, token = names_of(PLAIN, 3), os.urandom(4).hex()

    assert [family.pattern for family in families_of(f"{names.prefix}said:{token}", names)] == ["said:<token>"]
    assert families_of(f"ade:said:{token}", names) == []
