"""How a task ended, for who asks for that alone."""

from msgspec import Struct

from ade.core.failure import TaskError
from ade.core.lifecycle import Status
from ade.core.records import MaybeRaw


class TaskResult(Struct, frozen=True, kw_only=True):
    """How a task ended, with all of its result; without either while it has not ended."""

    task_id: str
    status: Status
    version: int
    result: MaybeRaw = None
    error: TaskError | None = None
    reason: str | None = None
