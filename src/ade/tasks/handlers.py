"""What a task name stands for: the function, how it is run, and how its arguments and result are coded."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any

from ade.errors import InvalidTask, UnguardedMain, UnknownName
from ade.tasks.arguments import Signature
from ade.tasks.model import Definition


class HandlerMode(StrEnum):
    __hash__ = str.__hash__  # as quick as that of any text; an Enum's own is a Python function

    ASYNC = auto()  # a coroutine function, on the event loop
    THREAD = auto()  # a plain function, in a thread; cancelled cooperatively
    PROCESS = auto()  # a plain function that computes, in a process that can be killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    name: str
    function: Callable[..., Any]
    signature: Signature
    mode: HandlerMode
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


# Notices a script whose main part runs when a child process imports it for one of its functions.


class _ScriptImport:
    """Whether a script is being imported in this process, and whether it tried to do more than define things."""

    is_going_on = False
    was_refused = False


def refuse_while_imported() -> None:
    """Called before an app is used. Raises UnguardedMain while the process only imports the script."""
    if _ScriptImport.is_going_on:
        _ScriptImport.was_refused = True
        raise UnguardedMain


@contextmanager
def being_imported() -> Iterator[None]:
    """A script is imported inside; if it tried to use its app, UnguardedMain, whatever it made of the refusal."""
    _ScriptImport.is_going_on, _ScriptImport.was_refused = True, False
    try:
        yield
    except BaseException as error:
        if _ScriptImport.was_refused and not isinstance(error, UnguardedMain):
            raise UnguardedMain from error
        raise
    finally:
        _ScriptImport.is_going_on = False
    if _ScriptImport.was_refused:
        raise UnguardedMain
