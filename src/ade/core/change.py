"""A decided change: which record, what was seen, what shall be, and the events that go with it."""

from collections.abc import Mapping

from msgspec import Struct, structs

from ade.core.events import EVENT_OF, Event
from ade.core.lifecycle import Status, Verb, step
from ade.core.records import Task


class Guard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must still hold for the change to be written.

    A run's own writes name its `run_id` (its lease is the claim to the record); everyone else names the `version`
    they read. `lease_until` is named by those who judge a lease lost: a renewal in between wins.
    """

    version: int | None = None
    run_id: str | None = None
    lease_until: int | None = None


class Change(Struct, frozen=True, kw_only=True):
    verb: Verb
    before: Task
    after: Task
    fields: frozenset[str]
    guard: Guard
    events: tuple[Event, ...]

    @property
    def task_id(self) -> str:
        return self.before.id


def change(
    task: Task,
    verb: Verb,
    *,
    now: int,
    guard: Guard | None = None,
    target: Status | None = None,
    actor: str | None = None,
    payload: dict[str, object] | None = None,
    first_events: tuple[Event, ...] = (),
    more_events: tuple[Event, ...] = (),
    also: Mapping[str, object] | None = None,
    **fields: object,
) -> Change:
    """The one way to make a Change: the table decides the status, the version moves, the verb's events are added."""
    if also:
        fields.update(also)
    status = step(task.status, verb, target)
    after = structs.replace(task, status=status, version=task.version + 1, updated_at=now, **fields)
    told = payload or {}
    events = [Event(type=name, at=now, task_id=task.id, actor=actor, payload=told) for name in EVENT_OF[verb]]
    return Change(
        verb=verb,
        before=task,
        after=after,
        fields=frozenset(fields),
        guard=guard or Guard(version=task.version),
        events=(*first_events, *events, *more_events),
    )
