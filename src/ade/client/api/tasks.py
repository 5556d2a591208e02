"""Calls: `tasks`, `dead letters`, `queues`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.transport import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any, Literal

    from ade.common.calls import Call
    from ade.events.model import Event
    from ade.failures import Backoff
    from ade.locks.model import LockSpec
    from ade.server.pagination import Page, VersionedRecord
    from ade.tasks.api.requests import CreatedTasks, StoredTaskResult, TaskFilter
    from ade.tasks.bulk import BulkPreview, BulkReport
    from ade.tasks.dead_letters import DeadLetterGroup
    from ade.tasks.lifecycle import Status
    from ade.tasks.model import AfterFailure, Definition, OutputLine, Queue, Schedule, Task
    from ade.tasks.options import BatchTask
    from ade.tasks.overview import QueueView
    from ade.tasks.reasons import Explanation


class TasksCalls(Section):
    """Methods of the client: `tasks`, `dead letters`, `queues`."""

    def create_task(
        self, *, name: str, args: Mapping[str, Any] | None = None, draft: bool = False, queue: str | None = None,
        priority: int | str | None = None, delay: float | None = None, run_at: datetime | None = None,
        deadline: float | datetime | None = None, key: str | None = None, after: list[str] | None = None,
        after_failure: AfterFailure | None = None, tags: list[str] | None = None, description: str | None = None,
        max_attempts: int | None = None, timeout: float | None = None, backoff: Backoff | str | None = None,
        result_ttl: float | None = None, concurrency_key: str | None = None, locks: list[str | LockSpec] | None = None,
        needs: list[str] | None = None, parent: str | None = None, run: str | None = None, team: str | None = None,
        ticket: str | None = None, approval: list[str] | None = None, resources: list[str] | None = None,
        rollback: Literal["automatic", "manual", "none"] | None = None,
        start: Literal["at_once", "by_hand"] | None = None, not_before: datetime | None = None,
        not_after: datetime | None = None, trace: str | None = None, allow_unknown: bool = False,
        request_key: str | None = None,
    ) -> Call[Task]:
        """Enqueue a task, or write a draft of one."""
        from ade.tasks.model import Task
        from ade.tasks.options import NewTask

        body = NewTask(
            name=name, args=dict(args or {}), draft=draft, queue=queue, priority=priority, delay=delay, run_at=run_at,
            deadline=deadline, key=key, after=after, after_failure=after_failure, tags=tags, description=description,
            max_attempts=max_attempts, timeout=timeout, backoff=backoff, result_ttl=result_ttl,
            concurrency_key=concurrency_key, locks=locks, needs=needs, parent=parent, run=run, team=team,
            ticket=ticket, approval=approval, resources=resources, rollback=rollback, start=start,
            not_before=not_before, not_after=not_after, trace=trace, allow_unknown=allow_unknown,
        )
        return self._call("create_task", Task, body=body, key=request_key)

    def create_tasks(self, *, tasks: list[BatchTask], request_key: str | None = None) -> Call[CreatedTasks]:
        """Enqueue many tasks, all or none."""
        from ade.tasks.api.requests import CreatedTasks
        from ade.tasks.options import NewTasks

        body = NewTasks(tasks=tasks)
        return self._call("create_tasks", CreatedTasks, body=body, key=request_key)

    def edit_task(
        self, task_id: str, *, args: dict[str, Any] | None = None, description: str | None = None,
        priority: int | str | None = None, tags: list[str] | None = None, resources: list[str] | None = None,
        if_match: int | None, request_key: str | None = None,
    ) -> Call[Task]:
        """Edit a draft."""
        from ade.tasks.api.requests import EditTask
        from ade.tasks.model import Task

        body = EditTask(args=args, description=description, priority=priority, tags=tags, resources=resources)
        return self._call("edit_task", Task, task_id, body=body, if_match=if_match, key=request_key)

    def submit_task(self, task_id: str, *, request_key: str | None = None) -> Call[Task]:
        """Put a draft before people."""
        from ade.server.request_types import Nothing
        from ade.tasks.model import Task

        body = Nothing()
        return self._call("submit_task", Task, task_id, body=body, key=request_key)

    def cancel_task(
        self, task_id: str, *, reason: str | None = None, if_match: int | None = None, request_key: str | None = None,
    ) -> Call[Task]:
        """Stop a task."""
        from ade.tasks.api.requests import Cancel
        from ade.tasks.model import Task

        body = Cancel(reason=reason)
        return self._call("cancel_task", Task, task_id, body=body, if_match=if_match, key=request_key)

    def reschedule_task(
        self, task_id: str, *, priority: int | str | None = None, delay: float | None = None,
        run_at: datetime | None = None, if_match: int | None = None, request_key: str | None = None,
    ) -> Call[Task]:
        """Change the priority or the start time of a pending task."""
        from ade.tasks.api.requests import RescheduleTask
        from ade.tasks.model import Task

        body = RescheduleTask(priority=priority, delay=delay, run_at=run_at)
        return self._call("reschedule_task", Task, task_id, body=body, if_match=if_match, key=request_key)

    def retry_task(
        self, task_id: str, *, args: dict[str, Any] | None = None, if_match: int | None = None,
        request_key: str | None = None,
    ) -> Call[Task]:
        """Run a failed task again."""
        from ade.tasks.api.requests import RetryTask
        from ade.tasks.model import Task

        body = RetryTask(args=args)
        return self._call("retry_task", Task, task_id, body=body, if_match=if_match, key=request_key)

    def apply_task(self, task_id: str, *, if_match: int | None = None, request_key: str | None = None) -> Call[Task]:
        """Start an approved task."""
        from ade.server.request_types import Nothing
        from ade.tasks.model import Task

        body = Nothing()
        return self._call("apply_task", Task, task_id, body=body, if_match=if_match, key=request_key)

    def roll_back_task(self, task_id: str, *, request_key: str | None = None) -> Call[Task]:
        """Undo a completed task."""
        from ade.server.request_types import Nothing
        from ade.tasks.model import Task

        body = Nothing()
        return self._call("roll_back_task", Task, task_id, body=body, key=request_key)

    def list_tasks(
        self, *, status: Sequence[Status] = (), queue: str | None = None, name: str | None = None,
        tag: str | None = None, resource: str | None = None, parent: str | None = None, author: str | None = None,
        team: str | None = None, ticket: str | None = None, worker: str | None = None, text: str | None = None,
        created_from: datetime | None = None, created_before: datetime | None = None, discarded: bool | None = None,
        order: Literal["newest", "oldest"] = "newest", cursor: str | None = None, limit: int = 50,
        ids: Sequence[str] = (), count: bool = False,
    ) -> Call[Page[Task]]:
        """List tasks by a filter, page by page."""
        from ade.server.pagination import Page
        from ade.tasks.api.requests import ListTasks
        from ade.tasks.model import Task

        query = ListTasks(
            status=list(status), queue=queue, name=name, tag=tag, resource=resource, parent=parent, author=author,
            team=team, ticket=ticket, worker=worker, text=text, created_from=created_from,
            created_before=created_before, discarded=discarded, order=order, cursor=cursor, limit=limit, ids=list(ids),
            count=count,
        )
        return self._call("list_tasks", Page[Task], query=query)

    def get_task(
        self, task_id: str, *, wait: int | None = None, whole: bool = False, run: str | None = None,
        run_task: str | None = None,
    ) -> Call[Task]:
        """One task; with ?wait= as soon as it is final."""
        from ade.tasks.api.requests import GetTask
        from ade.tasks.model import Task

        query = GetTask(wait=wait, whole=whole, run=run, run_task=run_task)
        return self._call("get_task", Task, task_id, query=query)

    def get_task_result(self, task_id: str) -> Call[StoredTaskResult]:
        """The whole result, also a large one."""
        from ade.tasks.api.requests import StoredTaskResult

        return self._call("get_task_result", StoredTaskResult, task_id)

    def get_task_output(
        self, task_id: str, *, after: int = 0, cursor: str | None = None, limit: int = 200,
    ) -> Call[Page[OutputLine]]:
        """The lines it has written, at once or as a stream."""
        from ade.server.pagination import Page
        from ade.tasks.api.requests import ListLines
        from ade.tasks.model import OutputLine

        query = ListLines(after=after, cursor=cursor, limit=limit)
        return self._call("get_task_output", Page[OutputLine], task_id, query=query)

    def list_task_events(
        self, task_id: str, *, after: int = 0, cursor: str | None = None, limit: int = 200,
    ) -> Call[Page[Event]]:
        """What has happened to it."""
        from ade.events.model import Event
        from ade.server.pagination import Page
        from ade.tasks.api.requests import ListLines

        query = ListLines(after=after, cursor=cursor, limit=limit)
        return self._call("list_task_events", Page[Event], task_id, query=query)

    def explain_task(self, task_id: str) -> Call[Explanation]:
        """Why it is not running."""
        from ade.tasks.reasons import Explanation

        return self._call("explain_task", Explanation, task_id)

    def preview_bulk_action(
        self, *, action: Literal["cancel", "retry", "discard"], filter: TaskFilter, reason: str | None = None,
        limit: int = 1000, cursor: str | None = None,
    ) -> Call[BulkPreview]:
        """How many tasks an action would reach."""
        from ade.tasks.api.requests import BulkAction
        from ade.tasks.bulk import BulkPreview

        body = BulkAction(action=action, filter=filter, reason=reason, limit=limit, cursor=cursor)
        return self._call("preview_bulk_action", BulkPreview, body=body)

    def run_bulk_action(
        self, *, action: Literal["cancel", "retry", "discard"], filter: TaskFilter, reason: str | None = None,
        limit: int = 1000, cursor: str | None = None, request_key: str | None = None,
    ) -> Call[BulkReport]:
        """Cancel, retry or discard all that a filter finds."""
        from ade.tasks.api.requests import BulkAction
        from ade.tasks.bulk import BulkReport

        body = BulkAction(action=action, filter=filter, reason=reason, limit=limit, cursor=cursor)
        return self._call("run_bulk_action", BulkReport, body=body, key=request_key)

    def list_definitions(self, *, cursor: str | None = None, limit: int = 100) -> Call[Page[Definition]]:
        """Names that workers run, with the schema of their arguments."""
        from ade.server.pagination import Page
        from ade.tasks.api.requests import ListNames
        from ade.tasks.model import Definition

        query = ListNames(cursor=cursor, limit=limit)
        return self._call("list_definitions", Page[Definition], query=query)

    def list_dead_letters(
        self, *, name: str | None = None, queue: str | None = None, fingerprint: str | None = None,
        cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Task]]:
        """Failed tasks that were not handled yet."""
        from ade.server.pagination import Page
        from ade.tasks.api.requests import ListDeadLetters
        from ade.tasks.model import Task

        query = ListDeadLetters(name=name, queue=queue, fingerprint=fingerprint, cursor=cursor, limit=limit)
        return self._call("list_dead_letters", Page[Task], query=query)

    def list_dead_letter_groups(
        self, *, name: str | None = None, queue: str | None = None, cursor: str | None = None, limit: int = 100,
    ) -> Call[Page[DeadLetterGroup]]:
        """Dead letters that are the same mistake."""
        from ade.server.pagination import Page
        from ade.tasks.api.requests import ListDeadLetterGroups
        from ade.tasks.dead_letters import DeadLetterGroup

        query = ListDeadLetterGroups(name=name, queue=queue, cursor=cursor, limit=limit)
        return self._call("list_dead_letter_groups", Page[DeadLetterGroup], query=query)

    def replay_dead_letters(
        self, *, fingerprint: str | None = None, name: str | None = None, queue: str | None = None,
        everything: bool = False, limit: int = 1000, cursor: str | None = None, request_key: str | None = None,
    ) -> Call[BulkReport]:
        """Replay a group of dead letters."""
        from ade.tasks.api.requests import DeadLetters
        from ade.tasks.bulk import BulkReport

        body = DeadLetters(
            fingerprint=fingerprint, name=name, queue=queue, everything=everything, limit=limit, cursor=cursor,
        )
        return self._call("replay_dead_letters", BulkReport, body=body, key=request_key)

    def discard_dead_letters(
        self, *, fingerprint: str | None = None, name: str | None = None, queue: str | None = None,
        everything: bool = False, limit: int = 1000, cursor: str | None = None, reason: str,
        request_key: str | None = None,
    ) -> Call[BulkReport]:
        """Discard a group of dead letters."""
        from ade.tasks.api.requests import DiscardDeadLetters
        from ade.tasks.bulk import BulkReport

        body = DiscardDeadLetters(
            fingerprint=fingerprint, name=name, queue=queue, everything=everything, limit=limit, cursor=cursor,
            reason=reason,
        )
        return self._call("discard_dead_letters", BulkReport, body=body, key=request_key)

    def replay_dead_letter(
        self, task_id: str, *, args: dict[str, Any] | None = None, request_key: str | None = None,
    ) -> Call[Task]:
        """Replay one, edited if need be."""
        from ade.tasks.api.requests import RetryTask
        from ade.tasks.model import Task

        body = RetryTask(args=args)
        return self._call("replay_dead_letter", Task, task_id, body=body, key=request_key)

    def discard_dead_letter(self, task_id: str, *, reason: str, request_key: str | None = None) -> Call[Task]:
        """Discard one."""
        from ade.tasks.api.requests import Discard
        from ade.tasks.model import Task

        body = Discard(reason=reason)
        return self._call("discard_dead_letter", Task, task_id, body=body, key=request_key)

    def list_queues(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[QueueView]]:
        """Queues with their depths and ages."""
        from ade.server.pagination import Page
        from ade.tasks.api.queues import ListQueues
        from ade.tasks.overview import QueueView

        query = ListQueues(cursor=cursor, limit=limit)
        return self._call("list_queues", Page[QueueView], query=query)

    def get_queue(self, queue: str) -> Call[QueueView]:
        """One queue."""
        from ade.tasks.overview import QueueView

        return self._call("get_queue", QueueView, queue)

    def pause_queue(self, queue: str, *, new: bool = False, request_key: str | None = None) -> Call[Queue]:
        """Claim nothing from it."""
        from ade.tasks.api.queues import PauseQueue
        from ade.tasks.model import Queue

        body = PauseQueue(new=new)
        return self._call("pause_queue", Queue, queue, body=body, key=request_key)

    def resume_queue(self, queue: str, *, request_key: str | None = None) -> Call[Queue]:
        """Claim from it again."""
        from ade.tasks.model import Queue

        return self._call("resume_queue", Queue, queue, key=request_key)

    def limit_queue(self, queue: str, *, max_depth: int | None = None, new: bool = False) -> Call[Queue]:
        """Change how many tasks it takes."""
        from ade.tasks.api.queues import LimitQueue
        from ade.tasks.model import Queue

        body = LimitQueue(max_depth=max_depth, new=new)
        return self._call("limit_queue", Queue, queue, body=body)

    def list_schedules(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[Schedule]]:
        """Tasks that come again and again."""
        from ade.server.pagination import Page
        from ade.tasks.api.requests import ListSchedules
        from ade.tasks.model import Schedule

        query = ListSchedules(cursor=cursor, limit=limit)
        return self._call("list_schedules", Page[Schedule], query=query)

    def get_schedule(self, schedule: str) -> Call[VersionedRecord[Schedule]]:
        """One schedule."""
        from ade.server.pagination import VersionedRecord
        from ade.tasks.model import Schedule

        return self._call("get_schedule", VersionedRecord[Schedule], schedule)

    def put_schedule(
        self, schedule: str, *, cron: str, task_name: str, timezone: str = "UTC",
        args: Mapping[str, Any] | None = None, queue: str | None = None, priority: int | str | None = None,
        paused: bool = False, allow_unknown: bool = False, if_match: int | None = None,
    ) -> Call[VersionedRecord[Schedule]]:
        """Make or replace a schedule."""
        from ade.server.pagination import VersionedRecord
        from ade.tasks.api.requests import PutSchedule
        from ade.tasks.model import Schedule

        body = PutSchedule(
            cron=cron, task_name=task_name, timezone=timezone, args=dict(args or {}), queue=queue, priority=priority,
            paused=paused, allow_unknown=allow_unknown,
        )
        return self._call("put_schedule", VersionedRecord[Schedule], schedule, body=body, if_match=if_match)

    def pause_schedule(self, schedule: str, *, request_key: str | None = None) -> Call[Schedule]:
        """Let it fire no more."""
        from ade.tasks.model import Schedule

        return self._call("pause_schedule", Schedule, schedule, key=request_key)

    def resume_schedule(self, schedule: str, *, request_key: str | None = None) -> Call[Schedule]:
        """Let it fire again."""
        from ade.tasks.model import Schedule

        return self._call("resume_schedule", Schedule, schedule, key=request_key)

    def fire_schedule(self, schedule: str, *, request_key: str | None = None) -> Call[Task]:
        """Enqueue its task now."""
        from ade.tasks.model import Task

        return self._call("fire_schedule", Task, schedule, key=request_key)

    def remove_schedule(self, schedule: str) -> Call[None]:
        """Remove a schedule."""
        return self._call("remove_schedule", type(None), schedule)
