"""How SQLite carries out the statements that run all the time. Only here, because only here are plans of SQLite.

A queue that scans its tasks is quick in every test and slow in the hands of its users.
"""

import re
from collections.abc import Iterator

import apsw
import pytest

from ade.stores.sqlite.connection import connect, sql
from ade.stores.sqlite.tasks import _CONDITIONS, _LEADING, _statement

BY_ID = "sqlite_autoindex_task_1 (id=?)"
BY_SEQ = "INTEGER PRIMARY KEY (rowid=?)"

HOT = {  # statement: how it finds the tasks it is about
    "claim_lane": "task_ready (queue=? AND name=? AND priority>?)",
    "promote_due": "task_delayed (run_after<?)",
    "claim_running_keys": "task_key_running (name=? AND concurrency_key=?)",
    "claim_take": BY_SEQ,
    "claim_events": BY_SEQ,
    "park": BY_SEQ,
    "claim_asking": "task_asking (queue=? AND name=? AND needs=? AND priority>?)",
    "claim_asking_lanes": "task_asking (queue=? AND name=? AND needs>?)",
    "unpark_next": "task_parked (name=? AND concurrency_key=? AND queue=? AND needs>?)",
    "running_by_run": "task_lease",
    "records_by_seq": BY_SEQ,
    "records_by_id": BY_ID,
    "check_guards": BY_ID,
    "update_task": BY_SEQ,
    "update_detail": BY_SEQ,
    "unblock": BY_SEQ,
    "known_ids": BY_ID,
    "add_outlook": BY_ID,
    "claim_outlook": "task_delayed (run_after<?)",
    "end_runs": BY_ID,
    "any_dependency": "SCAN dependency",
    "known_keys": "task_key (queue=? AND name=? AND idempotency_key=?)",
    "ripe_expired": "task_lease (lease_until<?)",
    "ripe_overdue": "task_deadline (deadline>? AND deadline<?)",
    "ripe_broken": "dependency_broken",
    "any_idle_parked": "task_parked",
    "renew_leases": "task_lease",
    "lost_runs": BY_ID,
    "next_due": "task_delayed",
    "finished_before": "task_finished (finished_at>? AND finished_at<?)",
    "finished_since": "task_finished (finished_at>?)",
    "expire_results": "outcome_expiry (expires_at>? AND expires_at<?)",
    "report_progress": BY_ID,
    "oldest_ready": "task_ready (queue=? AND name=? AND priority=?)",
    "ahead_of": "task_ready (queue=? AND name=? AND priority<?)",
    "running_by_key": "task_key_running (name=? AND concurrency_key=?)",
    "read_task_events": "event_task (task_seq=? AND rowid>?)",
    "read_output": "output_task (task_seq=? AND seq>?)",
    "prune_task": BY_ID,
    "lock_called": "lock_called",
    "lock_expired": "lock_lease (lease_until<?)",
    "lock_standing": "i USING PRIMARY KEY (namespace=? AND resource=? AND granted=?)",
    "lock_of_owner": "r USING INDEX lock_owner (namespace=? AND owner=?)",
    "lock_of_kind": "i USING PRIMARY KEY (namespace=? AND resource>? AND resource<?)",
    "lock_rate_idle": "lock_rate_full (full_at<?)",
    "lock_rate_drop": "lock_rate USING PRIMARY KEY (namespace=? AND owner=?)",
    "document_fetch": "document USING PRIMARY KEY (kind=? AND id=?)",
    "document_list": "document USING PRIMARY KEY (kind=?)",
    "document_ended": "document_end (expires_at<?)",
    "document_end": "document USING PRIMARY KEY (kind=? AND id=?)",
    "document_rate_idle": "document_rate_full (full_at<?)",
    "document_rate_drop": "document_rate USING PRIMARY KEY (key=?)",
    "inbox_get": "sqlite_autoindex_inbox_1 (id=?)",
    "inbox_stands": "sqlite_autoindex_inbox_1 (id=?)",
    "inbox_items": "sqlite_autoindex_inbox_item_1 (inbox_id=?)",
    "inbox_drop_items": "sqlite_autoindex_inbox_item_1 (inbox_id=? AND seq=?)",
    "inbox_ready": "inbox_fed (consumer=? AND since>?)",
    "inbox_list": "sqlite_autoindex_inbox_1 (id>?)",
    "inbox_idle": "inbox_empty (written_at<?)",
    "inbox_forget": "sqlite_autoindex_inbox_1 (id=?)",
}
LEADERS = {
    "all": "INTEGER PRIMARY KEY (rowid<?)",
    "rare": "task_rare (status=? AND seq<?)",
    "running": "task_lease",
    "children": "task_child (parent_id=? AND seq<?)",
}
# Steps that look at every row of a table that grows without bound. An index scan is fine here: the scanned ones are
# partial, so they hold only what runs, waits or is parked now.
FULL_SCAN = re.compile(
    r"SCAN (task|t|event|e|dependency|output|task_detail|task_outcome|me|k|p|lock_request|lock_item|lock_rate|r|i"
    r"|document|document_rate|inbox|inbox_item)$"
)
# Sorting what an index could give in order. Batches of one call may be sorted: they are as long as the call.
SORT = "USE TEMP B-TREE FOR ORDER BY"
SORTS_ITS_BATCH = {"claim_events", "lock_of_owner"}  # an owner has few requests; of all namespaces they are sorted


@pytest.fixture(scope="module")
def connection() -> Iterator[apsw.Connection]:
    opened = connect(None)
    yield opened
    opened.close()


def plan_of(connection: apsw.Connection, statement: str) -> list[str]:
    parameters = dict.fromkeys(re.findall(r":([a-z_]+)", statement))
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    return [str(row[3]) for row in rows]


@pytest.mark.parametrize("name", sorted(HOT))
def test_a_hot_statement_goes_by_its_index(connection: apsw.Connection, name: str) -> None:
    plan = plan_of(connection, sql(name))

    assert any(HOT[name] in step for step in plan), plan
    assert [step for step in plan if FULL_SCAN.match(step)] == []
    assert name in SORTS_ITS_BATCH or SORT not in plan, plan


@pytest.mark.parametrize("leading", sorted(LEADERS))
@pytest.mark.parametrize("oldest_first", [False, True], ids=["newest", "oldest"])
def test_a_list_goes_by_the_index_that_leads_it(connection: apsw.Connection, leading: str, oldest_first: bool) -> None:
    for given in (frozenset[str](), frozenset(_CONDITIONS), *(frozenset({name}) for name in _CONDITIONS)):
        plan = plan_of(connection, _statement(leading, oldest_first, given))

        assert LEADERS[leading].replace("<", ">" if oldest_first else "<") in plan[0], plan
        assert [step for step in plan if FULL_SCAN.match(step)] == []
        assert leading == "running" or SORT not in plan, plan  # few tasks run at once; they may be sorted


def test_every_way_to_list_is_looked_at() -> None:
    assert set(LEADERS) == set(_LEADING)


def test_the_log_is_read_and_trimmed_from_where_it_left_off(connection: apsw.Connection) -> None:
    assert plan_of(connection, sql("read_events")) == ["SEARCH event USING INTEGER PRIMARY KEY (rowid>?)"]
    assert "SEARCH e USING INTEGER PRIMARY KEY (rowid<?)" in plan_of(connection, sql("old_events"))


def test_a_scan_would_be_noticed(connection: apsw.Connection) -> None:
    plan = plan_of(connection, "SELECT * FROM task WHERE worker_id = 'w' ORDER BY created_at")

    assert [step for step in plan if FULL_SCAN.match(step)] == ["SCAN task"]
    assert SORT in plan
