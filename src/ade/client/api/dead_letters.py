"""Calls of the section `dead letters`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from typing import Any

    from ade.calls.call import Call
    from ade.core.records import Task
    from ade.core.web.answers import Page
    from ade.queue.bulk import Reached
    from ade.queue.deadletters import Group


class DeadLettersCalls(Section):
    def list_dead_letters(
        self, *, name: str | None = None, queue: str | None = None, fingerprint: str | None = None,
        cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Task]]:
        """Failed tasks nobody has dealt with yet."""
        from ade.core.records import Task
        from ade.core.web.answers import Page
        from ade.core.web.forms.tasks import ListDeadLetters

        query = ListDeadLetters(name=name, queue=queue, fingerprint=fingerprint, cursor=cursor, limit=limit)
        return self._call("list_dead_letters", Page[Task], query=query)

    def list_dead_letter_groups(
        self, *, name: str | None = None, queue: str | None = None, cursor: str | None = None, limit: int = 100,
    ) -> Call[Page[Group]]:
        """Dead letters that are the same mistake."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.tasks import ListDeadLetterGroups
        from ade.queue.deadletters import Group

        query = ListDeadLetterGroups(name=name, queue=queue, cursor=cursor, limit=limit)
        return self._call("list_dead_letter_groups", Page[Group], query=query)

    def replay_dead_letters(
        self, *, fingerprint: str | None = None, name: str | None = None, queue: str | None = None,
        everything: bool = False, limit: int = 1000, request_key: str | None = None,
    ) -> Call[Reached]:
        """Replay a group of dead letters."""
        from ade.core.web.forms.tasks import DeadLetters
        from ade.queue.bulk import Reached

        body = DeadLetters(fingerprint=fingerprint, name=name, queue=queue, everything=everything, limit=limit)
        return self._call("replay_dead_letters", Reached, body=body, key=request_key)

    def discard_dead_letters(
        self, *, fingerprint: str | None = None, name: str | None = None, queue: str | None = None,
        everything: bool = False, limit: int = 1000, reason: str, request_key: str | None = None,
    ) -> Call[Reached]:
        """Discard a group of dead letters."""
        from ade.core.web.forms.tasks import DiscardDeadLetters
        from ade.queue.bulk import Reached

        body = DiscardDeadLetters(
            fingerprint=fingerprint, name=name, queue=queue, everything=everything, limit=limit, reason=reason,
        )
        return self._call("discard_dead_letters", Reached, body=body, key=request_key)

    def replay_dead_letter(
        self, task_id: str, *, args: dict[str, Any] | None = None, request_key: str | None = None,
    ) -> Call[Task]:
        """Replay one, edited if need be."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import Retry

        body = Retry(args=args)
        return self._call("replay_dead_letter", Task, task_id, body=body, key=request_key)

    def discard_dead_letter(self, task_id: str, *, reason: str, request_key: str | None = None) -> Call[Task]:
        """Discard one."""
        from ade.core.records import Task
        from ade.core.web.forms.tasks import Discard

        body = Discard(reason=reason)
        return self._call("discard_dead_letter", Task, task_id, body=body, key=request_key)
