"""How SQLite carries out the statements that run all the time. Only here, because only here are plans of SQLite.

A queue that scans its tasks is quick in every test and slow in the hands of its users.
"""

import re
from collections.abc import Iterator

import apsw
import pytest

from ade.stores.sqlite.connection import connect, sql
from ade.stores.sqlite.task_reader import _CONDITIONS, _LEADING, _statement

BY_ID = "sqlite_autoindex_task_1 (id=?)"
BY_SEQ = "INTEGER PRIMARY KEY (rowid=?)"

HOT = {  # statement: how it finds the tasks it is about
    "claims.lane_head": "task_ready (queue=? AND name=? AND priority>?)",
    "claims.promote_due": "task_delayed (run_after<?)",
    "claims.count_running_keys": "task_key_running (name=? AND concurrency_key=?)",
    "claims.assign": BY_SEQ,
    "claims.insert_events": BY_SEQ,
    "claims.park": BY_SEQ,
    "claims.capability_lane_head": "task_asking (queue=? AND name=? AND needs=? AND priority>?)",
    "claims.capability_lanes": "task_asking (queue=? AND name=? AND needs>?)",
    "claims.unpark_next": "task_parked (name=? AND concurrency_key=? AND queue=? AND needs>?)",
    "claims.find_by_run": "task_lease",
    "tasks.get_by_seq": BY_SEQ,
    "tasks.get_by_id": BY_ID,
    "tasks.check_guards": BY_ID,
    "tasks.update": BY_SEQ,
    "tasks.update_detail": BY_SEQ,
    "dependencies.unblock_tasks": BY_SEQ,
    "tasks.existing_ids": BY_ID,
    "tasks.enqueue_state": BY_ID,
    "claims.state": "task_delayed (run_after<?)",
    "tasks.finish_runs": BY_ID,
    "dependencies.any": "SCAN dependency",
    "tasks.existing_keys": "task_key (queue=? AND name=? AND idempotency_key=?)",
    "claims.due_expired": "task_lease (lease_until<?)",
    "claims.due_overdue": "task_deadline (deadline>? AND deadline<?)",
    "dependencies.due_broken": "dependency_broken",
    "claims.any_idle_parked": "task_parked",
    "claims.renew_leases": "task_lease",
    "claims.list_lost_runs": BY_ID,
    "claims.next_due": "task_delayed",
    "tasks.list_finished_before": "task_finished (finished_at>? AND finished_at<?)",
    "tasks.count_finished_since": "task_finished (finished_at>?)",
    "tasks.expire_results": "outcome_expiry (expires_at>? AND expires_at<?)",
    "tasks.report_progress": BY_ID,
    "queues.oldest_ready": "task_ready (queue=? AND name=? AND priority=?)",
    "queues.count_ahead": "task_ready (queue=? AND name=? AND priority<?)",
    "claims.list_running_by_key": "task_key_running (name=? AND concurrency_key=?)",
    "events.read_task": "event_task (task_seq=? AND rowid>?)",
    "output.read": "output_task (task_seq=? AND seq>?)",
    "tasks.prune": BY_ID,
    "tasks.prune_labels": "task_label USING COVERING INDEX task_label_task (seq=?)",
    "locks.list_granted": "lock_called",
    "locks.list_expired": "lock_lease (lease_until<?)",
    "locks.list_positions": "i USING PRIMARY KEY (namespace=? AND resource=? AND granted=?)",
    "locks.list_by_owner": "r USING INDEX lock_owner (namespace=? AND owner=?)",
    "locks.list_by_kind": "i USING PRIMARY KEY (namespace=? AND resource>? AND resource<?)",
    "locks.list_idle_rates": "lock_rate_full (full_at<?)",
    "locks.delete_rates": "lock_rate USING PRIMARY KEY (namespace=? AND owner=?)",
    "documents.get": "document USING PRIMARY KEY (kind=? AND id=?)",
    "documents.list": "document USING PRIMARY KEY (kind=?)",
    "documents.list_expired": "document_end (expires_at<?)",
    "documents.delete_expired": "document USING PRIMARY KEY (kind=? AND id=?)",
    "documents.list_idle_rates": "document_rate_full (full_at<?)",
    "documents.delete_rates": "document_rate USING PRIMARY KEY (key=?)",
    "inboxes.get": "sqlite_autoindex_inbox_1 (id=?)",
    "inboxes.get_version": "sqlite_autoindex_inbox_1 (id=?)",
    "inboxes.list_items": "sqlite_autoindex_inbox_item_1 (inbox_id=?)",
    "inboxes.delete_items": "sqlite_autoindex_inbox_item_1 (inbox_id=? AND seq=?)",
    "inboxes.list_ready": "inbox_fed (consumer=? AND since>?)",
    "inboxes.list": "sqlite_autoindex_inbox_1 (id>?)",
    "inboxes.list_idle": "inbox_empty (written_at<?)",
    "inboxes.delete_idle": "sqlite_autoindex_inbox_1 (id=?)",
}
LEADERS = {
    "all": "INTEGER PRIMARY KEY (rowid<?)",
    "rare": "task_rare (status=? AND seq<?)",
    "running": "task_lease",
    "children": "task_child (parent_id=? AND seq<?)",
    **dict.fromkeys(
        ("author_id", "resource", "tag", "team", "ticket"), "task_label USING PRIMARY KEY (label=? AND seq<?)"
    ),
}
# Steps that look at every row of a table that grows without bound. An index scan is fine here: the scanned ones are
# partial, so they hold only what runs, waits or is parked now.
FULL_SCAN = re.compile(
    r"SCAN (task|t|event|e|dependency|output|task_detail|task_outcome|task_label|me|k|p|lock_request|lock_item"
    r"|lock_rate|r|i|document|document_rate|inbox|inbox_item)$"
)
# Sorting what an index could give in order. Batches of one call may be sorted: they are as long as the call.
SORT = "USE TEMP B-TREE FOR ORDER BY"
SORTS_ITS_BATCH = {
    "claims.insert_events",
    "locks.list_by_owner",
}  # an owner has few requests; of all namespaces they are sorted


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
    assert plan_of(connection, sql("events.read")) == ["SEARCH event USING INTEGER PRIMARY KEY (rowid>?)"]
    assert "SEARCH e USING INTEGER PRIMARY KEY (rowid<?)" in plan_of(connection, sql("events.list_old"))


def test_a_scan_would_be_noticed(connection: apsw.Connection) -> None:
    plan = plan_of(connection, "SELECT * FROM task WHERE worker_id = 'w' ORDER BY created_at")

    assert [step for step in plan if FULL_SCAN.match(step)] == ["SCAN task"]
    assert SORT in plan
