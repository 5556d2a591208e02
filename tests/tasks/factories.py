"""Tasks as the core's tests need them: one line each, every number chosen."""

from msgspec import Raw

from ade import Status, Task
from ade.failures import Backoff, FailureKind, TaskError
from tests.domain import Change, Failed, Verb, change

NOW = 1_760_000_000_000
MIDDLE = 0.5  # the dice that add no jitter
TASK_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
STEADY = Backoff(jitter=0.0)


def new_task(**fields: object) -> Task:
    known: dict[str, object] = {"id": TASK_ID, "name": "send_mail", "backoff": STEADY}
    return Task(**(known | fields))  # type: ignore[arg-type]  # any field of a task, by its name


def running_task(**fields: object) -> Task:
    known: dict[str, object] = {
        "status": Status.RUNNING,
        "version": 2,
        "attempt": 1,
        "run_id": "run-1",
        "worker_id": "worker-1",
        "lease_until": NOW + 30_000,
        "started_at": NOW,
    }
    return new_task(**(known | fields))


def failed_task(**fields: object) -> Task:
    known: dict[str, object] = {
        "status": Status.FAILED,
        "version": 7,
        "attempt": 3,
        "run_id": "run-3",
        "finished_at": NOW - 1,
        "error": failure(FailureKind.RAISED).error,
    }
    return new_task(**(known | fields))


def failure(
    kind: FailureKind, *, retry_after_ms: int | None = None, retryable: bool = True, message: str = "no luck"
) -> Failed:
    return Failed(TaskError(kind=kind, type="Oops", message=message, retryable=retryable), retry_after_ms)


def claim(task: Task, *, run_id: str, now: int = NOW) -> Change:
    """What a store does when it hands a task to a worker."""
    return change(
        task,
        Verb.CLAIM,
        now=now,
        attempt=task.attempt + 1,
        run_id=run_id,
        worker_id="worker-1",
        lease_until=now + 30_000,
        started_at=now,
    )


def raw(text: str) -> Raw:
    return Raw(text.encode())
