"""The context of a task function that is called like any function: it talks to nobody, and nothing is recorded."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ade.core.records import Effect, Task
from ade.logs import Log
from ade.worker.context import Context
from ade.worker.wire import Begin, Facts, Ledger, Request, Say, Spawn

_INLINE = "inline"


def inline_context(name: str, enqueue: Callable[[Sequence[Task]], Awaitable[list[Task]]]) -> Context:
    """Effects are performed, lines are logged, children are enqueued without a parent."""

    async def answer(request: Request) -> Any:
        match request:
            case Say(text):
                _log(name, text)
            case Begin(key):
                return Ledger(Effect(key=key, run_id=_INLINE), live=False)
            case Spawn(tasks):
                return await enqueue(tasks)
        return None

    return Context(Facts(task_id="", name=name, attempt=1, worker=_INLINE, run_id=_INLINE), answer, lambda: False)


def _log(name: str, line: str) -> None:
    Log("ade.inline").info("task.says", name=name, line=line)
