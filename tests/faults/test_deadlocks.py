"""Processes that wait for each other in a ring: it is opened in time, one of them gives way, and all get through."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from ade import Ade, Status
from tests.domain import LockQuery
from tests.faults.deadlock_program import SETTINGS, Part
from tests.faults.programs import Program, Stage, stage
from tests.faults.waits_program import app_on
from tests.servers.pool import POOL
from tests.waiting import eventually

pytestmark = pytest.mark.faults

FOUND_WITHIN_S = 30.0  # one that is not found is not opened at all
PLACES: Mapping[str, Callable[[Path], str]] = {
    "file": lambda folder: f"sqlite:///{folder / 'ade.db'}",
    "server": lambda _: POOL.standalone("valkey").url,
}


def ring_of(size: int) -> list[Part]:
    """Everybody holds one thing and wants the next one's."""
    return [
        Part(name=f"agent-{number}", holds=[[f"thing:{number}"]], wants=[f"thing:{(number + 1) % size}"])
        for number in range(size)
    ]


def nested_ring() -> list[Part]:
    """Everybody holds three things in two blocks, and wants one of the next one's inner block and one that is free."""
    return [
        Part(
            name=f"agent-{number}",
            holds=[[f"outer:{number}", f"twin:{number}"], [f"inner:{number}"]],
            wants=[f"free:{number}", f"inner:{(number + 1) % 3}"],
        )
        for number in range(3)
    ]


def upgrade_against_many() -> list[Part]:
    """A reader that wants to write waits for the other reader, who wants what the first one holds besides."""
    return [
        Part(name="upgrader", holds=[["read db:main", "repo:app"]], upgrades="db:main"),
        Part(name="other", holds=[["read db:main"]], wants=["repo:app", "repo:docs"]),
    ]


RINGS: Mapping[str, Callable[[], list[Part]]] = {
    "two agents": lambda: ring_of(2),
    "three agents": lambda: ring_of(3),
    "five agents": lambda: ring_of(5),
    "several things in nested blocks": nested_ring,
    "an upgrade against several things": upgrade_against_many,
}
UPGRADERS = [Part(name=f"reader-{number}", holds=[["read db:main"]], upgrades="db:main") for number in range(2)]

# The last one could read beside the other reader; it waits only because a writer stands before it.
OUT_OF_ORDER = [
    Part(name="writer", holds=[["tool:pen"]], wants=["db:main"]),
    Part(name="reader", holds=[["read db:main"]], wants=["repo:app"]),
    Part(name="last", holds=[["repo:app"]], wants=["read db:main"]),
]


@dataclass(frozen=True, slots=True)
class Course:
    """What happened to one agent, and when."""

    events: Sequence[tuple[str, float]]

    @classmethod
    def of(cls, program: Program) -> "Course":
        lines = [line.split() for line in program.log().splitlines()]
        return cls([(words[0], float(words[1])) for words in lines if len(words) == 2])

    def words(self) -> list[str]:
        return [word for word, _ in self.events]

    def moment(self, word: str) -> float:
        return next(moment for each, moment in self.events if each == word)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


async def played(programs: Stage, url: str, parts: Sequence[Part], *, in_order: bool = False) -> list[Course]:
    """Close the ring once everybody holds its part, at once or one after the other, and let all of them end."""
    gates = programs.folder / "gates"
    gates.mkdir()
    agents = [
        programs.start(
            part.name,
            "tests.faults.deadlock_program",
            msgspec.json.encode(msgspec.structs.replace(part, url=url, gates=str(gates))).decode(),
        )
        for part in parts
    ]
    for agent in agents:
        await agent.until_it_says("holds")
    for number, part in enumerate(parts, start=1):
        (gates / part.name).touch()
        if in_order and number < len(parts):
            await until_so_many_wait(url, number)
    for agent in agents:
        await agent.until_it_says("done")
    assert [await agent.exit_code() for agent in agents] == [0] * len(agents)
    return [Course.of(agent) for agent in agents]


async def until_so_many_wait(url: str, count: int) -> None:
    async with Ade(url, settings=SETTINGS) as app:
        store = (await app.open()).stores.locks
        assert store is not None

        async def is_so() -> bool:
            return sum(one.is_waiting for one in await store.find(LockQuery(namespace="default"))) == count

        await eventually(is_so)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ring", RINGS)
async def test_a_ring_of_processes_is_opened_in_time_and_one_gives_way(programs: Stage, ring: str, place: str) -> None:
    courses = await played(programs, PLACES[place](programs.folder), RINGS[ring]())

    closed_at = max(course.moment("asks") for course in courses)
    victims = [course for course in courses if "deadlock_victim" in course.words()]
    others = [course for course in courses if course not in victims]
    assert len(victims) == 1
    assert victims[0].moment("deadlock_victim") - closed_at < FOUND_WITHIN_S
    assert victims[0].words() == ["holds", "asks", "deadlock_victim", "through", "done"], "it gets through on its retry"
    assert [course.words() for course in others] == [["holds", "asks", "through", "done"]] * len(others)
    first_through = min(course.moment("through") for course in others)
    assert first_through - closed_at < FOUND_WITHIN_S


@pytest.mark.parametrize("place", PLACES)
async def test_where_the_order_of_a_line_is_all_that_is_wrong_nobody_gives_way(programs: Stage, place: str) -> None:
    courses = await played(programs, PLACES[place](programs.folder), OUT_OF_ORDER, in_order=True)

    assert [course.words() for course in courses] == [["holds", "asks", "through", "done"]] * 3
    closed_at = max(course.moment("asks") for course in courses)
    assert min(course.moment("through") for course in courses) - closed_at < FOUND_WITHIN_S


@pytest.mark.parametrize("place", PLACES)
async def test_of_two_readers_that_both_want_to_write_the_second_hears_at_once(programs: Stage, place: str) -> None:
    courses = await played(programs, PLACES[place](programs.folder), UPGRADERS)

    refused, through = sorted(courses, key=lambda course: "upgrade_deadlock" not in course.words())
    assert refused.words() == ["holds", "asks", "upgrade_deadlock", "through", "done"]
    assert through.words() == ["holds", "asks", "through", "done"]
    assert "deadlock_victim" not in refused.words(), "nobody has to look for a ring first"
    assert through.moment("through") < refused.moment("through")


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["parent", "mixed"])
async def test_a_run_that_waits_for_a_task_that_waits_for_it_gives_way_within_seven_seconds(
    programs: Stage, name: str, place: str
) -> None:
    """Two workers in processes of their own; the clock is that of the machine."""
    url = PLACES[place](programs.folder)
    workers = [programs.start(f"worker-{number}", "tests.faults.waits_program", url) for number in range(2)]
    for worker in workers:
        await worker.until_it_says("ready")
    app = app_on(url)
    async with app:
        handle = await app.enqueue(name, {"lock": f"thing:{name}"})
        ended = await handle.wait(90)
        events = await (await app.open()).stores.events.read(0, 10_000)

    assert ended.status is Status.COMPLETED
    [found] = [event for event in events if event.type == "lock.deadlock"]
    closed_at = max(event.at for event in events if event.type == "task.claimed" and event.seq < found.seq)
    assert found.at - closed_at < 7_000
    assert sum(worker.log().count("lock.deadlock") for worker in workers) == 1, "one line"
