"""Calls of the section `queues`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ade.calls.call import Call
    from ade.core.records import Queue, Schedule, Task
    from ade.core.web.answers import Page, Tagged
    from ade.insight.overview import QueueView


class QueuesCalls(Section):
    def list_queues(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[QueueView]]:
        """Queues with their depths and ages."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.queues import ListQueues
        from ade.insight.overview import QueueView

        query = ListQueues(cursor=cursor, limit=limit)
        return self._call("list_queues", Page[QueueView], query=query)

    def get_queue(self, queue: str) -> Call[QueueView]:
        """One queue."""
        from ade.insight.overview import QueueView

        return self._call("get_queue", QueueView, queue)

    def pause_queue(self, queue: str, *, new: bool = False, request_key: str | None = None) -> Call[Queue]:
        """Claim nothing from it."""
        from ade.core.records import Queue
        from ade.core.web.forms.queues import PauseQueue

        body = PauseQueue(new=new)
        return self._call("pause_queue", Queue, queue, body=body, key=request_key)

    def resume_queue(self, queue: str, *, request_key: str | None = None) -> Call[Queue]:
        """Claim from it again."""
        from ade.core.records import Queue

        return self._call("resume_queue", Queue, queue, key=request_key)

    def limit_queue(self, queue: str, *, max_depth: int | None = None, new: bool = False) -> Call[Queue]:
        """Change how many tasks it takes."""
        from ade.core.records import Queue
        from ade.core.web.forms.queues import LimitQueue

        body = LimitQueue(max_depth=max_depth, new=new)
        return self._call("limit_queue", Queue, queue, body=body)

    def list_schedules(self, *, cursor: str | None = None, limit: int = 50) -> Call[Page[Schedule]]:
        """Tasks that come again and again."""
        from ade.core.records import Schedule
        from ade.core.web.answers import Page
        from ade.core.web.forms.schedules import ListSchedules

        query = ListSchedules(cursor=cursor, limit=limit)
        return self._call("list_schedules", Page[Schedule], query=query)

    def get_schedule(self, schedule: str) -> Call[Tagged[Schedule]]:
        """One schedule."""
        from ade.core.records import Schedule
        from ade.core.web.answers import Tagged

        return self._call("get_schedule", Tagged[Schedule], schedule)

    def put_schedule(
        self, schedule: str, *, cron: str, task_name: str, timezone: str = "UTC",
        args: Mapping[str, Any] | None = None, queue: str | None = None, priority: int | None = None,
        paused: bool = False, allow_unknown: bool = False, if_match: int | None = None,
    ) -> Call[Tagged[Schedule]]:
        """Make or replace a schedule."""
        from ade.core.records import Schedule
        from ade.core.web.answers import Tagged
        from ade.core.web.forms.schedules import PutSchedule

        body = PutSchedule(
            cron=cron, task_name=task_name, timezone=timezone, args=dict(args or {}), queue=queue, priority=priority,
            paused=paused, allow_unknown=allow_unknown,
        )
        return self._call("put_schedule", Tagged[Schedule], schedule, body=body, if_match=if_match)

    def pause_schedule(self, schedule: str, *, request_key: str | None = None) -> Call[Schedule]:
        """Let it fire no more."""
        from ade.core.records import Schedule

        return self._call("pause_schedule", Schedule, schedule, key=request_key)

    def resume_schedule(self, schedule: str, *, request_key: str | None = None) -> Call[Schedule]:
        """Let it fire again."""
        from ade.core.records import Schedule

        return self._call("resume_schedule", Schedule, schedule, key=request_key)

    def fire_schedule(self, schedule: str, *, request_key: str | None = None) -> Call[Task]:
        """Enqueue its task now."""
        from ade.core.records import Task

        return self._call("fire_schedule", Task, schedule, key=request_key)

    def remove_schedule(self, schedule: str) -> Call[None]:
        """Remove a schedule."""
        return self._call("remove_schedule", type(None), schedule)
