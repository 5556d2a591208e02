"""`ade tasks`, `show`, `logs` and `explain`: what a person sees of a task."""

from pathlib import Path

import pytest

from tests.cli.conftest import Call, with_stores, work
from tests.domain import Stores


@pytest.fixture
def ids(shop: Call) -> dict[str, str]:
    """A shop after some work: one task completed, one failed, one retried, one still waiting."""
    packed = ("--tags", "red", "--resource", "shelf:1", "--description", "for Ada")
    enqueued = {
        "packed": shop("enqueue", "pack", "item=lamp", *packed).out.strip(),
        "returned": shop("enqueue", "send", "address=nowhere 1").out.strip(),
        "wobbled": shop("enqueue", "wobble").out.strip(),
    }
    work()
    enqueued["waiting"] = shop("enqueue", "pack", "item=sofa", "--delay", "1h").out.strip()
    return enqueued


def test_the_newest_task_is_listed_first(shop: Call, ids: dict[str, str]) -> None:
    answer = shop("tasks")

    assert answer.lines[0].split()[:4] == ["ID", "STATUS", "NAME", "QUEUE"]
    assert [line.split()[0] for line in answer.lines[1:]] == [
        ids[name] for name in ("waiting", "wobbled", "returned", "packed")
    ]
    assert "Unrecoverable: there is no address 'nowhere 1'" in answer.out
    assert "due in 1 h" in answer.out


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        (["--status", "failed"], ["returned"]),
        (["--status", "failed", "--status", "pending"], ["waiting", "returned"]),
        (["--name", "pack"], ["waiting", "packed"]),
        (["--queue", "slow"], ["wobbled"]),
        (["--tag", "red"], ["packed"]),
        (["--resource", "shelf:1"], ["packed"]),
        (["--resource", "shelf:2"], []),
        (["--text", "for Ada"], ["packed"]),
        (["--text", "no address"], ["returned"]),
        (["--since", "1h", "--name", "wobble"], ["wobbled"]),
        (["--since", "2999-01-01"], []),
        (["--oldest-first", "--limit", "1"], ["packed"]),
    ],
)
def test_conditions_choose(shop: Call, ids: dict[str, str], conditions: list[str], found: list[str]) -> None:
    tasks = shop("tasks", "--json", *conditions).json["items"]

    assert [task["id"] for task in tasks] == [ids[name] for name in found]


def test_pages_go_on_where_the_last_one_ended(shop: Call, ids: dict[str, str]) -> None:
    first = shop("tasks", "--limit", "3", "--json").json
    second = shop("tasks", "--limit", "3", "--cursor", str(first["next"]), "--json").json
    told = shop("tasks", "--limit", "3")

    assert [task["id"] for task in first["items"] + second["items"]] == list(reversed(list(ids.values())))
    assert "next" not in second
    assert told.err == f"More follow: --cursor {first['next']}\n"


def test_an_empty_store_says_how_to_begin(shop: Call) -> None:
    assert shop("tasks").err == "No tasks yet. `ade enqueue NAME` creates one.\n"
    assert shop("tasks", "--status", "failed").err == "No task matches.\n"
    assert shop("tasks", "--quiet").err == ""
    assert shop("tasks", "--json").json == {"items": []}


def test_show_tells_record_attempts_timeline_and_result(shop: Call, ids: dict[str, str]) -> None:
    answer = shop("show", ids["packed"])

    assert "status       completed" in answer.out
    assert '"item": "lamp"' in answer.out
    assert "task.claimed" in answer.out
    assert answer.out.rstrip().endswith('"lamp": 1\n}')


def test_show_tells_each_attempt_and_how_it_ended(shop: Call, ids: dict[str, str]) -> None:
    attempts = shop("show", ids["wobbled"], "--json").json["attempts"]

    assert [(each["attempt"], each["ended"], each.get("error")) for each in attempts] == [
        (1, "failed", "RuntimeError: it wobbled"),
        (2, "succeeded", None),
    ]
    assert all(each["started_at"].endswith("Z") for each in attempts)


def test_show_tells_the_error_with_its_traceback(shop: Call, ids: dict[str, str]) -> None:
    answer = shop("show", ids["returned"])

    assert "Unrecoverable: there is no address 'nowhere 1'" in answer.out
    assert "Traceback (most recent call last)" in answer.out
    assert "shop.py" in answer.out


def test_the_end_of_an_id_is_enough(shop: Call, ids: dict[str, str]) -> None:
    assert shop("show", ids["packed"][-8:], "--json").json["id"] == ids["packed"]
    assert shop("show", ids["packed"][:23].upper(), "--json").json["id"] == ids["packed"]


def test_a_part_that_fits_several_ids_is_refused_with_the_choices(shop: Call, ids: dict[str, str]) -> None:
    answer = shop("show", "--json", ids["packed"][:8])

    assert (answer.code, answer.error["code"]) == (2, "ambiguous_id")
    assert ids["packed"] in answer.error["message"]


@pytest.mark.parametrize("text", ["01a1e0fb-a99c-7244-9b67-08ec7d2c6a42", "abcdef12", "abc", "not an id", "..."])
@pytest.mark.parametrize("command", ["show", "logs", "explain", "wait", "cancel", "retry"])
def test_an_id_that_does_not_exist_is_told(shop: Call, command: str, text: str) -> None:
    answer = shop(command, text)

    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error[unknown_task]: ")


def test_logs_print_what_a_task_has_written(shop: Call, ids: dict[str, str]) -> None:
    assert shop("logs", ids["packed"]).out == "packing lamp\n"
    assert shop("logs", ids["packed"], "--follow").out == "packing lamp\n"  # it is final: nothing more will come
    assert shop("logs", ids["wobbled"]).err == "It has written no lines.\n"
    [line] = shop("logs", ids["packed"], "--json").json_lines
    assert (line["text"], line["attempt"]) == ("packing lamp", 1)


def test_logs_can_show_times_and_one_attempt(shop: Call, ids: dict[str, str]) -> None:
    assert shop("logs", ids["packed"], "--times").out.split()[1:] == ["packing", "lamp"]
    assert shop("logs", ids["packed"], "--attempt", "2").out == ""


def test_explain_says_why_a_task_waits_and_what_became_of_it(shop: Call, ids: dict[str, str]) -> None:
    waiting = shop("explain", ids["waiting"], "--json").json
    failed = shop("explain", ids["returned"])

    assert waiting["reasons"][0]["code"] == "delayed"
    assert failed.out.startswith("It failed at ")


def test_all_reasons_are_told_not_only_the_first(shop: Call) -> None:
    task_id = shop("enqueue", "pack", "item=lamp", "--delay", "1h").out.strip()
    shop("queues", "pause", "default")
    answer = shop("explain", task_id)

    assert "It is pending: it is delayed until" in answer.lines[0]
    assert answer.lines[1].startswith("- and the queue 'default' is paused")
    assert "- and no worker is running" in answer.out


def test_text_from_tasks_cannot_speak_to_the_terminal(shop: Call) -> None:
    shop("enqueue", "pack", "item=x", "--description", "fine \x1b[2Jtext\nnext")
    answer = shop("tasks")

    assert "\x1b" not in answer.out
    assert "fine \\x1b[2Jtext" in answer.out


def test_large_payloads_are_cut_unless_asked_for(shop: Call, folder: Path) -> None:
    task_id = shop("enqueue", "--file", "-", stdin='{"name": "pack", "args": {"item": "%s"}}' % ("x" * 200_000))
    cut = shop("show", task_id.out.strip())
    full = shop("show", task_id.out.strip(), "--full")

    assert "more characters; --full shows them" in cut.out
    assert len(cut.out) < 10_000
    assert "x" * 200_000 in full.out


def test_a_lost_blob_is_told_and_the_rest_is_shown(shop: Call, folder: Path) -> None:
    task_id = shop("enqueue", "--file", "-", stdin='{"name": "pack", "args": {"item": "%s"}}' % ("x" * 200_000))
    for blob in (folder / "shop.db.blobs").rglob("*.args"):
        blob.unlink()
    shown = shop("show", task_id.out.strip(), "--json").json

    assert shown["status"] == "pending"
    assert "lost" in shown["args"]


def test_nobody_writes_while_looking(shop: Call, ids: dict[str, str]) -> None:
    async def last_seq(stores: Stores) -> int:
        return await stores.events.last_seq()

    before = with_stores(last_seq)
    for command in (["tasks"], ["show", ids["packed"]], ["explain", ids["waiting"]], ["stats"], ["workers"]):
        assert shop(*command).code == 0

    assert with_stores(last_seq) == before
