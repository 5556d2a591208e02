"""Each invariant notices when somebody has meddled with the file."""

from pathlib import Path

import apsw
import pytest

from ade.stores.sql_files import SqlFile
from ade.stores.sqlite.maintenance import INVARIANTS
from tests.conformance.scene import Scene

MEDDLING = {
    "attempts_within_bounds": "UPDATE task SET attempt = 4 WHERE status = 'running'",
    "counters_match_records": "UPDATE tally SET count = count + 1 WHERE status = 'completed'",
    "every_document_is_whole": "INSERT INTO document VALUES ('user', 'ada', 1, NULL, '{')",
    "every_inbox_is_whole": "INSERT INTO inbox_item VALUES ('c', 1, '{}')",
    "every_label_has_its_task": "INSERT INTO task_label VALUES ('team:nobody', 99)",
    "every_record_is_whole": "DELETE FROM task_detail WHERE seq = 1",
    "every_unit_has_its_agent": "INSERT INTO agent_lease VALUES ('nobody', 'a run', 1)",
    "final_tasks_have_an_end": "UPDATE task SET finished_at = NULL WHERE status = 'completed'",
    "dependencies_can_complete": "UPDATE dependency SET broken = 1",
    "one_final_event": "INSERT INTO event (type, at, task_seq, task_id, payload) SELECT type, at, task_seq, task_id,"
    " payload FROM event WHERE type = 'task.succeeded'",
    "one_lease_per_run": "UPDATE task SET run_id = 'same' WHERE status = 'running'",
    "ready_tasks_can_start": "UPDATE task SET stage = 'ready' WHERE stage = 'blocked'",
    "statuses_are_known": "UPDATE task SET stage = 'odd' WHERE status = 'pending'",
    "status_matches_log": "DELETE FROM event WHERE type = 'task.succeeded'",
    "waiting_counts_match_edges": "DELETE FROM dependency",
}


@pytest.mark.parametrize("invariant", MEDDLING)
async def test_what_does_not_fit_is_noticed(scene: Scene, path: Path, invariant: str) -> None:
    await scene.succeed(await scene.start())
    running = [await scene.start(), await scene.start()]
    await scene.add(depends_on=(running[0].id,))
    assert await scene.stores.maintenance.check_invariants() == []

    meddler = apsw.Connection(str(path))
    meddler.execute(MEDDLING[invariant])
    meddler.close()

    broken = await scene.stores.maintenance.check_invariants()
    assert invariant in {sentence.partition(":")[0] for sentence in broken}


def test_every_invariant_is_tried() -> None:
    assert set(SqlFile(INVARIANTS)) == set(MEDDLING)
