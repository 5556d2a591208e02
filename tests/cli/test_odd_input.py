"""Whatever is typed, the answer is an answer: never a fault of ADE itself, never a traceback."""

import pytest

from tests.cli.conftest import Call

ODD = [
    "",
    " ",
    "\udcff\udcfe\udcfd\udcfc\udcfb\udcfa",  # bytes that are no UTF-8, as Python hands them over
    "x" * 20_000,
    "🍵" * 50,
    "%_\\'\"`$(rm)",
    "../../etc",
    "\x1b[2J",
    "9" * 30,
    "nan",
    "{" * 5_000,
]
PLACES = [
    ["tasks", "--queue", "X"],
    ["tasks", "--text", "X"],
    ["tasks", "--since", "X"],
    ["tasks", "--cursor", "X"],
    ["show", "X"],
    ["explain", "X"],
    ["wait", "X", "--timeout", "1ms"],
    ["cancel", "--tag", "X", "--yes"],
    ["enqueue", "X"],
    ["enqueue", "X", "--allow-unknown"],
    ["enqueue", "pack", "item=X"],
    ["enqueue", "pack", "item:=X"],
    ["enqueue", "pack", "--args", "X"],
    ["enqueue", "tidy", "--delay", "X"],
    ["enqueue", "tidy", "--key", "X"],
    ["enqueue", "tidy", "--description", "X"],
    ["enqueue", "tidy", "--tag", "X"],
    ["enqueue", "tidy", "--priority", "X"],
    ["enqueue", "tidy", "--max-attempts", "X"],
    ["enqueue", "tidy", "--at", "X"],
    ["queues", "pause", "X", "--new"],
    ["queues", "limit", "default", "X", "--new"],
    ["schedules", "add", "X", "* * * * *", "tidy"],
    ["schedules", "add", "odd", "X", "tidy"],
    ["schedules", "add", "odd", "* * * * *", "tidy", "--tz", "X"],
    ["schedules", "remove", "X"],
    ["dlq", "show", "X"],
    ["dlq", "replay", "--fingerprint", "X", "--yes"],
    ["events", "tail", "--after", "X"],
    ["events", "tail", "--type", "X"],
    ["tasks", "--app", "X"],
    ["tasks", "--store", "X"],
    ["backup", "X"],
    ["X"],
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: " ".join(place[:3]))
def test_odd_input_gets_a_sentence(shop: Call, place: list[str]) -> None:
    faults = []
    for odd in ODD:
        answer = shop(*(word.replace("X", odd) for word in place))
        is_silent = answer.code != 0 and not answer.err.startswith(("error[", "Usage"))
        if answer.code == 70 or "Traceback" in answer.err or "\x1b" in answer.out + answer.err or is_silent:
            faults.append((odd[:20], answer.code, answer.err[:300]))

    assert faults == []
