"""Task signatures: encode arguments and results as JSON, decode them, and describe them as JSON Schema."""

import inspect
import math
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from inspect import Parameter
from pathlib import PurePath
from typing import Any, Never, NoReturn
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ade.errors import InvalidArguments, InvalidResult, InvalidTask, close_names

# Python values to JSON and back. A value that JSON cannot represent faithfully is rejected, never altered.
# Not converted until the types are checked, so that bytes passed for a `str` are rejected before they become text.
_ENCODED_LATER = (bytes, bytearray, datetime, date, time, timedelta, UUID, Decimal)
SCALARS = frozenset({str, int, float, bool, type(None)})
CODING_ERRORS = (TypeError, ValueError, RecursionError, OverflowError)

MOST_NESTED = 200  # levels of lists and objects
_encoder = msgspec.json.Encoder()


def to_plain(value: object) -> Any:
    """Convert structs, models, sets, and similar values to dicts, lists, and scalars."""
    return msgspec.to_builtins(value, builtin_types=_ENCODED_LATER, enc_hook=_encode_foreign)


def to_json(plain: object) -> Raw:
    """Encode as compact JSON. Raises ValueError for NaN, Infinity, and nesting deeper than MOST_NESTED levels."""
    encoded = _encoder.encode(plain)
    # msgspec writes NaN and Infinity as null, so only text that contains null can hide one.
    if b"null" in encoded and any(not math.isfinite(number) for number in _floats(plain)):
        raise ValueError("NaN and Infinity cannot be sent as JSON")
    if encoded.count(b"[") + encoded.count(b"{") > MOST_NESTED and _is_too_deep(plain):
        raise ValueError(f"nested more than {MOST_NESTED} levels deep")
    return Raw(encoded)


def _is_too_deep(plain: object) -> bool:
    """Check level by level, because deep nesting breaks recursion."""
    level = [plain]
    for _ in range(MOST_NESTED):
        level = [inner for value in level for inner in _inside(value) if isinstance(inner, dict | list | tuple)]
    return bool(level)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _floats(plain: object) -> Iterator[float]:
    """Yield all floats inside; iterative, because the nesting can be deep."""
    rest: list[object] = [plain]
    while rest:
        value = rest.pop()
        if isinstance(value, float):
            yield value
        elif isinstance(value, dict):
            rest.extend(value)
            rest.extend(value.values())
        elif isinstance(value, list | tuple):
            rest.extend(value)


def is_model(kind: object) -> bool:
    """Whether this is a pydantic model class. Never imports pydantic: code that uses models already has."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def is_readable(kind: object) -> bool:
    """Whether `decode_foreign` can decode this type, which msgspec does not support."""
    return is_model(kind) or (isinstance(kind, type) and issubclass(kind, PurePath))


def _encode_foreign(value: object) -> object:
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)  # type: ignore[attr-defined] # a model
    if isinstance(value, PurePath):
        return str(value)
    for scalar in (str, float, int):  # their subclasses, such as NumPy's float64
        if isinstance(value, scalar):
            return scalar(value)
    raise TypeError(f"a value of type {type(value).__qualname__} cannot be sent as JSON")


def decode_foreign(kind: Any, plain: object) -> object:
    """Decode a pydantic model by its own rules, or a path."""
    if is_model(kind):
        return _read_model(kind, plain)
    if isinstance(kind, type) and issubclass(kind, PurePath) and isinstance(plain, str):
        return kind(plain)
    raise TypeError(f"expected `{getattr(kind, '__qualname__', kind)}`, got `{type(plain).__name__}`")


def _read_model(model: Any, plain: object) -> object:
    from pydantic import ValidationError

    try:
        return model.model_validate(plain)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc'])) or model.__name__}: {fault['msg']}" for fault in error.errors())
        raise ValueError("; ".join(faults)) from None


# Parameters of a function: their names and types, which are required, and the position of the context.


_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Parameters(Struct, frozen=True, kw_only=True):
    """The parameters that a caller fills, by name and in order. The worker fills `context`."""

    function_name: str
    types: dict[str, Any]
    positional: tuple[str, ...]  # can be passed by position
    positional_only: frozenset[str]
    required: frozenset[str]
    defaults: Mapping[str, Any]
    rest: str | None  # *args
    rest_type: Any
    extra: str | None  # **kwargs
    extra_type: Any
    context: str | None
    context_position: int | None  # None: passed by keyword
    result_type: Any
    text: str

    @property
    def needs_placing(self) -> bool:
        """Whether some arguments can only be passed by position."""
        return self.rest is not None or bool(self.positional_only) or self.context_position is not None


def read_parameters(function: Callable[..., Any]) -> Parameters:
    """Inspect a function. Raises InvalidTask if its annotations cannot be resolved."""
    name = getattr(function, "__name__", type(function).__name__)
    signature = inspect.signature(function)
    hints = _hints(function, name)
    every = list(signature.parameters.values())
    context = next((item.name for item in every if _is_context(hints.get(item.name))), None)
    given = [item for item in every if item.name != context]
    named = [item for item in given if item.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]
    rest = next((item.name for item in given if item.kind is Parameter.VAR_POSITIONAL), None)
    extra = next((item.name for item in given if item.kind is Parameter.VAR_KEYWORD), None)
    return Parameters(
        function_name=name,
        types={item.name: _type_of(hints, item.name) for item in named},
        positional=tuple(item.name for item in named if item.kind in _POSITIONAL),
        positional_only=frozenset(item.name for item in named if item.kind is Parameter.POSITIONAL_ONLY),
        required=frozenset(item.name for item in named if item.default is Parameter.empty),
        defaults={item.name: item.default for item in named if item.default is not Parameter.empty},
        rest=rest,
        rest_type=_type_of(hints, rest),
        extra=extra,
        extra_type=_type_of(hints, extra),
        context=context,
        context_position=_context_position(every, context),
        result_type=_type_of(hints, "return"),
        text=name + str(signature.replace(parameters=given)),
    )


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except NameError as error:
        raise InvalidTask(
            f"task {name!r}: an annotation names {error.name!r}, which its module does not define at run time;"
            " import it outside of TYPE_CHECKING"
        ) from None


def _type_of(hints: Mapping[str, Any], name: str | None) -> Any:
    annotation = hints.get(name, Any) if name is not None else Any
    return Any if annotation in (object, NoReturn, Never) else annotation


def _is_context(annotation: Any) -> bool:
    choices = typing.get_args(annotation) or (annotation,)  # `Context | None` is a context, too
    return any(getattr(choice, "__ade_context__", False) for choice in choices)


def _context_position(every: list[Parameter], context: str | None) -> int | None:
    """Return the position of the context if it cannot be passed by keyword."""
    for position, item in enumerate(every):
        if item.name == context:
            only_by_position = item.kind is Parameter.POSITIONAL_ONLY
            before_rest = item.kind in _POSITIONAL and any(x.kind is Parameter.VAR_POSITIONAL for x in every)
            return position if only_by_position or before_rest else None
    return None


# JSON Schema of a task's arguments, and the part of it that can be checked without the function.


_REFERENCES = "#/$defs/{name}"


def check_type(kind: Any, whose: str) -> None:
    """Raise InvalidTask for a type that JSON cannot represent."""
    try:
        _describe(kind)
    except TypeError as error:
        shown = getattr(kind, "__qualname__", None) or str(kind)
        raise InvalidTask(
            f"{whose} has type {shown}, which cannot be read from JSON ({error});"
            " use builtin types, dataclasses, msgspec structs, typed dicts or pydantic models"
        ) from None


def arguments_schema(parameters: Parameters, arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments object, with defaults and without the context."""
    schema, definitions = _describe(arguments)
    root: dict[str, Any] = definitions.pop(schema["$ref"].rpartition("/")[2])
    for name, default in parameters.defaults.items():
        try:
            root["properties"][name]["default"] = msgspec.json.decode(to_json(to_plain(default)))
        except CODING_ERRORS:
            continue  # a default that JSON cannot represent still applies
    if parameters.extra is not None:
        root["additionalProperties"], more = _describe(parameters.extra_type)
        definitions |= more
    return root | ({"$defs": definitions} if definitions else {})


def _describe(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of the type and the definitions it refers to."""
    from_models: dict[str, Any] = {}

    def describe_foreign(foreign: Any) -> dict[str, Any]:
        if not is_readable(foreign):
            raise TypeError(f"{getattr(foreign, '__qualname__', foreign)} is not a known kind of type")
        if not is_model(foreign):
            return {"type": "string", "format": "path"}
        schema: dict[str, Any] = foreign.model_json_schema(ref_template=_REFERENCES.replace("name", "model"))
        from_models.update(schema.pop("$defs", {}))
        return schema

    (schema,), definitions = msgspec.json.schema_components(
        (kind,), schema_hook=describe_foreign, ref_template=_REFERENCES
    )
    return schema, definitions | from_models


_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def check_against_schema(name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Check names and plain types, for callers without the function; the worker checks the rest.

    Raises InvalidArguments.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    faults = []
    if missing := [key for key in schema.get("required", ()) if key not in arguments]:
        faults.append(f"missing: {', '.join(missing)}")
    if schema.get("additionalProperties") is False and (
        unknown := sorted(key for key in arguments if key not in properties)
    ):
        faults.append(f"unknown: {', '.join(unknown)}")
    for key, value in arguments.items():
        wanted = properties.get(key, {}).get("type")
        if isinstance(wanted, str) and not _is_a(value, wanted):
            faults.append(f"argument `{key}`: expected {wanted}, got {type(value).__name__}")
    if faults:
        takes = ", ".join(key if key in schema.get("required", ()) else f"[{key}]" for key in properties)
        raise InvalidArguments(f"{'; '.join(faults)}; {name} takes {takes or 'no arguments'}")


def _is_a(value: object, wanted: str) -> bool:
    allowed = _JSON_TYPES.get(wanted)
    if allowed is None:
        return True
    return isinstance(value, allowed) and (wanted == "boolean" or not isinstance(value, bool))


class Signature:
    """The arguments and result of a function as JSON. Arguments are one JSON object of named values.

    Types are strict: neither `true` nor "5" is a valid int.
    """

    __slots__ = (
        "_check_result",
        "_decoder",
        "_has_optional",
        "_plain_names",
        "_result_decoder",
        "_struct",
        "parameters",
    )

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self._struct = _arguments_struct(parameters)
        self._plain_names = parameters.extra is None
        self._has_optional = bool(self._struct.__struct_defaults__)
        self._decoder = msgspec.json.Decoder(self._struct, dec_hook=decode_foreign)
        self._check_result = parameters.result_type is not Any
        self._result_decoder = msgspec.json.Decoder(parameters.result_type, dec_hook=decode_foreign)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Signature":
        """Inspect a function. Raises InvalidTask if JSON cannot represent the type of a parameter or the result."""
        parameters = read_parameters(function)
        name = parameters.function_name
        variable = {parameters.rest: parameters.rest_type, parameters.extra: parameters.extra_type}
        for parameter, kind in (parameters.types | variable).items():
            check_type(kind, f"parameter {parameter!r} of task {name!r}")
        check_type(parameters.result_type, f"the result of task {name!r}")
        return cls(parameters)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Raw:
        """Encode the arguments of a call as a JSON object. Raises InvalidArguments."""
        return self.encode(self.named(args, kwargs))

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments of a call by name, unchecked. Raises InvalidArguments if one has no name."""
        if not args:
            return kwargs
        parameters = self.parameters
        arguments = dict(zip(parameters.positional, args, strict=False))
        if len(args) > len(parameters.positional):
            if parameters.rest is None:
                most = len(parameters.positional)
                self._complain(f"takes {most} argument{'s' * (most != 1)} by position, {len(args)} were given")
            arguments[parameters.rest] = list(args[len(parameters.positional) :])
        if kwargs:
            if twice := arguments.keys() & kwargs.keys():
                self._complain(f"given twice: {_listed(twice)}")
            arguments.update(kwargs)
        return arguments

    def encode(self, arguments: Mapping[str, Any]) -> Raw:
        """Check named arguments against the types and encode them as JSON. Raises InvalidArguments."""
        try:
            plain: Any = arguments
            for value in arguments.values():
                if type(value) not in SCALARS:
                    plain = to_plain(arguments)
                    break
            if self._plain_names:
                msgspec.convert(plain, self._struct, dec_hook=decode_foreign)
            else:
                self._convert(plain)
            return to_json(plain)
        except CODING_ERRORS as error:
            self._refuse(arguments, error)

    def decode(self, raw: Raw) -> dict[str, Any]:
        """Decode the arguments to the types of the signature; omitted defaults are left out."""
        try:
            if self._plain_names:
                return self._named(self._decoder.decode(raw))
            return self._convert(msgspec.json.decode(raw))
        except CODING_ERRORS as error:
            self._refuse(_names_in(raw), error)

    def place(self, arguments: dict[str, Any], context: object) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments for the call, including the context."""
        parameters = self.parameters
        if not parameters.needs_placing:
            if parameters.context is not None:
                return [], {**arguments, parameters.context: context}
            return [], arguments
        return _placed(parameters, dict(arguments), context)

    def encode_result(self, value: object) -> Raw:
        """Encode the result as JSON. Raises InvalidResult if it does not match the declared type."""
        try:
            plain = value if type(value) in SCALARS else to_plain(value)
            if self._check_result:
                msgspec.convert(plain, self.parameters.result_type, dec_hook=decode_foreign)
            return to_json(plain)
        except CODING_ERRORS as error:
            name = self.parameters.function_name
            raise InvalidResult(f"the result of {name} does not fit: {_where(error, 'result')}") from None

    def decode_result(self, raw: Raw) -> Any:
        """Decode the result to the declared type. Raises InvalidResult."""
        try:
            return self._result_decoder.decode(raw)
        except CODING_ERRORS as error:
            name = self.parameters.function_name
            raise InvalidResult(f"the stored result of {name} does not fit: {_where(error, 'result')}") from None

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments object."""
        return arguments_schema(self.parameters, self._struct)

    def _convert(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Convert plain arguments to typed ones if the function takes **kwargs."""
        names = self._struct.__struct_fields__
        known = {name: value for name, value in plain.items() if name in names}
        extra = {name: value for name, value in plain.items() if name not in names}
        typed = _given(msgspec.convert(known, self._struct, dec_hook=decode_foreign))
        wanted = dict[str, self.parameters.extra_type]  # type: ignore[name-defined] # a type known at run time only
        return typed | msgspec.convert(extra, wanted, dec_hook=decode_foreign)

    def _named(self, arguments: msgspec.Struct) -> dict[str, Any]:
        """Return arguments by name without omitted ones; skip the search if all are required."""
        return _given(arguments) if self._has_optional else msgspec.structs.asdict(arguments)

    def _refuse(self, given: Iterable[str], error: Exception) -> NoReturn:
        """Report all missing and unknown names together; msgspec stops at the first error."""
        known, given = self._struct.__struct_fields__, set(given)
        faults = []
        if missing := self.parameters.required - given:
            faults.append(f"missing: {_listed(missing)}")
        if self._plain_names and (unknown := given - set(known)):
            faults.append(f"unknown: {', '.join(_with_hint(name, known) for name in sorted(unknown))}")
        self._complain("; ".join(faults) or _where(error, "argument"))

    def _complain(self, fault: str) -> NoReturn:
        fault = fault.encode(errors="backslashreplace").decode()  # a name can contain unprintable characters
        raise InvalidArguments(f"{fault}; the signature is {self.parameters.text}") from None


def _arguments_struct(parameters: Parameters) -> type[msgspec.Struct]:
    fields: list[Any] = [
        (name, kind) if name in parameters.required else (name, kind | UnsetType, UNSET)
        for name, kind in parameters.types.items()
    ]
    if parameters.rest is not None:
        fields.append((parameters.rest, list[parameters.rest_type] | UnsetType, UNSET))  # type: ignore[name-defined] # known at run time only
    return msgspec.defstruct(
        parameters.function_name, fields, kw_only=True, forbid_unknown_fields=True, module=__name__
    )


def _given(arguments: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name in arguments.__struct_fields__ if (value := getattr(arguments, name)) is not UNSET}


def _placed(parameters: Parameters, arguments: dict[str, Any], context: object) -> tuple[list[Any], dict[str, Any]]:
    rest = arguments.pop(parameters.rest, []) if parameters.rest is not None else []
    args: list[Any] = []
    for name in parameters.positional:
        if not rest and name not in parameters.positional_only:
            break
        if name not in arguments and name not in parameters.defaults:
            break  # Python's own error names the missing argument
        args.append(arguments.pop(name) if name in arguments else parameters.defaults[name])
    args += rest
    if parameters.context_position is not None and parameters.context_position <= len(args):
        args.insert(parameters.context_position, context)
    elif parameters.context is not None:
        arguments[parameters.context] = context
    return args, arguments


def _names_in(raw: Raw) -> list[str]:
    try:
        decoded = msgspec.json.decode(raw)
    except CODING_ERRORS:
        return []
    return list(decoded) if isinstance(decoded, dict) else []


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _with_hint(name: str, known: Iterable[str]) -> str:
    nearest = close_names(name, known)
    return f"{name} (did you mean {nearest[0]}?)" if nearest else name


def _where(error: Exception, noun: str) -> str:
    """Turn "Expected `int`, got `str` - at `$.limit`" into "argument `limit`: expected `int`, got `str`"."""
    if isinstance(error, RecursionError):
        return f"the {noun} is nested too deeply"
    if isinstance(error, UnicodeError):
        return f"the {noun} has text that is not valid Unicode"
    message, _, path = str(error).partition(" - at `$")
    place = path.removesuffix("`").removeprefix(".")
    message = message[0].lower() + message[1:] if message.startswith("Expected") else message
    return f"{noun} `{place}`: {message}" if place else message
