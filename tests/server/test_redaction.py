"""Records as they are seen outside: the same by the short way and over the wire."""

import msgspec
import pytest
from msgspec import Raw, Struct, structs

from ade import Task
from ade.server.redaction import mark_private, redacted, redaction_plan_of
from tests.domain import Page, Worker, plan_of

TASK = Task(id="t", name="greet", lease_until=7, waiting_on=3, args_digest="d", result=Raw(b"[1]"), created_at=5)
WORKER = Worker(id="w", hostname="h", pid=1, started_at=2, version="0", heartbeat_until=9)


def over_the_wire(kind: object, record: object) -> object:
    plan = plan_of(kind)
    return plan.back(msgspec.json.decode(msgspec.json.encode(plan.out(record)), type=plan.wire))


def test_what_never_leaves_is_not_seen() -> None:
    shown = redacted(TASK)
    assert (shown.lease_until, shown.args_digest) == (None, None)
    assert structs.replace(shown, lease_until=7, args_digest="d") == TASK
    assert shown == over_the_wire(Task, TASK)


def test_inside_of_others_neither() -> None:
    page = Page(items=(TASK, TASK), next="x")
    assert redacted(page) == over_the_wire(Page[Task], page)
    workers = Page(items=[WORKER])
    assert redacted(workers).items[0].heartbeat_until == 0


class Kept(Struct, frozen=True):
    name: str
    secret: str = ""


class Shelf(Struct, frozen=True):
    kept: dict[str, tuple[Kept, ...]]
    best: Kept | None = None


class Needed(Struct, frozen=True):
    secret: str


def test_hidden_fields_have_their_defaults_wherever_they_are() -> None:
    mark_private(Kept, "secret")
    shelf = Shelf({"a": (Kept("x", "s"), Kept("y"))}, Kept("z", "s"))
    assert redacted(shelf) == Shelf({"a": (Kept("x"), Kept("y"))}, Kept("z")) == over_the_wire(Shelf, shelf)


def test_a_hidden_field_needs_a_default() -> None:
    mark_private(Needed, "secret")
    with pytest.raises(TypeError, match=r"Needed\.secret is hidden"):
        redaction_plan_of(Needed)


class Marked(Kept, frozen=True):
    color: str = "red"


class Box(Struct, frozen=True):
    anything: object
    by_name: dict[str, object]
    several: frozenset[Kept] = frozenset()
    either: Kept | int = 0


def test_subclasses_hide_the_same_fields() -> None:
    mark_private(Kept, "secret")

    assert redacted(Marked("x", "s")) == Marked("x")
    assert over_the_wire(Marked, Marked("x", "s")) == Marked("x")


def test_hidden_fields_stay_hidden_in_sets_and_in_fields_of_any_type() -> None:
    mark_private(Kept, "secret")
    secret = Kept("x", "hush")
    box = Box([secret, {"a": secret}], {"b": (secret,)}, frozenset({secret}), Marked("y", "hush"))

    assert b"hush" not in msgspec.json.encode(plan_of(Box).out(box))
    assert redacted(box) == Box([Kept("x"), {"a": Kept("x")}], {"b": (Kept("x"),)}, frozenset({Kept("x")}), Marked("y"))
