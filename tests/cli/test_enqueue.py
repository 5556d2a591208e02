"""`ade enqueue`: a task goes in, or it is refused with a sentence and nothing is stored."""

import pytest

from tests.cli.conftest import Call, with_stores, work
from tests.domain import Stores, TaskQuery


def count_tasks() -> int:
    async def count(stores: Stores) -> int:
        return len((await stores.tasks.find(TaskQuery())).tasks)

    return with_stores(count)


def test_a_task_is_stored_and_its_id_printed(shop: Call) -> None:
    answer = shop("enqueue", "pack", "item=lamp", "count=3")

    assert answer.code == 0
    task = shop("show", answer.out.strip(), "--json").json
    assert task["name"] == "pack"
    assert task["status"] == "pending"
    assert task["args"] == {"item": "lamp", "count": 3}


def test_options_are_kept_apart_from_arguments(shop: Call) -> None:
    first = shop("enqueue", "pack", "item=box").out.strip()
    options = ["--priority", "2", "--delay", "5m", "--key", "order-7", "--tags", "gift,red", "--queue", "express"]
    answer = shop("--json", "enqueue", "pack", "item=lamp", *options, "--after", first[-12:], "--max-attempts", "9")

    task = answer.json
    assert (task["priority"], task["queue"], task["tags"]) == (2, "express", ["gift", "red"])
    assert (task["idempotency_key"], task["max_attempts"], task["depends_on"]) == ("order-7", 9, [first])
    assert task["run_after"] > task["created_at"]


def test_text_stays_text_where_the_task_wants_text(shop: Call) -> None:
    answer = shop("enqueue", "pack", "item=00501", "--json")

    assert answer.json["args"] == {"item": "00501"}


def test_colon_equals_takes_any_json(shop: Call) -> None:
    assert shop("enqueue", "pack", 'item:="a b"', "count:=2", "--json").json["args"] == {"item": "a b", "count": 2}
    assert shop("enqueue", "pack", "item:=oops").code == 2


def test_arguments_may_be_one_json_object(shop: Call) -> None:
    answer = shop("enqueue", "pack", "--args", '{"item": "lamp", "count": 1}', "count=4", "--json")

    assert answer.json["args"] == {"item": "lamp", "count": 4}


def test_the_same_key_gives_the_same_task(shop: Call) -> None:
    first = shop("enqueue", "pack", "item=lamp", "--key", "k")
    again = shop("enqueue", "pack", "item=lamp", "--key", "k")
    other = shop("enqueue", "pack", "item=sofa", "--key", "k", "--json")

    assert first.out == again.out
    assert (other.code, other.error["code"]) == (4, "idempotency_conflict")


@pytest.mark.parametrize(
    ("arguments", "code", "error", "says"),
    [
        (["pakc", "item=lamp"], 3, "unknown_name", "did you mean pack?"),
        (["zzzzzzzz"], 3, "unknown_name", "known are pack, send, tidy, wobble"),
        (["pack"], 2, "invalid_arguments", "missing: item"),
        (["pack", "item=lamp", "cuont=3"], 2, "invalid_arguments", "did you mean count?"),
        (["pack", "item=lamp", "count=many"], 2, "invalid_arguments", "expected `int`, got `str`"),
        (["pack", "lamp"], 2, "invalid_arguments", "name=value"),
        (["pack", "item=lamp", "--priority", "11"], 2, "invalid_task", "use 0 (first) to 9 (last)"),
        (["pack", "item=lamp", "--queue", "a b"], 2, "invalid_task", "not a valid name"),
        (["pack", "item=lamp", "--delay", "soon"], 2, "usage", "no length of time"),
        (["pack", "item=lamp", "--at", "tomorrow"], 2, "usage", "no date and time"),
        (["pack", "--args", "[1]"], 2, "usage", "JSON object of named values"),
        (["pack", "--args", "{"], 2, "usage", "no JSON"),
        (["pack", "item=x", "--after", "01a1e0fb-a99c-7244-9b67-08ec7d2c6a42"], 3, "unknown_dependency", "not exist"),
        ([], 2, "usage", "Give the NAME of a task"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_stored(
    shop: Call, arguments: list[str], code: int, error: str, says: str
) -> None:
    answer = shop("enqueue", *arguments)

    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith(f"error[{error}]: ")
    assert says in answer.err
    assert count_tasks() == 0


def test_without_an_app_the_names_that_workers_told_of_count(ade: Call) -> None:
    answer = ade("enqueue", "pack", "item=lamp", "--store", "sqlite:///shop.db")

    assert (answer.code, answer.out) == (3, "")
    assert "no worker has registered any yet" in answer.err

    work()
    misfit = ade("enqueue", "pack", "count=three", "--store", "sqlite:///shop.db")
    assert (misfit.code, "missing: item" in misfit.err) == (2, True)
    fit = ade("--json", "enqueue", "pack", "item=7", "--store", "sqlite:///shop.db")
    assert fit.json["args"] == {"item": "7"}


def test_an_unknown_name_is_taken_when_asked_for(ade: Call) -> None:
    answer = ade("enqueue", "later", "n=1", "--allow-unknown", "--json")

    assert (answer.json["name"], answer.json["args"]) == ("later", {"n": 1})


def test_a_full_queue_says_when_to_come_back(shop: Call) -> None:
    shop("queues", "limit", "default", "1", "--new")
    shop("enqueue", "pack", "item=lamp")
    answer = shop("--json", "enqueue", "pack", "item=lamp")

    assert answer.code == 5
    assert answer.error["code"] == "queue_full"
    assert answer.error["retry_after"] > 0


def test_a_task_may_need_capabilities(shop: Call) -> None:
    task = shop("enqueue", "pack", "item=lamp", "--needs", "net,gpu", "--needs", "gpu", "--json").json

    assert task["needs"] == ["gpu", "net"]
    assert any(line.split() == ["needs", "gpu,", "net"] for line in shop("show", task["id"]).lines)
    assert shop("enqueue", "pack", "item=lamp", "--needs", "No").code == 2
    assert shop("draft", "pack", "item=lamp", "--needs", "gpu", "--json").json["needs"] == ["gpu"]


def test_a_priority_by_name_and_a_preset_of_delays(shop: Call) -> None:
    task = shop("enqueue", "pack", "item=lamp", "--priority", "urgent", "--backoff", "steps", "--json").json
    assert (task["priority"], task["backoff"]["steps_ms"]) == (1, [60_000, 300_000, 900_000])
    listed = shop("enqueue", "pack", "item=lamp", "--backoff", "30s,2h", "--json").json
    assert listed["backoff"]["steps_ms"] == [30_000, 7_200_000]
    draft = shop("draft", "new", "pack", "item=lamp", "--priority", "low", "--json").json
    assert shop("draft", "edit", draft["id"], "--priority", "high", "--json").json["priority"] == 3
    assert shop("schedules", "add", "nightly", "0 0 * * *", "tidy", "--priority", "low", "--json").json["priority"] == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--priority", "asap"], "urgent (1), high (3), normal (5), low (7)"),
        (["--backoff", "linear"], "exponential or steps, or delays such as 30s or 1m,5m,15m"),
    ],
)
def test_an_unknown_name_stores_nothing(shop: Call, options: list[str], message: str) -> None:
    answer = shop("--json", "enqueue", "pack", "item=lamp", *options)
    assert (answer.code, answer.error["code"]) == (2, "invalid_task")
    assert message in answer.error["message"]
    assert count_tasks() == 0


def test_a_task_is_found_by_its_team_and_ticket(shop: Call) -> None:
    made = shop("enqueue", "pack", "item=lamp", "--team", "support", "--ticket", "OPS-7").out.strip()
    other = shop("enqueue", "pack", "item=sofa", "--team", "support", "--ticket", "OPS-8").out.strip()
    shop("enqueue", "pack", "item=bed")
    assert [task["id"] for task in shop("tasks", "--team", "support", "--json").json["items"]] == [other, made]
    assert [task["id"] for task in shop("tasks", "--ticket", "OPS-7", "--json").json["items"]] == [made]
    shown = shop("show", made).out
    assert "support" in shown
    assert "OPS-7" in shown
    assert shop("cancel", "--ticket", "OPS-8", "--yes", "--json").json["changed"] == [other]
    assert shop("enqueue", "pack", "item=lamp", "--team", "").code == 2
