"""How a worker process begins: the fastest event loop there is, signals caught, logs set up."""

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ade.worker.processes import die_with_supervisor
from ade.worker.shutdown import StopSignals
from ade.worker.threads import UnwaitedExecutor

T = TypeVar("T")
_THREADS = min(32, (os.cpu_count() or 1) + 4)  # for `asyncio.to_thread`, as many as Python's own
_COLLECT_EVERY = 10_000  # new objects; the usual 700 are the work of an instant here
_SWITCH_S = 0.0005  # a store's thread beside a busy loop waits this long for the interpreter, not the usual 5 ms


def serve(main: Callable[[StopSignals], Coroutine[Any, Any, T]]) -> T:
    """Run a worker's main coroutine in this process; SIGTERM and SIGINT ask it to stop, a second one to hurry."""
    die_with_supervisor()
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY, 20, 50)

    async def caught() -> T:
        asyncio.get_running_loop().set_default_executor(UnwaitedExecutor(_THREADS))
        signals = StopSignals()
        with signals.caught():
            return await main(signals)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(caught())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return None
    return uvloop.new_event_loop
