"""Answers at a gate: each is about the digest that was looked at, and the dangerous ones take a password."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ade.cli.approval_views import SHORT, print_review
from ade.cli.exit_codes import ExitCode
from ade.cli.identity import acting, as_option
from ade.cli.ids import find_id
from ade.cli.passwords import ask_password
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.views import task_view
from ade.core.accounts.users import normal_id
from ade.core.approvals.records import Decision, Gate
from ade.core.approvals.refusals import DigestMismatch, NoGate
from ade.core.approvals.risk import RiskLevel
from ade.core.approvals.voting import Ballot
from ade.core.errors import AdeError, StoreError
from ade.core.records import Task
from ade.governance.approvals import voting
from ade.governance.approvals.situation import load_people
from ade.insight.gates import gate_to_answer, view_review
from ade.ports import Stores
from ade.queue.tasks import get

F = TypeVar("F", bound=Callable[..., Any])
LEAST = 8  # characters of a digest
_ASKED = {
    Decision.APPROVE: "Approve exactly this?",
    Decision.REJECT: "Reject this?",
    Decision.REQUEST_CHANGES: "Ask for changes of this?",
}
password_option = click.option("--password-stdin", is_flag=True, help="Read your password from stdin.")


def _answer_options(command: F) -> F:
    for option in (
        as_option,
        click.option("--for", "for_whom", metavar="NAME", help="Answer in the place of somebody who delegated to you."),
        click.option("--digest", help=f"Of what you have looked at; {LEAST} of its first characters are enough."),
        click.argument("task_id", metavar="ID"),
    ):
        command = option(command)
    return command


@command("approve")
@_answer_options
@click.option("--reason", default="", help="Why; kept on record.")
@password_option
@pass_session
def approve(session: Session, /, **given: Any) -> None:
    """Agree to exactly what has this digest. A high risk takes your password.

    On a terminal, and without --digest, you are shown what it is about and asked.
    """
    session.run(_answer(session, Decision.APPROVE, **given))


@command("reject")
@_answer_options
@click.option("--reason", default="", help="Why; kept on record.")
@pass_session
def reject(session: Session, /, **given: Any) -> None:
    """Say no; where the policy wants more than one no, the others are waited for."""
    session.run(_answer(session, Decision.REJECT, **given))


@command("request-changes")
@_answer_options
@click.option("--reason", required=True, help="Which changes; kept on record.")
@pass_session
def request_changes(session: Session, /, **given: Any) -> None:
    """Give a task back to its author."""
    session.run(_answer(session, Decision.REQUEST_CHANGES, **given))


async def _answer(
    session: Session,
    decision: Decision,
    *,
    task_id: str,
    digest: str | None,
    for_whom: str | None,
    reason: str,
    password_stdin: bool = False,
) -> None:
    voter = acting(session)
    async with session.stores() as stores:
        task, gate = await asked_gate(stores, task_id)
        if digest is None:
            await _show_and_ask(session, stores, task, gate, decision)
        ballot = Ballot(
            voter=voter,
            decision=decision,
            digest=gate.digest if digest is None else whole_digest(gate, digest),
            reason=reason,
            on_behalf_of=None if for_whom is None else normal_id(for_whom),
            authenticated_at=await _authenticated_for(session, stores, voter, gate, decision, password_stdin),
            via="cli",
        )
        after = await voting.vote(stores, task.id, ballot, gate_id=gate.id)
        answered = next(each for each in after.review.gates if each.id == gate.id) if after.review else gate
        standing = (await load_people(stores)).standing(answered, stores.clock.now())
    tell(session, after)
    if standing.missing:
        session.out.note(f"Still missing: {'; '.join(standing.missing)}.")


async def asked_gate(stores: Stores, text: str) -> tuple[Task, Gate]:
    """The task, and the gate to answer at; `ID.2` names the second one. Raises UnknownTask and NoGate."""
    task_text, _, number = text.partition(".")
    task = await get(stores, await find_id(stores, task_text))
    gate = gate_to_answer(task, number)
    if gate is None:
        raise NoGate(f"task {task.id} has no approval {text}" if number else f"nobody has to approve task {task.id}")
    return task, gate


def whole_digest(gate: Gate, given: str) -> str:
    """Raises DigestMismatch for one that is not the gate's."""
    text = given.strip().lower()
    if len(text) < LEAST:
        raise click.UsageError(f"Give at least the first {LEAST} characters of the digest.")
    if not gate.digest.startswith(text):
        raise DigestMismatch(
            f"the task is not what has the digest {text[:SHORT]}: its digest is {gate.digest[:SHORT]}; nothing was"
            f" counted. Look at it with `ade approvals show {gate.task_id}`, then answer"
        )
    return gate.digest


async def _show_and_ask(session: Session, stores: Stores, task: Task, gate: Gate, decision: Decision) -> None:
    if not session.is_interactive:
        raise click.UsageError(
            f"Say what you have looked at: --digest D. `ade approvals show {task.id}` shows it with its digest."
        )
    now = stores.clock.now()
    review = view_review(task, await load_people(stores), now=now)
    args = await session.payloads(stores).load(task.args)  # large ones are kept apart: nobody approves a reference
    session.out.line(f"{task.name} {bytes(args).decode()}")
    if review is not None:
        print_review(session.out, review, now=now)
    if not click.confirm(_ASKED[decision], err=True):
        raise click.Abort


async def _authenticated_for(
    session: Session, stores: Stores, voter: str, gate: Gate, decision: Decision, from_stdin: bool
) -> int | None:
    is_high = gate.subject.level.rank >= RiskLevel.HIGH.rank
    if decision is not Decision.APPROVE or not (is_high and gate.is_undecided):
        return None
    return await authenticated(session, stores, voter, from_stdin=from_stdin)


async def authenticated(session: Session, stores: Stores, account: str, *, from_stdin: bool) -> int:
    """When the account has given its password: now. Raises NotAuthenticated, ReauthenticationNeeded."""
    from ade.governance.directory.login import check_password

    await check_password(stores, account, ask_password(session, account, from_stdin=from_stdin))
    return stores.clock.now()


@command("break-glass")
@click.argument("task_id", metavar="ID")
@click.option("--reason", required=True, help="Why it cannot wait; kept on record.")
@as_option
@password_option
@pass_session
def break_glass(session: Session, task_id: str, reason: str, password_stdin: bool) -> None:
    """Let a task run without approval, in the open. Takes the permission and your password.

    It is no approval: others are asked to look at it after the fact.
    """
    session.run(_break_glass(session, task_id, reason, password_stdin))


async def _break_glass(session: Session, text: str, reason: str, from_stdin: bool) -> None:
    actor = acting(session)
    async with session.stores() as stores:
        task_id = await find_id(stores, text)
        at = await authenticated(session, stores, actor, from_stdin=from_stdin)
        tell(session, await voting.break_glass(stores, task_id, reason, actor=actor, authenticated_at=at))


@command("batch")
@click.argument("given", metavar="FILE|ID:DIGEST...", nargs=-1, required=True)
@click.option("--approve/--reject", "approves", default=None, help="The answer to all of them.")
@click.option("--reason", default="", help="Why; kept on record with each.")
@as_option
@password_option
@pass_session
def batch(session: Session, given: tuple[str, ...], approves: bool | None, reason: str, password_stdin: bool) -> int:
    """Give the same answer to up to fifty tasks. Each is counted by itself; a high risk is left out.

    FILE has a line ID:DIGEST for each task; - is stdin.
    """
    if approves is None:
        raise click.UsageError("Say what to answer: --approve or --reject.")
    pairs = [pair for text in given for pair in _pairs(text)]
    decision = Decision.APPROVE if approves else Decision.REJECT
    return session.run(_batch(session, pairs, decision, reason, password_stdin))


def _pairs(text: str) -> list[tuple[str, str]]:
    if ":" in text:
        return [_pair(text)]
    with click.open_file(text, encoding="utf-8") as file:
        return [_pair(line.strip()) for line in file if line.strip()]


def _pair(text: str) -> tuple[str, str]:
    task_id, _, digest = text.replace(" ", ":", 1).partition(":")
    if not task_id or len(digest.strip()) < LEAST:
        raise click.UsageError(f"{text[:80]!r} is no ID:DIGEST with at least {LEAST} characters of the digest.")
    return task_id.strip(), digest.strip().lower()


async def _batch(
    session: Session, pairs: list[tuple[str, str]], decision: Decision, reason: str, from_stdin: bool
) -> ExitCode:
    voter = acting(session)
    async with session.stores() as stores:
        at = await authenticated(session, stores, voter, from_stdin=True) if from_stdin else None
        ballot = Ballot(voter=voter, decision=decision, digest="", reason=reason, authenticated_at=at, via="batch")
        answered = await voting.batch(stores, [await _whole(stores, *pair) for pair in pairs], ballot)
    for each in answered:
        if session.out.as_json:
            session.out.record(each)
        else:
            session.out.line(f"{each.task_id}  {each.status or f'{each.code}: {each.error}'}")
    return ExitCode.PROBLEM if any(each.error for each in answered) else ExitCode.OK


async def _whole(stores: Stores, text: str, digest: str) -> tuple[str, str]:
    """The whole id and digest, as far as they can be found; what is wrong is told with the answer."""
    try:
        task, gate = await asked_gate(stores, text)
    except StoreError:
        raise
    except AdeError:
        return text, digest
    return task.id, gate.digest if gate.digest.startswith(digest) else digest


def tell(session: Session, task: Task) -> None:
    if session.out.as_json:
        session.out.document(task_view(task))
    else:
        session.out.line(f"{task.id}  {task.status}")
