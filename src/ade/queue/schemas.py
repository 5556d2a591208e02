"""JSON Schema of a task's arguments, and the part of it that can be checked without the function at hand."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ade.core.errors import InvalidArguments, InvalidTask
from ade.queue.coding import CODING_ERRORS, is_model, is_readable, to_json, to_plain
from ade.queue.parameters import Parameters

_REFERENCES = "#/$defs/{name}"


def check_type(kind: Any, whose: str) -> None:
    """Raise InvalidTask for a type that JSON cannot carry."""
    try:
        _describe(kind)
    except TypeError as error:
        shown = getattr(kind, "__qualname__", None) or str(kind)
        raise InvalidTask(
            f"{whose} has type {shown}, which cannot be read from JSON ({error});"
            " use builtin types, dataclasses, msgspec structs, typed dicts or pydantic models"
        ) from None


def arguments_schema(parameters: Parameters, arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of the arguments object, with defaults, and without the context."""
    schema, definitions = _describe(arguments)
    root: dict[str, Any] = definitions.pop(schema["$ref"].rpartition("/")[2])
    for name, default in parameters.defaults.items():
        try:
            root["properties"][name]["default"] = msgspec.json.decode(to_json(to_plain(default)))
        except CODING_ERRORS:
            continue  # a default that JSON cannot show still applies
    if parameters.extra is not None:
        root["additionalProperties"], more = _describe(parameters.extra_type)
        definitions |= more
    return root | ({"$defs": definitions} if definitions else {})


def _describe(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The type's schema and the definitions it refers to."""
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
    """Names and plain types, for callers that know a task by name only; the worker checks the rest."""
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
