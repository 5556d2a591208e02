"""The reference of the HTTP interface is complete, and its lines with curl are requests that a server takes."""

import re
import shlex

import msgspec
import pytest

from ade.server.openapi import document
from ade.server.operation import API
from ade.server.router import Router
from docs.generate import DOCS
from docs.generators.http_examples import CURL
from docs.generators.http_types import schemas, type_text
from tests.domain import ROUTE_OF, ROUTES, plan_of, shape_of

PAGE = (DOCS / "reference" / "http.md").read_text()
LONGEST = 3_200  # lines that a reader can still look through
OPTIONS_WITH_VALUE = {"-H", "-X", "-d"}


def request_of(line: str) -> tuple[str, str, str | None]:
    """Method, target and body of a line with curl."""
    words = iter(shlex.split(line)[1:])
    given: dict[str, str] = {}
    target = ""
    for word in words:
        if word in OPTIONS_WITH_VALUE:
            given[word] = next(words)
        elif not word.startswith("-"):
            target = word
    return given.get("-X", "POST" if "-d" in given else "GET"), target, given.get("-d")


@pytest.mark.parametrize("operation", CURL)
def test_a_line_with_curl_fits_its_route(operation: str) -> None:
    method, target, body = request_of(CURL[operation])
    path = target.partition("?")[0].replace("$api", API)

    assert Router((route, route) for route in ROUTES).find(method, path).endpoint.operation == operation
    if body is not None:
        form = shape_of(operation).body
        assert form is not None
        msgspec.convert(msgspec.json.decode(body), plan_of(form).wire)


@pytest.mark.parametrize("operation", CURL)
def test_a_line_with_curl_names_parameters_that_the_route_has(operation: str) -> None:
    _, target, _ = request_of(CURL[operation])
    form = shape_of(operation).query
    known = set() if form is None else {field.wire_name for field in plan_of(form).fields}

    assert {pair.partition("=")[0] for pair in target.partition("?")[2].split("&") if pair} <= known


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 500}, "integer, 1 to 500"),
        ({"type": "string", "maxLength": 2000}, "text, up to 2,000 characters"),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Task"}, "minItems": 1, "maxItems": 9},
         "list (1 to 9) of [Task](#task)"),
        ({"anyOf": [{"type": "number"}, {"format": "date-time"}, {"type": "null"}]}, "number or time"),
        ({"enum": ["newest", "oldest"]}, "`newest` or `oldest`"),
        ({"$ref": "#/components/schemas/Status"}, "[Status](#choices)"),
        ({}, "any value"),
    ],
)  # fmt: skip
def test_types_are_told_in_words(schema: dict[str, object], words: str) -> None:
    assert type_text(schema) == words


def test_every_route_and_every_type_is_in_the_page() -> None:
    headings = set(re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE))
    linked = set(re.findall(r"\]\(#([\w-]+)\)", PAGE))

    assert [name for name in ROUTE_OF if f" {name} " not in PAGE and f"[{name}]" not in PAGE] == []
    assert linked - {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings} == set()


def test_the_openapi_document_names_no_type_that_it_does_not_have() -> None:
    named = set(re.findall(rb'"#/components/schemas/([\w.]+)"', document()))

    assert {name.decode() for name in named} <= set(schemas())


def test_the_page_can_still_be_read() -> None:
    assert PAGE.count("\n") < LONGEST
