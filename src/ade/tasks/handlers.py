"""Task handlers, their registry, and the check for scripts that use their app while a child process imports them."""

import dataclasses
import functools
import hashlib
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum, auto
from types import CodeType
from typing import Any, Literal
from weakref import WeakKeyDictionary

from msgspec import structs

from ade.errors import InvalidTask, UnguardedMain, UnknownName
from ade.tasks.admission import check_name
from ade.tasks.arguments import Parameters, Signature
from ade.tasks.model import Definition
from ade.tasks.option_values import read_text
from ade.tasks.options import DeclaredOptions, check_known, definition_of

CodeVersionSource = Literal["source", "declared", "off"]


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

    def definitions(self, code_version: CodeVersionSource = "source") -> list[Definition]:
        """Return all definitions, each with the version of its code, for a worker that registers them."""
        return [
            structs.replace(each.definition, version=self._version(each, code_version))
            for each in self.by_name.values()
        ]

    def _version(self, handler: Handler, code_version: CodeVersionSource) -> str:
        declared = handler.definition.version
        if code_version == "off" or declared or code_version == "declared":
            return "" if code_version == "off" else declared
        return code_hash(handler.function)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self.by_name.values())


def make_handler(function: Callable[..., Any], declared: DeclaredOptions) -> Handler:
    """Build the handler of a function and its declared options. Raises InvalidTask if either is invalid."""
    given: dict[str, Any] = {**declared}
    check_known(given, DeclaredOptions)
    if "concurrency_key" in given:
        given.setdefault("concurrency_per_key", 1)
    signature = Signature.of(function)
    name = read_text("name", given.get("name", signature.parameters.function_name))
    check_name(name)
    key_of = given.get("concurrency_key")
    return Handler(
        name=name,
        function=function,
        signature=signature,
        mode=_mode(function, name, cpu=given.get("cpu", False)),
        definition=definition_of(name, given, signature.schema()),
        concurrency_key=None if key_of is None else _key_maker(name, key_of, signature.parameters),
    )


# The version of a handler's code, which an approval covers.


_hashes: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()  # files might change after they were loaded


def code_hash(function: Callable[..., Any]) -> str:
    """Return a hash of the source of a function, or of its bytecode if it has no source. It is computed once.

    It covers the function and its decorators, and nothing that the function calls.
    """
    if function not in _hashes:
        _hashes[function] = _hash(function)
    return _hashes[function]


def _hash(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    source = _source_of(code, getattr(function, "__globals__", None))
    if source:
        return f"source:{hashlib.sha256(source.encode(errors='replace')).hexdigest()[:32]}"
    return f"bytecode:{hashlib.sha256(_written(code).encode(errors='replace')).hexdigest()[:32]}"


def _source_of(code: CodeType, module: dict[str, Any] | None) -> str:
    """Return the lines that were compiled to this code; `inspect.getsource` parses them again, which takes long."""
    lines = linecache.getlines(code.co_filename, module)
    return textwrap.dedent("".join(lines[code.co_firstlineno - 1 : _last_line(code)]))


def _last_line(code: CodeType) -> int:
    own = (end or start or 0 for start, end, _, _ in code.co_positions())
    inner = (_last_line(each) for each in code.co_consts if isinstance(each, CodeType))
    return max(code.co_firstlineno, *own, *inner)


def _written(code: CodeType) -> str:
    return repr((code.co_code, code.co_names, code.co_varnames, [_constant(each) for each in code.co_consts]))


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _written(value)
    if isinstance(value, frozenset):  # its order differs between processes
        return repr(sorted(map(repr, value)))
    return repr(value)


def _mode(function: Callable[..., Any], name: str, *, cpu: bool) -> HandlerMode:
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise InvalidTask(f"task {name!r} is a generator; return a list, or enqueue a task for each item")
    if not inspect.iscoroutinefunction(function):
        return HandlerMode.PROCESS if cpu else HandlerMode.THREAD
    if cpu:
        raise InvalidTask(f"task {name!r} is async, so cpu=True cannot be used; make it a plain function")
    return HandlerMode.ASYNC


def _key_maker(name: str, key_of: Callable[..., str], parameters: Parameters) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that calls the user's key function with the arguments it names, including defaults."""
    wanted = tuple(inspect.signature(key_of).parameters)
    if unknown := [parameter for parameter in wanted if parameter not in parameters.types]:
        raise InvalidTask(f"concurrency_key of task {name!r} uses {', '.join(unknown)}, which is not an argument of it")

    def key(arguments: Mapping[str, Any]) -> str:
        known = {**parameters.defaults, **arguments}
        made = key_of(*(known[parameter] for parameter in wanted))
        if not isinstance(made, str):
            raise InvalidTask(f"concurrency_key of task {name!r} must return text, not {made!r}")
        return made

    return key


# A task can have two more parts: a preview of a call, and its rollback.


PREVIEW, ROLLBACK = "preview", "rollback"
_MARKS = {PREVIEW: "has_preview", ROLLBACK: "has_rollback"}


def with_part(registry: Registry, handler: Handler, part: str, function: Callable[..., Any]) -> Handler:
    """Register a function as a part of a task and return the updated handler. Raises InvalidTask."""
    if part not in _MARKS:
        raise InvalidTask(f"a task has a {' and a '.join(_MARKS)}, and no {part}")
    definition = handler.definition
    declared: DeclaredOptions = {
        "name": f"{handler.name}:{part}",
        "queue": definition.queue,
        "priority": definition.priority,
    }
    if definition.version:
        declared["version"] = definition.version  # one version for all code of a task
    own = make_handler(function, declared)
    _check_fits(handler, own, part)
    registry.add(own)
    marked = dataclasses.replace(handler, definition=structs.replace(definition, **{_MARKS[part]: True}))
    registry.by_name[handler.name] = marked
    return marked


def _check_fits(handler: Handler, own: Handler, part: str) -> None:
    """Check that a part takes exactly the arguments of the task, because it is called with them."""
    theirs, ours = handler.signature.parameters, own.signature.parameters
    unknown = [name for name in ours.types if name not in theirs.types]
    missing = [name for name in theirs.types if name not in ours.types]
    if unknown or missing:
        listed = ", ".join(theirs.types) or "nothing"
        raise InvalidTask(f"the {part} of task {handler.name!r} must take the same arguments as the task: {listed}")


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
