"""The external representation of values that contain records."""

from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from ade import Task
from ade.server.wire_format import external, members_of, plan_of
from tests.domain import Page

TASK = Task(id="t1", name="pack", args=msgspec.Raw(b'{"item":"lamp"}'), created_at=1_000, lease_until=7)
WRITTEN = "1970-01-01T00:00:01.000Z"


def encoded(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(external(value)))


def test_records_are_found_in_lists_and_objects() -> None:
    shown = encoded({"items": [TASK], "found": (TASK, 3), "at": 1_000})

    assert [task["created_at"] for task in (shown["items"][0], shown["found"][0])] == [WRITTEN, WRITTEN]
    assert (shown["found"][1], shown["at"]) == (3, 1_000), "what is no field of a record is left as it is"
    assert "lease_until" not in shown["items"][0]


def test_a_page_needs_no_type_to_be_written_as_over_http() -> None:
    page = Page(items=[TASK], next="c1")

    assert msgspec.json.encode(external(page)) == msgspec.json.encode(plan_of(Page[Task]).out(page))
    assert "next" not in encoded(Page(items=[TASK]))


def test_a_document_with_more_has_the_members_of_its_record() -> None:
    shown = msgspec.json.decode(msgspec.json.encode({**members_of(TASK), "new": True}))

    assert shown == {**encoded(TASK), "new": True}
    assert shown["args"] == {"item": "lamp"}


def test_records_are_found_in_sets_mappings_and_fields_of_any_type() -> None:
    class Crate(Struct, frozen=True):
        content: object

    class Item(Struct, frozen=True):
        created_at: int
        lease_until: int = 0

    item = Item(1_000, 7)
    shown = encoded(MappingProxyType({"set": {item}, "any": Crate([item])}))

    assert shown == {"set": [{"created_at": WRITTEN}], "any": {"content": [{"created_at": WRITTEN}]}}
