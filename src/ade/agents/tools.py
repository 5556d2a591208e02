"""The Task tool and its two companions, as an agent calls them: what goes wrong is an answer too, no exception."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct, structs

from ade.agents.background import BackgroundTask, BackgroundTasks, OnComplete, TaskStatus, Work
from ade.agents.stored import StoredTasks
from ade.core.agent_runs import telling
from ade.core.agent_runs.command_line import Assignment
from ade.core.errors import AdeError
from ade.core.ids import is_task_id

GENERAL = "general-purpose"  # the type of an agent that exists, where none is named
DEFAULT_TIMEOUT_MS = 30_000
LONGEST_TIMEOUT_MS = 600_000


class TaskResult(Struct, frozen=True, kw_only=True):
    """The Task tool's answer. `message` is what the agent reads."""

    message: str
    status: TaskStatus
    task_id: str | None = None
    output_file: str | None = None

    def __str__(self) -> str:
        return self.message


class TaskOutputResult(Struct, frozen=True):
    message: str
    status: TaskStatus


class TaskStopResult(Struct, frozen=True):
    killed: bool


class AgentRequest(Struct, frozen=True, kw_only=True):
    """A run to enqueue."""

    subagent_type: str
    arguments: Mapping[str, object]  # of the task, those that were given
    description: str
    priority: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the tools work with. Those of one program share it, so that each knows the tasks of the other."""

    types: Callable[[], Awaitable[Mapping[str, bool]]]  # of agents, and whether each can go on with one that exists
    background: BackgroundTasks
    stored: StoredTasks
    enqueue: Callable[[AgentRequest], Awaitable[str]]  # answers the id of the task
    allow: Callable[[AgentRequest], Awaitable[None]]  # raises unless it may run without being stored
    conversation: str | None = None  # that gets notifications
    directory: Path | None = None  # for agents that run at once; None: one of their own
    author: str | None = None  # whose budget they use up


class TaskTool:
    """Gives work to another agent: at once and in this process or, with `persist`, through the queue."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._at = surroundings
        self.output = TaskOutput(surroundings)
        self.stop = TaskStop(surroundings)

    async def run(
        self,
        prompt: str,
        subagent_type: str | None = None,
        description: str = "",
        *,
        model: str | None = None,
        run_in_background: bool = False,
        agent_id: str | None = None,
        conversation_id: str | None = None,
        max_turns: int | None = None,
        system_prompt: str | None = None,
        tool_call_id: str | None = None,
        silent: bool = False,
        persist: bool = False,
        priority: int | None = None,
        tags: Sequence[str] = (),
        on_complete: OnComplete | None = None,
    ) -> TaskResult:
        """Let an agent work on a prompt.

        With `persist` it is enqueued, survives this program, and the answer is its task id at once. Otherwise the
        answer is the report, or with `run_in_background` an id for TaskOutput and TaskStop. When what does not answer
        its report has ended, the conversation gets a notification, unless it is `silent`. Before that `on_complete` is
        called, for runs of this process alone: nothing that is enqueued can keep a function.
        """
        is_existing = bool(agent_id or conversation_id)
        chosen = subagent_type or (GENERAL if is_existing else "")
        given = {
            "prompt": prompt,
            "description": description,
            "system_prompt": system_prompt,
            "model": model,
            "agent_id": agent_id,
            "conversation_id": conversation_id,
            "max_turns": max_turns,
            "tool_call_id": tool_call_id,
            "silent": silent or None,
        }
        request = AgentRequest(
            subagent_type=chosen,
            arguments={name: value for name, value in given.items() if value is not None},
            description=description,
            priority=priority,
            tags=tuple(tags),
        )
        try:
            if wrong := await self._refusal(request, is_existing=is_existing):
                return TaskResult(message=telling.foreground_error(wrong), status=TaskStatus.FAILED)
            if persist:
                return await self._enqueue(request, silent=silent)
            return await self._run_here(request, in_background=run_in_background, silent=silent, then=on_complete)
        except AdeError as error:
            return TaskResult(message=telling.foreground_error(error.detail), status=TaskStatus.FAILED)

    async def _refusal(self, request: AgentRequest, *, is_existing: bool) -> str | None:
        """What is wrong with what was asked for, in words for the agent that asked."""
        chosen = request.subagent_type
        given = {
            "description": request.description,
            "prompt": str(request.arguments["prompt"]),
            "subagent_type": chosen,
        }
        if missing := [name for name, value in given.items() if not value.strip()]:
            return f"Task tool missing required parameter{'s' * (len(missing) > 1)}: {', '.join(missing)}"
        types = await self._at.types()
        if chosen not in types:
            return f'Invalid subagent type "{chosen}". Available types: {", ".join(sorted(types)) or "none"}'
        if is_existing and not types[chosen]:
            fitting = sorted(name for name, can_go_on in types.items() if can_go_on)
            return (
                f'An agent of type "{chosen}" cannot go on with an agent or a conversation that exists.'
                f" Types that can: {', '.join(fitting) or 'none'}"
            )
        return None

    async def _enqueue(self, request: AgentRequest, *, silent: bool) -> TaskResult:
        told = {} if self._at.conversation is None else {"parent_conversation": self._at.conversation}
        task_id = await self._at.enqueue(structs.replace(request, arguments={**told, **request.arguments}))
        is_notified = bool(told) and not silent
        message = telling.background_started(task_id, is_notified=is_notified)
        return TaskResult(message=message, status=TaskStatus.PENDING, task_id=task_id)

    async def _run_here(
        self, request: AgentRequest, *, in_background: bool, silent: bool, then: OnComplete | None
    ) -> TaskResult:
        await self._at.allow(request)
        inbox = self._at.conversation if in_background and not silent else None
        known = {name: value for name, value in request.arguments.items() if name in Assignment.__struct_fields__}
        task = self._at.background.start(
            Work(
                subagent_type=request.subagent_type,
                assignment=Assignment(**known),  # type: ignore[arg-type] # each is named after the field it is for
                description=request.description,
                directory=self._at.directory,
                author=self._at.author,
                inbox=inbox,
                on_complete=then,
            )
        )
        if in_background:
            await task.until_known()
            return _started(task)
        try:
            await task.until_ended()
        except BaseException:  # nobody waits for it any more
            await self._at.background.stop(task.id)
            raise
        return _ended(task)


class TaskOutput:
    """Tells what a task has written, and waits for its end if asked to."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._at = surroundings

    async def run(self, task_id: str, block: bool = True, timeout: int = DEFAULT_TIMEOUT_MS) -> TaskOutputResult:
        """`timeout` is in milliseconds, at most ten minutes. When it is over, the task is told of as it is."""
        timeout_s = min(max(timeout, 0), LONGEST_TIMEOUT_MS) / 1000 if block else 0.0
        task = self._at.background.get(task_id)
        if task is not None:
            if block:
                await task.until_ended(timeout_s)
            return _output(task.status, task.output, task.error, is_blocking=block)
        stored = await self._at.stored.wait(task_id, timeout_s) if is_task_id(task_id) else None
        if stored is None:
            return TaskOutputResult(telling.unknown_task(task_id), TaskStatus.FAILED)
        return _output(stored.status, stored.output, stored.error, is_blocking=block)


class TaskStop:
    """Ends a task that runs, or waits to."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._at = surroundings

    async def run(self, task_id: str | None = None, *, shell_id: str | None = None) -> TaskStopResult:
        """`shell_id` is the old name of `task_id`. Not killed: there is no such task, or it has ended already."""
        wanted = task_id or shell_id or ""
        if self._at.background.get(wanted) is not None:
            return TaskStopResult(await self._at.background.stop(wanted))
        return TaskStopResult(is_task_id(wanted) and await self._at.stored.stop(wanted))


def _started(task: BackgroundTask) -> TaskResult:
    message = telling.background_started(
        task.id,
        agent_id=task.progress.agent_id,
        output_file=task.output_file,
        is_notified=task.work.inbox is not None,
    )
    return TaskResult(message=message, status=task.status, task_id=task.id, output_file=task.output_file)


def _ended(task: BackgroundTask) -> TaskResult:
    if task.result is not None:
        message = telling.foreground_result(task.head, task.result.report, task.output_file)
    else:
        message = telling.foreground_error(task.error or "it failed, and nobody knows why", task.output_file)
    return TaskResult(message=message, status=task.status, task_id=task.id, output_file=task.output_file)


def _output(status: TaskStatus, output: str, error: str | None, *, is_blocking: bool) -> TaskOutputResult:
    is_running = status in (TaskStatus.PENDING, TaskStatus.RUNNING)
    if is_running and not is_blocking:
        return TaskOutputResult(telling.STILL_RUNNING, TaskStatus.RUNNING)
    return TaskOutputResult(telling.output_told(output, error), TaskStatus.RUNNING if is_running else status)
