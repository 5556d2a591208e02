"""`ade approvals`: what waits for people, and what they can do about it."""

import click

from ade.cli.approval_amends import amend, snooze
from ade.cli.approval_answers import approve, asked_gate, batch, break_glass, reject, request_changes, tell
from ade.cli.approval_views import INBOX_HEAD, INBOX_SPARE, inbox_rows, print_review, review_document
from ade.cli.identity import acting, as_option
from ade.cli.ids import find_id
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import local, local_with_distance, short_span
from ade.cli.views import view
from ade.core.accounts.users import normal_id
from ade.core.approvals.delegations import Delegation
from ade.core.approvals.refusals import GateClosed, NoGate, NotEligible
from ade.governance import delegations
from ade.governance.approvals import voting
from ade.governance.approvals.situation import load_people
from ade.insight import approvals as insight
from ade.insight.gates import view_review
from ade.queue.tasks import get


@group("approvals", bare="list")
@as_option
def approvals() -> None:
    """What waits for people: list, show, answer, start. `ade approvals` alone lists what waits for you."""


for answer in (approve, reject, request_changes, amend, snooze, batch, break_glass):
    approvals.add_command(answer)


@approvals.command("list")
@click.option("--mine/--all", "mine", default=None, help="What you may answer, or what anybody may.")
@as_option
@pass_session
def list_approvals(session: Session, mine: bool | None) -> None:
    """List what waits for an answer, the most urgent first. Without an account of yours, all of it."""
    session.look(_list(session, mine))


async def _list(session: Session, mine: bool | None) -> None:
    account = acting(session)
    async with session.stores() as stores:
        if mine is None:
            mine = (await load_people(stores)).directory.get(account) is not None
        items = await insight.inbox(stores, account) if mine else await insight.waiting(stores)
        now = stores.clock.now()
    if session.out.as_json:
        session.out.document({"account": account if mine else None, "approvals": [view(item) for item in items]})
        return
    session.out.table(INBOX_HEAD, inbox_rows(items, mine=mine, now=now), INBOX_SPARE)
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
    async with session.stores() as stores:
        task = await get(stores, await find_id(stores, text.partition(".")[0]))
        people, now = await load_people(stores), stores.clock.now()
        args = await session.payloads(stores).load(task.args)
    review = view_review(task, people, now=now)
    if review is None:
        raise NoGate(f"nobody has to approve task {task.id}")
    if session.out.as_json:
        stats = insight.task_stats(task, people, now=now)
        session.out.document({**review_document(review), "args": args, "stats": stats})
        return
    known = {"id": task.id, "name": task.name, "status": str(task.status), "author": task.author_id or ""}
    session.out.facts([*known.items(), ("arguments", bytes(args).decode())])
    print_review(session.out, review, now=now, earlier=True)


@approvals.command("comment")
@click.argument("task_id", metavar="ID")
@click.argument("text")
@as_option
@pass_session
def comment(session: Session, task_id: str, text: str) -> None:
    """Say something that is no vote."""
    session.run(_comment(session, task_id, text))


async def _comment(session: Session, task_id: str, text: str) -> None:
    async with session.stores() as stores:
        tell(session, await voting.comment(stores, await find_id(stores, task_id), text, actor=acting(session)))


@approvals.command("delegate")
@click.argument("task_id", metavar="ID")
@click.option("--to", "delegate", metavar="NAME", required=True, help="Who answers: an active reviewer or admin.")
@as_option
@pass_session
def delegate(session: Session, task_id: str, delegate: str) -> None:
    """Let somebody answer in your place for this one task, until its approval expires."""
    session.run(_delegate(session, task_id, delegate))


async def _delegate(session: Session, text: str, to: str) -> None:
    actor = acting(session)
    async with session.stores() as stores:
        task, gate = await asked_gate(stores, text)
        now = stores.clock.now()
        standing = (await load_people(stores)).standing(gate, now)
        if not gate.is_undecided or now >= gate.expires_at:
            raise GateClosed(f"approval {gate.id} is {standing.state} already; there is nothing to delegate")
        if actor not in standing.may_vote:
            raise NotEligible(f"{actor} is not asked here, or has answered already, and so has nothing to delegate")
        wanted = Delegation(
            id="", delegator=actor, delegate=to, starts_at=now, ends_at=gate.expires_at, task_id=task.id
        )
        made = await delegations.create(stores, wanted, actor=actor)
    if session.out.as_json:
        shown = {"id": made.id, "delegator": made.delegator, "delegate": made.delegate, "task_id": task.id}
        session.out.document(shown)
    else:
        session.out.line(f"{made.id}: {made.delegate} answers for {actor} at {task.id} until {local(made.ends_at)}")


@approvals.command("revoke")
@click.argument("task_id", metavar="ID")
@click.option("--reason", required=True, help="Why; kept on record.")
@as_option
@pass_session
def revoke(session: Session, task_id: str, reason: str) -> None:
    """Take an approval back before the task runs: people are asked anew. For those who gave it, and for admins."""
    session.run(_revoke(session, task_id, reason))


async def _revoke(session: Session, text: str, reason: str) -> None:
    async with session.stores() as stores:
        tell(session, await voting.revoke(stores, await find_id(stores, text), reason, actor=acting(session)))


@approvals.command("start")
@click.argument("task_id", metavar="ID")
@as_option
@pass_session
def start(session: Session, task_id: str) -> None:
    """Let an approved task that waits for a hand join its queue. For its author, and for operators."""
    session.run(_start(session, task_id))


async def _start(session: Session, text: str) -> None:
    async with session.stores() as stores:
        tell(session, await voting.start(stores, await find_id(stores, text), actor=acting(session)))


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
    async with session.stores() as stores:
        task_id = await find_id(stores, text)
        tell(session, await voting.dismiss(stores, task_id, normal_id(voter), reason, actor=acting(session)))


@approvals.command("roll-back")
@click.argument("task_id", metavar="ID")
@as_option
@pass_session
def roll_back(session: Session, task_id: str) -> None:
    """Enqueue what undoes a task that has ended; once, however often it is asked for. Prints the id of that."""
    session.run(_roll_back(session, task_id))


async def _roll_back(session: Session, text: str) -> None:
    from ade.governance.approvals.rolling_back import roll_back as enqueue_rollback

    async with session.stores() as stores:
        task_id = await find_id(stores, text)
        tell(session, await enqueue_rollback(stores, session.payloads(stores), task_id, actor=acting(session)))


@approvals.command("stats")
@click.argument("name", required=False)
@as_option
@pass_session
def stats(session: Session, name: str | None) -> None:
    """Show what waits for an account, and what it has answered today (UTC); otherwise for you."""
    session.look(_stats(session, normal_id(name) if name is not None else acting(session)))


async def _stats(session: Session, account: str) -> None:
    async with session.stores() as stores:
        seen = await insight.user_stats(stores, account)
        now = stores.clock.now()
    if session.out.as_json:
        session.out.document(view(seen))
        return
    last = f"{seen.last_action}, {local_with_distance(seen.last_at, now=now)}" if seen.last_at is not None else ""
    session.out.facts(
        [
            ("account", seen.account),
            ("waiting", str(seen.pending)),
            ("approved today", str(seen.approved)),
            ("rejected today", str(seen.rejected)),
            ("takes on average", "" if seen.response_ms is None else short_span(seen.response_ms)),
            ("last", last),
        ]
    )
