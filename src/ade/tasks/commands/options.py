"""Options and arguments of new tasks on the command line, shared by `ade enqueue` and `ade draft`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import EnumType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click
import msgspec

from ade.cli.identity import as_option
from ade.cli.ids import find_ids
from ade.cli.output import all_of, pretty
from ade.cli.parameters import DURATION, JSON_OBJECT, MOMENT, PRIORITY
from ade.errors import InvalidArguments, UnknownName, close_names
from ade.locks.model import read
from ade.tasks.admission import is_own_step
from ade.tasks.model import AfterFailure, Task
from ade.tasks.options import JSON_OPTIONS, NewTask, Option

if TYPE_CHECKING:  # keeps `--help` fast
    from ade.app.ade import Ade
    from ade.cli.session import Session
    from ade.client.client import Client
    from ade.tasks.options import TaskOptions


# Task names that the app defines or that workers have registered.


def own_app(session: "Session") -> "Ade | None":
    """Return the local app, if one was named. With a server, only the names that workers registered count."""
    return session.app if session.server is None and session.app_spec is not None else None


async def schema_of(session: "Session", api: "Client", name: str) -> Mapping[str, Any] | None:
    """Return the JSON Schema of a task's arguments; None for an unknown name."""
    app = own_app(session)
    signature = None if app is None else app.signature_of(name)
    if signature is not None:
        return signature.schema()
    return next((known.schema for known in await all_of(api, api.list_definitions) if known.name == name), None)


async def registered_task_names(session: "Session", api: "Client | None") -> list[str]:
    """Return the names that a caller can enqueue."""
    registered = set() if api is None else {known.name for known in await all_of(api, api.list_definitions)}
    app = own_app(session)
    known = registered if app is None else registered | app.registry.names()
    return sorted(name for name in known if not is_own_step(name))


async def unknown_name(session: "Session", api: "Client | None", name: str) -> UnknownName:
    """Build the error for an unknown name, with the closest matches. Without a store, only the app's names count."""
    known = await registered_task_names(session, api)
    nearest = close_names(name, known, most=3, cutoff=0.5)
    if nearest:
        return UnknownName(f"no task is named {name[:200]!r}; did you mean {' or '.join(nearest)}?")
    if not known:
        named = "" if session.server is not None else "name the app with --app, "
        return UnknownName(
            f"no task is named {name[:200]!r}, and no worker has registered any yet: {named}start its worker first, or"
            " add --allow-unknown"
        )
    return UnknownName(
        f"no task is named {name[:200]!r}; known are {', '.join(known)}. --allow-unknown accepts it anyway"
    )


async def check_name(session: "Session", name: str) -> None:
    """Raise UnknownName before a store is created, so that a typing error does not create one."""
    if session.server is None and not session.has_store() and session.any_app.signature_of(name) is None:
        raise await unknown_name(session, None, name)


F = TypeVar("F", bound=Callable[..., Any])
_TYPES: Mapping[Any, Any] = {int: int, float: DURATION, datetime: MOMENT, "priority": PRIORITY}


_KINDS: Mapping[str, Any] = {
    name: get_args(kind)[0] for name, kind in get_type_hints(NewTask).items() if get_args(kind)
}


def _flags(name: str, option: Option) -> Iterator[Callable[[F], F]]:
    """Yield the flags of one task option; their types follow from its JSON form."""
    kind = _KINDS[name]
    choices = get_args(kind) if get_origin(kind) is Literal else tuple(kind) if isinstance(kind, EnumType) else ()
    yield click.option(
        *(f"--{flag}" for flag in (option.flags or name.replace("_", "-")).split()),
        name,
        type=click.Choice([str(choice) for choice in choices]) if choices else _TYPES.get(name) or _TYPES.get(kind),
        multiple=get_origin(kind) is list,
        metavar=option.metavar,
        help=option.help,
    )
    if name == "locks":
        shared = "A shared lock; repeatable."
        yield click.option("--read-lock", "read_locks", multiple=True, metavar="NAME", help=shared)


_ARGUMENTS = click.option(
    "--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="The arguments as one JSON object."
)
_REST = (
    click.option("--window", type=MOMENT, nargs=2, metavar="FROM TO", help="The time window in which it can start."),
    as_option,
    click.option("--allow-unknown", is_flag=True, help="Accept a name that no app and no worker has defined."),
)


def task_options(command: F) -> F:
    """Add the flags of a task that is to run."""
    return _with_flags(command, JSON_OPTIONS)


def draft_options(command: F) -> F:
    """Add the flags of a draft. There is no delay: it would start before the draft is reviewed."""
    return _with_flags(command, {name: option for name, option in JSON_OPTIONS.items() if name != "delay"})


def _with_flags(command: F, options: Mapping[str, Option]) -> F:
    flags = [flag for name, option in options.items() if option.help for flag in _flags(name, option)]
    for flag in reversed((_ARGUMENTS, *flags, *_REST)):
        command = flag(command)
    return command


async def chosen_options(api: "Client", said: "TaskOptions") -> "TaskOptions":
    """Return the options with shortened IDs in `after` resolved to full ones."""
    if "after" not in said:
        return said
    return {**said, "after": await find_ids(api, [str(task_id) for task_id in said["after"]])}


async def make_task(
    session: "Session",
    app: "Ade | None",
    api: "Client",
    name: str,
    arguments: dict[str, Any],
    options: "TaskOptions",
    *,
    draft: bool,
    allow_unknown: bool,
) -> Task:
    """Create the task through the app or else the server. Raises UnknownName with the closest matches."""
    try:
        if app is None:
            fields = form_fields(options)
            return await api.create_task(name=name, args=arguments, draft=draft, allow_unknown=allow_unknown, **fields)
        make = app.draft if draft else app.enqueue
        options = {**options, "author": session.account}
        return await api.get_task((await make(name, arguments, allow_unknown=allow_unknown, **options)).id)
    except UnknownName:
        raise await unknown_name(session, api, name) from None


def form_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options to the field names and types of NewTask."""
    fields: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in options.items()
    }
    if "window" in fields:
        fields["not_before"], fields["not_after"] = fields.pop("window")
    if "after_failure" in fields:
        fields["after_failure"] = AfterFailure(fields["after_failure"])
    if isinstance(fields.get("approval"), str):
        fields["approval"] = [fields["approval"]]
    return fields


def said_options(given: dict[str, Any]) -> "TaskOptions":
    """Return only the options that were given; `()` is an unused repeatable option."""
    said = {name: value for name, value in given.items() if value is not None and value != ()}
    for words in said.keys() & {"tags", "needs"}:
        said[words] = tuple(word.strip() for each in said[words] for word in each.split(",") if word.strip())
    if read_locks := said.pop("read_locks", ()):
        said["locks"] = (*said.get("locks", ()), *(read(name) for name in read_locks))
    options: TaskOptions = said  # type: ignore[assignment] # each option above is named after the key it sets
    return options


# Arguments on the command line: the schema decides how to read `key=value`; `key:=JSON` is always JSON.


_NO_JSON = (msgspec.DecodeError, UnicodeEncodeError, RecursionError)
_OPTION_KINDS: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def parse_pairs(pairs: Sequence[str], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Parse key=value pairs. Raises InvalidArguments for a malformed pair."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.rstrip(":"):
            raise InvalidArguments(
                f"{pair[:80]!r} is not an argument: write name=value, or name:=JSON for anything else"
            )
        if name.endswith(":"):
            arguments[name[:-1]] = _json(name[:-1], text)
        else:
            arguments[name] = _value_of(text, _types_of(name, schema or {}))
    return arguments


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except _NO_JSON as error:
        raise InvalidArguments(f"the value of {name!r} is not JSON ({error}); name=value takes plain text") from None


def _value_of(text: str, types: frozenset[str]) -> Any:
    """Parse as JSON unless the schema wants a string: `limit=5` is a number, `zip=00501` can stay a string."""
    try:
        value = msgspec.json.decode(text)
    except _NO_JSON:
        return text
    kind = _OPTION_KINDS[type(value)]
    fits = kind in types or (kind == "integer" and "number" in types)
    return text if "string" in types and not fits else value


def _types_of(name: str, schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the JSON types of an argument; empty if any type is allowed or the schema is unknown."""
    return _types(schema.get("properties", {}).get(name, {}), schema.get("$defs", {}))


def _types(described: Mapping[str, Any], definitions: Mapping[str, Any]) -> frozenset[str]:
    if "$ref" in described:
        return _types(definitions.get(str(described["$ref"]).rpartition("/")[2], {}), definitions)
    kind = described.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(kind)
    if "enum" in described:
        return frozenset(_OPTION_KINDS.get(type(value), "") for value in described["enum"])
    return frozenset().union(*(_types(choice, definitions) for choice in described.get("anyOf", ())))


# New arguments for a stored task, from an option or an editor, checked like those of a new task.


async def edited_arguments(
    session: "Session", api: "Client", task_id: str, arguments: dict[str, Any] | None, *, edit: bool
) -> dict[str, Any] | None:
    """Return the new arguments, or None to keep the present ones."""
    if arguments is None and not edit:
        return None
    task = await api.get_task(task_id, whole=edit)
    chosen = _edited(pretty(task.args if arguments is None else arguments)) if edit else arguments
    return None if chosen is None else checked_arguments(session, task, chosen)


async def changed_arguments(
    session: "Session", api: "Client", task: Task, pairs: tuple[str, ...], arguments: dict[str, Any] | None
) -> dict[str, Any]:
    """Return `arguments`, or else those of the task, updated with the pairs."""
    before = msgspec.json.decode(task.args) if arguments is None else arguments
    chosen = {**before, **parse_pairs(pairs, await schema_of(session, api, task.name))}
    return checked_arguments(session, task, chosen)


def checked_arguments(session: "Session", task: Task, arguments: dict[str, Any]) -> dict[str, Any]:
    """Check against the local app, if there is one; otherwise the server checks. Raises InvalidArguments."""
    app = own_app(session)
    signature = None if app is None else app.signature_of(task.name)
    if signature is None:
        return arguments
    encoded: dict[str, Any] = msgspec.json.decode(signature.encode(arguments))
    return encoded


def _edited(text: str) -> dict[str, Any] | None:
    """Open the text in an editor; None if it was not changed."""
    changed = click.edit(text, extension=".json")
    if changed is None or changed.strip() == text.strip():
        return None
    try:
        decoded = msgspec.json.decode(changed)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidArguments(f"what you wrote is not JSON ({error}); nothing was changed") from None
    if not isinstance(decoded, dict):
        raise InvalidArguments("arguments are a JSON object of named values; nothing was changed")
    return decoded
