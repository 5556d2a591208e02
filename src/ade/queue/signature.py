"""How a function's arguments and result are written as JSON and read back: decided once, checked every time."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ade.core.errors import InvalidArguments, InvalidResult
from ade.queue.coding import CODING_ERRORS, SCALARS, decode_foreign, to_json, to_plain
from ade.queue.parameters import Parameters, read_parameters
from ade.queue.schemas import arguments_schema, check_type


class Signature:
    """Arguments travel as one JSON object of named arguments. Types are strict: `true` and "5" are no int."""

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
        """Raises InvalidTask when a parameter or the result has a type that JSON cannot carry."""
        parameters = read_parameters(function)
        name = parameters.function_name
        variable = {parameters.rest: parameters.rest_type, parameters.extra: parameters.extra_type}
        for parameter, kind in (parameters.types | variable).items():
            check_type(kind, f"parameter {parameter!r} of task {name!r}")
        check_type(parameters.result_type, f"the result of task {name!r}")
        return cls(parameters)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Raw:
        """The JSON object for a call with these arguments. Raises InvalidArguments."""
        return self.encode(self.named(args, kwargs))

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments of a call by name, unchecked. Raises InvalidArguments when they cannot have one."""
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
        """Check named arguments against the types and write them as JSON. Raises InvalidArguments."""
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
        """The arguments as the types of the signature; defaults that were not given are left out."""
        try:
            if self._plain_names:
                return self._named(self._decoder.decode(raw))
            return self._convert(msgspec.json.decode(raw))
        except CODING_ERRORS as error:
            self._refuse(_names_in(raw), error)

    def place(self, arguments: dict[str, Any], context: object) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with: positional and keyword arguments, the context among them."""
        parameters = self.parameters
        if not parameters.needs_placing:
            if parameters.context is not None:
                return [], {**arguments, parameters.context: context}
            return [], arguments
        return _placed(parameters, dict(arguments), context)

    def encode_result(self, value: object) -> Raw:
        """The result as JSON. Raises InvalidResult when it is not what the function declares."""
        try:
            plain = value if type(value) in SCALARS else to_plain(value)
            if self._check_result:
                msgspec.convert(plain, self.parameters.result_type, dec_hook=decode_foreign)
            return to_json(plain)
        except CODING_ERRORS as error:
            name = self.parameters.function_name
            raise InvalidResult(f"the result of {name} does not fit: {_where(error, 'result')}") from None

    def decode_result(self, raw: Raw) -> Any:
        """The result as the type the function declares."""
        try:
            return self._result_decoder.decode(raw)
        except CODING_ERRORS as error:
            name = self.parameters.function_name
            raise InvalidResult(f"the stored result of {name} does not fit: {_where(error, 'result')}") from None

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments object."""
        return arguments_schema(self.parameters, self._struct)

    def _convert(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Typed arguments from plain ones, where further names are allowed."""
        names = self._struct.__struct_fields__
        known = {name: value for name, value in plain.items() if name in names}
        extra = {name: value for name, value in plain.items() if name not in names}
        typed = _given(msgspec.convert(known, self._struct, dec_hook=decode_foreign))
        wanted = dict[str, self.parameters.extra_type]  # type: ignore[name-defined] # a type known at run time only
        return typed | msgspec.convert(extra, wanted, dec_hook=decode_foreign)

    def _named(self, arguments: msgspec.Struct) -> dict[str, Any]:
        """By name, without those that were not given; where all must be given nobody has to look."""
        return _given(arguments) if self._has_optional else msgspec.structs.asdict(arguments)

    def _refuse(self, given: Iterable[str], error: Exception) -> NoReturn:
        """Say everything about the names at once; msgspec stops at the first fault."""
        known, given = self._struct.__struct_fields__, set(given)
        faults = []
        if missing := self.parameters.required - given:
            faults.append(f"missing: {_listed(missing)}")
        if self._plain_names and (unknown := given - set(known)):
            faults.append(f"unknown: {', '.join(_with_hint(name, known) for name in sorted(unknown))}")
        self._complain("; ".join(faults) or _where(error, "argument"))

    def _complain(self, fault: str) -> NoReturn:
        fault = fault.encode(errors="backslashreplace").decode()  # a name may hold what cannot be printed
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
            break  # Python says best what is missing
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
    from difflib import get_close_matches  # slow to load, and only needed for a mistake

    nearest = get_close_matches(name, known, n=1)
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
