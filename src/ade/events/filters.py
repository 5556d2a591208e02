"""Event filters: parsed strictly from request fields and compiled once into a predicate."""

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from ade.errors import InvalidFilter, InvalidInbox, InvalidLock
from ade.events.model import Event, is_of_access
from ade.locks.model import lock_name, normal_name
from ade.tasks.identifiers import check_inbox_id, is_task_id

MOST_VALUES = 100  # per field
LONGEST_VALUE = 200
_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*(\.\*)?")

Predicate = Callable[[Event], bool]


class EventFilter(Struct, frozen=True, kw_only=True):
    """Match events. All fields that are set must match; within one field, any value is enough.

    Filters are hashable, so equal filters share one dict key. `task_ids` also matches events that do not belong to a
    task but name one in their payload. `queues`, `names`, and `inbox_ids` match events whose payload has that field: of
    the events of a task, only `task.created` contains its queue and name. `locks` matches events of locks on these
    resources, in any namespace, and those of tasks that wait for them.
    """

    types: frozenset[str] = frozenset()  # `task.*` is every type that begins with `task.`, `*` is every type
    task_ids: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    inbox_ids: frozenset[str] = frozenset()
    locks: frozenset[str] = frozenset()
    hides_access: bool = False  # for callers with `read` but without `operate`: omit sessions, tokens, and links


EVERYTHING = EventFilter()


def parse_filter(fields: Iterable[tuple[str, str]]) -> EventFilter:
    """Build a filter from the query fields `type`, `task`, `queue`, `name`, `inbox`, and `lock`. Each is repeatable.

    One `type` field can contain several types, separated by commas. Raises InvalidFilter, which names the invalid
    field. Unknown fields are rejected, so remove your own (`after`) first.
    """
    found: dict[str, set[str]] = {field: set() for field in _CHECKS}
    for field, value in fields:
        if field not in _CHECKS:
            raise InvalidFilter(f"events cannot be filtered by {field!r:.60}; use {', '.join(_CHECKS)}")
        values = value.split(",") if field == "type" else (value,)
        for each in values:
            _CHECKS[field](each)
            found[field].add(normal_name(each) if field == "lock" else each)
        if len(found[field]) > MOST_VALUES:
            raise InvalidFilter(f"{field} has more than {MOST_VALUES} values; use fewer, or a broader type")
    return EventFilter(
        types=frozenset() if "*" in found["type"] else frozenset(found["type"]),
        task_ids=frozenset(found["task"]),
        queues=frozenset(found["queue"]),
        names=frozenset(found["name"]),
        inbox_ids=frozenset(found["inbox"]),
        locks=frozenset(found["lock"]),
    )


def compile_filter(event_filter: EventFilter) -> Predicate:
    """Return a fast predicate for a filter. The predicate never raises, whatever the payload contains."""
    checks: list[Predicate] = [
        *([_of_types(event_filter.types)] if event_filter.types and "*" not in event_filter.types else []),
        *([_of_tasks(event_filter.task_ids)] if event_filter.task_ids else []),
        *([_with_field("queue", event_filter.queues)] if event_filter.queues else []),
        *([_with_field("name", event_filter.names)] if event_filter.names else []),
        *([_with_field("inbox_id", event_filter.inbox_ids)] if event_filter.inbox_ids else []),
        *([_of_locks(event_filter.locks)] if event_filter.locks else []),
        *([_not_of_access] if event_filter.hides_access else []),
    ]
    if not checks:
        return _any_event
    if len(checks) == 1:
        return checks[0]
    return lambda event: all(check(event) for check in checks)


def task_of(event: Event) -> str | None:
    """Return the ID of the task that an event is about, from the event or else from its payload."""
    if event.task_id is not None:
        return event.task_id
    value = event.payload.get("task_id")
    return value if isinstance(value, str) else None


def _any_event(_event: Event) -> bool:
    return True


def _not_of_access(event: Event) -> bool:
    return not is_of_access(event)


def _of_types(types: frozenset[str]) -> Predicate:
    beginnings = tuple(each.removesuffix("*") for each in types if each.endswith(".*"))
    return lambda event: event.type in types or event.type.startswith(beginnings)


def _of_tasks(task_ids: frozenset[str]) -> Predicate:
    return lambda event: task_of(event) in task_ids


def _with_field(field: str, values: frozenset[str]) -> Predicate:
    def matches(event: Event) -> bool:
        value = event.payload.get(field)
        return isinstance(value, str) and value in values

    return matches


def _of_locks(resources: frozenset[str]) -> Predicate:
    """Lock events list their resources as `items`, and tasks that wait for locks as `locks`."""

    def matches(event: Event) -> bool:
        items, waited_for = (_listed(event.payload.get(field)) for field in ("items", "locks"))
        named = [item.get("resource") if isinstance(item, dict) else None for item in items]
        return any(isinstance(name, str) and name in resources for name in (*named, *waited_for))

    return matches


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _check_type(value: str) -> None:
    is_type = value == "*" or (len(value) <= LONGEST_VALUE and _TYPE.fullmatch(value) is not None)
    if not is_type:
        raise InvalidFilter(
            f"{value!r:.60} is not an event type: use one such as task.failed, a prefix such as task.*, or *"
        )


def _check_task(value: str) -> None:
    if not is_task_id(value):
        raise InvalidFilter(f"{value!r:.60} is not a task id: use the whole id, in lower case")


def _check_inbox(value: str) -> None:
    try:
        check_inbox_id(value)
    except InvalidInbox as error:
        raise InvalidFilter(error.detail) from None


def _check_lock(value: str) -> None:
    try:
        lock_name("lock", value)
    except InvalidLock as error:
        raise InvalidFilter(error.detail) from None


def _check_text(value: str) -> None:
    if not (1 <= len(value) <= LONGEST_VALUE and value.isprintable()):
        raise InvalidFilter(f"a name has 1 to {LONGEST_VALUE} printable characters; got {value!r:.60}")


_CHECKS: dict[str, Callable[[str], None]] = {
    "type": _check_type,
    "task": _check_task,
    "queue": _check_text,
    "name": _check_text,
    "inbox": _check_inbox,
    "lock": _check_lock,
}
