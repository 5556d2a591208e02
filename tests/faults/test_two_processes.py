"""Several processes on one database file, all busy at once: nobody hears that it is locked, and nothing is lost."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ade import Ade
from tests.faults.load_program import make_app
from tests.faults.programs import Program, Stage, stage
from tests.waiting import eventually

pytestmark = [pytest.mark.faults]

SECONDS = 4.0
# What a program says when the store has let it down, even if it could help itself.
COMPLAINTS = ("locked", "Traceback", "unavailable", "too long", "repeated", "not_renewed", "failed", "overdue")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def complaints(program: Program) -> list[str]:
    return [line for line in program.log().splitlines() if any(word in line for word in COMPLAINTS)]


async def statuses(ade: Ade) -> dict[str, int]:
    tallies = await (await ade.open()).stores.queues.tallies()
    return {tally.status: tally.count for tally in tallies if tally.count}


@pytest.mark.parametrize(("producers", "workers"), [(1, 1), (2, 2)])
async def test_no_process_hears_of_a_locked_database_and_nothing_is_lost(
    programs: Stage, producers: int, workers: int
) -> None:
    """All of them open the new file at the same moment, so they also meet while it is made."""
    url = f"sqlite:///{programs.folder / 'ade.db'}"
    program = "tests.faults.load_program"
    working = [programs.start(f"worker-{number}", program, "work", url) for number in range(workers)]
    producing = [
        programs.start(f"producer-{number}", program, "produce", url, str(SECONDS)) for number in range(producers)
    ]
    assert [await producer.exit_code() for producer in producing] == [0] * producers, [
        producer.log() for producer in producing
    ]
    acknowledged = sum(int(producer.log().split()[-1]) for producer in producing)

    async with make_app(url)[0] as ade:

        async def all_done() -> bool:
            return await statuses(ade) == {"completed": acknowledged}

        await eventually(all_done)
        for worker in working:
            worker.send(signal.SIGTERM)
        assert [await worker.exit_code() for worker in working] == [0] * workers
        stores = (await ade.open()).stores
        assert await stores.maintenance.check_invariants() == []
        assert (await stores.maintenance.health()).facts["quick_check"] == "ok"

    assert [line for started in (*working, *producing) for line in complaints(started)] == []
    assert acknowledged > 100 * producers
