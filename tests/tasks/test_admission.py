"""What may come in at all: each refusal says what would be right, and what passes keeps within the limits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.errors import InvalidTask
from ade.failures import Backoff
from ade.locks.model import check_priority
from ade.tasks.admission import LAST_MOMENT, check_name, check_queue_name, check_task
from ade.tasks.lifecycle import BIRTHS, Status
from tests.fuzz.table import passes
from tests.tasks.factories import TASK_ID, new_task

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"queue": ""}, "use letters, digits, '.', '_' and '-', at most 100"),
    ({"queue": "-first"}, "queue '-first' is not a valid name"),
    ({"queue": "two words"}, "queue 'two words' is not a valid name"),
    ({"queue": "line\n"}, "is not a valid name"),
    ({"queue": "a" * 101}, "at most 100"),
    ({"queue": "büro"}, "is not a valid name"),
    ({"name": ""}, "start with a letter or '_'"),
    ({"name": "1st"}, "task name '1st' is not valid"),
    ({"name": "a" * 201}, "at most 200"),
    ({"name": "a/b"}, "then letters, digits, '_', '.', ':' and '-'"),
    (
        {"priority": -1},
        "use 0 (first) to 9 (last), or a name: urgent (1), high (3), normal (5), low (7); the default is 5",
    ),
    ({"priority": 10}, "priority 10 is not valid"),
    ({"priority": 11}, "priority 11 is not valid"),
    ({"priority": True}, "priority True is not valid"),
    ({"priority": 5.0}, "priority 5.0 is not valid"),
    ({"priority": "5"}, "priority '5' is not valid"),
    ({"id": "not-an-id"}, "task id 'not-an-id' is not a UUID in its lower-case text form"),
    ({"id": TASK_ID.upper()}, "lower-case"),
    ({"id": TASK_ID + "\n"}, "is not a UUID"),
    ({"status": Status.RUNNING}, "a new task cannot be running; it begins as pending, draft, submitted, reviewing"),
    ({"idempotency_key": ""}, "idempotency_key must have 1 to 500 printable characters"),
    ({"idempotency_key": "k" * 501}, "idempotency_key must have 1 to 500 printable characters"),
    ({"concurrency_key": "a\x00b"}, "concurrency_key must have 1 to 500 printable characters"),
    ({"tags": ("",)}, "each of 1 to 100 printable characters"),
    ({"tags": ("t" * 101,)}, "each of 1 to 100 printable characters"),
    ({"tags": ("a\nb",)}, "printable"),
    ({"tags": tuple(f"t{n}" for n in range(51))}, "tags must be at most 50"),
    ({"depends_on": ("x",) * 1001}, "may wait for at most 1000 others, got 1001"),
    ({"run_after": -1}, "give a delay in seconds or a datetime"),
    ({"run_after": LAST_MOMENT + 1}, "run_after is not a time between 1970 and 9999"),
    ({"run_after": 10, "deadline": 10}, "the deadline must be after run_after"),
    ({"deadline": LAST_MOMENT + 1}, "before the year 10000"),
    ({"max_attempts": 0}, "use 1 to 1000 (total runs)"),
    ({"max_attempts": 1001}, "max_attempts 1001 is not valid"),
    ({"timeout_ms": 0}, "timeout must be more than 0 seconds, or absent for none"),
    ({"timeout_ms": -5}, "timeout must be more than 0 seconds"),
    ({"result_ttl_ms": 0}, "result_ttl must be more than 0 seconds, or absent for none"),
    ({"backoff": Backoff(base_ms=-1)}, "backoff needs 0 <= base <= cap"),
    ({"backoff": Backoff(base_ms=2, cap_ms=1)}, "backoff needs 0 <= base <= cap"),
    ({"backoff": Backoff(multiplier=0.5)}, "multiplier 1 to 1000"),
    ({"backoff": Backoff(multiplier=float("nan"))}, "multiplier 1 to 1000"),
    ({"backoff": Backoff(multiplier=float("inf"))}, "multiplier 1 to 1000"),
    ({"backoff": Backoff(jitter=1.5)}, "jitter 0 to 1"),
    ({"backoff": Backoff(jitter=float("nan"))}, "jitter 0 to 1"),
]

LIMITS: list[dict[str, Any]] = [
    {"queue": "a" * 100},
    {"queue": "mail.v2_x-1"},
    {"name": "_a:b.c-d"},
    {"name": "agent:claude"},
    {"name": "a" * 200},
    {"priority": 0},
    {"priority": 9},
    {"status": Status.DRAFT},
    {"status": Status.REVIEWING},
    {"idempotency_key": "k" * 500},
    {"concurrency_key": "tenant 7 / Zürich"},
    {"tags": tuple("t" * 100 for _ in range(50))},
    {"depends_on": ("x",) * 1000},
    {"run_after": LAST_MOMENT},
    {"run_after": 10, "deadline": 11},
    {"deadline": LAST_MOMENT},
    {"max_attempts": 1},
    {"max_attempts": 1000},
    {"timeout_ms": 1},
    {"backoff": Backoff(base_ms=0, cap_ms=0, multiplier=1, jitter=1)},
]


@pytest.mark.parametrize(("fields", "says"), REFUSALS)
def test_a_refusal_says_what_is_wrong_and_what_is_right(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidTask) as refusal:
        check_task(new_task(**fields))

    assert says in refusal.value.detail
    assert len(refusal.value.detail) < 400, "a refusal does not repeat an endless value"


@pytest.mark.parametrize("fields", LIMITS)
def test_what_lies_just_within_the_limits_comes_in(fields: dict[str, Any]) -> None:
    assert passes(lambda: check_task(new_task(**fields)), InvalidTask)


# Values around every limit, so that tasks on both sides of it are drawn.
some_text = st.one_of(st.text(max_size=8), st.sampled_from([0, 1, 100, 101, 201, 501]).map(lambda size: "a" * size))
some_time = st.one_of(st.integers(-2, 3), st.sampled_from([LAST_MOMENT, LAST_MOMENT + 1]), st.integers())
some_backoff = st.builds(Backoff, base_ms=some_time, multiplier=st.floats(), cap_ms=some_time, jitter=st.floats(-1, 2))
some_fields: dict[str, st.SearchStrategy[Any]] = {
    "id": st.one_of(st.uuids().map(str), some_text),
    "queue": some_text,
    "name": some_text,
    "priority": st.one_of(st.integers(-1, 11), st.booleans()),
    "status": st.sampled_from(Status),
    "idempotency_key": st.one_of(st.none(), some_text),
    "concurrency_key": st.one_of(st.none(), some_text),
    "tags": st.one_of(st.lists(some_text, max_size=3).map(tuple), st.just(("t",) * 51)),
    "depends_on": st.sampled_from([(), ("x",), ("x",) * 1000, ("x",) * 1001]),
    "run_after": some_time,
    "deadline": st.one_of(st.none(), some_time),
    "max_attempts": st.one_of(st.integers(-1, 3), st.integers(999, 1001)),
    "timeout_ms": st.one_of(st.none(), some_time),
    "result_ttl_ms": st.one_of(st.none(), some_time),
    "backoff": some_backoff,
}


def is_within(text: str | None, least: int, most: int) -> bool:
    return text is None or (least <= len(text) <= most and text.isprintable())


@given(fields=st.fixed_dictionaries({}, optional=some_fields))
def test_whatever_passes_satisfies_every_limit(fields: dict[str, Any]) -> None:
    task = new_task(**fields)
    try:
        check_task(task)
    except InvalidTask:
        return

    assert is_within(task.queue, 1, 100)
    assert is_within(task.name, 1, 200)
    assert type(task.priority) is int
    assert task.priority in range(10)
    assert task.status in BIRTHS
    assert is_within(task.idempotency_key, 1, 500)
    assert is_within(task.concurrency_key, 1, 500)
    assert len(task.tags) <= 50
    assert all(is_within(tag, 1, 100) for tag in task.tags)
    assert len(task.depends_on) <= 1000
    assert 0 <= task.run_after <= LAST_MOMENT
    assert task.deadline is None or task.run_after < task.deadline <= LAST_MOMENT
    assert 1 <= task.max_attempts <= 1000
    assert all(limit is None or 0 < limit <= LAST_MOMENT for limit in (task.timeout_ms, task.result_ttl_ms))
    for failures in (1, 2, task.max_attempts):
        assert 0 <= task.backoff.delay_ms(failures, 0.999) <= 2 * task.backoff.cap_ms


@given(text=st.text(max_size=300))
def test_names_that_pass_need_no_quoting_anywhere(text: str) -> None:
    """Stores put them into JSON, SQL text and keys as they are."""
    for check in (check_queue_name, check_name):
        try:
            check(text)
        except InvalidTask:
            continue
        assert text.isascii()
        assert not set(text) & set("\"'\\/ {}%\t\r\n")


@given(value=st.one_of(st.integers(), st.booleans(), st.floats(), st.text(), st.none()))
def test_a_priority_is_a_whole_number_from_0_to_9_and_nothing_else(value: Any) -> None:
    if type(value) is int and 0 <= value <= 9:
        check_priority(value)
    else:
        with pytest.raises(InvalidTask, match="use 0"):
            check_priority(value)
