"""Records are plain values: they compare, cannot be changed, and come back from JSON as they went."""

import msgspec
import pytest

from ade import Status, Task
from ade.failures import FailureKind
from tests.domain import FINAL, Schedule
from tests.tasks.factories import NOW, TASK_ID, failed_task, failure, new_task, raw, running_task


@pytest.mark.parametrize("status", Status)
def test_a_task_is_final_when_its_status_is(status: Status) -> None:
    assert new_task(status=status).is_final == (status in FINAL)


def test_arguments_are_decoded_from_the_json_that_was_given() -> None:
    assert new_task(args=raw('{"to": "ann", "copies": 2}')).arguments() == {"to": "ann", "copies": 2}
    assert new_task().arguments() == {}


def test_the_defaults_are_those_the_documentation_promises() -> None:
    task = Task(id=TASK_ID, name="send_mail")

    assert (task.queue, task.priority, task.max_attempts, task.status) == ("default", 5, 3, Status.PENDING)
    assert (task.version, task.generation, task.attempt, task.after_failure) == (1, 1, 0, "cancel")
    assert (task.backoff.base_ms, task.backoff.multiplier, task.backoff.cap_ms) == (1_000, 2.0, 300_000)


@pytest.mark.parametrize(
    "task",
    [
        new_task(),
        running_task(args=raw('{"a":[1,{"b":null}]}'), tags=("x", "y"), depends_on=(TASK_ID,), progress=raw("0.5")),
        failed_task(error=failure(FailureKind.TIMED_OUT).error, resources=("repo:r1",)),
        new_task(status=Status.COMPLETED, result=raw('"done"'), result_ttl_ms=5, finished_at=NOW),
    ],
    ids=lambda task: str(task.status),
)
def test_a_task_comes_back_from_json_as_it_went(task: Task) -> None:
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task


def test_a_result_of_nothing_is_still_a_result() -> None:
    completed = new_task(status=Status.COMPLETED, result=raw("null"))

    read = msgspec.json.decode(msgspec.json.encode(completed), type=Task)

    assert (read.result, new_task().result) == (raw("null"), None)


def test_what_has_its_default_takes_no_space() -> None:
    assert msgspec.json.decode(msgspec.json.encode(Task(id=TASK_ID, name="send_mail"))) == {
        "id": TASK_ID,
        "name": "send_mail",
    }


def test_a_record_cannot_be_changed_in_place() -> None:
    with pytest.raises(AttributeError):
        new_task().status = Status.COMPLETED  # type: ignore[misc]  # that it is refused is the point


def test_a_schedule_comes_back_from_json_as_it_went() -> None:
    schedule = Schedule(name="n", cron="* * * * *", task_name="t", args=raw("{}"), last_at=NOW)

    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule
