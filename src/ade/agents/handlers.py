"""Task handlers for agent types: profile lookup, the `agent:<type>` handlers of an app, and spending budgets of
authors.
"""

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from ade import VERSION
from ade.agents.notifications import notify
from ade.agents.profile_documents import profile_from_markdown, read_profiles
from ade.agents.profiles import BUILT_IN, COMMAND, Profile
from ade.agents.protocols.base import UsageReported
from ade.agents.runs.command_line import RunAssignment
from ade.agents.runs.files import RunFiles
from ade.agents.runs.model import AgentProgress, AgentResult, Budget, left_of, progress_in, tightest
from ade.agents.runs.program import run_events
from ade.agents.runs.runner import AgentRunner
from ade.agents.runs.spec import AgentRunSpec
from ade.errors import InvalidProfile, UnknownName
from ade.failures import FailureKind, TaskError
from ade.settings.sections import AgentSettings
from ade.stores.ports import Stores
from ade.stores.resource_ports import DocumentWrite
from ade.tasks.identifiers import NOTIFY, task_name
from ade.tasks.outcomes import Failed, RunFailed
from ade.worker.context import Context

if TYPE_CHECKING:
    from ade.app.ade import Ade


# Known agent types: built-in ones, those of the settings, and those of Markdown files.


ALL = "*"
_MOST_FILES = 1_000
_LARGEST_FILE = 1024 * 1024


def configured_profiles(settings: AgentSettings) -> dict[str, Profile]:
    """Return all known profiles: built-in, from the settings, and from Markdown files, which take precedence.

    Raises InvalidProfile.
    """
    known = read_profiles(settings.profiles, "agents.profiles")
    for path in _markdown_files(settings.folders):
        profile = profile_from_markdown(_text_of(path), known, place=str(path))
        known[profile.name] = profile
    return known


def chosen_profiles(settings: AgentSettings, types: Sequence[str] | None = None) -> list[Profile]:
    """Return the profiles to serve. Raises UnknownName for an unknown type, and InvalidProfile.

    Unless types are named, a type whose program is not installed is left to other workers.
    """
    known = configured_profiles(settings)
    selected = list(settings.types if types is None else types)
    if ALL in selected:
        return [profile for profile in known.values() if profile is not COMMAND and is_installed(profile)]
    if not selected:
        own = [profile for name, profile in known.items() if profile is not BUILT_IN.get(name)]
        return [profile for profile in own if is_installed(profile)]
    for name in selected:
        if name not in known:
            raise UnknownName(f"there is no agent type {name[:100]!r}; types are {', '.join(sorted(known))}")
    return [known[name] for name in selected]


def is_installed(profile: Profile) -> bool:
    """Return whether the profile's program is on the PATH."""
    return shutil.which(profile.command[0]) is not None


def _markdown_files(folders: Iterable[str]) -> list[Path]:
    """Files sorted by name, so that the winner among duplicates is deterministic: the last one."""
    found: list[Path] = []
    for folder in folders:
        place = Path(folder).expanduser()
        try:
            found += sorted(path for path in place.iterdir() if path.suffix == ".md" and path.is_file())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise InvalidProfile(f"{place} cannot be read: {error.strerror}") from error
    return found[:_MOST_FILES]


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidProfile(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > _LARGEST_FILE:
        raise InvalidProfile(f"{path} is larger than {_LARGEST_FILE:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidProfile(f"{path} is not written in UTF-8: {error.reason}") from error


# What authors have recently spent: one document per run, which expires when it leaves the window.
#
# This needs no counter to lock or reset: the sum over the existing documents is the amount spent.


_spent = msgspec.json.Decoder(UsageReported)


def kind_of(author: str) -> str:
    """Return the document kind for an author, whose name can contain any characters."""
    return f"spending-{hashlib.sha256(author.encode('utf-8', 'replace')).hexdigest()[:16]}"


class StoredSpendingBudget:
    """Gives every author the same budget in a sliding window, and records spending in the store."""

    def __init__(self, stores: Stores, budget: Budget, window_ms: int) -> None:
        self._stores = stores
        self._budget = budget
        self._window_ms = window_ms
        self._entered: dict[str, UsageReported] = {}

    async def budget_of(self, author: str, run_id: str) -> Budget | None:
        """Return what other runs have left of the author's budget."""
        documents = await self._stores.documents.list_documents(kind_of(author))
        return left_of(self._budget, *(_spent.decode(each.body) for each in documents if each.id != run_id))

    async def enter(self, author: str, run_id: str, spent: UsageReported) -> None:
        """Record what a run has spent. Unchanged amounts are not written."""
        if spent == UsageReported() or self._entered.get(run_id) == spent:
            return
        ends = self._stores.clock.now() + self._window_ms
        write = DocumentWrite(
            kind=kind_of(author),
            id=run_id,
            body=Raw(msgspec.json.encode(spent)),
            seen=None,
            expires_at=ends,
            is_quiet=True,
        )
        await self._stores.documents.write([write])
        self._entered = {run_id: spent} if len(self._entered) > 1_000 else {**self._entered, run_id: spent}


def register_agents(app: "Ade", types: Sequence[str] | None = None) -> list[str]:
    """Register handlers for these agent types, or for those that the settings select. Returns the task names.

    Handlers that are already registered are kept.
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
        assignment = RunAssignment(
            prompt=prompt,
            system_prompt=system_prompt,
            model=model,
            session_id=session_id,
            agent_id=agent_id,
            conversation_id=conversation_id,
            max_turns=max_turns,
        )
        spec = AgentRunSpec(
            task_id=ctx.task_id,
            run_id=ctx.run_id,
            attempt=ctx.attempt,
            assignment=assignment,
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
        return await handler.run(spec, ctx)

    # Turns of a conversation share a concurrency key, so that only one runs at a time, even when one is replayed.
    app.task(
        name=name,
        timeout=handler.profile.timeout_ms / 1000,
        concurrency_per_key=1,
        version=profile_version(handler.profile),
    )(run_agent)


def profile_version(profile: Profile) -> str:
    """Return the version of an agent type, which approvals of its tasks cover: ADE's own and a hash of the profile.

    The profile has the command, the model, and the system prompt; the prompt is an argument of each task.
    """
    plain = msgspec.to_builtins([VERSION, profile], str_keys=True)  # exit codes are numbers
    content = msgspec.json.encode(plain, order="deterministic")
    return f"profile:{hashlib.sha256(content).hexdigest()[:32]}"


def _first_words(prompt: str) -> str:
    return prompt.strip().partition("\n")[0][:60]


def _directory(cwd: str | None) -> Path | None:
    if cwd is None:
        return None
    try:
        path = Path(cwd).expanduser()
    except RuntimeError:
        raise _wrong(f"cwd {cwd[:200]!r} names the home of a user that does not exist") from None
    if not path.is_absolute():
        raise _wrong(f"cwd {cwd[:200]!r} must be an absolute path, because workers run in different folders")
    return path


def _wrong(message: str) -> RunFailed:
    error = TaskError(kind=FailureKind.BAD_ARGUMENTS, type="InvalidArguments", message=message, retryable=False)
    return RunFailed(Failed(error))


def budget_of(
    settings: AgentSettings, max_tokens: int | None, max_cost_usd: float | None, max_turns: int | None
) -> Budget:
    """Return the budget that the task requests, capped by the settings."""
    own = Budget(tokens=settings.max_tokens, cost_usd=settings.max_cost_usd, turns=settings.max_turns)
    return tightest(own, Budget(tokens=max_tokens, cost_usd=max_cost_usd, turns=max_turns))


def _earlier(ctx: Context) -> AgentProgress | None:
    last = ctx.last_progress
    return None if last is None else progress_in(Raw(msgspec.json.encode(last)))


class AgentHandler:
    """Handles tasks of one agent type. The runner is created on the first task, because only then is the store open."""

    def __init__(self, app: "Ade", profile: Profile) -> None:
        self._app = app
        self.profile = profile
        self._made: tuple[Stores, AgentRunner] | None = None

    async def run(self, spec: AgentRunSpec, context: Context) -> AgentResult:
        """Run the agent, and log the events of its run. Raises RunFailed."""
        opened = self._app.opener.opened
        assert opened is not None  # handlers run only in workers, which have an open store
        runner = self._runner(opened.stores)
        async with run_events(opened.stores, spec, TaskRunContext(context), actor=context.worker) as run:
            run.outcome = await runner.run(spec, run)
            return run.outcome

    def _runner(self, stores: Stores) -> AgentRunner:
        """Return the runner for this store. An app can be reopened, in tests with a different store."""
        if self._made is None or self._made[0] is not stores:
            self._made = stores, runner_of(self.profile, stores, self._app.settings.agents)
        return self._made[1]


class TaskRunContext:
    """The `RunContext` of a run that belongs to a task."""

    def __init__(self, context: Context) -> None:
        self.say = context.print
        self.guard = context.guard
        self.allows = context.allows
        self._context = context

    async def progress(self, progress: AgentProgress) -> None:
        await self._context.progress(progress)


def places_of(settings: AgentSettings) -> RunFiles:
    """Return the directories for transcripts and workspaces from the settings."""
    return RunFiles(Path(settings.transcripts).expanduser(), Path(settings.workspaces).expanduser())


def runner_of(profile: Profile, stores: Stores, settings: AgentSettings) -> AgentRunner:
    """Build the runner of a profile, with the author budget of the settings."""
    budget = Budget(tokens=settings.author_tokens, cost_usd=settings.author_cost_usd, turns=settings.author_turns)
    window_ms = round(settings.author_window_s * 1000)
    spending = None if budget == Budget() else StoredSpendingBudget(stores, budget, window_ms)
    return AgentRunner(profile, places_of(settings), now=stores.clock.now, spending=spending)
