"""The Task, TaskOutput, and TaskStop tools as agents call them. Errors are returned as results, never raised."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct, structs

from ade.agents.background import BackgroundRequest, BackgroundTask, BackgroundTasks, OnComplete, TaskStatus
from ade.agents.runs import messages
from ade.agents.runs.command_line import RunAssignment
from ade.agents.runs.messages import ABORTED, error_of, report_of
from ade.agents.runs.model import progress_in, result_in
from ade.errors import AdeError, IllegalTransition, InvalidArguments, UnknownTask, WaitTimeout
from ade.locks.model import PriorityName, read_priority
from ade.logs import Log
from ade.stores.ports import Stores
from ade.tasks import service as tasks_service
from ade.tasks.identifiers import is_run, is_task_id
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.payloads import Payloads
from ade.tasks.service import CompletionWatcher

# Agent runs in the store, which any process can wait for and stop. Other tasks are excluded: agents can inspect and
# stop only agent runs.


class StoredRunOutput(Struct, frozen=True):
    """Status and output of a stored run."""

    status: TaskStatus
    output: str
    error: str | None = None


class StoredAgentRuns:
    """Waits for and stops stored agent runs. Bound to one event loop."""

    def __init__(self, stores: Stores, payloads: Payloads, watch: CompletionWatcher | None = None) -> None:
        self._stores = stores
        self._payloads = payloads
        self._watch = watch or CompletionWatcher(stores)

    async def wait(self, task_id: str, timeout: float) -> StoredRunOutput | None:
        """Return the run when it has ended or the timeout has passed. None if it does not exist."""
        try:
            task = await self._run(task_id)
            if timeout and not task.is_final:
                task = await self._once_final(task_id, timeout)
        except UnknownTask:
            return None
        if not task.is_final:
            progress = progress_in(task.progress)
            status = TaskStatus.RUNNING if task.status is Status.RUNNING else TaskStatus.PENDING
            return StoredRunOutput(status, "" if progress is None else progress.said)
        if task.status is Status.COMPLETED:
            return StoredRunOutput(TaskStatus.COMPLETED, await self._report(task))
        progress = progress_in(task.progress)
        return StoredRunOutput(TaskStatus.FAILED, "" if progress is None else progress.said, error_of(task))

    async def stop(self, task_id: str) -> bool:
        """Cancel the run and its children. Returns whether there was something to cancel."""
        try:
            if (await self._run(task_id)).is_final:
                return False
            await tasks_service.cancel(self._stores, task_id, ABORTED)
        except (UnknownTask, IllegalTransition):  # pruned, or ended in the meantime
            return False
        return True

    async def _run(self, task_id: str) -> Task:
        """Load the run. Raises UnknownTask, also for a task that is not an agent run."""
        task = await tasks_service.get(self._stores, task_id)
        if not is_run(task.name):
            raise UnknownTask
        return task

    async def _once_final(self, task_id: str, timeout: float) -> Task:
        try:
            return await self._watch.wait(task_id, timeout)
        except WaitTimeout:
            return await tasks_service.get(self._stores, task_id)

    async def _report(self, task: Task) -> str:
        return report_of(task, result_in(await tasks_service.result_of(self._stores, self._payloads, task)))


# Validation of tool arguments, which can be any JSON. All raise InvalidArguments, worded for the agent.


_SHOWN = 60


def string_arguments(values: Mapping[str, object]) -> dict[str, str]:
    """Return the given string arguments. A missing value and null are equivalent."""
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            raise _wrong(name, "a text", value)
        if isinstance(value, str) and not _is_unicode(value):
            raise InvalidArguments(f"{name} contains invalid characters: half of a surrogate pair")
    return {name: value for name, value in values.items() if isinstance(value, str)}


def required(tool: str, values: Mapping[str, str | None]) -> None:
    """Raise InvalidArguments if any of these is missing or blank."""
    if missing := [name for name, value in values.items() if not (value or "").strip()]:
        raise InvalidArguments(
            f"{tool} tool missing required parameter{'s' * (len(missing) > 1)}: {', '.join(missing)}"
        )


def words(name: str, value: object) -> tuple[str, ...]:
    """Return a list of strings as a tuple. Raises InvalidArguments."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence | set | frozenset):
        raise _wrong(name, "a list of texts", value)
    if not all(isinstance(word, str) and _is_unicode(word) for word in value):
        raise _wrong(name, "a list of texts", value)
    return tuple(value)


def whole(name: str, value: object, least: int, most: int | None = None) -> int | None:
    """Return an integer within the bounds, or None. Raises InvalidArguments."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise _wrong(name, f"a whole number {bounds}", value)
    return value


def flags(values: Mapping[str, object]) -> None:
    """Raise InvalidArguments unless each value is a boolean or None."""
    for name, value in values.items():
        if value is not None and not isinstance(value, bool):
            raise _wrong(name, "true or false", value)


def milliseconds(name: str, value: object, default: int) -> float:
    """Return a number of milliseconds, or the default. Raises InvalidArguments."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise _wrong(name, "a number of milliseconds", value)
    return value


def _wrong(name: str, expected: str, value: object) -> InvalidArguments:
    return InvalidArguments(f"{name} must be {expected}, not {repr(value)[:_SHOWN]}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


GENERAL = "general-purpose"  # the default type for an existing agent, if this type is known
DEFAULT_TIMEOUT_MS = 30_000
LONGEST_TIMEOUT_MS = 600_000
Types = Mapping[str, frozenset[str] | None]  # agent type -> IDs by which its runs resume; None: unknown
log = Log("ade.agents")


class TaskResult(Struct, frozen=True, kw_only=True):
    """The Task tool's answer. `message` is what the agent reads."""

    message: str
    status: TaskStatus
    task_id: str | None = None
    output_file: str | None = None

    def __str__(self) -> str:
        return self.message


class TaskOutputResult(Struct, frozen=True):
    """The result of the TaskOutput tool."""

    message: str
    status: TaskStatus


class TaskStopResult(Struct, frozen=True, omit_defaults=True):
    """The result of the TaskStop tool."""

    killed: bool
    error: str | None = None  # why it could not be stopped; None if there was nothing to stop


class AgentRequest(Struct, frozen=True, kw_only=True):
    """An agent run to enqueue."""

    subagent_type: str
    arguments: Mapping[str, object]  # of the task; only those that were given
    description: str
    priority: int | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TaskToolServices:
    """The dependencies of the three tools. Tools of one program share them, so that each sees the others' tasks."""

    types: Callable[[], Awaitable[Types]]
    background: BackgroundTasks
    stored: StoredAgentRuns
    enqueue: Callable[[AgentRequest], Awaitable[str]]  # returns the task ID
    allow: Callable[[AgentRequest], Awaitable[None]]  # raises unless the run is allowed without being stored
    conversation: str | None = None  # that receives notifications
    directory: Path | None = None  # for agents that run in this process; None: one per run
    author: str | None = None  # whose budget pays for the runs


class TaskTool:
    """Gives work to another agent: at once and in this process or, with `persist`, through the queue."""

    def __init__(self, services: TaskToolServices) -> None:
        self._services = services
        self.output = TaskOutput(services)
        self.stop = TaskStop(services)

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
        priority: int | PriorityName | None = None,
        tags: Sequence[str] = (),
        on_complete: OnComplete | None = None,
    ) -> TaskResult:
        """Let an agent work on a prompt.

        With `persist` it is enqueued, survives this program, and the answer is its task id at once. Otherwise the
        answer is the report, or with `run_in_background` an id for TaskOutput and TaskStop. When what does not answer
        its report has ended, the conversation gets a notification, unless it is `silent`. Before that `on_complete` is
        called, for runs of this process alone: nothing that is enqueued can keep a function.
        """
        try:
            flags({"run_in_background": run_in_background, "silent": silent, "persist": persist})
            texts = string_arguments(
                {
                    "prompt": prompt,
                    "description": description,
                    "subagent_type": subagent_type,
                    "system_prompt": system_prompt,
                    "model": model,
                    "agent_id": agent_id,
                    "conversation_id": conversation_id,
                    "tool_call_id": tool_call_id,
                }
            )
            turns = whole("max_turns", max_turns, 1)
            numbers = {} if turns is None else {"max_turns": turns}
            request = AgentRequest(
                subagent_type=await self._chosen(texts),
                arguments={**texts, **numbers, **({"silent": True} if silent else {})},
                description=texts["description"],
                priority=None if priority is None else read_priority(priority),
                tags=words("tags", tags),
            )
            if persist:
                return await self._enqueue(request, silent=silent)
            return await self._run_here(request, in_background=run_in_background, silent=silent, then=on_complete)
        except Exception as error:
            return TaskResult(message=messages.foreground_error(_error_text(error)), status=TaskStatus.FAILED)

    async def _chosen(self, texts: dict[str, str]) -> str:
        """Pop the agent type from the request. Raises InvalidArguments."""
        chosen, types = texts.pop("subagent_type", ""), await self._services.types()
        existing = [name for name in ("agent_id", "conversation_id") if texts.get(name)]
        fitting = sorted(name for name, ids in types.items() if ids and not ids.isdisjoint(existing))
        if existing and not chosen and fitting:
            chosen = GENERAL if GENERAL in fitting else fitting[0]
        needed = {"description": texts.get("description"), "prompt": texts.get("prompt"), "subagent_type": chosen}
        required("Task", needed)
        if chosen not in types:
            known = ", ".join(sorted(types)) or "none"
            raise InvalidArguments(f'Invalid subagent type "{chosen}". Available types: {known}')
        if existing and chosen not in fitting and types[chosen] is not None:
            raise InvalidArguments(
                f'An agent of type "{chosen}" cannot go on with an {" or ".join(existing)} that exists.'
                f" Types that can: {', '.join(fitting) or 'none'}"
            )
        return chosen

    async def _enqueue(self, request: AgentRequest, *, silent: bool) -> TaskResult:
        notified = {} if self._services.conversation is None else {"parent_conversation": self._services.conversation}
        task_id = await self._services.enqueue(structs.replace(request, arguments={**notified, **request.arguments}))
        is_notified = bool(notified) and not silent
        message = messages.background_started(task_id, is_notified=is_notified)
        return TaskResult(message=message, status=TaskStatus.PENDING, task_id=task_id)

    async def _run_here(
        self, request: AgentRequest, *, in_background: bool, silent: bool, then: OnComplete | None
    ) -> TaskResult:
        await self._services.allow(request)
        inbox = self._services.conversation if in_background and not silent else None
        known = {name: value for name, value in request.arguments.items() if name in RunAssignment.__struct_fields__}
        task = self._services.background.start(
            BackgroundRequest(
                subagent_type=request.subagent_type,
                assignment=RunAssignment(**known),  # type: ignore[arg-type] # each is named after the field it is for
                description=request.description,
                directory=self._services.directory,
                author=self._services.author,
                inbox=inbox,
                on_complete=then,
            )
        )
        if in_background:
            await task.until_known()
            return _started(task)
        try:
            await task.until_ended()
        except BaseException:  # the caller no longer waits for it
            await self._services.background.stop(task.id)
            raise
        return _ended(task)


class TaskOutput:
    """Tells what a task has written, and waits for its end if asked to."""

    def __init__(self, services: TaskToolServices) -> None:
        self._services = services

    async def run(self, task_id: str, block: bool = True, timeout: int = DEFAULT_TIMEOUT_MS) -> TaskOutputResult:
        """`timeout` is in milliseconds, at most ten minutes. When it is over, the task is told of as it is."""
        try:
            return await self._output(*_output_request(task_id, block, timeout))
        except Exception as error:
            return TaskOutputResult(messages.foreground_error(_error_text(error)), TaskStatus.FAILED)

    async def _output(self, task_id: str, timeout_s: float | None) -> TaskOutputResult:
        is_blocking = timeout_s is not None
        task = self._services.background.get(task_id)
        if task is not None:
            if is_blocking:
                await task.until_ended(timeout_s)
            return _output(task.status, task.output, task.error, is_blocking=is_blocking)
        stored = await self._services.stored.wait(task_id, timeout_s or 0.0) if is_task_id(task_id) else None
        if stored is None:
            return TaskOutputResult(messages.unknown_task(task_id), TaskStatus.FAILED)
        return _output(stored.status, stored.output, stored.error, is_blocking=is_blocking)


def _output_request(task_id: object, block: object, timeout: object) -> tuple[str, float | None]:
    """Return the task ID and the seconds to wait for its end; None: do not wait."""
    texts = string_arguments({"task_id": task_id})
    required("TaskOutput", {"task_id": texts.get("task_id")})
    flags({"block": block})
    timeout_ms = milliseconds("timeout", timeout, DEFAULT_TIMEOUT_MS)
    return texts["task_id"], None if block is False else min(max(timeout_ms, 0), LONGEST_TIMEOUT_MS) / 1000


class TaskStop:
    """Ends a task that runs, or waits to."""

    def __init__(self, services: TaskToolServices) -> None:
        self._services = services

    async def run(self, task_id: str | None = None, *, shell_id: str | None = None) -> TaskStopResult:
        """`shell_id` is the old name of `task_id`. Not killed: there is no such task, or it has ended already."""
        try:
            texts = string_arguments({"task_id": task_id, "shell_id": shell_id})
            chosen = texts.get("task_id") or texts.get("shell_id")
            required("TaskStop", {"task_id": chosen})
            return TaskStopResult(await self._stop(chosen or ""))
        except Exception as error:
            return TaskStopResult(False, messages.foreground_error(_error_text(error)))

    async def _stop(self, task_id: str) -> bool:
        if self._services.background.get(task_id) is not None:
            return await self._services.background.stop(task_id)
        return is_task_id(task_id) and await self._services.stored.stop(task_id)


def _error_text(error: Exception) -> str:
    """Word an error for the agent. Unexpected errors are also logged."""
    if isinstance(error, AdeError):
        return error.detail
    log.error("task_tool.failed", error=f"{type(error).__name__}: {error}", exc_info=True)
    return f"{type(error).__name__}: {error}"


def _started(task: BackgroundTask) -> TaskResult:
    message = messages.background_started(
        task.id,
        agent_id=task.progress.agent_id,
        output_file=task.output_file,
        is_notified=task.work.inbox is not None,
    )
    return TaskResult(message=message, status=task.status, task_id=task.id, output_file=task.output_file)


def _ended(task: BackgroundTask) -> TaskResult:
    if task.result is not None:
        message = messages.foreground_result(task.head, task.result.report, task.output_file)
    else:
        message = messages.foreground_error(task.error or "it failed for an unknown reason", task.output_file)
    return TaskResult(message=message, status=task.status, task_id=task.id, output_file=task.output_file)


def _output(status: TaskStatus, output: str, error: str | None, *, is_blocking: bool) -> TaskOutputResult:
    is_running = status in (TaskStatus.PENDING, TaskStatus.RUNNING)
    if is_running and not is_blocking:
        return TaskOutputResult(messages.STILL_RUNNING, TaskStatus.RUNNING)
    return TaskOutputResult(messages.output_text(output, error), TaskStatus.RUNNING if is_running else status)
