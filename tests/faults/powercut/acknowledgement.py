"""What the store has said yes to: the records a caller may rely on from that moment."""

import sys
from typing import Self

import msgspec
from msgspec import Struct

from ade.tasks.model import Task

GONE = sys.maxsize  # the version of a task that was pruned


class TaskState(Struct, frozen=True, array_like=True):
    """As much of a record as a caller relies on. Leases are left out: they are renewed without a new version."""

    id: str
    version: int
    status: str
    generation: int
    attempt: int
    run_id: str | None
    args: str
    outcome: str

    @classmethod
    def of(cls, task: Task) -> Self:
        outcome = {
            "result": None if task.result is None else bytes(task.result).decode(),
            "error": None if task.error is None else task.error.message,
            "reason": task.reason,
            "discarded": task.discarded,
        }
        return cls(
            id=task.id,
            version=task.version,
            status=str(task.status),
            generation=task.generation,
            attempt=task.attempt,
            run_id=task.run_id,
            args=bytes(task.args).decode(),
            outcome=msgspec.json.encode(outcome).decode(),
        )

    @classmethod
    def gone(cls, task_id: str) -> Self:
        return cls(task_id, GONE, "gone", 0, 0, None, "", "")


class Acknowledgement(Struct, frozen=True):
    """One call of the store that returned: all that it wrote, in one transaction.

    Before tasks are pruned they are named in `asked`: from then on they may be missing.
    """

    call: str
    states: tuple[TaskState, ...] = ()
    asked: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(Acknowledgement)


def encoded(acknowledgement: Acknowledgement) -> bytes:
    """One line of the list of acknowledgements."""
    return msgspec.json.encode(acknowledgement) + b"\n"


def decoded(line: bytes) -> Acknowledgement:
    return _decoder.decode(line)
