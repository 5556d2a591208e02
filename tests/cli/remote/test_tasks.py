"""Tasks over a server: what is seen and done from elsewhere is what would be seen and done beside the store."""

from pathlib import Path

from tests.cli.conftest import Answer, work
from tests.cli.processes import started
from tests.cli.remote.conftest import Shop
from tests.cli.test_odd_input import ODD, PLACES


def packed(served: Shop) -> list[str]:
    """A task that is completed, one that failed, and one that waits for the first two."""
    cup = served.local("enqueue", "pack", "item=cup", "--tag", "gift", "--resource", "shelf:1").out.strip()
    lost = served.local("enqueue", "send", "address=nowhere").out.strip()
    work()
    waits = served.local("enqueue", "pack", "item=box", "--delay", "5430s", "--tag", "gift").out.strip()
    return [cup, lost, waits]


def test_tasks_are_listed_and_shown_the_same(served: Shop) -> None:
    cup, lost, waits = packed(served)

    listed = served.same("tasks", "--json").json["items"]
    assert [task["id"] for task in listed] == [waits, lost, cup]
    assert [task["id"] for task in served.same("tasks", "--tag", "gift", "--since", "1h", "--json").json["items"]] == [
        waits,
        cup,
    ]
    assert [task["id"] for task in served.same("tasks", "--resource", "shelf:1", "--json").json["items"]] == [cup]
    for task_id in (cup, lost, waits):
        served.same("show", task_id, "--json")
        served.same("explain", task_id)
        served.same("explain", task_id, "--json")
        served.same("logs", task_id, "--json")
        served.same("logs", task_id[-10:], "--times", "--follow" if task_id != waits else "--times")
    assert [line.split()[:3] for line in served.remote("tasks").lines[1:]] == [
        [waits, "pending", "pack"],
        [lost, "failed", "send"],
        [cup, "completed", "pack"],
    ]
    behind = served.local("enqueue", "pack", "item=lid", "--after", waits).out.strip()
    assert served.remote("tasks", "--limit", "1").lines[1].split()[0] == behind
    assert "waits for 1 task" in served.remote("tasks", "--limit", "1").out
    shown = served.remote("show", cup).lines
    assert {f"id         {cup}", "resources  shelf:1"} < set(shown)


def test_pages_go_on_over_a_server_too(served: Shop) -> None:
    lines = "".join(f'{{"name": "pack", "args": {{"item": "{number}"}}}}\n' for number in range(5))
    ids = served.local("enqueue", "--file", "-", stdin=lines).lines

    first = served.same("tasks", "--limit", "3", "--oldest-first", "--since", "1h", "--json").json
    more = ("--limit", "3", "--oldest-first", "--since", "1h", "--cursor", first["next"])
    second = served.same("tasks", *more, "--json").json
    assert [task["id"] for page in (first, second) for task in page["items"]] == ids
    assert "next" not in second
    for wrong in ("no cursor", "7"):
        refused = served.same("tasks", "--cursor", wrong)
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith("error[invalid_cursor]: ")


def test_the_end_is_waited_for(served: Shop) -> None:
    cup, lost, waits = packed(served)

    assert served.same("wait", cup).out == '{\n  "cup": 1\n}\n'
    assert served.same("wait", lost).code == 1
    both = served.remote("wait", cup, lost)
    assert (both.code, {line.split("  ")[1] for line in both.lines}) == (1, {"completed", "failed"})
    late = served.same("wait", waits, "--timeout", "50ms")
    assert late == Answer(
        124, "", "error[wait_timeout]: not everything finished in 0.05 s; the tasks continue, wait again\n"
    )


def test_lines_are_followed_until_the_task_is_cancelled_by_somebody_else(served: Shop) -> None:
    task_id = served.local("enqueue", "pack", "item=cup").out.strip()

    with started(served.elsewhere, "logs", "--follow", task_id, **served.environment()) as follower:
        cancelled = served.remote("cancel", task_id[-8:], "--reason", "no need")
        assert cancelled == Answer(0, f"{task_id}  cancelled  pack\n", "")
        out, err = follower.communicate(timeout=90)
    assert (follower.returncode, out, err) == (0, "", "It has written no lines.\n")


def test_many_are_cancelled_after_a_look_at_how_many(served: Shop) -> None:
    cup, _, waits = packed(served)

    asked = served.same("cancel", "--tag", "gift")
    assert (asked.code, asked.err[:41]) == (2, "error[usage]: 1 task would be cancelled. ")
    done = served.remote("cancel", "--tag", "gift", "--yes", "--reason", "sold out", "--json")
    assert done.json == {"changed": [waits], "is_more": False}
    assert served.same("show", waits, "--json").json["reason"] == "sold out"
    nothing = served.same("cancel", "--tag", "gift", "--yes")
    assert nothing == Answer(0, "", "No unfinished task that can be cancelled matches.\n")
    assert served.same("cancel", cup).code == 4


def test_who_did_it_is_known_by_the_token(served: Shop) -> None:
    task_id = served.local("enqueue", "pack", "item=cup").out.strip()

    refused = served.remote("cancel", task_id, by="viewer")
    assert (refused.code, refused.out) == (7, "")
    assert refused.err.startswith("error[not_permitted]: the-viewer does not have the permission")
    assert served.remote("cancel", task_id, by="operator").code == 0
    told = served.local("show", task_id, "--json").json["events"]
    assert [event["actor"] for event in told if event["type"] == "task.cancelled"] == ["the-operator"]


def test_what_does_not_exist_is_told_the_same(served: Shop) -> None:
    unknown = "01a1e0fb-a99c-7244-9b67-08ec7d2c6a42"
    for command in ("show", "explain", "logs", "wait", "cancel", "retry"):
        for text in (unknown, "abcdef12", "abc"):
            answer = served.same(command, text)
            assert (answer.code, answer.out) == (3, ""), (command, text)


def test_a_failed_task_runs_again(served: Shop) -> None:
    _, lost, _ = packed(served)

    corrected = served.remote("retry", lost, "--args", '{"address": "Station Road"}')
    assert corrected == Answer(0, f"{lost}  pending  send  generation 2\n", "")
    work()
    assert served.same("wait", lost).out == '"sent to Station Road"\n'
    again = served.same("retry", lost)
    assert (again.code, again.err[:26]) == (4, "error[illegal_transition]:")


def test_large_payloads_come_whole(served: Shop, folder: Path) -> None:
    item = "x" * 200_000
    (folder / "args.jsonl").write_text(f'{{"name": "pack", "args": {{"item": "{item}"}}}}\n')
    task_id = served.local("enqueue", "--file", "args.jsonl").out.strip()
    work()

    shown = served.same("show", task_id, "--json").json
    assert shown["args"] == {"item": item}
    assert shown["result"] == {item: 1}
    assert served.same("wait", task_id).code == 0


MINE = {"tasks", "show", "explain", "cancel", "enqueue", "dlq"}


def test_odd_input_gets_a_sentence_from_a_server_too(served: Shop) -> None:
    work()
    faults = []
    for place in PLACES:
        if place[0] not in MINE or (place[-1] == "X" and place[-2] in ("--app", "--store")):
            continue
        for odd in ODD:
            answer = served.remote(*(word.replace("X", odd) for word in place))
            is_silent = answer.code != 0 and not answer.err.startswith(("error[", "Usage"))
            if answer.code == 70 or "Traceback" in answer.err or "\x1b" in answer.out + answer.err or is_silent:
                faults.append((place, odd[:20], answer.code, answer.err[:300]))

    assert faults == []
