"""`ade cancel`: by id, or by a filter that tells first how many it is about."""

import pytest

from tests.cli.conftest import Call, work


def statuses(shop: Call) -> list[str]:
    return [task["status"] for task in shop("tasks", "--json", "--oldest-first").json["items"]]


def test_tasks_are_cancelled_by_id_with_the_reason_and_who_did_it(shop: Call) -> None:
    ids = [shop("enqueue", "pack", f"item={name}").out.strip() for name in ("lamp", "sofa", "vase")]
    answer = shop("cancel", ids[0], ids[1][-12:], "--reason", "sold out")

    assert [line.split()[:2] for line in answer.lines] == [[ids[0], "cancelled"], [ids[1], "cancelled"]]
    assert statuses(shop) == ["cancelled", "cancelled", "pending"]
    shown = shop("show", ids[0], "--json").json
    assert shown["reason"] == "sold out"
    assert shown["events"][-1]["actor"].startswith("cli:")


def test_a_filter_asks_first(shop: Call) -> None:
    for name in ("lamp", "sofa"):
        shop("enqueue", "pack", f"item={name}")
    shop("enqueue", "wobble")
    answer = shop("cancel", "--name", "pack")

    assert (answer.code, answer.out) == (2, "")
    assert "2 tasks would be cancelled. Add --yes to continue." in answer.err
    assert statuses(shop) == ["pending"] * 3


def test_with_yes_everything_that_fits_is_cancelled(shop: Call) -> None:
    for name in ("lamp", "sofa"):
        shop("enqueue", "pack", f"item={name}")
    shop("enqueue", "wobble")

    assert shop("cancel", "--name", "pack", "--yes").out == "Cancelled 2 of 2 tasks.\n"
    assert statuses(shop) == ["cancelled", "cancelled", "pending"]


def test_what_is_final_does_not_fit_a_filter(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp")
    work()
    answer = shop("cancel", "--name", "pack", "--yes", "--json")

    assert answer.json == {"changed": [], "is_more": False}
    assert shop("cancel", "--status", "completed", "--yes").err == "No unfinished task that can be cancelled matches.\n"


def test_a_completed_task_cannot_be_cancelled(shop: Call) -> None:
    task_id = shop("enqueue", "pack", "item=lamp").out.strip()
    work()
    answer = shop("cancel", task_id, "--json")

    assert (answer.code, answer.error["code"]) == (4, "illegal_transition")


@pytest.mark.parametrize("arguments", [[], ["abcdef12", "--name", "pack"]])
def test_either_ids_or_a_filter(shop: Call, arguments: list[str]) -> None:
    answer = shop("cancel", *arguments)

    assert (answer.code, answer.err.startswith("error[usage]: ")) == (2, True)


# `ade reschedule`: pending tasks start at another time, or before others.


def test_pending_tasks_get_another_start_and_priority(shop: Call) -> None:
    ids = [shop("enqueue", "pack", f"item={name}", "--delay", "2h").out.strip() for name in ("lamp", "sofa")]
    answer = shop("reschedule", ids[0], ids[1][-12:], "--now", "--priority", "urgent")

    assert answer.lines == [f"{task_id}  pack  priority 1, starts now" for task_id in ids]
    later = shop("reschedule", ids[0], "--at", "2040-01-31T12:00+00:00", "--json").json
    assert later["run_after"] == "2040-01-31T12:00:00.000Z"
    assert "starts 20" in shop("reschedule", ids[0], "--delay", "90s").out
    timeline = shop("show", ids[0], "--json").json["events"]
    assert [event["type"] for event in timeline] == ["task.created", *["task.rescheduled"] * 3]


def test_what_is_not_pending_is_not_rescheduled(shop: Call) -> None:
    task_id = shop("enqueue", "pack", "item=lamp").out.strip()
    shop("cancel", task_id)
    answer = shop("reschedule", task_id, "--now")
    assert answer.code != 0
    assert "only a pending task can be rescheduled" in answer.err


@pytest.mark.parametrize("options", [[], ["--now", "--delay", "5m"], ["--delay", "5m", "--at", "2040-01-31"]])
def test_a_new_start_is_given_once(shop: Call, options: list[str]) -> None:
    answer = shop("reschedule", "some-id", *options)
    assert answer.code == 2
    assert "one of --now, --delay, and --at" in answer.err
