"""Live subscribers by what they want: each filter is asked once for a portion of events, however many share it."""

from collections.abc import Iterator, Sequence

from ade.core.feeds.filters import EventFilter, compile_filter, task_of
from ade.core.feeds.items import Batch, Entry
from ade.events.feed.subscription import Subscription


class Group:
    """Subscribers with one filter."""

    def __init__(self, wanted: EventFilter) -> None:
        self.wanted = wanted
        self.matches = compile_filter(wanted)
        self.members: dict[Subscription, None] = {}


class Groups:
    """All groups; those that want certain tasks are found by the tasks, so that idle ones cost nothing."""

    def __init__(self) -> None:
        self._groups: dict[EventFilter, Group] = {}
        self._of_any_task: dict[Group, None] = {}
        self._of_task: dict[str, dict[Group, None]] = {}

    def join(self, subscription: Subscription) -> None:
        group = self._groups.get(subscription.wanted)
        if group is None:
            group = self._groups[subscription.wanted] = Group(subscription.wanted)
            for task_id in group.wanted.task_ids:
                self._of_task.setdefault(task_id, {})[group] = None
            if not group.wanted.task_ids:
                self._of_any_task[group] = None
        group.members[subscription] = None

    def leave(self, subscription: Subscription) -> None:
        group = self._groups.get(subscription.wanted)
        if group is None:
            return
        group.members.pop(subscription, None)
        if not group.members:
            del self._groups[group.wanted]
            self._of_any_task.pop(group, None)
            for task_id in group.wanted.task_ids:
                others = self._of_task[task_id]
                del others[group]
                if not others:
                    del self._of_task[task_id]

    def members(self) -> list[Subscription]:
        return [member for group in self._groups.values() for member in group.members]

    def sorted_out(self, entries: Sequence[Entry]) -> Iterator[tuple[list[Subscription], Batch]]:
        """Who gets which of these events."""
        for group in self._touched(entries):
            wanted = [entry for entry in entries if group.matches(entry.event)]
            if wanted:
                yield list(group.members), Batch(wanted)

    def _touched(self, entries: Sequence[Entry]) -> dict[Group, None]:
        touched = dict(self._of_any_task)
        if self._of_task:
            for task_id in {task_of(entry.event) for entry in entries}:
                touched |= self._of_task.get(task_id or "", {})
        return touched
