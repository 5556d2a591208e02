"""`ade run`: give an agent a prompt and watch it work."""

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from ade.cli.exit_codes import ExitCode
from ade.cli.finishing import raise_unless_completed
from ade.cli.identity import acting, as_option
from ade.cli.interrupts import Interrupted, Interrupts
from ade.cli.logs import LinePrinter, follow_output
from ade.cli.parsing import DURATION
from ade.cli.resuming import resumed
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.task_options import said_options
from ade.cli.times import short_span
from ade.cli.views import task_view
from ade.core.agent_runs.names import task_name
from ade.core.agent_runs.results import AgentResult, result_in
from ade.core.errors import AdeError, IllegalTransition
from ade.core.lifecycle import Status
from ade.core.records import DEFAULT_QUEUE, Task
from ade.ports import INBOX, Stores
from ade.queue.tasks import cancel, get, result_of

if TYPE_CHECKING:  # `--help` comes without it
    from ade.app.ade import Ade

_TOLD_WITHIN_S, _LOOK_S = 10.0, 0.2
_INTERRUPTED = "interrupted by Ctrl-C"
_WAITS_FOR_PEOPLE = frozenset({Status.SUBMITTED, Status.REVIEWING, Status.APPROVED})


@command("run")
@click.argument("prompt")
@click.option("--agent", "subagent_type", required=True, metavar="TYPE", help="Which agent: claude, coder, ...")
@click.option("--model", help="Another model than the agent's own.")
@click.option("--description", help="A few words for people; otherwise the prompt's first line.")
@click.option("--max-turns", type=click.IntRange(min=1), help="Turns it may take at most.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Tokens it may use at most.")
@click.option("--max-cost", "max_cost_usd", type=click.FloatRange(min=0, min_open=True), help="Dollars it may cost.")
@click.option("--cwd", type=click.Path(), help="The folder it works in, on the machine of the worker.")
@click.option("--resume", metavar="SESSION|TASK", help="Go on in this session, or in that of an earlier task.")
@click.option("--conversation", "parent_conversation", metavar="ID", help="Tell this conversation's inbox of the end.")
@click.option("--priority", type=int, help="0 first, 9 last.")
@click.option("--tag", "--tags", "tags", multiple=True, help="A word to find it by; may be repeated, or use commas.")
@click.option("--timeout", type=DURATION, help="The longest a run may take.")
@click.option("--detach", is_flag=True, help="Print the task's id and do not wait.")
@as_option
@pass_session
def run(session: Session, /, prompt: str, subagent_type: str, resume: str | None, detach: bool, **given: Any) -> int:
    """Let an agent work on PROMPT, show what it does, and print its report. PROMPT may be - for stdin.

    \b
      ade run --agent claude "Why does the login test fail?"
      ade run --agent coder --resume 019a2b3c "Now fix it."
      git diff | ade run --agent reviewer -

    The report goes to stdout, what the agent does on the way to stderr. Ctrl-C cancels the task. If no worker runs
    agents of this type, this command does, in the current folder unless --cwd names another.
    """
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise click.UsageError("The prompt is empty.")
    said: dict[str, Any] = dict(said_options(given))
    if "cwd" in said:
        said["cwd"] = str(Path(said["cwd"]).expanduser().absolute())
    return session.run(_run(session, text, subagent_type, resume, detach, said))


async def _run(
    session: Session, prompt: str, subagent_type: str, resume: str | None, detach: bool, given: dict[str, Any]
) -> int:
    given = {"description": _first_line(prompt), **given, "author": acting(session)}
    if not session.has_store():
        _check_type(session, subagent_type)  # a mistake makes no store
    async with session.open_bare_app() as app, AsyncExitStack() as stack:
        stores = (await app.open()).stores
        if resume is not None:
            given = {**await resumed(session, stores, resume, subagent_type), **given}
        is_served = await _is_served(stores, task_name(subagent_type))
        runs_here = not is_served and not detach
        if runs_here:
            app.agents.serve(subagent_type)
            place = {} if "workspace" in given else {"cwd": str(Path.cwd())}
            given = {**place, **given, "queue": f"ade-run-{os.urandom(4).hex()}"}  # of this command alone
        interrupts = await stack.enter_async_context(Interrupts())
        task_id = (await app.agents.run(subagent_type, prompt, **given)).id
        if runs_here:
            await stack.enter_async_context(_worker_for(app, given["queue"]))
        try:
            if detach:
                return await _detached(session, stores, task_id, subagent_type, is_served=is_served)
            session.out.note(_begun(task_id, subagent_type, is_served=is_served))
            return await interrupts.unless_heard(_watch(session, stores, task_id))
        except Interrupted:
            return await _cancelled(session, stores, task_id)
        finally:
            if runs_here and "parent_conversation" in given:
                with suppress(Interrupted):
                    await interrupts.unless_heard(_until_told(stores, given["parent_conversation"], task_id))


def _worker_for(app: "Ade", queue: str) -> AbstractAsyncContextManager[None]:
    """A worker that is there for this command's task and its notification alone, which have a queue of their own."""
    from ade.app.working import beside, work

    settings = structs.replace(
        app.settings,
        worker=structs.replace(app.settings.worker, concurrency=1, queues=(queue,)),
        agents=structs.replace(app.settings.agents, pumps=0),
    )
    return beside(lambda stop: work(app, settings, stop))


def _check_type(session: Session, subagent_type: str) -> None:
    from ade.app.agent_profiles import chosen_profiles

    chosen_profiles(session.settings.agents, [subagent_type])


async def _until_told(stores: Stores, conversation: str, task_id: str) -> None:
    """Its notification is for this worker to bring, which ends with the command; another may, if it takes long."""
    from ade.agents.notifying import key_of

    try:
        async with asyncio.timeout(_TOLD_WITHIN_S):
            while True:
                seen = stores.hints.generation(INBOX)
                if key_of(task_id) in (await stores.inboxes.load(conversation)).keys:
                    return
                await stores.hints.wait(INBOX, seen, _LOOK_S)
    except TimeoutError:
        pass


def _first_line(prompt: str) -> str:
    return prompt.strip().partition("\n")[0][:60]


async def _is_served(stores: Stores, name: str) -> bool:
    """Whether a worker that lives runs such tasks of anybody; one of another `ade run` does not."""
    from ade.insight.workers import Liveness, view_workers

    return any(
        name in seen.worker.names
        and (not seen.worker.queues or DEFAULT_QUEUE in seen.worker.queues)
        and seen.liveness is Liveness.WORKING
        for seen in await view_workers(stores)
    )


async def _detached(session: Session, stores: Stores, task_id: str, subagent_type: str, *, is_served: bool) -> int:
    if session.out.as_json:
        session.out.record(task_view(await get(stores, task_id)))
    else:
        session.out.line(task_id)
    if not is_served:
        session.out.note(
            f"No worker runs agents of type {subagent_type} yet; `ade worker --agents {subagent_type}` starts one."
        )
    return ExitCode.OK


def _begun(task_id: str, subagent_type: str, *, is_served: bool) -> str:
    where = "" if is_served else f"; no worker runs agents of type {subagent_type}, so it runs here"
    return f"task {task_id}{where}"


async def _watch(session: Session, stores: Stores, task_id: str) -> int:
    """Until the end: the report, or the error that tells of it."""
    shown: list[str] = []

    def write(line: str) -> None:
        shown.append(line)
        session.out.note(line)

    printer = LinePrinter(session.out, write=write)
    task = await follow_output(stores, task_id, printer, _TellsOfPeople(session))
    raw = await result_of(stores, session.payloads(stores), task)
    if session.out.as_json:
        session.out.record({**task_view(task), **({} if raw is None else {"result": raw})})
        return ExitCode.OK if task.status is Status.COMPLETED else ExitCode.PROBLEM
    raise_unless_completed(task)
    result = result_in(raw)
    if result is not None:
        if not _is_seen(session, result.report, shown):
            session.out.line(result.report)
        session.out.note(_summary(task, result))
    return ExitCode.OK


class _TellsOfPeople:
    """Says once when the task waits for people: nothing goes on until they have answered."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_told = False

    def __call__(self, task: Task) -> None:
        waits = task.status in _WAITS_FOR_PEOPLE
        if waits and not self._is_told:
            self._session.out.note(f"It waits for people: `ade approvals show {task.id}` tells for whom.")
        self._is_told = waits


def _is_seen(session: Session, report: str, shown: list[str]) -> bool:
    """Whether the reader has just seen these very lines, because stderr goes to the same terminal."""
    lines = report.splitlines()
    is_one_terminal = session.out.is_terminal and session.out.shows_progress
    return is_one_terminal and bool(lines) and shown[-len(lines) :] == lines


def _summary(task: Task, result: AgentResult) -> str:
    facts = [f"done in {short_span(result.duration_ms)}"]
    facts += [f"{result.tokens:,} tokens"] if result.tokens is not None else []
    facts += [f"${result.cost_usd:.4g}"] if result.cost_usd is not None else []
    goes_on = result.session_id or result.agent_id or result.conversation_id
    hint = f". Go on with `ade run --agent {result.subagent_type} --resume {task.id} ...`" if goes_on else ""
    return ", ".join(facts) + hint


async def _cancelled(session: Session, stores: Stores, task_id: str) -> int:
    """Ctrl-C: the task ends, and its agent with it."""
    try:
        await cancel(stores, task_id, _INTERRUPTED, actor=session.actor)
        session.out.note(f"Cancelled task {task_id}.")
    except IllegalTransition:
        session.out.note(f"Task {task_id} had ended already.")
    except AdeError as error:
        session.out.note(f"Task {task_id} could not be cancelled and goes on: {error.detail}")
    return ExitCode.INTERRUPTED
