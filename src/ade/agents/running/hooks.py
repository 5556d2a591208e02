"""The line between a run and the hooks of its agent: `ade hook` asks here whether a tool may be used.

The agent is given a socket of its own and no access to the store. Whatever cannot be answered is a no.
"""

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ade.agents.running.orders import RunDesk
from ade.core.agent_runs.events import ToolCalled
from ade.core.agent_runs.hooks import LINE_VARIABLE, LONGEST_CALL, Answer, Ruling, answer_to
from ade.core.approvals.refusals import Denied
from ade.core.control import Leave
from ade.core.errors import AdeError
from ade.logs import Log

log = Log("ade.agents")


class HookLine:
    """Answers the hooks of one run. `wanted` is the call that people must be asked about, if there was one."""

    def __init__(self, desk: RunDesk, *, can_defer: bool) -> None:
        self._desk = desk
        self._can_defer = can_defer
        self.wanted: ToolCalled | None = None
        self.is_wanted = asyncio.Event()
        self.path = ""

    @property
    def environment(self) -> dict[str, str]:
        return {LINE_VARIABLE: self.path}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """In a folder that only this user can enter, with a short name: paths of sockets are."""
        folder = tempfile.mkdtemp(prefix="ade-run-")
        self.path = str(Path(folder, "line"))
        try:
            server = await asyncio.start_unix_server(self._serve, self.path, limit=LONGEST_CALL)
            async with server:
                yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ruling = await self._rule(await reader.readline())
            writer.write(json.dumps({"answer": ruling.answer, "reason": ruling.reason}).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError, AdeError) as error:
            log.warning("hook.not_answered", error=str(error))  # without an answer it is a no
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _rule(self, line: bytes) -> Ruling:
        call = json.loads(line)
        tool, arguments = str(call["tool"]), dict[str, Any](call["arguments"])
        try:
            leave = await self._desk.allows(tool, arguments)
        except Denied as error:
            return Ruling(Answer.DENY, error.detail)
        if leave is Leave.NEEDED and not self._can_defer and self.wanted is None:
            call_id = str(call.get("id") or "hook")
            self.wanted = ToolCalled(id=call_id, name=tool, arguments=json.dumps(arguments))
            self.is_wanted.set()
        return answer_to(leave, can_defer=self._can_defer)
