"""Agent types as tasks: for each profile of the settings a handler `agent:<type>`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from ade.agents.notifying import notify
from ade.agents.running.files import Places
from ade.agents.running.orders import Order
from ade.agents.running.runner import AgentRunner
from ade.agents.running.told import told
from ade.agents.spending import StoredPurse
from ade.app.agent_profiles import chosen_profiles
from ade.core.agent_runs.budgets import Budget, tightest
from ade.core.agent_runs.command_line import Assignment
from ade.core.agent_runs.names import NOTIFY, task_name
from ade.core.agent_runs.profiles import Profile
from ade.core.agent_runs.results import AgentProgress, AgentResult, progress_in
from ade.core.control import RunFailed
from ade.core.failure import FailureKind, TaskError
from ade.core.outcome import Failed
from ade.ports import Stores
from ade.settings import AgentSettings
from ade.worker.context import Context

if TYPE_CHECKING:
    from ade.app.ade import Ade


def register_agents(app: "Ade", types: Sequence[str] | None = None) -> list[str]:
    """Let this app's workers run agents of these types, or of those that the settings choose. Answers the task names.

    What is registered already stays as it is.
    """
    names = []
    if NOTIFY not in app.registry.by_name:
        _register_notify(app)
    for profile in chosen_profiles(app.settings.agents, types):
        name = task_name(profile.name)
        if name not in app.registry.by_name:
            _register(app, name, AgentHandler(app, profile))
        names.append(name)
    return names


def _register_notify(app: "Ade") -> None:
    async def notify_conversation(ctx: Context, inbox: str) -> None:
        opened = await app.open()
        await notify(opened.stores, opened.payloads, ctx.task_id, inbox)

    app.task(name=NOTIFY)(notify_conversation)


def _register(app: "Ade", name: str, handler: "AgentHandler") -> None:
    async def run_agent(
        ctx: Context,
        prompt: str,
        description: str | None = None,
        system_prompt: str | None = None,
        model: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        conversation_id: str | None = None,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        max_cost_usd: float | None = None,
        cwd: str | None = None,
        workspace: str | None = None,
        env: dict[str, str] | None = None,
        session_tokens: int | None = None,
        parent_model: str | None = None,
        parent_conversation: str | None = None,
        tool_call_id: str | None = None,
        silent: bool = False,
    ) -> AgentResult:
        asked = Assignment(
            prompt=prompt,
            system_prompt=system_prompt,
            model=model,
            session_id=session_id,
            agent_id=agent_id,
            conversation_id=conversation_id,
            max_turns=max_turns,
        )
        order = Order(
            task_id=ctx.task_id,
            run_id=ctx.run_id,
            attempt=ctx.attempt,
            assignment=asked,
            description=description or _first_words(prompt) or ctx.name,
            directory=_directory(cwd),
            workspace=workspace,
            environment=env or {},
            budget=budget_of(app.settings.agents, max_tokens, max_cost_usd, max_turns),
            author=ctx.author,
            trace=ctx.trace,
            lease_s=app.settings.worker.lease_s,
            session_tokens=session_tokens,
            parent_model=parent_model,
            earlier=_earlier(ctx),
        )
        return await handler.run(order, ctx)

    # Turns of a conversation have its key: of these one runs at a time, also when one is replayed.
    app.task(name=name, timeout=handler.profile.timeout_ms / 1000, concurrency_per_key=1)(run_agent)


def _first_words(prompt: str) -> str:
    return prompt.strip().partition("\n")[0][:60]


def _directory(cwd: str | None) -> Path | None:
    if cwd is None:
        return None
    try:
        path = Path(cwd).expanduser()
    except RuntimeError:
        raise _wrong(f"cwd {cwd[:200]!r} names the home of a user there is not") from None
    if not path.is_absolute():
        raise _wrong(f"cwd {cwd[:200]!r} must be a whole path: nobody knows which folder a worker is in")
    return path


def _wrong(message: str) -> RunFailed:
    error = TaskError(kind=FailureKind.BAD_ARGUMENTS, type="InvalidArguments", message=message, retryable=False)
    return RunFailed(Failed(error))


def budget_of(
    settings: AgentSettings, max_tokens: int | None, max_cost_usd: float | None, max_turns: int | None
) -> Budget:
    """What the task asks for, within what the settings allow."""
    own = Budget(tokens=settings.max_tokens, cost_usd=settings.max_cost_usd, turns=settings.max_turns)
    return tightest(own, Budget(tokens=max_tokens, cost_usd=max_cost_usd, turns=max_turns))


def _earlier(ctx: Context) -> AgentProgress | None:
    last = ctx.last_progress
    return None if last is None else progress_in(Raw(msgspec.json.encode(last)))


class AgentHandler:
    """The runner of a profile, made when the first task comes: only then the store is open."""

    def __init__(self, app: "Ade", profile: Profile) -> None:
        self._app = app
        self.profile = profile
        self._made: tuple[Stores, AgentRunner] | None = None

    async def run(self, order: Order, context: Context) -> AgentResult:
        opened = self._app.opened
        assert opened is not None  # a handler runs in a worker of an open store
        runner = self._runner(opened.stores)
        async with told(opened.stores, order, ContextDesk(context), actor=context.worker) as run:
            run.outcome = await runner.run(order, run)
            return run.outcome

    def _runner(self, stores: Stores) -> AgentRunner:
        """One for each store: an app may be opened again, and for tests with another one."""
        if self._made is None or self._made[0] is not stores:
            self._made = stores, runner_of(self.profile, stores, self._app.settings.agents)
        return self._made[1]


class ContextDesk:
    """The desk of a run that belongs to a task."""

    def __init__(self, context: Context) -> None:
        self.say = context.print
        self.guard = context.guard
        self.allows = context.allows
        self._context = context

    async def progress(self, progress: AgentProgress) -> None:
        await self._context.progress(progress)


def places_of(settings: AgentSettings) -> Places:
    return Places(Path(settings.transcripts).expanduser(), Path(settings.workspaces).expanduser())


def runner_of(profile: Profile, stores: Stores, settings: AgentSettings) -> AgentRunner:
    budget = Budget(tokens=settings.author_tokens, cost_usd=settings.author_cost_usd, turns=settings.author_turns)
    window_ms = round(settings.author_window_s * 1000)
    purse = None if budget == Budget() else StoredPurse(stores, budget, window_ms)
    return AgentRunner(profile, places_of(settings), now=stores.clock.now, purse=purse)
