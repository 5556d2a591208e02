"""Reading records. One that cannot be read is shown by what is left of it, and never keeps others from being read."""

from typing import Any

import apsw
import msgspec
from msgspec import structs

from ade.core.failure import FailureKind, TaskError
from ade.core.records import Task
from ade.stores.sqlite.codec import read_task
from ade.stores.sqlite.statements import run, value

UNREADABLE = (msgspec.MsgspecError, RecursionError)  # the latter: JSON nested to the limit of the reader's stack


def read_records(connection: apsw.Connection, statement: str, /, **bindings: Any) -> list[Task]:
    """The tasks of a statement that answers rows of seq and record."""
    return [task_of(connection, seq, record) for seq, record in run(connection, statement, **bindings)]


def task_of(connection: apsw.Connection, seq: int, record: bytes) -> Task:
    try:
        return read_task(record)
    except UNREADABLE as error:
        return remains_of(connection, seq, str(error))


def remains_of(connection: apsw.Connection, seq: int, why: str) -> Task:
    """A task as far as the columns that drive it tell; its arguments and outcome cannot be read."""
    error = TaskError(
        kind=FailureKind.BAD_ARGUMENTS,
        type="UnreadableRecord",
        message=f"the stored record cannot be read ({why[:200]})",
        retryable=False,
    )
    return structs.replace(read_task(value(connection, "record_remains", seq=seq)), error=error)
