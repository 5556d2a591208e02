"""The line between a run and the hooks of its agent: `ade hook` asks here whether a tool may be used.

The agent is given a socket of its own and no access to the store. Whatever cannot be answered is a no.
"""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ade.agents.running.orders import RunDesk
from ade.core.agent_runs.events import ToolCalled
from ade.core.agent_runs.hooks import LINE_VARIABLE, LONGEST_CALL, Answer, Ruling, answer_to
from ade.core.agent_runs.redaction import without_secrets
from ade.core.approvals.refusals import Denied
from ade.core.control import Leave
from ade.logs import Log

_PREFIX = "ade-run-"
_LONGEST_PLACE = 60  # characters
log = Log("ade.agents")


class HookLine:
    """Answers the hooks of one run of a program.

    `asked` is the last call that people must agree to. Secrets are hidden before anybody is asked: what people agree to
    is then compared in the same form.
    """

    def __init__(self, desk: RunDesk, *, can_defer: bool, on_granted: Callable[[], Awaitable[None]]) -> None:
        self._desk = desk
        self._can_defer = can_defer
        self._on_granted = on_granted
        self._path = ""
        self.secrets: Sequence[str] = ()
        self.asked: ToolCalled | None = None
        self.must_end = asyncio.Event()  # the program cannot wait in its session

    @property
    def environment(self) -> dict[str, str]:
        return {LINE_VARIABLE: self._path}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """In a folder that only this user can enter."""
        folder = _new_folder()
        self._path = str(Path(folder, "line"))
        try:
            server = await asyncio.start_unix_server(self._serve, self._path, limit=LONGEST_CALL)
            async with server:
                yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ruling = await self._rule(await reader.readline())
            writer.write(json.dumps({"answer": ruling.answer, "reason": ruling.reason}).encode() + b"\n")
            await writer.drain()
        except Exception as error:  # without an answer it is a no
            log.warning("hook.not_answered", error=f"{type(error).__name__}: {error}")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _rule(self, line: bytes) -> Ruling:
        call = json.loads(line)
        tool, arguments = str(call["tool"]), self._hidden(dict[str, Any](call["arguments"]))
        try:
            leave = await self._desk.allows(tool, arguments)
        except Denied as error:
            return Ruling(Answer.DENY, error.detail)
        if leave is Leave.GRANTED:
            await self._on_granted()
        if leave is Leave.NEEDED:
            self.asked = ToolCalled(id=str(call.get("id") or "hook"), name=tool, arguments=json.dumps(arguments))
            if not self._can_defer:
                self.must_end.set()
        return answer_to(leave, can_defer=self._can_defer)

    def _hidden(self, value: Any) -> Any:
        match value:
            case str():
                return without_secrets(value, self.secrets)
            case dict():
                return {self._hidden(key): self._hidden(inner) for key, inner in value.items()}
            case list():
                return [self._hidden(inner) for inner in value]
        return value


def _new_folder() -> str:
    """Paths of sockets are short, and that of a user's own temporary folder may not be."""
    usual = tempfile.gettempdir()
    place = usual if len(usual) <= _LONGEST_PLACE else "/tmp"
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place)


def remove_abandoned() -> int:
    """Remove the folders of processes that were killed. For a start-up."""
    removed = 0
    for place in {tempfile.gettempdir(), "/tmp"}:
        for folder in Path(place).glob(f"{_PREFIX}*-*"):
            owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if owner.isdecimal() and not Path("/proc", owner).exists() and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
    return removed
