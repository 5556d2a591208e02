"""`ade wait` and `ade enqueue --wait`: until tasks are final."""

from tests.cli.conftest import Call, work


def test_the_result_of_a_completed_task_is_printed(shop: Call) -> None:
    task_id = shop("enqueue", "pack", "item=lamp").out.strip()
    work()
    answer = shop("wait", task_id)

    assert (answer.code, answer.out) == (0, '{\n  "lamp": 1\n}\n')


def test_a_failed_task_ends_in_an_error(shop: Call) -> None:
    task_id = shop("enqueue", "send", "address=nowhere").out.strip()
    work()
    answer = shop("wait", task_id)

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"error[task_failed]: task {task_id} (send) failed: Unrecoverable: there is no")


def test_a_cancelled_task_has_no_result(shop: Call) -> None:
    task_id = shop("enqueue", "pack", "item=lamp").out.strip()
    shop("cancel", task_id, "--reason", "sold out")
    answer = shop("wait", task_id)

    assert answer.code == 1
    assert answer.err == f"error[task_cancelled]: task {task_id} (pack) was cancelled: sold out\n"


def test_several_tasks_are_told_one_by_one(shop: Call) -> None:
    good = shop("enqueue", "pack", "item=lamp").out.strip()
    bad = shop("enqueue", "send", "address=nowhere").out.strip()
    work()
    answer = shop("wait", good, bad)
    told = {task["id"]: task for task in shop("wait", good, bad, "--json").json_lines}

    assert answer.code == 1
    assert f'{good}  completed  pack  {{"lamp":1}}' in answer.lines
    assert any(line.startswith(f"{bad}  failed  send  Unrecoverable") for line in answer.lines)
    assert told[good]["result"] == {"lamp": 1}
    assert told[bad]["error"]["type"] == "Unrecoverable"


def test_waiting_has_an_end(shop: Call) -> None:
    task_id = shop("enqueue", "pack", "item=lamp").out.strip()
    answer = shop("wait", task_id, "--timeout", "50ms", "--json")

    assert (answer.code, answer.error["code"]) == (124, "wait_timeout")


def test_enqueue_can_wait_for_what_is_known_already(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp", "--key", "k")
    work()
    answer = shop("enqueue", "pack", "item=lamp", "--key", "k", "--wait")

    assert answer.code == 0
    assert answer.lines[1:] == ["{", '  "lamp": 1', "}"]
