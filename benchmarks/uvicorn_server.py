"""uvicorn around an ASGI app, set as ADE sets it; for contestants that are nothing but such an app."""

import asyncio
import importlib
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

BACKLOG = 2048


def run(opening: AbstractAsyncContextManager[Any], announce: Callable[[int], None]) -> None:
    """Answer with the app that is opened, until SIGTERM; `announce` is told the port."""
    importlib.import_module("uvloop").run(_run(opening, announce))


async def _run(opening: AbstractAsyncContextManager[Any], announce: Callable[[int], None]) -> None:
    async with opening as app:
        await _serve(app, announce)


async def _serve(app: Any, announce: Callable[[int], None]) -> None:
    uvicorn = importlib.import_module("uvicorn")
    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # it would end this process by the signal, and nothing more could be told
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: setattr(server, "should_exit", True))
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listening:
        listening.setblocking(False)
        announce(listening.getsockname()[1])  # who comes before it answers waits in the backlog
        await server.serve(sockets=[listening])
