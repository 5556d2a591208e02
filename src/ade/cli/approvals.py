"""`ade approvals`: what waits for people, and what they can do about it."""

import click

from ade.cli.approval_amends import amend, snooze
from ade.cli.approval_answers import approve, batch, break_glass, named_gate, reject, request_changes, tell
from ade.cli.approval_stats import stats
from ade.cli.approval_views import INBOX_HEAD, INBOX_SPARE, inbox_rows, print_review, review_document
from ade.cli.identity import acting, as_option, me
from ade.cli.ids import find_id
from ade.cli.pages import all_of
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import local, now_ms
from ade.cli.views import view
from ade.core.accounts.users import normal_id


@group("approvals", bare="list")
@as_option
def approvals() -> None:
    """What waits for people: list, show, answer, start. `ade approvals` alone lists what waits for you."""


for answer in (approve, reject, request_changes, amend, snooze, batch, break_glass, stats):
    approvals.add_command(answer)


@approvals.command("list")
@click.option("--mine/--all", "mine", default=None, help="What you may answer, or what anybody may.")
@as_option
@pass_session
def list_approvals(session: Session, mine: bool | None) -> None:
    """List what waits for an answer, the most urgent first. Without an account of yours, all of it."""
    session.look(_list(session, mine))


async def _list(session: Session, mine: bool | None) -> None:
    async with session.api() as api:
        found = await me(api)
        account = acting(session) if found is None else found.user.id
        if mine is None:
            mine = found is not None
        items = await all_of(api, api.list_approvals, mine=mine)
    if session.out.as_json:
        session.out.document({"account": account if mine else None, "approvals": [view(item) for item in items]})
        return
    session.out.table(INBOX_HEAD, inbox_rows(items, mine=mine, now=now_ms()), INBOX_SPARE)
    if not items:
        session.out.note(f"Nothing waits for {account}." if mine else "Nothing waits for an answer.")
    else:
        session.out.note("`ade approvals show ID` tells all about one, `ade approvals approve ID --digest D` agrees.")


@approvals.command("show")
@click.argument("task_id", metavar="ID")
@pass_session
def show(session: Session, task_id: str) -> None:
    """Show what is to be approved, its risk, who has answered and who still may; earlier approvals too."""
    session.look(_show(session, task_id))


async def _show(session: Session, text: str) -> None:
    async with session.api() as api:
        seen = await api.get_approval(await find_id(api, text.partition(".")[0]))
    if session.out.as_json:
        session.out.document({**review_document(seen.review), "args": seen.args, "stats": seen.stats})
        return
    known = {"id": seen.task_id, "name": seen.name, "status": str(seen.status), "author": seen.author or ""}
    session.out.facts([*known.items(), ("arguments", bytes(seen.args).decode())])
    print_review(session.out, seen.review, now=now_ms(), earlier=True)


@approvals.command("comment")
@click.argument("task_id", metavar="ID")
@click.argument("text")
@as_option
@pass_session
def comment(session: Session, task_id: str, text: str) -> None:
    """Say something that is no vote."""
    session.run(_comment(session, task_id, text))


async def _comment(session: Session, task_id: str, text: str) -> None:
    async with session.api() as api:
        tell(session, await api.comment_on_approval(await find_id(api, task_id), text=text))


@approvals.command("delegate")
@click.argument("task_id", metavar="ID")
@click.option("--to", "delegate", metavar="NAME", required=True, help="Who answers: an active reviewer or admin.")
@as_option
@pass_session
def delegate(session: Session, task_id: str, delegate: str) -> None:
    """Let somebody answer in your place for this one task, until its approval expires."""
    session.run(_delegate(session, task_id, delegate))


async def _delegate(session: Session, text: str, to: str) -> None:
    async with session.api() as api:
        task_id, gate_id = await named_gate(api, text)
        made = await api.delegate_approval(task_id, to=to, approval=gate_id)
    if session.out.as_json:
        shown = {"id": made.id, "delegator": made.delegator, "delegate": made.delegate, "task_id": task_id}
        session.out.document(shown)
    else:
        place = f"for {made.delegator} at {task_id}"
        session.out.line(f"{made.id}: {made.delegate} answers {place} until {local(made.ends_at)}")


@approvals.command("revoke")
@click.argument("task_id", metavar="ID")
@click.option("--reason", required=True, help="Why; kept on record.")
@as_option
@pass_session
def revoke(session: Session, task_id: str, reason: str) -> None:
    """Take an approval back before the task runs: people are asked anew. For those who gave it, and for admins."""
    session.run(_revoke(session, task_id, reason))


async def _revoke(session: Session, text: str, reason: str) -> None:
    async with session.api() as api:
        tell(session, await api.revoke_approval(await find_id(api, text), reason=reason))


@approvals.command("start")
@click.argument("task_id", metavar="ID")
@as_option
@pass_session
def start(session: Session, task_id: str) -> None:
    """Let an approved task that waits for a hand join its queue. For its author, and for operators."""
    session.run(_start(session, task_id))


async def _start(session: Session, text: str) -> None:
    async with session.api() as api:
        tell(session, await api.apply_task(await find_id(api, text)))


@approvals.command("dismiss")
@click.argument("task_id", metavar="ID")
@click.argument("voter")
@click.option("--reason", required=True, help="Why; kept on record.")
@as_option
@pass_session
def dismiss(session: Session, task_id: str, voter: str, reason: str) -> None:
    """Strike out somebody's request for changes, as an admin: the task is put before people again."""
    session.run(_dismiss(session, task_id, voter, reason))


async def _dismiss(session: Session, text: str, voter: str, reason: str) -> None:
    async with session.api() as api:
        tell(session, await api.dismiss_request(await find_id(api, text), voter=normal_id(voter), reason=reason))


@approvals.command("roll-back")
@click.argument("task_id", metavar="ID")
@as_option
@pass_session
def roll_back(session: Session, task_id: str) -> None:
    """Enqueue what undoes a task that has ended; once, however often it is asked for. Prints the id of that."""
    session.run(_roll_back(session, task_id))


async def _roll_back(session: Session, text: str) -> None:
    async with session.api() as api:
        tell(session, await api.roll_back_task(await find_id(api, text)))
