"""Calls of the section `tasks`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any, Literal

    from ade.calls.call import Call
    from ade.core.events import Event
    from ade.core.lifecycle import Status
    from ade.core.locks.wishes import Wish
    from ade.core.records import AfterFailure, Definition, OutputLine, Task
    from ade.core.retry import Backoff
    from ade.core.web.answers import Page
    from ade.core.web.batches import CreatedTasks
    from ade.core.web.forms.tasks import BatchTask, TaskFilter
    from ade.insight.outcomes import TaskResult
    from ade.insight.reasons import Explanation
    from ade.queue.bulk import Reach, Reached


class TasksCalls(Section):
    def create_task(
        self, *, name: str, args: Mapping[str, Any] | None = None, draft: bool = False, queue: str | None = None,
        priority: int | None = None, delay: float | None = None, run_at: datetime | None = None,
        deadline: float | datetime | None = None, key: str | None = None, after: list[str] | None = None,
        after_failure: AfterFailure | None = None, tags: list[str] | None = None, description: str | None = None,
        max_attempts: int | None = None, timeout: float | None = None, backoff: Backoff | None = None,
        result_ttl: float | None = None, concurrency_key: str | None = None, locks: list[str | Wish] | None = None,
        needs: list[str] | None = None, parent: str | None = None, team: str | None = None, ticket: str | None = None,
        approval: list[str] | None = None, resources: list[str] | None = None,
        rollback: Literal["automatic", "manual", "none"] | None = None,
        start: Literal["at_once", "by_hand"] | None = None, not_before: datetime | None = None,
        not_after: datetime | None = None, trace: str | None = None, allow_unknown: bool = False,
        request_key: str | None = None,
    ) -> Call[Task]:
        """Enqueue a task, or write a draft of one."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import NewTask

        body = NewTask(
            name=name, args=dict(args or {}), draft=draft, queue=queue, priority=priority, delay=delay, run_at=run_at,
            deadline=deadline, key=key, after=after, after_failure=after_failure, tags=tags, description=description,
            max_attempts=max_attempts, timeout=timeout, backoff=backoff, result_ttl=result_ttl,
            concurrency_key=concurrency_key, locks=locks, needs=needs, parent=parent, team=team, ticket=ticket,
            approval=approval, resources=resources, rollback=rollback, start=start, not_before=not_before,
            not_after=not_after, trace=trace, allow_unknown=allow_unknown,
        )
        return self._call("create_task", Task, body=body, key=request_key)

    def create_tasks(self, *, tasks: list[BatchTask], request_key: str | None = None) -> Call[CreatedTasks]:
        """Enqueue many tasks, all or none."""
        from ade.core.web.batches import CreatedTasks
        from ade.core.web.forms.tasks import NewTasks

        body = NewTasks(tasks=tasks)
        return self._call("create_tasks", CreatedTasks, body=body, key=request_key)

    def list_tasks(
        self, *, status: Sequence[Status] = (), queue: str | None = None, name: str | None = None,
        tag: str | None = None, resource: str | None = None, parent: str | None = None, author: str | None = None,
        worker: str | None = None, text: str | None = None, created_from: datetime | None = None,
        created_before: datetime | None = None, discarded: bool | None = None,
        order: Literal["newest", "oldest"] = "newest", cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Task]]:
        """List tasks by a filter, page by page."""
        from ade.core.records import Task
        from ade.core.web.answers import Page
        from ade.core.web.forms.tasks import ListTasks

        query = ListTasks(
            status=list(status), queue=queue, name=name, tag=tag, resource=resource, parent=parent, author=author,
            worker=worker, text=text, created_from=created_from, created_before=created_before, discarded=discarded,
            order=order, cursor=cursor, limit=limit,
        )
        return self._call("list_tasks", Page[Task], query=query)

    def get_task(self, task_id: str, *, wait: int | None = None, whole: bool = False) -> Call[Task]:
        """One task; with ?wait= as soon as it is final."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import GetTask

        query = GetTask(wait=wait, whole=whole)
        return self._call("get_task", Task, task_id, query=query)

    def edit_task(
        self, task_id: str, *, args: dict[str, Any] | None = None, description: str | None = None,
        priority: int | None = None, tags: list[str] | None = None, resources: list[str] | None = None,
        if_match: int | None, request_key: str | None = None,
    ) -> Call[Task]:
        """Edit a draft."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import EditTask

        body = EditTask(args=args, description=description, priority=priority, tags=tags, resources=resources)
        return self._call("edit_task", Task, task_id, body=body, if_match=if_match, key=request_key)

    def submit_task(self, task_id: str, *, request_key: str | None = None) -> Call[Task]:
        """Put a draft before people."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import Nothing

        body = Nothing()
        return self._call("submit_task", Task, task_id, body=body, key=request_key)

    def cancel_task(
        self, task_id: str, *, reason: str | None = None, if_match: int | None = None, request_key: str | None = None,
    ) -> Call[Task]:
        """Stop a task."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import Cancel

        body = Cancel(reason=reason)
        return self._call("cancel_task", Task, task_id, body=body, if_match=if_match, key=request_key)

    def retry_task(
        self, task_id: str, *, args: dict[str, Any] | None = None, if_match: int | None = None,
        request_key: str | None = None,
    ) -> Call[Task]:
        """Run a failed task again."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import Retry

        body = Retry(args=args)
        return self._call("retry_task", Task, task_id, body=body, if_match=if_match, key=request_key)

    def apply_task(self, task_id: str, *, if_match: int | None = None, request_key: str | None = None) -> Call[Task]:
        """Start an approved task."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import Nothing

        body = Nothing()
        return self._call("apply_task", Task, task_id, body=body, if_match=if_match, key=request_key)

    def roll_back_task(self, task_id: str, *, request_key: str | None = None) -> Call[Task]:
        """Undo a completed task."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import Nothing

        body = Nothing()
        return self._call("roll_back_task", Task, task_id, body=body, key=request_key)

    def get_task_result(self, task_id: str) -> Call[TaskResult]:
        """The whole result, also a large one."""
        from ade.insight.outcomes import TaskResult

        return self._call("get_task_result", TaskResult, task_id)

    def get_task_output(
        self, task_id: str, *, after: int = 0, cursor: str | None = None, limit: int = 200,
    ) -> Call[Page[OutputLine]]:
        """The lines it has written, at once or as a stream."""
        from ade.core.records import OutputLine
        from ade.core.web.answers import Page
        from ade.core.web.forms.tasks import ListLines

        query = ListLines(after=after, cursor=cursor, limit=limit)
        return self._call("get_task_output", Page[OutputLine], task_id, query=query)

    def list_task_events(
        self, task_id: str, *, after: int = 0, cursor: str | None = None, limit: int = 200,
    ) -> Call[Page[Event]]:
        """What has happened to it."""
        from ade.core.events import Event
        from ade.core.web.answers import Page
        from ade.core.web.forms.tasks import ListLines

        query = ListLines(after=after, cursor=cursor, limit=limit)
        return self._call("list_task_events", Page[Event], task_id, query=query)

    def explain_task(self, task_id: str) -> Call[Explanation]:
        """Why it is not running."""
        from ade.insight.reasons import Explanation

        return self._call("explain_task", Explanation, task_id)

    def preview_bulk_action(
        self, *, action: Literal["cancel", "retry", "discard"], filter: TaskFilter, reason: str | None = None,
        limit: int = 1000,
    ) -> Call[Reach]:
        """How many tasks an action would reach."""
        from ade.core.web.forms.tasks import BulkAction
        from ade.queue.bulk import Reach

        body = BulkAction(action=action, filter=filter, reason=reason, limit=limit)
        return self._call("preview_bulk_action", Reach, body=body)

    def run_bulk_action(
        self, *, action: Literal["cancel", "retry", "discard"], filter: TaskFilter, reason: str | None = None,
        limit: int = 1000, request_key: str | None = None,
    ) -> Call[Reached]:
        """Cancel, retry or discard all that a filter finds."""
        from ade.core.web.forms.tasks import BulkAction
        from ade.queue.bulk import Reached

        body = BulkAction(action=action, filter=filter, reason=reason, limit=limit)
        return self._call("run_bulk_action", Reached, body=body, key=request_key)

    def list_definitions(self, *, cursor: str | None = None, limit: int = 100) -> Call[Page[Definition]]:
        """Names that workers run, with the schema of their arguments."""
        from ade.core.records import Definition
        from ade.core.web.answers import Page
        from ade.core.web.forms.tasks import ListNames

        query = ListNames(cursor=cursor, limit=limit)
        return self._call("list_definitions", Page[Definition], query=query)
