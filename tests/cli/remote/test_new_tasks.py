"""New tasks over a server: it knows their names and arguments from the workers, and nothing of an app here."""

from pathlib import Path

from ade.server.request_types import MOST_TOGETHER
from tests.cli.conftest import Answer, work
from tests.cli.remote.conftest import Shop


def test_a_task_goes_in_as_it_would_beside_the_store(served: Shop) -> None:
    work()  # a worker that tells of its tasks
    options = ("--priority", "2", "--delay", "5m", "--tags", "gift,red", "--queue", "express", "--lock", "shelf:1")
    first = served.remote("enqueue", "pack", "item=00501", "count=3", "--resource", "shelf:1", "--key", "order-7")
    made = served.remote("enqueue", "pack", "item=lamp", *options, "--after", first.out.strip()[-12:], "--json").json

    assert first.err == ""
    seen = served.same("show", first.out.strip(), "--json").json
    assert (seen["args"], seen["idempotency_key"]) == ({"item": "00501", "count": 3}, "order-7")
    assert (seen["resources"], seen["author_id"]) == (["shelf:1"], "the-admin")
    assert (made["priority"], made["queue"], made["tags"]) == (2, "express", ["gift", "red"])
    assert (made["depends_on"], made["run_after"] > made["created_at"]) == ([seen["id"]], True)
    assert made["locks"] == [{"resource": "shelf:1", "mode": "exclusive"}]
    again = served.remote("enqueue", "pack", "item=00501", "count=3", "--resource", "shelf:1", "--key", "order-7")
    assert again.out == first.out
    assert served.remote("enqueue", "pack", "item=sofa", "--key", "order-7").code == 4


def test_a_window_and_an_approval_go_along(served: Shop) -> None:
    work()
    window = ("--window", "2031-01-01T00:00+00:00", "2031-01-02T00:00+00:00")
    task_id = served.remote("draft", "pack", "item=cup", *window, "--start", "by_hand").out.strip()

    review = served.same("show", task_id, "--json").json["review"]
    assert (review["not_before"], review["not_after"], review["start"]) == (
        "2031-01-01T00:00:00.000Z",
        "2031-01-02T00:00:00.000Z",
        "by_hand",
    )


def test_mistakes_are_told_as_they_are_beside_the_store(served: Shop, folder: Path) -> None:
    served.environ.delenv("ADE_APP")  # it would know more than a worker has told
    nobody = served.remote("enqueue", "pack", "item=cup")
    assert (nobody.code, nobody.out) == (3, "")
    assert "no worker has registered any yet: start its worker first" in nobody.err
    work()
    for mistake in (
        ("pakc", "item=lamp"),
        ("zzzzzzzz",),
        ("pack",),
        ("pack", "item=lamp", "cuont=3"),
        ("pack", "lamp"),
        ("pack", "item=lamp", "--priority", "11"),
        ("pack", "item=lamp", "--queue", "a b"),
        ("pack", "item=x", "--after", "01a1e0fb-a99c-7244-9b67-08ec7d2c6a42"),
        ("pack", "item=\udcff"),
    ):
        answer = served.same("enqueue", *mistake)
        assert (answer.code in (2, 3), answer.out) == (True, ""), mistake
    assert served.same("tasks", "--json").json["items"] == []
    assert served.remote("enqueue", "later", "n=1", "--allow-unknown", "--json").json["args"] == {"n": 1}


def test_an_account_is_not_chosen_where_the_token_tells_it(served: Shop) -> None:
    answer = served.remote("enqueue", "later", "--allow-unknown", "--as", "somebody")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error[needs_store]: --as is for a local store")
    assert served.remote("enqueue", "later", "--allow-unknown", by="viewer").code == 7


def test_the_result_of_a_new_task_is_waited_for(served: Shop) -> None:
    first = served.local("enqueue", "pack", "item=lamp", "--key", "k").out
    work()
    answer = served.remote("enqueue", "pack", "item=lamp", "--key", "k", "--wait")

    assert answer == Answer(0, f'{first}{{\n  "lamp": 1\n}}\n', "")


def test_the_lines_of_a_file_are_checked_here_and_stored_there(served: Shop) -> None:
    work()
    lines = (
        '{"name": "send", "args": {"address": "A"}, "after": ["box", "lamp"], "locks": ["shelf:1"]}\n'
        '{"ref": "box", "name": "pack", "args": {"item": "box"}, "approval": [], "run_at": "2031-01-01T00:00+00:00"}\n'
        '{"ref": "lamp", "name": "pack", "args": {"item": "lamp"}, "after": ["box"], "key": "k"}\n'
        '{"name": "pack", "args": {"item": "lamp"}, "after": ["box"], "key": "k"}\n'
    )
    told = served.remote("enqueue", "--file", "-", "--json", stdin=lines).json_lines
    assert [(each["name"], each["new"]) for each in told] == [
        ("send", True),
        ("pack", True),
        ("pack", True),
        ("pack", False),
    ]
    ids = [each["id"] for each in told]
    stored = served.same("tasks", "--oldest-first", "--json").json["items"]
    assert [task.get("depends_on", []) for task in stored] == [[ids[1], ids[2]], [], [ids[1]]]
    assert stored[1]["run_after"] == "2031-01-01T00:00:00.000Z"


def test_a_line_has_every_option_of_a_task_here_and_over_a_server(served: Shop) -> None:
    work()
    line = (
        '{"name": "pack", "args": {"item": "cup"}, "draft": true, "team": "gifts", "ticket": "T-7", "approval": "two",'
        ' "backoff": {"base_ms": 5, "cap_ms": 50}, "not_before": "2031-01-01T00:00:00Z",'
        ' "not_after": "2031-01-02T00:00:00Z", "trace": "abc"}\n'
    )
    for way in (served.local, served.remote):
        task_id = way("enqueue", "--file", "-", stdin=line).out.strip()
        seen = way("show", task_id, "--json").json
        assert (seen["status"], seen["team"], seen["ticket_ref"], seen["trace"]) == ("draft", "gifts", "T-7", "abc")
        assert seen["backoff"]["base_ms"] == 5
        assert seen["review"]["not_after"] == "2031-01-02T00:00:00.000Z"


def test_one_bad_line_keeps_the_others_out(served: Shop) -> None:
    work()
    good = '{"name": "pack", "args": {"item": "box"}, "ref": "box"}\n'
    for bad in (
        '{"name": "pack", "args": {"item": 3}}\n',
        '{"name": "pakc"}\n',
        '{"name": "pack", "args": {"item": "a"}, "after": ["bix"]}\n',
        '{"name": "pack", "args": {"item": "a"}, "priority": 11}\n',
        '{"name": "pack", "what": 1}\n',
    ):
        local = served.local("enqueue", "--file", "-", stdin=good + bad)
        remote = served.remote("enqueue", "--file", "-", stdin=good + bad)
        assert (remote.code, remote.out, "line 2: " in remote.err) == (local.code, "", True), bad
    too_many = good + '{"name": "pack", "args": {"item": "a"}, "after": ["box"]}\n' * MOST_TOGETHER
    refused = served.remote("enqueue", "--file", "-", stdin=too_many)
    assert (refused.code, "a server takes at most 1,000 at once" in refused.err) == (2, True)
    assert served.same("tasks", "--json").json["items"] == []


def test_a_large_file_goes_in_by_batches_and_tells_how_far_it_came(served: Shop) -> None:
    work()
    served.local("queues", "limit", "default", str(MOST_TOGETHER + 100), "--new")
    lines = '{"name": "pack", "args": {"item": "box"}}\n' * (MOST_TOGETHER + 200)

    answer = served.remote("enqueue", "--file", "-", stdin=lines)
    assert (answer.code, len(answer.lines)) == (5, MOST_TOGETHER)
    assert answer.err.startswith("error[queue_full]: ")
    assert "(the first 1,000 tasks are stored)" in answer.err


def test_a_draft_is_written_changed_and_submitted(served: Shop) -> None:
    work()
    made = served.remote("draft", "pack", "item=cup", "--description", "for Ann")
    task_id = made.out.strip()
    assert made.err == f"`ade submit {task_id}` submits it for approval.\n"

    changed = served.remote("draft", "edit", task_id[-9:], "count=2", "--priority", "1")
    assert changed == Answer(0, f"{task_id}  changed: args, priority\n", "")
    seen = served.same("show", task_id, "--json").json
    assert (seen["args"], seen["priority"], seen["status"]) == ({"item": "cup", "count": 2}, 1, "draft")
    assert served.remote("draft", "edit", task_id, "cuont=2").code == 2

    submitted = served.remote("submit", task_id, "--wait", "--timeout", "20s")
    assert (submitted.code, submitted.err) == (0, "")
    status = served.same("show", task_id, "--json").json["status"]
    assert submitted.out == f"{task_id}  {status}\n"
    assert status != "draft"
    late = served.same("draft", "edit", task_id, "count=3")
    assert (late.code, late.err[:25]) == (4, "error[illegal_transition]")


def test_waiting_for_an_assessment_has_an_end(served: Shop) -> None:
    served.person("anna", "operator")
    draft = served.local("draft", "pack", "item=cup", "--as", "anna").out.strip()

    answer = served.remote("submit", draft, "--timeout", "0")
    assert (answer.code, answer.out) == (124, "")
