"""`ade run`: run an agent on a prompt, stream its output, resume earlier sessions, and handle Ctrl-C."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click
import msgspec
from msgspec import structs

from ade.agents.handlers import chosen_profiles
from ade.agents.notifications import key_of
from ade.agents.runs.model import AgentResult, progress_in, result_in
from ade.app.agents import run_arguments
from ade.cli.command import command
from ade.cli.exit_codes import ExitCode
from ade.cli.identity import as_option
from ade.cli.ids import find_id
from ade.cli.interaction import interruptible
from ade.cli.output import all_of
from ade.cli.parameters import DURATION, PRIORITY
from ade.errors import AdeError, IllegalTransition, UnknownName, UnknownTask
from ade.stores.ports import INBOX, Stores
from ade.tasks.commands.lifecycle import LinePrinter, changes_of, follow_output
from ade.tasks.commands.options import form_fields, said_options
from ade.tasks.commands.wait import raise_unless_completed, result_of, with_result
from ade.tasks.identifiers import is_run, task_name, type_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import DEFAULT_QUEUE, Task
from ade.tasks.reasons import short_span
from ade.worker.views import WorkersLiveness

if TYPE_CHECKING:  # not loaded for `--help`
    from ade.app.ade import Ade
    from ade.cli.session import Session
    from ade.client.client import Client


# Streaming of the output and the report.


_WAITS_FOR_PEOPLE = frozenset({Status.SUBMITTED, Status.REVIEWING, Status.APPROVED})


async def watch_run(session: "Session", api: "Client", task_id: str) -> int:
    """Stream the run until it ends, then print its report or raise its error."""
    shown: list[str] = []

    def write(line: str) -> None:
        shown.append(line)
        session.out.note(line)

    noting = asyncio.create_task(_note_reviews(session, api, task_id))
    try:
        await follow_output(api, task_id, LinePrinter(session.out, write=write))
    finally:
        noting.cancel()
        await asyncio.gather(noting, return_exceptions=True)
    task = await api.get_task(task_id)
    raw = await result_of(api, task)
    if session.out.as_json:
        session.out.record(with_result(task, raw))
        return ExitCode.OK if task.status is Status.COMPLETED else ExitCode.PROBLEM
    raise_unless_completed(task)
    result = result_in(raw)
    if result is not None:
        if not _is_visible(session, result.report, shown):
            session.out.line(result.report)
        session.out.note(_summary(task, result))
    return ExitCode.OK


async def _note_reviews(session: "Session", api: "Client", task_id: str) -> None:
    """Print a note when the task starts to wait for reviewers, because nothing happens until they vote."""
    is_noted = False
    async with aclosing(changes_of(api, task_id)) as changes:
        async for task in changes:
            waits = task.status in _WAITS_FOR_PEOPLE
            if waits and not is_noted:
                session.out.note(f"It waits for approval: `ade approvals show {task.id}` shows whose.")
            is_noted = waits


def _is_visible(session: "Session", report: str, shown: list[str]) -> bool:
    """Return whether these lines are already visible, because stderr goes to the same terminal."""
    lines = report.splitlines()
    is_one_terminal = session.out.is_terminal and session.out.shows_progress
    return is_one_terminal and bool(lines) and shown[-len(lines) :] == lines


def _summary(task: Task, result: AgentResult) -> str:
    facts = [f"done in {short_span(result.duration_ms)}"]
    facts += [f"{result.tokens:,} tokens"] if result.tokens is not None else []
    facts += [f"${result.cost_usd:.4g}"] if result.cost_usd is not None else []
    goes_on = result.session_id or result.agent_id or result.conversation_id
    hint = f". Continue with `ade run --agent {result.subagent_type} --resume {task.id} ...`" if goes_on else ""
    return ", ".join(facts) + hint


# Resuming the session of an earlier run.


_RESUME_FIELDS = ("session_id", "agent_id", "conversation_id", "session_tokens")


async def resumed(api: "Client", resume: str, subagent_type: str) -> dict[str, Any]:
    """Return the arguments that resume a run: of the task with this ID if there is one, otherwise of the session
    itself.
    """
    try:
        task = await api.get_task(await find_id(api, resume))
    except UnknownTask:
        return {"session_id": resume}
    if task.name != task_name(subagent_type):
        whose = f"an agent of type {type_of(task.name)}" if is_run(task.name) else f"{task.name}, which is not an agent"
        raise click.UsageError(f"Task {task.id} was done by {whose}: {subagent_type} cannot continue it.")
    known = result_in(await result_of(api, task)) or progress_in(task.progress)
    found = {
        name: value for name in _RESUME_FIELDS if known is not None and (value := getattr(known, name)) is not None
    }
    if not found.keys() - {"session_tokens"}:
        raise click.UsageError(f"Task {task.id} has no session to continue.")
    if not task.is_final:
        raise click.UsageError(f"Task {task.id} is still running in that session: wait for it, or cancel it.")
    return found | await _place(api, task)


async def _place(api: "Client", task: Task) -> dict[str, str]:
    """Return the working directory of the earlier run, by which agents find their sessions."""
    args = msgspec.json.decode((await api.get_task(task.id, whole=True)).args)
    if args.get("cwd") is not None:
        return {"cwd": args["cwd"]}
    return {"workspace": args.get("workspace") or task.id}


# Signal handling for a command that must clean up.


T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunInterrupted(Exception):
    """Ctrl-C, SIGTERM, or the terminal is gone."""


class SignalTrap:
    """Traps SIGINT, SIGTERM, and SIGHUP within the block. Signals cancel only work that runs in `unless_heard`."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()
        self._caught: list[signal.Signals] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # ignored signals stay ignored, as under nohup
                loop.add_signal_handler(number, self._heard.set)
                self._caught.append(number)
        await asyncio.sleep(0)  # a pending cancellation by an earlier signal is raised here, not in the block
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in self._caught:
            asyncio.get_running_loop().remove_signal_handler(number)

    async def unless_heard(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work. Raises RunInterrupted, once for all signals received so far."""
        job, heard = asyncio.create_task(work), asyncio.create_task(self._heard.wait())
        try:
            await asyncio.wait({job, heard}, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            self._heard.clear()
            raise RunInterrupted
        finally:
            for each in (job, heard):
                each.cancel()
            await asyncio.gather(job, heard, return_exceptions=True)


_NOTIFIED_WITHIN_S, _LOOK_S = 10.0, 0.2
_INTERRUPTED = "interrupted by Ctrl-C"


@command("run")
@click.argument("prompt")
@click.option("--agent", "subagent_type", required=True, metavar="TYPE", help="Which agent: claude, coder, ...")
@click.option("--model", help="Another model than the agent's own.")
@click.option("--description", help="A few words for people; otherwise the prompt's first line.")
@click.option("--max-turns", type=click.IntRange(min=1), help="Maximum number of turns.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Maximum number of tokens.")
@click.option(
    "--max-cost", "max_cost_usd", type=click.FloatRange(min=0, min_open=True), help="Maximum cost in dollars."
)
@click.option("--cwd", type=click.Path(), help="The folder it works in, on the machine of the worker.")
@click.option("--resume", metavar="SESSION|TASK", help="Continue this session, or the session of an earlier task.")
@click.option(
    "--conversation", "parent_conversation", metavar="ID", help="Notify the inbox of this conversation when it ends."
)
@click.option("--priority", type=PRIORITY, help="urgent, high, normal, low, or 0 (first) to 9 (last).")
@click.option("--tag", "--tags", "tags", multiple=True, help="A tag to find it by; repeatable, or comma-separated.")
@click.option("--timeout", type=DURATION, help="Time limit of a run.")
@click.option("--detach", is_flag=True, help="Print the task's id and do not wait.")
@as_option
async def run(
    session: "Session", /, prompt: str, subagent_type: str, resume: str | None, detach: bool, **given: Any
) -> int:
    """Run an agent on PROMPT, show its progress, and print its report. PROMPT may be - for stdin.

    \b
      ade run --agent claude "Why does the login test fail?"
      ade run --agent coder --resume 019a2b3c "Now fix it."
      git diff | ade run --agent reviewer -

    The report goes to stdout, the progress to stderr. Ctrl-C cancels the task. If no worker runs
    agents of this type, this command does, in the current folder unless --cwd names another. With a server, the task
    waits for a worker.
    """
    with interruptible():
        text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise click.UsageError("The prompt is empty.")
    said: dict[str, Any] = dict(said_options(given))
    if "cwd" in said:
        said["cwd"] = _folder(session, said["cwd"])
    said = {"description": _first_line(text), **said}
    carry_out = _run_here if session.server is None else _run_there
    return await carry_out(session, text, subagent_type, resume, detach, said)


def _folder(session: "Session", cwd: str) -> str:
    if session.server is None:
        return str(Path(cwd).expanduser().absolute())
    if not Path(cwd).is_absolute():
        raise click.UsageError("With a server, --cwd must be an absolute path on the machine of the worker.")
    return cwd


async def _run_there(
    session: "Session", prompt: str, subagent_type: str, resume: str | None, detach: bool, given: dict[str, Any]
) -> int:
    """Run on a worker of a server; if there is none, the task waits for one."""
    name = task_name(subagent_type)
    async with session.api() as api:
        if resume is not None:
            given = {**await resumed(api, resume, subagent_type), **given}
        arguments, options = run_arguments(prompt, given)
        async with SignalTrap() as interrupts:
            try:
                task_id = (await api.create_task(name=name, args=arguments, **form_fields(options))).id
            except UnknownName:
                raise await _unknown_type(api, subagent_type) from None
            is_served = await _is_served(api, name)
            if detach:
                return await _detached(session, api, task_id, subagent_type, is_served=is_served)
            waits = "" if is_served else f"; it waits for a worker that runs agents of type {subagent_type}"
            session.out.note(f"task {task_id}{waits}")
            try:
                return await interrupts.unless_heard(watch_run(session, api, task_id))
            except RunInterrupted:
                return await _cancelled(session, api, task_id)


async def _run_here(
    session: "Session", prompt: str, subagent_type: str, resume: str | None, detach: bool, given: dict[str, Any]
) -> int:
    """Run on a worker of this store or, if none serves the type, in this process."""
    given = {**given, "author": session.account}
    if not session.has_store():
        _check_type(session, subagent_type)  # before the store is created, so that a mistake creates none
    async with session.open_bare_app() as app, AsyncExitStack() as stack:
        api = await session.api_of(app)
        if resume is not None:
            given = {**await resumed(api, resume, subagent_type), **given}
        is_served = await _is_served(api, task_name(subagent_type))
        runs_here = not is_served and not detach
        if runs_here:
            app.agents.serve(subagent_type)
            place = {} if "workspace" in given else {"cwd": str(Path.cwd())}
            given = {**place, **given, "queue": f"ade-run-{os.urandom(4).hex()}"}  # a queue for this command only
        interrupts = await stack.enter_async_context(SignalTrap())
        task_id = (await app.agents.run(subagent_type, prompt, **given)).id
        if runs_here:
            await stack.enter_async_context(_worker_for(app, given["queue"]))
        try:
            if detach:
                return await _detached(session, api, task_id, subagent_type, is_served=is_served)
            where = "" if is_served else f"; no worker runs agents of type {subagent_type}, so it runs here"
            session.out.note(f"task {task_id}{where}")
            return await interrupts.unless_heard(watch_run(session, api, task_id))
        except RunInterrupted:
            return await _cancelled(session, api, task_id)
        finally:
            if runs_here and "parent_conversation" in given:
                stores = (await app.open()).stores
                with suppress(RunInterrupted):
                    await interrupts.unless_heard(_until_notified(stores, given["parent_conversation"], task_id))


def _worker_for(app: "Ade", queue: str) -> AbstractAsyncContextManager[None]:
    """Return a worker that runs only this command's task and its notification, which have a queue of their own."""
    from ade.composition.worker import beside, work  # not loaded if another worker runs the task

    settings = structs.replace(
        app.settings,
        worker=structs.replace(app.settings.worker, concurrency=1, queues=(queue,)),
        agents=structs.replace(app.settings.agents, pumps=0),
    )
    return beside(lambda stop: work(app, settings, stop))


def _check_type(session: "Session", subagent_type: str) -> None:
    chosen_profiles(session.settings.agents, [subagent_type])


async def _until_notified(stores: Stores, conversation: str, task_id: str) -> None:
    """Wait until this worker has delivered the notification, before it stops; after a timeout, another worker can."""
    try:
        async with asyncio.timeout(_NOTIFIED_WITHIN_S):
            while True:
                seen = stores.wakeups.generation(INBOX)
                if key_of(task_id) in (await stores.inboxes.load(conversation)).keys:
                    return
                await stores.wakeups.wait(INBOX, seen, _LOOK_S)
    except TimeoutError:
        pass


def _first_line(prompt: str) -> str:
    return prompt.strip().partition("\n")[0][:60]


async def _is_served(api: "Client", name: str) -> bool:
    """Return whether a live worker runs such tasks from any caller, unlike the worker of another `ade run`."""
    return any(
        name in seen.worker.names
        and (not seen.worker.queues or DEFAULT_QUEUE in seen.worker.queues)
        and seen.liveness is WorkersLiveness.WORKING
        for seen in await all_of(api, api.list_workers)
    )


async def _unknown_type(api: "Client", subagent_type: str) -> UnknownName:
    names = [known.name for known in await all_of(api, api.list_definitions)]
    listed = ", ".join(sorted(type_of(name) for name in names if is_run(name))) or "none"
    return UnknownName(f"no worker has registered the agent type {subagent_type[:100]!r}; registered are {listed}")


async def _detached(session: "Session", api: "Client", task_id: str, subagent_type: str, *, is_served: bool) -> int:
    if session.out.as_json:
        session.out.record(await api.get_task(task_id))
    else:
        session.out.line(task_id)
    if not is_served:
        session.out.note(
            f"No worker runs agents of type {subagent_type} yet; `ade worker --agents {subagent_type}` starts one."
        )
    return ExitCode.OK


async def _cancelled(session: "Session", api: "Client", task_id: str) -> int:
    """Handle Ctrl-C: cancel the task, which stops its agent."""
    try:
        await api.cancel_task(task_id, reason=_INTERRUPTED)
        session.out.note(f"Cancelled task {task_id}.")
    except IllegalTransition:
        session.out.note(f"Task {task_id} had already ended.")
    except AdeError as error:
        session.out.note(f"Task {task_id} could not be cancelled and continues: {error.detail}")
    return ExitCode.INTERRUPTED
