"""The context of a task function that is called like any function: nothing is recorded, and locks are real."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ade.core.errors import InvalidTask
from ade.core.records import Effect, Task
from ade.logs import Log
from ade.worker.context import Context
from ade.worker.wire import Begin, Facts, Hold, LeaveLock, Ledger, Request, Say, Spawn, TakeLock, TakenLock

if TYPE_CHECKING:
    from ade.governance.locks.held import HeldLock

_INLINE = "inline"


class InlineLocks(Protocol):
    """Where a function that is called directly takes its locks."""

    scope: str
    held: "dict[str, HeldLock]"

    async def take(self, wanted: TakeLock) -> TakenLock: ...

    async def leave(self, lock_id: str) -> None: ...


def inline_context(
    name: str, enqueue: Callable[[Sequence[Task]], Awaitable[list[Task]]], locks: InlineLocks
) -> Context:
    """Effects are performed, lines are logged, children are enqueued without a parent."""

    async def answer(request: Request) -> Any:
        match request:
            case Say(text):
                _log(name, text)
            case Begin(key):
                return Ledger(Effect(key=key, run_id=_INLINE), live=False)
            case Spawn(tasks):
                return await enqueue(tasks)
            case TakeLock():
                return await locks.take(request)
            case LeaveLock(lock_id):
                await locks.leave(lock_id)
            case Hold():
                raise InvalidTask("a function that is called directly cannot wait for approval; enqueue it instead")
        return None

    facts = Facts(task_id="", name=name, attempt=1, worker=_INLINE, run_id=_INLINE, scope=locks.scope)
    return Context(facts, answer, lambda: False, lambda: locks.held)


def _log(name: str, line: str) -> None:
    Log("ade.inline").info("task.says", name=name, line=line)
