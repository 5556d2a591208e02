"""Agents that the Task tool runs here and now: under the same rules, budgets and limits as those of the queue."""

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ade.agents.background import BackgroundTask, BackgroundTasks
from ade.agents.notifying import put_notification
from ade.agents.running.orders import Order, RunDesk
from ade.agents.running.runner import AgentRunner
from ade.agents.running.told import told
from ade.app.agent_profiles import known_profiles
from ade.app.agent_types import budget_of, runner_of
from ade.core.agent_runs.endings import tokens_of
from ade.core.agent_runs.names import task_name
from ade.core.agent_runs.results import AgentResult
from ade.core.agent_runs.telling import Usage, notification, summary_of
from ade.core.approvals.refusals import Denied
from ade.core.control import Leave, RunFailed
from ade.core.errors import UnknownName
from ade.core.failure import FailureKind, TaskError
from ade.core.guard import Verdict
from ade.core.outcome import Failed
from ade.governance import rulebook as rulebooks
from ade.governance.checking import Question, check
from ade.ports import Stores

if TYPE_CHECKING:
    from ade.agents.tools import AgentRequest
    from ade.app.ade import Ade
    from ade.app.opening import Opened

_ACTOR = "task_tool"  # where no author is known


def background_tasks(app: "Ade", opened: "Opened") -> BackgroundTasks:
    """Those of one event loop of this app."""
    stores = opened.stores

    async def allows(subagent_type: str, tool: str, arguments: dict[str, Any]) -> Leave:
        return await _leave(stores, Question(name=task_name(subagent_type), tool=tool, arguments=arguments))

    async def tell(task: BackgroundTask) -> None:
        if task.work.inbox is not None:
            text = _notification(task)
            await put_notification(stores, task.work.inbox, task.name, text, author=task.work.author)

    return BackgroundTasks(_Runners(app, stores), stores.clock.now, allows=allows, on_end=tell)


async def allowed(stores: Stores, request: "AgentRequest") -> None:
    """Raises Denied for what a rule forbids, and for what people must approve: only a stored task can wait for them."""
    name = task_name(request.subagent_type)
    leave = await _leave(stores, Question(name=name, arguments=request.arguments, tags=request.tags))
    if leave is Leave.NEEDED:
        raise Denied(f"people must approve {name} first: use persist=True, so that it can wait for them")


async def _leave(stores: Stores, question: Question) -> Leave:
    rulebook = await rulebooks.load(stores)
    if not rulebook.guard:
        return Leave.FREE
    rulings = (await check(stores, question, rulebook)).rulings.values()
    what = question.name if question.tool is None else f"the tool {question.tool}"
    for ruling in rulings:
        if ruling.verdict is Verdict.DENY:
            raise Denied(f"{what} must not be used like this: {ruling.reason} (rule {ruling.rule})")
    needs_people = any(ruling.verdict is Verdict.DEMAND for ruling in rulings)
    return Leave.NEEDED if needs_people else Leave.FREE


class _Runners:
    """Runs agents by their profiles; one runner for each type."""

    def __init__(self, app: "Ade", stores: Stores) -> None:
        self._settings = app.settings.agents
        self._stores = stores
        self._runners: dict[str, AgentRunner] = {}

    async def __call__(self, subagent_type: str, order: Order, desk: RunDesk) -> AgentResult:
        runner = self._runners.get(subagent_type) or self._made(subagent_type)
        budget = budget_of(self._settings, None, None, order.assignment.max_turns)
        limit_s = runner.profile.timeout_ms / 1000
        try:
            async with (
                asyncio.timeout(limit_s) as clock,
                told(self._stores, order, desk, actor=order.author or _ACTOR) as run,
            ):
                run.outcome = await runner.run(replace(order, budget=budget), run)
                return run.outcome
        except TimeoutError:
            if not clock.expired():
                raise
            message = f"it ran longer than {limit_s:g} s"
            error = TaskError(kind=FailureKind.TIMED_OUT, type="TimeoutError", message=message)
            raise RunFailed(Failed(error)) from None

    def _made(self, subagent_type: str) -> AgentRunner:
        profile = known_profiles(self._settings).get(subagent_type)
        if profile is None:
            raise UnknownName(
                f"agents of type {subagent_type} are not set up here: use persist=True, so that a worker runs it"
            )
        runner = self._runners[subagent_type] = runner_of(profile, self._stores, self._settings)
        return runner


def _notification(task: BackgroundTask) -> str:
    is_completed = task.result is not None
    tokens = task.result.tokens if task.result is not None else tokens_of(task.progress)
    took = None if task.finished_at is None else task.finished_at - task.started_at
    calls = task.result.tool_calls if task.result is not None else task.progress.tool_call_count
    return notification(
        task.id,
        is_completed=is_completed,
        summary=summary_of(task.work.description, is_completed=is_completed),
        result=task.output if is_completed else task.error or "",
        usage=Usage(total_tokens=tokens, tool_uses=calls, duration_ms=took),
        output_file=task.output_file,
    )
