"""What a run of the tests says at its end."""

import pytest

from tests import summary


def report(test: str, when: str = "call", seconds: float = 0.0, skipped: str | None = None) -> pytest.TestReport:
    outcome = "passed" if skipped is None else "skipped"
    reason = None if skipped is None else ("conftest.py", 1, f"Skipped: {skipped}")
    return pytest.TestReport(test, ("", 0, ""), {}, outcome, reason, when, duration=seconds)  # type: ignore[arg-type]


def test_a_test_takes_what_it_and_its_fixtures_take() -> None:
    reports = [
        report("a", "setup", 2.0),
        report("a", "call", 0.5),
        report("b", "call", 1.0),
        report("a", "teardown", 1),
    ]

    assert summary.slowest(reports) == [(3.5, "a"), (1.0, "b")]


def test_the_slowest_are_told_once_there_are_enough() -> None:
    few = [report(f"test_{number}", seconds=number) for number in range(9)]
    many = [report(f"test_{number}", seconds=number) for number in range(30)]

    assert summary.lines({"passed": few}, []) == []
    told = summary.lines({"passed": many[:20], "failed": many[20:]}, [])
    assert told[:2] == ["the 10 slowest tests:", "    29.00 s  test_29"]
    assert len(told) == 11


def test_skipped_tests_are_named_under_their_reason() -> None:
    skipped = [
        report("tests/a.py::test_one[x]", "setup", skipped="no redis server"),
        report("tests/a.py::test_two", "setup", skipped="no redis server"),
        report("tests/b.py::test_three", "setup", skipped="needs root"),
        *(report(f"tests/c.py::test_{number}", "setup", skipped="no redis server") for number in range(40)),
    ]

    assert summary.lines({"skipped": skipped}, [])[11:] == [
        "SKIPPED 1: needs root",
        "  tests/b.py: test_three",
        "SKIPPED 42: no redis server",
        "  tests/a.py: test_one[x], test_two",
        "  tests/c.py: 40 tests",
    ]


def test_stores_are_counted_by_the_conformance_tests_they_pass() -> None:
    passed = [
        report("tests/conformance/test_a.py::test_x[memory-1]"),
        report("tests/conformance/test_a.py::test_x[redis-1]"),
        report("tests/conformance/test_b.py::test_y[redis]"),
        report("tests/other/test_b.py::test_y[redis]"),
    ]

    assert summary.lines({"passed": passed}, ["memory", "redis"])[0] == (
        "conformance tests passed by store: memory 1, redis 2"
    )
