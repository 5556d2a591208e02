"""The socket server by which `ade hook` asks a run whether its agent can use a tool.

The agent gets its own socket and no access to the store. Every error denies the call.
"""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ade.agents.protocols.base import without_secrets
from ade.agents.runs.model import LINE_VARIABLE, LONGEST_CALL, HookAnswer, HookRuling, answer_to
from ade.agents.runs.spec import RunContext
from ade.approvals.errors import Denied, StepDenied
from ade.logs import Log
from ade.tasks.outcomes import Leave

_PREFIX = "ade-run-"
_LONGEST_PLACE = 60  # characters
_OLD_S = 8 * 86_400.0  # longer than the longest run
log = Log("ade.agents")


class ReviewableToolCall(NamedTuple):
    """A tool call of an agent: the raw arguments, and those shown to reviewers."""

    tool: str
    arguments: dict[str, Any]
    shown: dict[str, Any]


class HookServer:
    """Answers the hooks of one run of a program.

    `pending` is the last call that needs approval. Rules check it unchanged. Reviewers see it with secrets masked, plus
    their digest, so that an approval covers exactly this call.
    """

    def __init__(self, context: RunContext, *, can_defer: bool, on_decided: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._can_defer = can_defer
        self._on_decided = on_decided
        self._path = ""
        self.secrets: Sequence[str] = ()
        self.pending: ReviewableToolCall | None = None
        self.must_end = asyncio.Event()  # set if the program cannot wait in its session

    @property
    def environment(self) -> dict[str, str]:
        """The variables that tell hooks where to connect."""
        return {LINE_VARIABLE: self._path}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Serve while the block runs, on a socket in a directory that only this user can enter."""
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
        except Exception as error:  # no response means denied
            log.warning("hook.not_answered", error=f"{type(error).__name__}: {error}")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _rule(self, line: bytes) -> HookRuling:
        call = json.loads(line)
        pending = self._shown(str(call["tool"]), dict[str, Any](call["arguments"]))
        try:
            leave = await self._context.allows(pending.tool, pending.arguments, shown=pending.shown)
        except Denied as error:
            if isinstance(error, StepDenied):
                await self._on_decided()
            return HookRuling(HookAnswer.DENY, error.detail)
        if leave is Leave.GRANTED:
            await self._on_decided()
        if leave is Leave.NEEDED:
            self.pending = pending
            if not self._can_defer:
                self.must_end.set()
        return answer_to(leave, can_defer=self._can_defer)

    def _shown(self, tool: str, arguments: dict[str, Any]) -> ReviewableToolCall:
        return ReviewableToolCall(tool, arguments, self._hidden(arguments))

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
    """Socket paths must be short, and a user's own temporary directory might be too long."""
    usual = tempfile.gettempdir()
    place = usual if len(usual) <= _LONGEST_PLACE else "/tmp"
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place)


def remove_abandoned() -> int:
    """At startup, remove the directories of processes that were killed."""
    removed = 0
    for place in {tempfile.gettempdir(), "/tmp"}:
        for folder in Path(place).glob(f"{_PREFIX}*-*"):
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
    return removed


def _is_abandoned(folder: Path) -> bool:
    """Return whether it is ours, old, and its process is gone. If in doubt, no: containers might share it."""
    owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
    try:
        info = folder.stat()
        if not owner.isdecimal() or info.st_uid != os.getuid() or time.time() - info.st_mtime < _OLD_S:
            return False
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
