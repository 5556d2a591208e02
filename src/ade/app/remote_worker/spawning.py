"""Children that a run enqueues, as the server is asked for them."""

from datetime import UTC, datetime
from typing import Any, cast

from ade.core.approvals.records import StartMode
from ade.core.records import Task
from ade.core.web.forms.tasks import BatchTask


def form_of(task: Task) -> BatchTask:
    """What a record says beyond what is usual. The server makes a record of its own of it, with another id."""
    review = task.review
    return BatchTask(
        trace=task.trace,
        name=task.name,
        args=task.arguments(),
        queue=task.queue,
        priority=task.priority,
        run_at=_moment(task.run_after if task.run_after > task.created_at else None),
        deadline=_moment(task.deadline),
        key=task.idempotency_key,
        after=list(task.depends_on) or None,
        after_failure=task.after_failure,
        tags=list(task.tags) or None,
        description=task.description,
        max_attempts=task.max_attempts,
        timeout=_seconds(task.timeout_ms),
        backoff=task.backoff,
        result_ttl=_seconds(task.result_ttl_ms),
        concurrency_key=task.concurrency_key,
        locks=list(task.locks) or None,
        needs=list(task.needs) or None,
        parent=task.parent_id,
        team=task.team,
        ticket=task.ticket_ref,
        resources=list(task.resources) or None,
        rollback=cast(Any, task.rollback),
        approval=None if review is None else list(review.policies) or None,
        start=None if review is None or review.start is StartMode.AT_ONCE else "by_hand",
        not_before=None if review is None else _moment(review.not_before),
        not_after=None if review is None else _moment(review.not_after),
    )


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
