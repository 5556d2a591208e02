"""The agents of an app: enqueue runs, access conversations, and create the Task tool."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ade.agents.conversations.durable_inbox import DurableInbox
from ade.agents.conversations.model import InboxLimits
from ade.agents.handlers import configured_profiles, register_agents
from ade.agents.notifications import notify_task
from ade.agents.runs.command_line import goes_on_by
from ade.agents.runs.model import AgentResult
from ade.agents.task_tool_services import open_task_tool
from ade.app.functions import TaskHandle
from ade.common.calls import Call
from ade.errors import UnknownName
from ade.tasks.admission import admit
from ade.tasks.arguments import Signature
from ade.tasks.enqueue import Invocation, make_tasks
from ade.tasks.identifiers import check_inbox_id, is_run, task_name, type_of
from ade.tasks.options import TaskOptions

if TYPE_CHECKING:
    from ade.agents.profiles import Profile
    from ade.agents.task_tool import AgentRequest, TaskTool
    from ade.app.ade import Ade
    from ade.worker.context import Context


class RunOptions(TaskOptions, total=False):
    """Options of one agent run, in addition to the options of any task."""

    system_prompt: str
    model: str
    session_id: str  # resume this session of the agent program
    session_tokens: int  # tokens already used by that session, if the agent program counts them
    agent_id: str
    conversation_id: str
    max_turns: int
    max_tokens: int
    max_cost_usd: float
    cwd: str  # working directory; by default a directory of its own
    workspace: str  # name of a directory shared by all runs that specify it
    env: Mapping[str, str]
    parent_model: str  # fallback if the model is unavailable
    parent_conversation: str  # its inbox receives a notification when the run ends
    tool_call_id: str
    silent: bool  # no notification


_ARGUMENTS = frozenset(RunOptions.__annotations__) - frozenset(TaskOptions.__annotations__)


def _report() -> AgentResult:
    """Stub with the return type of every agent run."""
    raise NotImplementedError


_SIGNATURE = Signature.of(_report)


def run_arguments(prompt: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into the arguments of a run and the options of its task; the description belongs to both."""
    given = {name: value for name, value in options.items() if value is not None}
    arguments = {"prompt": prompt, **{name: given.pop(name) for name in sorted(_ARGUMENTS & given.keys())}}
    if "description" in given:
        arguments["description"] = given["description"]
    return arguments, given


class Agents:
    """`app.agents`. Which types there are is said in the settings, in the section `agents`."""

    def __init__(self, app: "Ade") -> None:
        self._app = app

    def serve(self, *types: str) -> list[str]:
        """Let this app's workers run agents of these types, or of those that the settings choose; before they start.

        Answers the names of the tasks. Raises UnknownName, InvalidProfile.
        """
        return register_agents(self._app, types or None)

    def run(self, subagent_type: str, prompt: str, **options: Unpack[RunOptions]) -> Call[TaskHandle[AgentResult]]:
        """Enqueue a run: the task `agent:<type>`. With `parent_conversation` its end is told there, however it ends."""
        return Call(self._run(subagent_type, prompt, options), self._app.portal)

    def conversation(self, conversation_id: str, *, limits: InboxLimits | None = None) -> Call[DurableInbox]:
        """The inbox of a conversation. Raises InvalidInbox."""
        return Call(self._conversation(conversation_id, limits), self._app.portal)

    def task_tool(
        self,
        *,
        ctx: "Context | None" = None,
        conversation: str | None = None,
        cwd: str | None = None,
        author: str | None = None,
    ) -> "Call[TaskTool]":
        """The Task tool for code on an event loop; `.output` and `.stop` are its companions.

        What is enqueued through it is a child of the run that `ctx` belongs to. `conversation` gets notifications.
        Agents that run at once work in `cwd`, each in a folder of its own otherwise; they end with the app. Raises
        InvalidInbox.
        """
        return Call(self._task_tool(ctx, conversation, cwd, author), self._app.portal)

    async def _run(self, subagent_type: str, prompt: str, options: RunOptions) -> TaskHandle[AgentResult]:
        arguments, given = run_arguments(prompt, options)
        call = await self._call(subagent_type, arguments, given)
        return await self.enqueue_run(call, arguments)

    async def enqueue_run(self, call: Invocation[Any], arguments: Mapping[str, Any]) -> TaskHandle[Any]:
        """Store a run and, in the same transaction, the task that notifies its parent conversation of its end."""
        opened = await self._app.open()
        now = opened.stores.clock.now()
        tasks = make_tasks([call], now=now)
        inbox_id = arguments.get("parent_conversation")
        if inbox_id is not None and not arguments.get("silent"):
            tasks.append(admit(notify_task(tasks[0], inbox_id), now=now))
        stored: Sequence[Any] = await opened.keep(tasks)
        return TaskHandle(self._app, stored[0].id, call.signature or _SIGNATURE)

    async def _call(self, subagent_type: str, arguments: dict[str, Any], given: Any) -> Invocation[Any]:
        """Return the call of a run. Raises UnknownName for a type that neither a worker nor the settings define."""
        app, name = self._app, task_name(subagent_type)
        try:
            return await app.call_by_name(name, arguments, False, given)
        except UnknownName:
            profile = self._profiles().get(subagent_type)
            if profile is None:
                listed = ", ".join(sorted(await self.known_types())) or "none"
                raise UnknownName(f"there is no agent type {subagent_type[:100]!r}; types are {listed}") from None
        limited: Any = {"timeout": profile.timeout_ms / 1000, **given}  # a worker for this type might start later
        return await app.call_by_name(name, arguments, True, limited)

    async def known_types(self) -> dict[str, frozenset[str] | None]:
        """Return all types from settings and workers, with the IDs that can resume each; None: unknown here."""
        stores = (await self._app.open()).stores
        names = {known.name for known in await stores.workers.definitions()} | self._app.registry.names()
        elsewhere = {type_of(name): None for name in names if is_run(name)}
        return {**elsewhere, **{name: goes_on_by(profile) for name, profile in self._profiles().items()}}

    def _profiles(self) -> "Mapping[str, Profile]":
        return configured_profiles(self._app.settings.agents)

    async def _conversation(self, conversation_id: str, limits: InboxLimits | None) -> DurableInbox:
        return DurableInbox((await self._app.open()).stores, conversation_id, limits=limits)

    async def _task_tool(
        self,
        ctx: "Context | None",
        conversation: str | None,
        cwd: str | None,
        author: str | None,
    ) -> "TaskTool":
        if conversation is not None:
            check_inbox_id(conversation)
        opened = await self._app.open()
        parent: TaskOptions = {} if ctx is None or not ctx.task_id else {"parent": ctx.task_id}
        author = author or (None if ctx is None else ctx.author)
        whose: TaskOptions = {} if author is None else {"author": author}

        async def enqueue(request: "AgentRequest") -> str:
            about: TaskOptions = {"description": request.description, "tags": request.tags, **parent, **whose}
            if request.priority is not None:
                about["priority"] = request.priority
            arguments: dict[str, Any] = dict(request.arguments)
            call = await self._call(request.subagent_type, arguments, about)
            return (await self.enqueue_run(call, arguments)).id

        return open_task_tool(
            self._app,
            opened,
            types=self.known_types,
            enqueue=enqueue,
            conversation=conversation,
            directory=_folder(cwd),
            author=author,
        )


def _folder(cwd: str | None) -> Path | None:
    return None if cwd is None else Path(cwd).expanduser().absolute()
