"""What strace prints is read back call by call, and what nobody understands is refused."""

from pathlib import Path

import pytest

from tests.faults.powercut.system_calls import moments


def told(tmp_path: Path, *lines: str) -> list[tuple[str, list[str], int, bool]]:
    output = tmp_path / "trace"
    output.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return [(each.call.name, list(each.call.arguments), each.call.result, each.ended) for each in moments(output)]


def test_a_call_on_one_line_begins_and_ends(tmp_path: Path) -> None:
    assert told(tmp_path, "12 fsync(7) = 0") == [("fsync", ["7"], 0, False), ("fsync", ["7"], 0, True)]


def test_calls_of_two_threads_are_told_apart(tmp_path: Path) -> None:
    found = told(
        tmp_path,
        "12 fsync(7 <unfinished ...>",
        "13 close(8) = 0",
        "12 <... fsync resumed>) = 0",
        "12 +++ exited with 0 +++",
    )
    assert [(name, ended) for name, _, _, ended in found] == [
        ("fsync", False),
        ("close", False),
        ("close", True),
        ("fsync", True),
    ]


@pytest.mark.parametrize("how", ["detached", "unfinished"])
def test_a_thread_that_ends_with_the_program_has_made_no_call(tmp_path: Path, how: str) -> None:
    assert told(tmp_path, f"15893 ???( <{how} ...>") == []


def test_what_is_not_understood_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not understood"):
        told(tmp_path, "12 ???")
