"""The power goes, at any moment. What was acknowledged is there afterwards, whole, and nothing is damaged.

`ADE_POWERCUT_FULL=1` makes a longer recording and cuts at every single moment of it.
"""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from operator import is_
from pathlib import Path
from random import Random

import pytest

from ade import Task
from tests.depth import IS_DEEP
from tests.domain import ClaimRequest, Succeeded, admit, open_stores, settle
from tests.faults.powercut.acknowledgement import Acknowledgement
from tests.faults.powercut.cuts import Cutter, Fault, Report, choose_cuts, files_after
from tests.faults.powercut.disk import as_the_program_left_it
from tests.faults.powercut.losses import LOSSES
from tests.faults.powercut.recording import Recording, Sync, Truncate, Write, read_recording
from tests.faults.powercut.recovery import Recovery
from tests.faults.powercut.system_calls import trace, why_not
from tests.faults.powercut.workload import NAME

pytestmark = pytest.mark.faults

FULL = os.environ.get("ADE_POWERCUT_FULL") == "1"
ROUNDS = (18, 26, 10) if FULL else (8, 13, 5)
MOST_CUTS = sys.maxsize if FULL else 1500
FEW_CUTS = 200  # of these, in `make test`
SHORT = (6, 3, 3)
SEED = 20251115
DATABASE = "ade/queue.db"  # in a folder that the store has to make
REPOSITORY = Path(__file__).parents[2]
WAL_HEADER = 32


@pytest.fixture(scope="module", autouse=True)
def tracing() -> None:
    """Where nothing can be traced there is nothing to replay. Our own builds must be able to."""
    reason = why_not()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder in memory if there is one: what is laid out there is opened thousands of times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def record(folder: Path, *, synchronous: str, rounds: Sequence[int], keep_trace: bool = False) -> Recording:
    """Run the workload on `folder`/disk and read what it did."""
    disk, marker, calls = folder / "disk", folder / "marker", folder / "trace"
    disk.mkdir()
    program = [sys.executable, "-m", "tests.faults.powercut.workload", str(disk / DATABASE), str(marker)]
    options = ["--synchronous", synchronous, "--rounds", *map(str, rounds), "--seed", str(SEED)]
    trace([*program, *options], calls, folder=REPOSITORY, environment=os.environ)
    recording = read_recording(calls, root=disk, marker=marker)
    if not keep_trace:
        calls.unlink()
    return recording


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("power").resolve() / "disk"


@pytest.fixture(scope="module")
def recording(tracing: None, disk: Path, request: pytest.FixtureRequest) -> Iterator[Recording]:
    """The store as it is set up by default, under all kinds of work."""
    yield record(disk.parent, synchronous="full", rounds=ROUNDS, keep_trace=True)
    if not request.session.testsfailed:
        (disk.parent / "trace").unlink()  # large, and of use only to look into a failure


def cut_power(recording: Recording, scratch: Path, *, cuts: int | None = None) -> Report:
    """Cut at all the moments that were chosen, or only at some of them."""
    chosen = choose_cuts(recording, at_most=MOST_CUTS, seed=SEED)
    if cuts is not None:
        chosen = set(Random(SEED).sample(sorted(chosen), cuts))
    report = Cutter(recording, scratch, DATABASE, seed=SEED).run(chosen)
    print(f"{len(recording.events)} events: {report}")
    return report


def wal_headers(recording: Recording) -> Counter[int]:
    """How often each log began, by its node."""
    return Counter(
        event.node
        for event in recording.events
        if isinstance(event, Write) and event.offset == 0 and len(event.content) == WAL_HEADER
    )


def first_lines(report: Report) -> str:
    return "\n".join([f"{report}; seed {SEED}", *map(str, report.findings[:10])])


def test_the_recording_misses_nothing(recording: Recording, disk: Path) -> None:
    """Replayed to its end it gives the very files that the program left, log and payloads included."""
    replayed = as_the_program_left_it(recording)

    assert {path for path in replayed if not path.startswith(f"{DATABASE}.blobs/")} == {DATABASE, f"{DATABASE}-wal"}
    assert [path for path, content in replayed.items() if (disk / path).read_bytes() != content] == []
    found = {path.name for path in (disk / f"{DATABASE}.blobs").rglob("*") if path.is_file()}
    assert found == {Path(path).name for path in replayed} - {Path(DATABASE).name, f"{Path(DATABASE).name}-wal"}


def test_the_recording_holds_what_makes_a_cut_dangerous(recording: Recording) -> None:
    """Logs that began anew over old frames, logs that were cut, and every kind of write."""
    calls = Counter(event.call for event in recording.events if isinstance(event, Acknowledgement))

    assert max(wal_headers(recording).values()) >= 3
    assert any(isinstance(event, Truncate) and event.size == 0 for event in recording.events)
    assert {"add one", "add batch", "add large", "claim", "finish", "cancel", "operate", "prune"} <= calls.keys()
    assert calls.total() > 200


@pytest.mark.deep
def test_nothing_acknowledged_is_lost_and_nothing_is_damaged(recording: Recording, scratch: Path) -> None:
    report = cut_power(recording, scratch, cuts=None if IS_DEEP else FEW_CUTS)

    assert report.cuts >= (1000 if IS_DEEP else FEW_CUTS)
    assert not report.findings, first_lines(report)


async def test_work_goes_on_after_a_cut(recording: Recording, scratch: Path) -> None:
    """The whole store, opened on what a cut has left, takes in a task and sees it through."""
    randomness = Random(SEED)
    recovery = Recovery(scratch, DATABASE)
    for number in range(12):
        cut, loss = randomness.randrange(len(recording.events)), randomness.choice(list(LOSSES))
        recovery.lay_out(files_after(recording, cut, loss, seed=SEED))

        stores = await open_stores(f"sqlite:///{recovery.place.path}")
        try:
            now = stores.clock.now()
            task = Task(id=f"01890a5d-ac96-774b-bcce-{number:012}", name="after_the_cut", priority=0)
            await stores.tasks.add([admit(task, now=now)])
            request = ClaimRequest(worker_id="new", run_ids=["a" * 32], names=frozenset({"after_the_cut", NAME}))
            [claimed] = await stores.tasks.claim(request)
            await stores.tasks.commit(settle(claimed, Succeeded(claimed.args), now=now, randomness=0.5))

            assert (await stores.maintenance.health()).facts["quick_check"] == "ok"
            assert await stores.maintenance.check_invariants() == [], f"cut {cut}, {loss}"
        finally:
            await stores.close()
    recovery.close()


def test_a_store_that_did_not_sync_the_names_of_its_files_would_be_found_out(
    recording: Recording, scratch: Path
) -> None:
    """The check can fail: the same recording, but of the database's folder no sync counts."""
    _, folder, *_ = sorted(recording.folders)

    report = cut_power(recording.without_syncs(lambda sync: sync.node == folder), scratch, cuts=50)

    assert report.cuts_with(Fault.LOST) > 0


def test_a_store_that_did_not_sync_the_folders_of_payloads_would_be_found_out(
    recording: Recording, scratch: Path
) -> None:
    _, _, *folders = sorted(recording.folders)

    report = cut_power(recording.without_syncs(lambda sync: sync.node in folders), scratch, cuts=50)

    assert {finding.fault for finding in report.findings} == {Fault.BARE}, first_lines(report)


def test_a_store_that_skipped_one_sync_would_be_found_out(recording: Recording, scratch: Path) -> None:
    """The check is sharp: one sync of the log left out before an acknowledgement is a promise broken."""
    yeses = [n for n, event in enumerate(recording.events) if isinstance(event, Acknowledgement) and event.states]
    logs = wal_headers(recording).keys()
    found_out = 0
    for attempt, number in enumerate(Random(SEED).sample(yeses, 20)):
        earlier = recording.events[:number]
        skipped = next(event for event in reversed(earlier) if isinstance(event, Sync) and event.node in logs)
        careless = recording.without_syncs(partial(is_, skipped))
        report = Cutter(careless, scratch / str(attempt), DATABASE, seed=SEED).run({number + 1})
        # A prune that is lost after its blobs were removed leaves a record bare; that is a broken promise too.
        assert {finding.fault for finding in report.findings} <= {Fault.LOST, Fault.BARE}
        found_out += bool(report.findings)

    print(f"{found_out} of 20 skipped syncs were found out")
    assert found_out > 5  # in the others the sync was for a call that was still to be answered


def test_synchronous_normal_may_lose_what_was_acknowledged_but_damages_nothing(tmp_path: Path, scratch: Path) -> None:
    """What the setting promises: work survives a crash of ADE, not a power cut."""
    recording = record(tmp_path.resolve(), synchronous="normal", rounds=SHORT)

    report = cut_power(recording, scratch, cuts=300)

    assert report.cuts_with(Fault.LOST) > report.cuts // 10
    assert {finding.fault for finding in report.findings} <= {Fault.LOST, Fault.BARE}, first_lines(report)
    # A finished task may come back after it was pruned, and then its payloads do not.
    pruned = {task_id for event in recording.acknowledgements() for task_id in event.asked}
    bare = [finding.sentence for finding in report.findings if finding.fault is Fault.BARE]
    assert [sentence for sentence in bare if not any(task_id in sentence for task_id in pruned)] == []


def test_synchronous_off_damages_the_database(tmp_path: Path, scratch: Path) -> None:
    """Why it cannot be chosen; and the proof that damage would be seen."""
    recording = record(tmp_path.resolve(), synchronous="off", rounds=SHORT)

    report = cut_power(recording, scratch, cuts=200)

    assert report.cuts_with(Fault.DAMAGED) > 0
