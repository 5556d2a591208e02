"""`ade approvals stats`: how one account, or everybody, deals with approvals."""

import click

from ade.cli.identity import account_of, as_option
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import local_with_distance, now_ms, seconds_of, short_span
from ade.cli.views import view
from ade.core.accounts.users import normal_id
from ade.insight.approval_stats import ApprovalStats, Ended, Outcome

HEAD = ("policy", "waiting", "approved", "rejected", "changes", "expired", "others", "median", "p95")


@command("stats")
@click.argument("name", required=False)
@click.option("--all", "of_all", is_flag=True, help="Of everybody: what waits, how approvals end, and how fast.")
@click.option("--over", default="7d", show_default=True, metavar="TIME", help="With --all: how far to look back.")
@as_option
@pass_session
def stats(session: Session, name: str | None, of_all: bool, over: str) -> None:
    """Show what waits for an account, and what it has answered today (UTC); otherwise for you."""
    seconds = seconds_of(over)
    if not seconds:
        raise click.UsageError(f"--over {over!r} is no length of time; write 90m, 24h or 7d.")
    if of_all and name is not None:
        raise click.UsageError("Give an account or --all, not both.")
    if of_all:
        session.look(_of_all(session, seconds))
    else:
        session.look(_of_one(session, None if name is None else normal_id(name)))


async def _of_one(session: Session, account: str | None) -> None:
    async with session.api() as api:
        seen = await api.get_account_approval_stats(account or await account_of(session, api))
    if session.out.as_json:
        session.out.document(view(seen))
        return
    last = f"{seen.last_action}, {local_with_distance(seen.last_at, now=now_ms())}" if seen.last_at is not None else ""
    session.out.facts(
        [
            ("account", seen.account),
            ("waiting", str(seen.pending)),
            ("approved today", str(seen.approved)),
            ("rejected today", str(seen.rejected)),
            ("takes on average", _time(seen.response_ms)),
            ("last", last),
        ]
    )


async def _of_all(session: Session, seconds: float) -> None:
    async with session.api() as api:
        seen = await api.get_approval_stats(over=seconds)
    if session.out.as_json:
        session.out.document(view(seen))
        return
    now = seen.waiting
    risks = ", ".join(f"{count} {level}" for level, count in now.by_level.items() if count)
    session.out.facts(
        [
            ("waiting", f"{now.count} ({risks})" if risks else str(now.count)),
            ("for less than an hour", str(now.under_hour)),
            ("for less than a day", str(now.under_day)),
            ("for longer", str(now.over_day)),
            ("the longest", _time(now.oldest_ms)),
            ("ends within an hour", str(now.due_soon)),
            ("nobody could answer", str(now.blocked)),
            ("figures since", local_with_distance(seen.since, now=seen.at)),
        ]
    )
    rows = [(each.policy, str(each.waiting), *_figures(each.ended)) for each in seen.policies]
    session.out.table(HEAD, [*rows, *_sum(seen)] if len(rows) > 1 else rows, ("others", "p95"))


def _sum(seen: ApprovalStats) -> list[tuple[str, ...]]:
    return [("all", str(seen.waiting.count), *_figures(seen.ended))]


def _figures(ended: Ended) -> tuple[str, ...]:
    shown = (Outcome.APPROVED, Outcome.REJECTED, Outcome.CHANGES_REQUESTED, Outcome.EXPIRED)
    others = sum(count for outcome, count in ended.outcomes.items() if outcome not in shown)
    counts = [ended.outcomes.get(outcome, 0) for outcome in shown]
    return (*map(str, counts), str(others), _time(ended.median_ms), _time(ended.p95_ms))


def _time(ms: int | None) -> str:
    return "" if ms is None else short_span(ms)
