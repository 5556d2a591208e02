"""What a function's parameters are called, which are required and where the context goes."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Never, NoReturn

from ade.core.errors import InvalidTask

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The parameters a caller fills, by name and in order; `context` is filled by the worker."""

    function_name: str
    types: dict[str, Any]
    positional: tuple[str, ...]  # may be given by position
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
        """Whether some arguments can be passed by position only."""
        return self.rest is not None or bool(self.positional_only) or self.context_position is not None


def read_parameters(function: Callable[..., Any]) -> Parameters:
    """Raises InvalidTask when the annotations cannot be resolved."""
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
    choices = typing.get_args(annotation) or (annotation,)  # `Context | None` is a context as well
    return any(getattr(choice, "__ade_context__", False) for choice in choices)


def _context_position(every: list[Parameter], context: str | None) -> int | None:
    """Where the context must stand when it cannot be passed by keyword."""
    for position, item in enumerate(every):
        if item.name == context:
            only_by_position = item.kind is Parameter.POSITIONAL_ONLY
            before_rest = item.kind in _POSITIONAL and any(x.kind is Parameter.VAR_POSITIONAL for x in every)
            return position if only_by_position or before_rest else None
    return None
