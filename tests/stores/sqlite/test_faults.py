"""Real trouble with the disk under the store: full, failing, read-only. Each in a process of its own."""

import json
from pathlib import Path

import pytest

from ade.testing import TestClock
from tests.domain import TaskQuery
from tests.stores.sqlite.conftest import OpenStore
from tests.stores.sqlite.processes import answer_of, command, on_small_disk, with_failing_syncs

pytestmark = pytest.mark.faults


def test_a_full_disk_refuses_new_work_and_lets_running_work_finish(tmp_path: Path) -> None:
    story = json.loads(answer_of(on_small_disk(tmp_path, "90m", command("fill_disk", tmp_path))))

    assert "disk" in story["near_the_end"]
    assert story["full"]
    assert story["ballast_before"]
    assert story["finished"] == [None] * 5
    assert story["renewed"] == {}
    assert not story["ballast_after"]
    assert story["still_refused"]
    assert story["accepted_again"]
    assert story["ballast_back"]
    assert story["counts"]["completed"] == 6
    assert story["broken"] == []
    assert story["check"] == "ok"


def test_a_worker_that_starts_on_a_full_disk_can_finish_what_is_under_way(tmp_path: Path) -> None:
    said = answer_of(on_small_disk(tmp_path, "10m", command("start_on_full_disk", tmp_path))).split()

    assert said == ["completed", "disk_full"]


def test_a_read_only_file_system_is_a_clear_error(tmp_path: Path) -> None:
    said = answer_of(on_small_disk(tmp_path, "8m", command("read_only", tmp_path))).split()

    assert said == ["store_read_only", "store_read_only", "pending"]


async def stored_ids(open_store: OpenStore, clock: TestClock) -> set[str]:
    stores = await open_store(clock)
    assert await stores.maintenance.check_invariants() == []
    return {task.id for task in (await stores.tasks.find(TaskQuery(limit=1000))).tasks}


@pytest.mark.parametrize("when", ["2+2", "4+3", "5+7"])
async def test_a_sync_that_fails_now_and_then_loses_and_doubles_nothing(
    open_store: OpenStore, path: Path, clock: TestClock, when: str
) -> None:
    await (await open_store(clock)).close()

    story = json.loads(answer_of(with_failing_syncs(when, command("failing_disk", path, 30))))

    assert (len(story["accepted"]), story["met"], story["broken"]) == (30, [], [])
    assert await stored_ids(open_store, clock) == set(story["accepted"])


@pytest.mark.parametrize("when", ["2+2", "4+3", "5+7"])
async def test_a_document_whose_sync_failed_is_written_once(open_store: OpenStore, path: Path, when: str) -> None:
    await (await open_store()).close()

    story = json.loads(answer_of(with_failing_syncs(when, command("failing_documents", path, 30))))

    assert (story["met"], story["version"]) == ([], 30)
    assert story["events"] == [f"user.changed_{seen}" for seen in range(30)]


async def test_a_disk_that_only_fails_is_never_said_to_have_kept_anything(
    open_store: OpenStore, path: Path, clock: TestClock
) -> None:
    """What a failed sync left in the system's cache can be read, but may be gone after a power cut."""
    await (await open_store(clock)).close()

    story = json.loads(answer_of(with_failing_syncs("6+", command("failing_disk", path, 12))))

    assert 0 < len(story["accepted"]) <= 4
    assert "the outcome is unknown" in story["met"][0]
    assert "input/output errors in a row; not written" in story["met"][-1]
    stored = await stored_ids(open_store, clock)
    assert set(story["accepted"]) <= stored <= {*story["accepted"], *story["refused"]}
