"""Callers that know a task by name only get as much checking as its schema allows."""

from typing import Any

import pytest

from ade.errors import InvalidArguments
from ade.tasks.arguments import Signature, check_against_schema
from tests.fuzz.table import passes


def handler(url: str, limit: int = 5, ratio: float = 0.5, deep: bool = False, tags: list[str] | None = None) -> None:
    """Whose schema a worker has registered."""


SCHEMA = Signature.of(handler).schema()


@pytest.mark.parametrize(
    "arguments",
    [{"url": "u"}, {"url": "u", "limit": 3, "ratio": 1, "deep": True}, {"url": "u", "tags": None}],
)
def test_fitting_arguments_pass(arguments: dict[str, Any]) -> None:
    assert passes(lambda: check_against_schema("handler", SCHEMA, arguments), InvalidArguments)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "missing: url"),
        ({"url": "u", "lmit": 3}, "unknown: lmit"),
        ({"url": "u", "limit": "3"}, "argument `limit`: expected integer, got str"),
        ({"url": "u", "limit": True}, "argument `limit`: expected integer, got bool"),
        ({"url": "u", "ratio": True}, "argument `ratio`: expected number, got bool"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidArguments, match="handler takes url, ") as refusal:
        check_against_schema("handler", SCHEMA, arguments)

    assert complaint in refusal.value.detail
