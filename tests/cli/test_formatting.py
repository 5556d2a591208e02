"""How values are read from the command line and shown: times, tables, arguments, progress."""

from datetime import datetime

import pytest
from msgspec import Raw

from ade import Task
from ade.cli.output import Cell, Row, aligned, printable
from ade.cli.parameters import distance, moment_ms, seconds_of
from ade.cli.terminal import fitted
from ade.errors import InvalidFilter
from ade.tasks.attempts import attempts_of
from ade.tasks.commands.options import parse_pairs
from ade.tasks.commands.wait import progress_text
from ade.tasks.reasons import short_span
from tests.domain import Event

TASK_ID = "01a1e0fb-a99c-7244-9b67-08ec7d2c6a42"
NOW = round(datetime(2030, 1, 1, 12).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0.5", 0.5),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30 min", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("250ms", 0.25),
        ("", None),
        ("soon", None),
        ("5 parsecs", None),
        ("-5", None),
        ("1e99", None),
        ("nan", None),
        ("5m!", None),
    ],
)
def test_lengths_of_time_are_read(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_moments_are_read_as_ages_or_dates() -> None:
    assert moment_ms("2h", now=NOW) == NOW - 7_200_000
    assert moment_ms("2030-01-01T11:00", now=NOW) == NOW - 3_600_000
    assert moment_ms("2030-01-01", now=NOW) == NOW - 43_200_000
    assert moment_ms("1970-01-01T00:00:01Z", now=NOW) == 1000
    with pytest.raises(InvalidFilter):
        moment_ms("yesterday", now=NOW)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_500, "1.5 s"),
        (59_400, "59 s"),
        (59_700, "1 min"),
        (3_599_900, "1 h"),
        (5_400_000, "2 h"),
        (86_399_000, "1 d"),
        (-5, "0 ms"),
    ],
)
def test_lengths_of_time_are_shown_in_their_largest_unit(ms: int, text: str) -> None:
    assert short_span(ms) == text


def test_distances_look_both_ways() -> None:
    assert distance(NOW - 5_000, now=NOW) == "5.0 s ago"
    assert distance(NOW + 7_200_000, now=NOW) == "in 2 h"


def test_a_table_for_a_pipe_is_aligned_and_never_cut() -> None:
    rows: list[Row] = [("lamp", Cell("1", "red"), "x" * 300), ("standard lamp", "12", "")]

    assert list(aligned(("ITEM", "COUNT", "NOTE"), rows)) == [
        "ITEM           COUNT  NOTE",
        "lamp           1      " + "x" * 300,
        "standard lamp  12",
    ]


def test_a_narrow_terminal_gets_short_ids_first_and_then_fewer_columns() -> None:
    head, rows = ("id", "name", "queue", "note"), [(TASK_ID, "pack", "default", "for Ada")]

    assert fitted(head, rows, 100, ["queue"]) == (head, rows)
    assert fitted(head, rows, 50, ["queue"]) == (head, [["…08ec7d2c6a42", "pack", "default", "for Ada"]])
    assert fitted(head, rows, 35, ["queue"]) == (["id", "name", "note"], [["…08ec7d2c6a42", "pack", "for Ada"]])


def test_control_characters_are_shown_and_not_obeyed() -> None:
    assert printable("plain ünï text") == "plain ünï text"
    assert printable("a\x1b[31mb\rc\x00\u202e") == "a\\x1b[31mb\\rc\\x00\\u202e"
    assert printable("two\nlines", lines=True) == "two\nlines"
    assert printable("two\nlines") == "two\\nlines"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "5"),
        ({"type": "integer"}, 5),
        ({"type": "number"}, 5),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "5"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 5),
        ({"enum": ["5", "6"]}, "5"),
        ({"$ref": "#/$defs/Name"}, "5"),
        ({"type": ["string", "null"]}, "5"),
        ({}, 5),
    ],
)
def test_a_value_is_read_as_the_schema_wants_it(schema: dict[str, object], value: object) -> None:
    whole = {"properties": {"n": schema}, "$defs": {"Name": {"type": "string"}}}

    assert parse_pairs(["n=5"], whole) == {"n": value}


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (b"0.5", "██████████░░░░░░░░░░ 50%"),
        (b"[1, 4]", "█████░░░░░░░░░░░░░░░ 25%"),
        (b'{"done": 4, "total": 4}', "████████████████████ 100%"),
        (b'"nearly"', '"nearly"'),
        (b"[1, 0]", "[1,0]"),
        (b"17", "17"),
        (b"true", "true"),
    ],
)
def test_progress_is_a_bar_where_it_is_a_share(progress: bytes, shown: str) -> None:
    assert progress_text(Task(id=TASK_ID, name="pack", progress=Raw(progress))) == shown


def test_attempts_are_told_by_events_across_generations() -> None:
    def event(type: str, at: int, **payload: object) -> Event:
        return Event(type=type, at=at, task_id=TASK_ID, payload=payload)

    attempts = attempts_of(
        [
            event("task.created", 0),
            event("task.claimed", 10, attempt=1, worker="a", run_id="r1"),
            event("task.stalled", 40, attempt=1),
            event("task.claimed", 50, attempt=2, worker="b", run_id="r2"),
            event("task.failed", 60, attempt=2, error="ValueError: no"),
            event("task.dlq", 60, attempt=2),
            event("task.replayed", 70, generation=2),
            event("task.claimed", 80, attempt=1, worker="b", run_id="r3"),
        ]
    )

    assert [(each.label, each.worker, each.ended, each.ended_at, each.error) for each in attempts] == [
        ("1", "a", "worker lost", 40, None),
        ("2", "b", "failed", 60, "ValueError: no"),
        ("1 (generation 2)", "b", "running", None, None),
    ]


@pytest.mark.parametrize(
    ("end", "payload", "shown"),
    [
        ("task.succeeded", {"run_id": "r1"}, "succeeded"),
        ("task.succeeded", {"run_id": "r2"}, "worker lost"),
        ("task.failed", {"run_id": "r1", "kind": "deadline_passed"}, "worker lost"),
    ],
)
def test_an_attempt_whose_lease_expired_can_still_end(end: str, payload: dict[str, object], shown: str) -> None:
    events = [
        Event(type="task.claimed", at=10, task_id=TASK_ID, payload={"attempt": 1, "worker": "a", "run_id": "r1"}),
        Event(type="task.stalled", at=40, task_id=TASK_ID, payload={"attempt": 1, "run_id": "r1"}),
        Event(type=end, at=50, task_id=TASK_ID, payload=payload),
    ]
    assert [each.ended for each in attempts_of(events)] == [shown]
