"""Filters of events: what they let through, and what they refuse to understand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.errors import InvalidFilter
from ade.events.filters import EVERYTHING, MOST_VALUES, EventFilter, compile_filter, parse_filter
from tests.depth import examples
from tests.domain import Event

TASK = "01900000-0000-7000-8000-000000000001"
OTHER = "01900000-0000-7000-8000-000000000002"


def event(kind: str = "task.created", task_id: str | None = None, **payload: object) -> Event:
    return Event(type=kind, at=1, task_id=task_id, payload=payload)


def passes(fields: list[tuple[str, str]], told: Event) -> bool:
    return compile_filter(parse_filter(fields))(told)


def test_no_fields_want_everything() -> None:
    assert parse_filter([]) == EVERYTHING == parse_filter([("type", "*")])
    assert passes([], event())


@pytest.mark.parametrize(
    ("asked", "kind", "is_wanted"),
    [
        ("task.failed", "task.failed", True),
        ("task.failed", "task.failed_twice", False),
        ("task.*", "task.failed", True),
        ("task.*", "tasks.failed", False),
        ("task.*", "task", False),
        ("lock.*,alert", "alert", True),
        ("lock.*,alert", "task.created", False),
        ("approval.*,*", "task.created", True),
    ],
)
def test_types_are_whole_or_all_of_a_kind(asked: str, kind: str, is_wanted: bool) -> None:
    assert passes([("type", asked)], event(kind)) is is_wanted


def test_a_task_is_found_in_its_own_events_and_in_those_that_tell_of_it() -> None:
    asked = [("task", TASK)]
    assert passes(asked, event(task_id=TASK))
    assert passes(asked, Event(type="agent_run.began", at=1, payload={"task_id": TASK}))
    assert not passes(asked, event(task_id=OTHER))
    assert not passes(asked, event())


def test_payload_fields_count_where_they_are() -> None:
    assert passes([("queue", "mail")], event(queue="mail"))
    assert not passes([("queue", "mail")], event())
    assert not passes([("queue", "mail")], event(queue=["mail"]))
    assert passes([("name", "send"), ("name", "fetch")], event(name="fetch"))
    assert passes([("inbox", "chat-1")], event("inbox.enqueued", inbox_id="chat-1"))


def test_a_lock_is_found_by_its_resource_and_in_tasks_that_wait_for_it() -> None:
    asked = [("lock", "repo:app"), ("lock", "database:main")]
    held = event("lock.acquired", items=[{"resource": "repo:web"}, {"resource": "repo:app", "mode": "exclusive"}])
    assert passes(asked, held)
    assert passes(asked, event("task.deferred", locks=["database:main"]))
    assert not passes(asked, event("lock.acquired", items=[{"resource": "repo:application"}]))
    assert not passes(asked, event("inbox.cleared", items=7, locks="repo:app"))
    assert passes([("lock", "repo:caf\u0065\u0301")], event("lock.acquired", items=[{"resource": "repo:caf\u00e9"}]))
    assert not passes(asked, event())


def test_all_fields_must_hold() -> None:
    asked = [("type", "task.*"), ("queue", "mail"), ("task", TASK)]
    assert passes(asked, event(task_id=TASK, queue="mail"))
    assert not passes(asked, event(task_id=TASK, queue="post"))
    assert not passes(asked, event("queue.paused", task_id=TASK, queue="mail"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("colour", "red"),
        ("Type", "task.failed"),
        ("type", ""),
        ("type", "task.failed,"),
        ("type", "task.*.x"),
        ("type", "ta*"),
        ("type", "task.failed\n"),
        ("type", "x" * 201),
        ("task", "123"),
        ("task", TASK.upper().replace("0", "A")),
        ("queue", ""),
        ("queue", "a\nb"),
        ("name", "n" * 201),
        ("inbox", "with space"),
        ("inbox", "{x}"),
        ("lock", ""),
        ("lock", "{x}"),
        ("lock", "x" * 513),
    ],
)
def test_what_is_not_understood_is_refused_with_a_sentence(field: str, value: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse_filter([(field, value)])
    assert len(refused.value.detail) < 250
    assert "\n" not in refused.value.detail


def test_too_many_values_are_refused() -> None:
    parse_filter([("queue", f"q{number}") for number in range(MOST_VALUES)])
    with pytest.raises(InvalidFilter, match="queue has more than"):
        parse_filter([("queue", f"q{number}") for number in range(MOST_VALUES + 1)])


words = st.sampled_from(["task", "lock", "created", "x_1"])
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=examples(40))
@given(
    st.lists(st.lists(words, min_size=1, max_size=3).map(".".join), max_size=3),
    st.lists(words, min_size=1, max_size=3).map(".".join),
    st.dictionaries(st.sampled_from(["queue", "name", "inbox_id", "task_id", "items", "locks"]), json, max_size=4),
)
def test_a_compiled_filter_says_what_the_words_say(types: list[str], kind: str, payload: dict[str, object]) -> None:
    told = Event(type=kind, at=1, payload=payload)
    plain = compile_filter(EventFilter(types=frozenset(types)))
    assert plain(told) is (not types or kind in types)
    wide = compile_filter(EventFilter(types=frozenset(f"{each}.*" for each in types)))
    assert wide(told) is (not types or any(kind.startswith(f"{each}.") for each in types))
    assert compile_filter(EventFilter(locks=frozenset({"repo:app"})))(told) is False  # whatever else is in there
    narrow = compile_filter(EventFilter(queues=frozenset({"q"}), inbox_ids=frozenset({"i"}), task_ids=frozenset({"t"})))
    assert narrow(told) is (
        payload.get("queue") == "q" and payload.get("inbox_id") == "i" and payload.get("task_id") == "t"
    )
