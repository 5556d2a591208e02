"""The OpenAPI document as a product: every field is described, every body has an example, and generators accept it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import msgspec

from ade.server.openapi import description, texts
from docs.generators.http_types import records
from tests.domain import ROUTES, plan_of, shape_of

DOCUMENT = description()
SCHEMAS: Mapping[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS: list[Mapping[str, Any]] = [each for ways in DOCUMENT["paths"].values() for each in ways.values()]
WHERE = "add a line to src/ade/server/descriptions.toml"


def nodes(node: Any, place: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object of the document, with its place in it."""
    if isinstance(node, dict):
        yield place, node
        for name, each in node.items():
            yield from nodes(each, f"{place}/{name}")
    elif isinstance(node, list):
        for number, each in enumerate(node):
            yield from nodes(each, f"{place}/{number}")


def is_sentence(text: object) -> bool:
    return isinstance(text, str) and text.endswith(".") and (text[0].isupper() or text[0] in "`0123456789")


def test_every_property_has_a_description() -> None:
    missing = [
        f"{name}.{field}"
        for name, schema in SCHEMAS.items()
        for field, each in schema.get("properties", {}).items()
        if not is_sentence(each.get("description"))
    ]
    assert missing == [], WHERE


def test_every_parameter_has_a_description() -> None:
    missing = [
        f"{operation['operationId']}({parameter['name']})"
        for operation in OPERATIONS
        for parameter in operation["parameters"]
        if not is_sentence(parameter.get("description"))
    ]
    assert missing == [], WHERE


def test_every_type_operation_tag_and_response_has_a_description() -> None:
    assert [name for name, schema in SCHEMAS.items() if not schema.get("description")] == []
    assert [each["operationId"] for each in OPERATIONS if not each["summary"]] == []
    assert [each["name"] for each in DOCUMENT["tags"] if not is_sentence(each["description"])] == [], WHERE
    assert {tag for each in OPERATIONS for tag in each["tags"]} == {each["name"] for each in DOCUMENT["tags"]}
    responses = [response for each in OPERATIONS for response in each["responses"].values() if "$ref" not in response]
    assert all(each["description"] for each in (*responses, *DOCUMENT["components"]["responses"].values()))


def test_every_request_body_has_an_example_that_fits() -> None:
    missing = []
    for operation in OPERATIONS:
        for media in operation.get("requestBody", {}).get("content", {}).values():
            name = media["schema"]["$ref"].rpartition("/")[2]
            examples = media.get("examples", {})
            if not examples:
                missing.append(name)
            for example in examples.values():
                schema = {**SCHEMAS[name], "components": {"schemas": SCHEMAS}}
                assert jsonschema_rs.Draft202012Validator(schema).is_valid(example["value"]), (name, example)
                form = shape_of(operation["operationId"]).body
                assert form is not None
                msgspec.convert(example["value"], plan_of(form).wire)
    assert missing == [], WHERE


def test_nothing_is_described_that_does_not_exist() -> None:
    said = texts()
    fields = {(name, field) for name, schema in SCHEMAS.items() for field in schema.get("properties", ())}
    parameters = {
        (operation["operationId"], each["name"])
        for operation in OPERATIONS
        for each in operation["parameters"]
        if each["in"] != "header"
    }
    named = {field for _, field in fields} | {name for _, name in parameters}
    used = {(base, field) for name, field in fields for base in bases_of(name)}
    for operation, name in parameters:
        used |= {(base.__name__, name) for base in (shape_of(operation).query or object).__mro__}
    bodies = {body.__name__ for route in ROUTES if (body := shape_of(route.operation).body) is not None}

    assert sorted(said["fields"].keys() - named) == []
    assert sorted(said["parameters"].keys() - {name for _, name in parameters}) == []
    assert [(of, name) for of, own in said["operations"].items() for name in own if (of, name) not in parameters] == []
    assert [(of, name) for of, own in said["types"].items() for name in own if (of, name) not in used] == []
    assert sorted(said["examples"].keys() - bodies) == []
    assert sorted(said["tags"]) == sorted(each["name"] for each in DOCUMENT["tags"])


def bases_of(name: str) -> set[str]:
    """The names under which the fields of a type can be described: its own, and those of types that it extends."""
    plain = name.removeprefix("Given") if name not in records() else name
    if name.endswith("Page"):
        return {name, "Page"}
    return {name, *(each.__name__ for each in records()[plain].__mro__)} if plain in records() else {name}


def test_names_and_titles_are_unique() -> None:
    identifiers = Counter(each["operationId"] for each in OPERATIONS)
    titles = Counter(
        each["title"] for place, each in nodes(DOCUMENT) if isinstance(each.get("title"), str) and place != "/info"
    )

    assert [name for name, times in identifiers.items() if times > 1] == []
    assert [name for name, times in titles.items() if times > 1] == []
    assert [name for name, schema in SCHEMAS.items() if schema.get("title") != name and "enum" not in schema] == []


def test_objects_say_whether_they_have_further_fields() -> None:
    """A generator takes an object without fields for an empty one, unless it is told."""
    silent = [
        place
        for place, each in nodes(DOCUMENT)
        if each.get("type") == "object" and not each.get("properties") and "additionalProperties" not in each
    ]
    untyped = [place for place, each in nodes(DOCUMENT) if isinstance(each.get("enum"), list) and "type" not in each]

    assert silent == []
    assert untyped == []


def test_fields_that_a_response_always_has_are_required() -> None:
    assert {"id", "status", "queue", "priority", "attempt", "created_at", "version", "args"} <= set(
        SCHEMAS["Task"]["required"]
    )
    assert not {"result", "error", "finished_at", "depends_on", "deadline"} & set(SCHEMAS["Task"]["required"])
    assert SCHEMAS["TaskPage"]["required"] == ["items"]
    assert SCHEMAS["NewTask"]["required"] == ["name"]
