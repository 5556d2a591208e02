"""What a task name stands for: the function, how it is run, and how its arguments and result are coded."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any

from ade.core.errors import InvalidTask, UnknownName
from ade.core.records import Definition
from ade.queue.signature import Signature


class Mode(StrEnum):
    __hash__ = str.__hash__  # as quick as that of any text; an Enum's own is a Python function

    ASYNC = auto()  # a coroutine function, on the event loop
    THREAD = auto()  # a plain function, in a thread; cancelled cooperatively
    PROCESS = auto()  # a plain function that computes, in a process that can be killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    name: str
    function: Callable[..., Any]
    signature: Signature
    mode: Mode
    definition: Definition
    concurrency_key: Callable[[Mapping[str, Any]], str] | None = None  # called with the arguments by name, at enqueue


@dataclass(slots=True)
class Registry:
    """The handlers of one app, by name."""

    by_name: dict[str, Handler] = field(default_factory=dict)

    def add(self, handler: Handler) -> None:
        if handler.name in self.by_name:
            raise InvalidTask(f"two tasks are named {handler.name!r}; give one of them another name=...")
        self.by_name[handler.name] = handler

    def get(self, name: str) -> Handler:
        try:
            return self.by_name[name]
        except KeyError:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise UnknownName(f"no task is registered as {name!r}; known here: {known}") from None

    def names(self) -> frozenset[str]:
        return frozenset(self.by_name)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self.by_name.values())
