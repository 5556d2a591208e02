"""The `ade approvals` and `ade delegations` commands, except for voting."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ade.accounts.model import normal_id
from ade.approvals.commands.votes import (
    INBOX_HEAD,
    INBOX_SPARE,
    approve,
    batch,
    check_digest,
    gate_with_digest,
    inbox_rows,
    named_gate,
    password_option,
    print_background,
    print_review,
    print_vote,
    reject,
    request_changes,
    respond,
)
from ade.approvals.delegations import conditions_of
from ade.approvals.model import Delegation
from ade.approvals.risk import RiskLevel
from ade.approvals.stats import ApprovalOutcome, EndedApprovals
from ade.cli.command import command, group
from ade.cli.identity import account_of, as_option, me
from ade.cli.ids import find_id
from ade.cli.interaction import ask_password, own_password_option, signed_in_api
from ade.cli.output import Cell, Row, all_of, compact
from ade.cli.parameters import DURATION, JSON_OBJECT, MOMENT, local, local_with_distance, now_ms, seconds_of
from ade.common.text import with_name
from ade.tasks.commands.options import changed_arguments
from ade.tasks.reasons import short_span

if TYPE_CHECKING:
    from ade.cli.session import Session


# `ade delegations`.


DELEGATION_COLUMNS = ("delegation", "from", "to", "state", "starts", "ends", "only for")
_LEVEL = click.Choice([str(level) for level in RiskLevel])


class FutureTime(click.ParamType[float | datetime]):
    """A time in the future: a duration from a start, or a date and time."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | datetime:
        seconds = seconds_of(value) if isinstance(value, str) else None
        return MOMENT.convert(value, param, ctx) if seconds is None else seconds


AHEAD = FutureTime()


@group("delegations", bare="list")
def delegations() -> None:
    """Delegations of reviews to other accounts. `ade delegations` alone lists them."""


@delegations.command("list", reads=True)
@click.option("--account", metavar="NAME", help="Only those from or to this account.")
async def list_delegations(session: "Session", account: str | None) -> None:
    """List delegations; ended ones are shown for 90 days."""
    named = None if account is None else normal_id(account)
    async with session.api() as api:
        known = await all_of(api, api.list_delegations, account=named)
    if session.out.as_json:
        session.out.items(known)
        return
    now = now_ms()
    session.out.table(DELEGATION_COLUMNS, [_delegation_row(each, now) for each in known], ("starts", "state"))
    if not known:
        session.out.note("No delegations. `ade delegations create --to NAME --ends 14d` creates one.")


def _delegation_row(each: Delegation, now: int) -> Row:
    state = _state(each, now)
    limits = [f"{name} {_words(value)}" for name, value in conditions_of(each).items()]
    return (
        each.id,
        each.delegator,
        each.delegate,
        Cell(state, "green" if state == "holds" else "dim"),
        local(each.starts_at),
        local(each.ends_at),
        "; ".join(limits) or "everything",
    )


def _words(value: object) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _state(each: Delegation, now: int) -> str:
    if each.is_revoked:
        return "revoked"
    if now < each.starts_at:
        return "to come"
    return "holds" if now < each.ends_at else "over"


@delegations.command("create")
@click.option(
    "--from", "delegator", metavar="NAME", help="The account that delegates; yours by default. Admins can name others."
)
@click.option("--to", "delegate", metavar="NAME", required=True, help="The delegate: an active reviewer or admin.")
@click.option("--starts", type=AHEAD, default="0", help="A date and time, or a duration from now; now by default.")
@click.option("--ends", type=AHEAD, required=True, help="A date and time, or a duration from the start; at most 90d.")
@click.option("--name", "names", multiple=True, help="Only for tasks with this name; `*` matches anything.")
@click.option("--tag", "tags", multiple=True, help="Only for tasks with one of these tags.")
@click.option("--resource-type", "resource_types", multiple=True, help="Only for tasks with such resources.")
@click.option("--from-level", type=_LEVEL, default="low", show_default=True, help="Only from this risk level up.")
@click.option("--to-level", type=_LEVEL, default="critical", show_default=True, help="Only up to this risk level.")
@click.option("--cascade", "cascades", is_flag=True, help="The delegate can delegate further.")
@own_password_option
@as_option
async def create(
    session: "Session", /, from_level: str, to_level: str, own_password_stdin: bool, **options: Any
) -> None:
    """Let someone else answer reviews for you for a while, for all tasks or only some."""
    async with signed_in_api(session, own_password_stdin=own_password_stdin) as api:
        made = await api.create_delegation(from_level=RiskLevel(from_level), to_level=RiskLevel(to_level), **options)
    _print_delegation(session, made)


@delegations.command("revoke")
@click.argument("delegation_id", metavar="ID")
@as_option
async def revoke_delegation_command(session: "Session", delegation_id: str) -> None:
    """End a delegation now. Votes that were given under it stay as they are."""
    async with session.api() as api:
        _print_delegation(session, await api.revoke_delegation(delegation_id))


def _print_delegation(session: "Session", each: Delegation) -> None:
    if session.out.as_json:
        session.out.document(each)
    elif each.is_revoked:
        session.out.line(f"{each.id}: revoked")
    else:
        session.out.line(f"{each.id}: {each.delegate} answers for {each.delegator} until {local(each.ends_at)}")


# `ade approvals stats`: the figures of one account, or of all.


STATS_COLUMNS = ("policy", "waiting", "approved", "rejected", "changes", "expired", "others", "median", "p95")


@command("stats", reads=True)
@click.argument("name", required=False)
@click.option("--all", "of_all", is_flag=True, help="Of all accounts: what waits, and how approvals end and how fast.")
@click.option("--over", default="7d", show_default=True, metavar="TIME", help="With --all: the period to look back.")
@as_option
async def stats(session: "Session", name: str | None, of_all: bool, over: str) -> None:
    """Show what waits for an account, and what it has answered today (UTC); yours by default."""
    seconds = seconds_of(over)
    if not seconds:
        raise click.UsageError(f"--over {over!r} is not a duration; write 90m, 24h, or 7d.")
    if of_all and name is not None:
        raise click.UsageError("Give an account or --all, not both.")
    if of_all:
        await _show_all(session, seconds)
    else:
        await _show_one(session, None if name is None else normal_id(name))


async def _show_one(session: "Session", account: str | None) -> None:
    async with session.api() as api:
        figures = await api.get_account_approval_stats(account or await account_of(session, api))
    if session.out.as_json:
        session.out.document(figures)
        return
    last = (
        f"{figures.last_action}, {local_with_distance(figures.last_at, now=now_ms())}"
        if figures.last_at is not None
        else ""
    )
    session.out.facts(
        [
            ("account", figures.account),
            ("waiting", str(figures.pending)),
            ("approved today", str(figures.approved)),
            ("rejected today", str(figures.rejected)),
            ("takes on average", _time(figures.response_ms)),
            ("last", last),
        ]
    )


async def _show_all(session: "Session", seconds: float) -> None:
    async with session.api() as api:
        figures = await api.get_approval_stats(over=seconds)
    if session.out.as_json:
        session.out.document(figures)
        return
    now = figures.waiting
    risks = ", ".join(f"{count} {level}" for level, count in now.by_level.items() if count)
    session.out.facts(
        [
            ("waiting", f"{now.count} ({risks})" if risks else str(now.count)),
            ("for less than an hour", str(now.under_hour)),
            ("for less than a day", str(now.under_day)),
            ("for longer", str(now.over_day)),
            ("the longest", _time(now.oldest_ms)),
            ("ends within an hour", str(now.due_soon)),
            ("no one can answer", str(now.blocked)),
            ("figures since", local_with_distance(figures.since, now=figures.at)),
        ]
    )
    rows = [(each.policy, str(each.waiting), *_figures(each.ended)) for each in figures.policies]
    total = ("all", str(figures.waiting.count), *_figures(figures.ended))
    session.out.table(STATS_COLUMNS, [*rows, total] if len(rows) > 1 else rows, ("others", "p95"))


def _figures(ended: EndedApprovals) -> tuple[str, ...]:
    shown = (
        ApprovalOutcome.APPROVED,
        ApprovalOutcome.REJECTED,
        ApprovalOutcome.CHANGES_REQUESTED,
        ApprovalOutcome.EXPIRED,
    )
    others = sum(count for outcome, count in ended.outcomes.items() if outcome not in shown)
    counts = [ended.outcomes.get(outcome, 0) for outcome in shown]
    return (*map(str, counts), str(others), _time(ended.median_ms), _time(ended.p95_ms))


def _time(ms: int | None) -> str:
    return "" if ms is None else short_span(ms)


# `ade approvals amend` and `ade approvals snooze`.


@command("amend")
@click.argument("task_id", metavar="ID")
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="All arguments, as one JSON object.")
@click.option("--description", help="A new description.")
@click.option("--digest", required=True, help="The digest of what you reviewed.")
@click.option("--reason", default="", help="The reason; stored with the vote.")
@as_option
async def amend(
    session: "Session",
    /,
    task_id: str,
    pairs: tuple[str, ...],
    arguments: dict[str, Any] | None,
    description: str | None,
    digest: str,
    reason: str,
) -> None:
    """Change a task that waits for approval, and submit it again. You become an author, so others must answer."""
    if not pairs and arguments is None and description is None:
        raise click.UsageError("Say what to change: KEY=VALUE, --args or --description.")
    async with session.api() as api:
        task, gate = await gate_with_digest(api, task_id, whole=bool(pairs))
        check_digest(gate, digest)
        args = None
        if pairs or arguments is not None:
            args = await changed_arguments(session, api, task, pairs, arguments)
        after = await api.amend_approval(
            task.id, approval=gate.id, digest=gate.digest, args=args, description=description, reason=reason
        )
    print_vote(session, after)


@command("snooze")
@click.argument("task_id", metavar="ID")
@click.option("--for", "span", type=DURATION, default=3_600.0, show_default="1h", help="How long; at most 7d.")
@as_option
async def snooze(session: "Session", task_id: str, span: float) -> None:
    """Hide a task from your list for a while; you can still answer it."""
    async with session.api() as api:
        put_off = await api.snooze_approval(await find_id(api, task_id), seconds=span)
    if session.out.as_json:
        session.out.document(put_off)
    else:
        session.out.line(f"{put_off.task_id}  out of the list of {put_off.account} until {local(put_off.until)}")


@group("approvals", bare="list")
@as_option
def approvals() -> None:
    """Tasks that wait for approval: list, show, answer, start. `ade approvals` alone lists those that wait for you."""


for answer in (approve, reject, request_changes, respond, amend, snooze, batch, stats):
    approvals.add_command(answer)


@approvals.command("list", reads=True)
@click.option("--mine/--all", "mine", default=None, help="Tasks that you can answer, or all of them.")
@as_option
async def list_approvals(session: "Session", mine: bool | None) -> None:
    """List tasks that wait for approval, most urgent first. Without an account, list all of them."""
    async with session.api() as api:
        found = await me(api)
        account = session.account if found is None else found.user.id
        if mine is None:
            mine = found is not None
        items = await all_of(api, api.list_approvals, mine=mine)
    if session.out.as_json:
        session.out.items(items)
        return
    session.out.table(INBOX_HEAD, inbox_rows(items, mine=mine, now=now_ms()), INBOX_SPARE)
    if not items:
        session.out.note(f"Nothing waits for {account}." if mine else "Nothing waits for an answer.")
    else:
        session.out.note("`ade approvals show ID` shows one, `ade approvals approve ID --digest D` approves it.")


@approvals.command("show", reads=True)
@click.argument("task_id", metavar="ID")
async def show(session: "Session", task_id: str) -> None:
    """Show every field that the digest covers, the risk, the votes, and eligible voters; also earlier approvals."""
    async with session.api() as api:
        approval = await api.get_approval(await find_id(api, task_id.partition(".")[0]))
    if session.out.as_json:
        session.out.document(approval)
        return
    known = {
        "id": approval.task_id,
        "name": approval.name,
        "status": str(approval.status),
        "author": with_name(approval.author or "", approval.author_name),
        "description": approval.description or "",
    }
    defaults = compact(approval.defaults) if approval.defaults else ""
    session.out.facts([*known.items(), ("arguments", bytes(approval.args).decode()), ("defaults", defaults)])
    print_background(session.out, approval)
    print_review(session.out, approval.review, now=now_ms(), earlier=True)


@approvals.command("comment")
@click.argument("task_id", metavar="ID")
@click.argument("text")
@as_option
async def comment(session: "Session", task_id: str, text: str) -> None:
    """Comment without voting."""
    async with session.api() as api:
        print_vote(session, await api.comment_on_approval(await find_id(api, task_id), text=text))


@approvals.command("delegate")
@click.argument("task_id", metavar="ID")
@click.option("--to", "delegate", metavar="NAME", required=True, help="The delegate: an active reviewer or admin.")
@own_password_option
@as_option
async def delegate(session: "Session", task_id: str, delegate: str, own_password_stdin: bool) -> None:
    """Let someone else answer for you for this one task, until its approval expires."""
    async with signed_in_api(session, own_password_stdin=own_password_stdin) as api:
        found, gate_id = await named_gate(api, task_id)
        made = await api.delegate_approval(found, to=delegate, approval=gate_id)
    if session.out.as_json:
        session.out.document(made)
    else:
        place = f"for {made.delegator} at {found}"
        session.out.line(f"{made.id}: {made.delegate} answers {place} until {local(made.ends_at)}")


@approvals.command("revoke")
@click.argument("task_id", metavar="ID")
@click.option("--reason", required=True, help="The reason; stored with the vote.")
@as_option
async def revoke(session: "Session", task_id: str, reason: str) -> None:
    """Revoke an approval while the task is not running: approval is requested again. For approvers and operators."""
    async with session.api() as api:
        print_vote(session, await api.revoke_approval(await find_id(api, task_id), reason=reason))


@approvals.command("start")
@click.argument("task_id", metavar="ID")
@as_option
async def start(session: "Session", task_id: str) -> None:
    """Start an approved task that waits for a manual start. For its author and for operators."""
    async with session.api() as api:
        print_vote(session, await api.apply_task(await find_id(api, task_id)))


@approvals.command("dismiss")
@click.argument("task_id", metavar="ID")
@click.argument("voter")
@click.option("--reason", required=True, help="The reason; stored with the vote.")
@as_option
async def dismiss(session: "Session", task_id: str, voter: str, reason: str) -> None:
    """Dismiss a request for changes, as an admin: the task waits for approval again."""
    async with session.api() as api:
        print_vote(
            session, await api.dismiss_request(await find_id(api, task_id), voter=normal_id(voter), reason=reason)
        )


@approvals.command("roll-back")
@click.argument("task_id", metavar="ID")
@as_option
async def roll_back(session: "Session", task_id: str) -> None:
    """Enqueue the rollback of a finished task, once, however often this is called. Prints the id of that task."""
    async with session.api() as api:
        print_vote(session, await api.roll_back_task(await find_id(api, task_id)))


@approvals.command("break-glass")
@click.argument("task_id", metavar="ID")
@click.option("--reason", required=True, help="Why it cannot wait; stored with the task.")
@as_option
@password_option
async def break_glass(session: "Session", task_id: str, reason: str, password_stdin: bool) -> None:
    """Run a task without approval in an emergency. Requires the permission and your password.

    This is not an approval: others are asked to review the task afterwards.
    """
    async with session.api() as api:
        found = await find_id(api, task_id)
        password = ask_password(session, await account_of(session, api), from_stdin=password_stdin)
        print_vote(session, await api.break_glass(found, reason=reason, password=password))
