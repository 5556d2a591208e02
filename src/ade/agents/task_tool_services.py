"""Wiring of the Task tool to an app: agents that run in this process, under the rules and limits of the queue."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ade.agents.background import BackgroundTask, BackgroundTasks
from ade.agents.handlers import budget_of, configured_profiles, runner_of
from ade.agents.notifications import put_notification
from ade.agents.runs.messages import notification, summary_of, usage_of
from ade.agents.runs.model import AgentResult
from ade.agents.runs.program import run_events
from ade.agents.runs.runner import AgentRunner
from ade.agents.runs.spec import AgentRunSpec, RunContext
from ade.agents.task_tool import AgentRequest, StoredAgentRuns, TaskTool, TaskToolServices, Types
from ade.approvals import repository as approvals_repository
from ade.approvals.errors import Denied
from ade.approvals.guard import GuardRulesVerdict
from ade.approvals.policy_check import PolicyCheckRequest, check
from ade.errors import UnknownName
from ade.failures import FailureKind, TaskError
from ade.stores.ports import Stores
from ade.tasks.identifiers import task_name
from ade.tasks.outcomes import Failed, Leave, RunFailed

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.composition.app_store import OpenStore


_ACTOR = "task_tool"  # the actor where no author is known


def background_tasks(app: "Ade", opened: "OpenStore") -> BackgroundTasks:
    """Return the background tasks of this app and event loop."""
    stores = opened.stores

    async def allows(subagent_type: str, tool: str, arguments: dict[str, Any]) -> Leave:
        return await _leave(stores, PolicyCheckRequest(name=task_name(subagent_type), tool=tool, arguments=arguments))

    async def tell(task: BackgroundTask) -> None:
        if task.work.inbox is not None:
            text = _notification(task)
            await put_notification(stores, task.work.inbox, task.name, text, author=task.work.author)

    return BackgroundTasks(_RunnersByType(app, stores), stores.clock.now, allows=allows, on_end=tell)


def open_task_tool(
    app: "Ade",
    opened: "OpenStore",
    *,
    types: Callable[[], Awaitable[Types]],
    enqueue: Callable[[AgentRequest], Awaitable[str]],
    conversation: str | None,
    directory: Path | None,
    author: str | None,
) -> TaskTool:
    """Return the Task tool for code on the running event loop."""
    side = opened.side
    if side.agents is None:
        side.agents = background_tasks(app, opened)
    return TaskTool(
        TaskToolServices(
            types=types,
            background=side.agents,
            stored=StoredAgentRuns(opened.stores, opened.payloads, side.watch),
            enqueue=enqueue,
            allow=lambda request: allowed(opened.stores, request),
            conversation=conversation,
            directory=directory,
            author=author,
        )
    )


async def allowed(stores: Stores, request: AgentRequest) -> None:
    """Check a run against the guard rules. Raises Denied if a rule forbids it or requires approval: only a stored task
    can wait for reviewers.
    """
    name = task_name(request.subagent_type)
    leave = await _leave(stores, PolicyCheckRequest(name=name, arguments=request.arguments, tags=request.tags))
    if leave is Leave.NEEDED:
        raise Denied(f"{name} requires approval: use persist=True, so that it can wait for it")


async def _leave(stores: Stores, question: PolicyCheckRequest) -> Leave:
    rulebook = await approvals_repository.load(stores)
    if not rulebook.guard:
        return Leave.FREE
    rulings = (await check(stores, question, rulebook)).rulings.values()
    what = question.name if question.tool is None else f"the tool {question.tool}"
    for ruling in rulings:
        if ruling.verdict is GuardRulesVerdict.DENY:
            raise Denied(f"{what} must not be used like this: {ruling.reason} (rule {ruling.rule})")
    needs_people = any(ruling.verdict is GuardRulesVerdict.DEMAND for ruling in rulings)
    return Leave.NEEDED if needs_people else Leave.FREE


class _RunnersByType:
    """Runs agents by type, with one cached runner per profile."""

    def __init__(self, app: "Ade", stores: Stores) -> None:
        self._settings = app.settings.agents
        self._stores = stores
        self._runners: dict[str, AgentRunner] = {}

    async def __call__(self, subagent_type: str, spec: AgentRunSpec, context: RunContext) -> AgentResult:
        runner = self._runners.get(subagent_type) or self._made(subagent_type)
        budget = budget_of(self._settings, None, None, spec.assignment.max_turns)
        limit_s = runner.profile.timeout_ms / 1000
        try:
            async with (
                asyncio.timeout(limit_s) as clock,
                run_events(self._stores, spec, context, actor=spec.author or _ACTOR) as run,
            ):
                run.outcome = await runner.run(replace(spec, budget=budget), run)
                return run.outcome
        except TimeoutError:
            if not clock.expired():
                raise
            message = f"it ran longer than {limit_s:g} s"
            error = TaskError(kind=FailureKind.TIMED_OUT, type="TimeoutError", message=message)
            raise RunFailed(Failed(error)) from None

    def _made(self, subagent_type: str) -> AgentRunner:
        profile = configured_profiles(self._settings).get(subagent_type)
        if profile is None:
            raise UnknownName(
                f"agents of type {subagent_type} are not set up here: use persist=True, so that a worker runs it"
            )
        runner = self._runners[subagent_type] = runner_of(profile, self._stores, self._settings)
        return runner


def _notification(task: BackgroundTask) -> str:
    is_completed = task.result is not None
    took = None if task.finished_at is None else task.finished_at - task.started_at
    return notification(
        task.id,
        is_completed=is_completed,
        summary=summary_of(task.work.description, is_completed=is_completed),
        result=task.output if is_completed else task.error or "",
        usage=usage_of(task.result, task.progress, took),
        output_file=task.output_file,
    )
