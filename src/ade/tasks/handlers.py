"""The registry of task handlers, and the check for scripts that use their app while a child process imports them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any

from ade.errors import InvalidTask, UnguardedMain, UnknownName
from ade.tasks.arguments import Signature
from ade.tasks.model import Definition


class HandlerMode(StrEnum):
    """Where a handler runs."""

    __hash__ = str.__hash__  # the hash of str is fast; that of Enum is a Python function

    ASYNC = auto()  # a coroutine function, on the event loop
    THREAD = auto()  # a plain function, in a thread; cancelled cooperatively
    PROCESS = auto()  # a plain function that computes, in a process that can be killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A task function with its name, signature, execution mode, and definition."""

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
        """Register a handler. Raises InvalidTask if the name is taken."""
        if handler.name in self.by_name:
            raise InvalidTask(f"two tasks are named {handler.name!r}; give one of them another name=...")
        self.by_name[handler.name] = handler

    def get(self, name: str) -> Handler:
        """Return the handler of this name. Raises UnknownName."""
        try:
            return self.by_name[name]
        except KeyError:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise UnknownName(f"no task is registered as {name!r}; known here: {known}") from None

    def names(self) -> frozenset[str]:
        return frozenset(self.by_name)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self.by_name.values())


# Detects a script without a `__main__` guard: its main part runs when a child process imports a function from it.


class _ScriptImport:
    """Whether a script is being imported in this process, and whether it tried to do more than define things."""

    is_going_on = False
    was_refused = False


def refuse_while_imported() -> None:
    """Raise UnguardedMain if this process is only importing the script. Called before an app is used."""
    if _ScriptImport.is_going_on:
        _ScriptImport.was_refused = True
        raise UnguardedMain


@contextmanager
def being_imported() -> Iterator[None]:
    """Import a script inside this block. Raises UnguardedMain if it used its app, even if it caught the error."""
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
