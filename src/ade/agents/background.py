"""Agent runs that start immediately in this process, without the queue, and the notifications about their end.

They stop with the process, and are dropped from memory five minutes after they end.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Any, Protocol

from ade.agents.conversations.model import InvalidInboxItem
from ade.agents.protocols.base import ClippedText
from ade.agents.runs.command_line import RunAssignment
from ade.agents.runs.files import Transcript
from ade.agents.runs.messages import ABORTED, INTERRUPTED, MAX_OUTPUT_TEXT, header
from ade.agents.runs.model import AgentProgress, AgentResult
from ade.agents.runs.spec import AgentRunSpec, RunContext
from ade.approvals.errors import Denied
from ade.errors import AdeError, InvalidInbox
from ade.logs import Log
from ade.tasks.outcomes import Leave

log = Log("ade.agents")
MOST_RUNNING = 32
FORGOTTEN_AFTER_MS = 300_000
CALLBACK_S = 10.0  # time limit for a caller's callback during shutdown
_KNOWN_AFTER_S = 1.0  # how long a caller waits for the IDs of a new run


class TooManyAgents(AdeError):
    """Too many agents are running in this process. Wait for one to end, or enqueue with persist=True."""

    code = "too_many_agents"
    exit_code = 5  # refused for now


class RunAgent(Protocol):
    """Signature of the function that runs one agent."""

    async def __call__(self, subagent_type: str, spec: AgentRunSpec, context: RunContext) -> AgentResult:
        """Run an agent to its end, and write its transcript. Raises RunFailed. Cancellation leaves no process."""


class TaskStatus(StrEnum):
    """Status of a Task tool task. Only queued tasks can be `pending`."""

    PENDING = auto()
    RUNNING = auto()
    COMPLETED = auto()
    FAILED = auto()


OnComplete = Callable[["BackgroundTask"], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class BackgroundRequest:
    """An agent run to start immediately in this process."""

    subagent_type: str
    assignment: RunAssignment
    description: str
    directory: Path | None = None
    author: str | None = None  # whose budget pays for the run
    inbox: str | None = None  # of the conversation to notify at the end
    on_complete: OnComplete | None = None  # called at the end, before the conversation is notified


class BackgroundTask:
    """One agent run in this process, with its progress and result."""

    def __init__(self, number: int, work: BackgroundRequest, now: int, mark: str) -> None:
        self.id = f"task_{number}"
        self.name = f"{self.id}-{mark}"  # unique across processes
        self.subagent_id = f"subagent-{now}-{number}"
        self.work = work
        self.started_at = now
        self.finished_at: int | None = None
        self.status = TaskStatus.RUNNING
        self.result: AgentResult | None = None
        self.error: str | None = None
        self.progress = AgentProgress(subagent_type=work.subagent_type)
        self._said = ClippedText(MAX_OUTPUT_TEXT)
        self._known = asyncio.Event()
        self._over = asyncio.Event()
        self._ended = asyncio.Event()
        self.job: asyncio.Task[None] | None = None
        self.is_stopped = False

    @property
    def is_running(self) -> bool:
        return self.status is TaskStatus.RUNNING

    @property
    def head(self) -> str:
        """The line that identifies the agent."""
        known = self.result or self.progress
        return header(self.work.subagent_type, known.agent_id, known.conversation_id)

    @property
    def output_file(self) -> str | None:
        return (self.result or self.progress).output_file

    @property
    def output(self) -> str:
        """The report with its header once available; until then, the text printed so far."""
        return f"{self.head}\n\n{self.result.report}" if self.result is not None else self._said.text.rstrip("\n")

    async def say(self, text: str, stream: str) -> None:
        """Keep a line of output for `output`."""
        self._said.add(f"{text}\n")

    async def keep(self, progress: AgentProgress) -> None:
        """Store the latest progress."""
        self.progress = progress
        if progress.url or progress.agent_id or progress.session_id:
            self._known.set()

    async def until_known(self) -> None:
        """Wait briefly until the run's IDs are known or the run has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_KNOWN_AFTER_S):
                await self._known.wait()

    async def until_over(self) -> None:
        """Wait until the program has exited. Notifications might still be pending."""
        await self._over.wait()

    async def until_ended(self, timeout: float | None = None) -> None:
        """Wait until the run has ended and its callback and notification are done. A timeout is not an error."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._ended.wait()

    def end(self, now: int, *, result: AgentResult | None = None, error: str | None = None) -> None:
        """Record the result or the error."""
        self.result, self.error, self.finished_at = result, error, now
        self.status = TaskStatus.FAILED if error is not None else TaskStatus.COMPLETED
        self._known.set()
        self._over.set()

    def mark_ended(self) -> None:
        """Wake callers of `until_ended`."""
        self._ended.set()


# Completion notifications for runs in this process: sent immediately if possible, otherwise retried until close.


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0
_MOST_TRIES = 2_900  # about a day


class CompletionNotifier:
    """Sends completion notifications, and retries while the store is unavailable or the inbox full. Bound to one event
    loop.
    """

    def __init__(self, send: OnComplete | None) -> None:
        self._send = send
        self._closing = asyncio.Event()
        self._jobs: set[asyncio.Task[None]] = set()

    async def notify(self, task: BackgroundTask) -> None:
        """Send the notification. Returns after the first attempt; later attempts run in the background."""
        if not await self._is_sent(task):
            job = asyncio.create_task(self._retry(task))
            self._jobs.add(job)
            job.add_done_callback(self._jobs.discard)

    async def close(self) -> None:
        """Make one final attempt for each unsent notification."""
        self._closing.set()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def _retry(self, task: BackgroundTask) -> None:
        pause = _FIRST_PAUSE_S
        for _ in range(_MOST_TRIES):
            if self._closing.is_set():
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
            if await self._is_sent(task):
                return
            pause = min(pause * 2, _LONGEST_PAUSE_S)
        log.error("task.notification_lost", task_id=task.id)

    async def _is_sent(self, task: BackgroundTask) -> bool:
        try:
            if self._send is not None:
                await self._send(task)
        except (InvalidInbox, InvalidInboxItem) as error:  # permanent: do not retry
            log.error("task.notification_lost", task_id=task.id, error=str(error))
        except Exception as error:
            log.warning("task.notification_failed", task_id=task.id, error=str(error))
            return False
        return True


Allows = Callable[[str, str, dict[str, Any]], Awaitable[Leave]]  # type, tool, arguments; raises Denied


class _BackgroundRunContext:
    """The `RunContext` of a run in this process."""

    def __init__(self, task: BackgroundTask, allows: Allows | None) -> None:
        self._task = task
        self._allows = allows

    async def say(self, text: str, stream: str) -> None:
        await self._task.say(text, stream)

    async def progress(self, progress: AgentProgress) -> None:
        await self._task.keep(progress)

    async def guard(self, tool: str, arguments: dict[str, Any], /, *, shown: dict[str, Any] | None = None) -> None:
        if await self.allows(tool, arguments) is Leave.NEEDED:
            raise Denied(f"the tool {tool} requires approval: use persist=True, so that the run can wait for it")

    async def allows(self, tool: str, arguments: dict[str, Any], /, *, shown: dict[str, Any] | None = None) -> Leave:
        if self._allows is None:
            return Leave.FREE
        return await self._allows(self._task.work.subagent_type, tool, arguments)


class BackgroundTasks:
    """Runs and tracks the background tasks of one process. Bound to one event loop."""

    def __init__(
        self,
        run: RunAgent,
        now: Callable[[], int],
        *,
        allows: Allows | None = None,
        on_end: OnComplete | None = None,
    ) -> None:
        self._run = run
        self._now = now
        self._allows = allows
        self._notifier = CompletionNotifier(on_end)
        self._tasks: dict[str, BackgroundTask] = {}
        self._closing = asyncio.Event()
        self._last = 0
        self._mark = os.urandom(4).hex()

    def start(self, work: BackgroundRequest) -> BackgroundTask:
        """Start a run immediately. Raises TooManyAgents."""
        self._forget_old()
        if sum(task.is_running for task in self._tasks.values()) >= MOST_RUNNING:
            raise TooManyAgents(
                f"{MOST_RUNNING} agents are already running in this process; wait for one to end, or use persist=True"
            )
        self._last += 1
        task = BackgroundTask(self._last, work, self._now(), self._mark)
        self._tasks[task.id] = task
        task.job = asyncio.create_task(self._perform(task), name=f"ade-{task.id}")
        task.job.add_done_callback(lambda _: self._close(task))
        return task

    def get(self, task_id: str) -> BackgroundTask | None:
        self._forget_old()
        return self._tasks.get(task_id)

    def list_tasks(self) -> list[BackgroundTask]:
        """Return the tasks still in memory, oldest first."""
        self._forget_old()
        return list(self._tasks.values())

    async def stop(self, task_id: str) -> bool:
        """Stop a running task and return whether it was running. Its processes have exited when this returns."""
        task = self.get(task_id)
        if task is None or not task.is_running or task.job is None:
            return False
        task.is_stopped = True
        task.job.cancel()
        await task.until_over()
        return True

    async def close(self) -> None:
        """Stop all running tasks, and send the notifications that can be sent now."""
        self._closing.set()
        for task in self._tasks.values():
            if task.is_running and task.job is not None:
                task.job.cancel()
        await asyncio.gather(*(task.job for task in self._tasks.values() if task.job), return_exceptions=True)
        await self._notifier.close()

    async def _perform(self, task: BackgroundTask) -> None:
        try:
            result = await self._run(
                task.work.subagent_type, self._spec(task), _BackgroundRunContext(task, self._allows)
            )
        except asyncio.CancelledError:
            task.end(self._now(), error=ABORTED if task.is_stopped else INTERRUPTED)
        except Exception as error:  # mostly RunFailed
            task.end(self._now(), error=str(error) or type(error).__name__)
        else:
            task.end(self._now(), result=result)
        try:
            await self._call_back(task)
        finally:
            await self._notifier.notify(task)

    async def _call_back(self, task: BackgroundTask) -> None:
        """Call the caller's callback. Its errors go to the transcript, where the caller can read them."""
        if task.work.on_complete is None:
            return
        try:
            await self._while_open(task.work.on_complete(task))
        except (Exception, asyncio.CancelledError) as error:
            log.warning("task.callback_failed", task_id=task.id, error=str(error))
            if task.output_file is not None:
                Transcript(Path(task.output_file)).add(f"[onComplete error] {error}\n")

    async def _while_open(self, work: Awaitable[None]) -> None:
        """Wait for the work, with a time limit once shutdown starts. Raises what the work raises, and TimeoutError."""
        job, closing = asyncio.ensure_future(work), asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({job, closing}, return_when=asyncio.FIRST_COMPLETED)
            done, _ = await asyncio.wait({job}, timeout=CALLBACK_S)  # a callback that ignores cancellation is abandoned
            if not done:
                raise TimeoutError(f"the callback did not return within {CALLBACK_S:g} s")
            await job
        finally:
            closing.cancel()
            job.cancel()

    def _close(self, task: BackgroundTask) -> None:
        if task.is_running:  # stopped before it started
            task.end(self._now(), error=ABORTED if task.is_stopped else INTERRUPTED)
        task.mark_ended()

    def _spec(self, task: BackgroundTask) -> AgentRunSpec:
        work = task.work
        return AgentRunSpec(
            task_id=task.name,
            run_id=task.subagent_id,
            attempt=1,
            assignment=work.assignment,
            description=work.description,
            directory=work.directory,
            author=work.author,
        )

    def _forget_old(self) -> None:
        before = self._now() - FORGOTTEN_AFTER_MS
        for task in list(self._tasks.values()):
            if task.finished_at is not None and task.finished_at <= before:
                del self._tasks[task.id]
