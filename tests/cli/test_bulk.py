"""`ade enqueue --file`: every line is checked before the first task is stored."""

from pathlib import Path

import pytest

from tests.cli.conftest import Call, work


def stored(shop: Call) -> list[dict[str, object]]:
    tasks: list[dict[str, object]] = shop("tasks", "--json", "--oldest-first", "--limit", "1000").json["items"]
    return tasks


def test_a_line_is_a_task(shop: Call, folder: Path) -> None:
    (folder / "tasks.jsonl").write_text(
        '{"name": "pack", "args": {"item": "lamp"}, "priority": 1, "tags": ["red"]}\n'
        "\n"
        '{"name": "send", "args": {"address": "Station Road"}, "delay": 60, "key": "k1"}\n'
    )
    answer = shop("enqueue", "--file", "tasks.jsonl")

    first, second = stored(shop)
    assert answer.lines == [first["id"], second["id"]]
    assert (first["priority"], first["tags"]) == (1, ["red"])
    assert (second["idempotency_key"], second["args"]) == ("k1", {"address": "Station Road"})


def test_a_line_has_names_as_over_http_or_in_python(shop: Call) -> None:
    task = '{"name": "pack", "args": {"item": "lamp"}, '
    over_http = task + '"timeout_ms": 1500, "ticket_ref": "OPS-7", "run_after": "2096-01-31T12:00Z"}'
    in_python = task + '"timeout": 1.5, "ticket": "OPS-7", "run_at": "2096-01-31T12:00Z"}'
    shop("enqueue", "--file", "-", stdin=f"{over_http}\n{in_python}\n")

    facts = [(task["timeout_ms"], task["ticket_ref"], task["run_after"]) for task in stored(shop)]
    assert facts == [(1_500, "OPS-7", "2096-01-31T12:00:00.000Z")] * 2
    both = shop("enqueue", "--file", "-", stdin='{"name": "pack", "ticket": "a", "ticket_ref": "b"}\n')
    assert both.code == 2
    assert "ticket and ticket_ref are the same field" in both.err


def test_lines_come_from_a_pipe_too_and_known_keys_are_told(shop: Call) -> None:
    line = '{"name": "pack", "args": {"item": "lamp"}, "key": "k"}\n'
    first = shop("enqueue", "--file", "-", "--json", stdin=line).json_lines
    again = shop("enqueue", "--file", "-", "--json", stdin=line).json_lines

    assert [each["new"] for each in first + again] == [True, False]
    assert first[0]["id"] == again[0]["id"]


def test_lines_may_wait_for_each_other_in_any_order(shop: Call) -> None:
    lines = (
        '{"name": "send", "args": {"address": "A"}, "after": ["box", "lamp"]}\n'
        '{"ref": "box", "name": "pack", "args": {"item": "box"}}\n'
        '{"ref": "lamp", "name": "pack", "args": {"item": "lamp"}, "after": ["box"]}\n'
    )
    ids = shop("enqueue", "--file", "-", stdin=lines).lines

    assert [task.get("depends_on", []) for task in stored(shop)] == [[ids[1], ids[2]], [], [ids[1]]]


def test_a_ring_is_told_in_the_words_of_the_file(shop: Call) -> None:
    lines = (
        '{"ref": "hen", "name": "pack", "args": {"item": "hen"}, "after": ["egg"]}\n'
        '{"ref": "egg", "name": "pack", "args": {"item": "egg"}, "after": ["hen"]}\n'
    )
    answer = shop("--json", "enqueue", "--file", "-", stdin=lines)

    assert (answer.code, answer.error["code"]) == (2, "dependency_cycle")
    assert "line 1 (hen) -> line 2 (egg) -> line 1 (hen)" in answer.error["message"]
    assert stored(shop) == []


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ('{"name": "pack", "args": {"item": 5}}', "invalid_arguments", "line 2: argument `item`"),
        ('{"name": "pakc"}', "unknown_name", "line 2: no task is named 'pakc'; did you mean pack?"),
        ('{"name": "pack", "args": {"item": "x"}, "priority": 11}', "invalid_task", "line 2: priority 11"),
        ('{"name": "pack", "prioritiy": 1}', "invalid_task", "line 2: Object contains unknown field `prioritiy`"),
        ('{"name": "pack", "args": {"item": "x"}, "after": ["who"]}', "invalid_task", "line 2: `after` names 'who'"),
        ('{"name": "pack", "args": {"item": "x"}, "run_at": "soon"}', "invalid_arguments", "line 2: run_at 'soon'"),
        ("nonsense", "invalid_task", "line 2: JSON is malformed"),
        ("[]", "invalid_task", "line 2: Expected `object`, got `array`"),
    ],
)
def test_one_bad_line_keeps_all_others_out(shop: Call, line: str, code: str, says: str) -> None:
    good = '{"name": "pack", "args": {"item": "lamp"}}\n'
    answer = shop("--json", "enqueue", "--file", "-", stdin=good + line + "\n" + good)

    assert (answer.out, answer.error["code"]) == ("", code)
    assert says in answer.error["message"]
    assert stored(shop) == []


def test_two_lines_cannot_have_one_name(shop: Call) -> None:
    line = '{"ref": "a", "name": "pack", "args": {"item": "lamp"}}\n'
    answer = shop("enqueue", "--file", "-", stdin=line * 2)

    assert (answer.code, "line 2: another line already has the ref 'a'" in answer.err) == (2, True)


def test_large_files_go_in_by_batches_and_a_full_queue_tells_how_far_it_came(shop: Call) -> None:
    shop("queues", "limit", "default", "1500", "--new")
    answer = shop("enqueue", "--file", "-", stdin='{"name": "pack", "args": {"item": "lamp"}}\n' * 2500)

    assert answer.code == 5
    assert len(answer.lines) == 1000
    assert "(the first 1,000 tasks are stored)" in answer.err


def test_a_file_says_everything_about_its_tasks(shop: Call) -> None:
    answer = shop("enqueue", "--file", "-", "--priority", "3")

    assert (answer.code, "is in the file" in answer.err) == (2, True)


def test_an_empty_file_is_no_mistake(shop: Call) -> None:
    answer = shop("enqueue", "--file", "-")

    assert (answer.code, answer.out, answer.err) == (0, "", "The file has no lines.\n")


def test_two_lines_with_one_key_are_one_task_that_is_waited_for(shop: Call) -> None:
    line = '{"name": "pack", "args": {"item": "lamp"}, "key": "k"}\n'
    shop("enqueue", "--file", "-", stdin=line)
    work()
    told = shop("enqueue", "--file", "-", "--wait", "--json", stdin=line * 2)

    assert told.code == 0
    assert [each.get("new") for each in told.json_lines[:2]] == [False, False]
    assert [each["result"] for each in told.json_lines[2:]] == [{"lamp": 1}] * 2
