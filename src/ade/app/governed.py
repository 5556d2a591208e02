"""Tasks in three parts: what a call would do, the call itself, and how it is undone."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ade.app.declare import make_handler
from ade.core.errors import InvalidTask
from ade.queue.handlers import Handler, Registry

if TYPE_CHECKING:
    from ade.queue.options import Declared

PREVIEW, ROLLBACK = "preview", "rollback"
_MARKS = {PREVIEW: "has_preview", ROLLBACK: "has_rollback"}


def with_part(registry: Registry, handler: Handler, part: str, function: Callable[..., Any]) -> Handler:
    """The handler, now that `function` is this part of it; both are known to workers. Raises InvalidTask."""
    if part not in _MARKS:
        raise InvalidTask(f"a task has a {' and a '.join(_MARKS)}, and no {part}")
    definition = handler.definition
    declared: Declared = {
        "name": f"{handler.name}:{part}",
        "queue": definition.queue,
        "priority": definition.priority,
    }
    own = make_handler(function, declared)
    _check_fits(handler, own, part)
    registry.add(own)
    marked = dataclasses.replace(handler, definition=structs.replace(definition, **{_MARKS[part]: True}))
    registry.by_name[handler.name] = marked
    return marked


def _check_fits(handler: Handler, own: Handler, part: str) -> None:
    """It is called with the arguments of the task, so it must take those and need no others."""
    theirs, ours = handler.signature.parameters, own.signature.parameters
    unknown = [name for name in ours.types if name not in theirs.types]
    missing = [name for name in theirs.types if name not in ours.types]
    if unknown or missing:
        listed = ", ".join(theirs.types) or "nothing"
        raise InvalidTask(f"the {part} of task {handler.name!r} must take the same arguments as the task: {listed}")
