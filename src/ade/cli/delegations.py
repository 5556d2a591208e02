"""`ade delegations`: who answers for whom."""

from datetime import datetime
from typing import Any

import click

from ade.cli.identity import as_option
from ade.cli.output import Cell, Row
from ade.cli.pages import all_of
from ade.cli.parsing import MOMENT
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import local, now_ms, seconds_of
from ade.core.accounts.users import normal_id
from ade.core.approvals.delegations import Delegation
from ade.core.approvals.risk import RiskLevel
from ade.governance.delegations import conditions_of
from ade.insight.reasons import moment

HEAD = ("delegation", "from", "to", "state", "starts", "ends", "only for")
_LEVEL = click.Choice([str(level) for level in RiskLevel])


class Ahead(click.ParamType[float | datetime]):
    """A moment to come: so long from a start, or a date and time."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | datetime:
        seconds = seconds_of(value) if isinstance(value, str) else None
        return MOMENT.convert(value, param, ctx) if seconds is None else seconds


AHEAD = Ahead()


@group("delegations", bare="list")
def delegations() -> None:
    """Who lets whom answer reviews in his place. `ade delegations` alone lists them."""


@delegations.command("list")
@click.option("--account", metavar="NAME", help="Only those that one account has given or was given.")
@pass_session
def list_delegations(session: Session, account: str | None) -> None:
    """List delegations; those that are over are shown for 90 days."""
    session.look(_list(session, None if account is None else normal_id(account)))


async def _list(session: Session, account: str | None) -> None:
    async with session.api() as api:
        known = await all_of(api, api.list_delegations, account=account)
    now = now_ms()
    if session.out.as_json:
        session.out.document({"delegations": [delegation_view(each, now) for each in known]})
        return
    session.out.table(HEAD, [_row(each, now) for each in known], ("starts", "state"))
    if not known:
        session.out.note("No delegations. `ade delegations create --to NAME --ends 14d` makes one.")


def _row(each: Delegation, now: int) -> Row:
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
    "--from", "delegator", metavar="NAME", help="Whose place it is; otherwise yours. An admin may name others."
)
@click.option("--to", "delegate", metavar="NAME", required=True, help="Who answers: an active reviewer or admin.")
@click.option("--starts", type=AHEAD, default="0", help="A date and time, or how long from now; otherwise now.")
@click.option("--ends", type=AHEAD, required=True, help="A date and time, or how long after the start; 90d at most.")
@click.option("--name", "names", multiple=True, help="Only for tasks of this name; `*` stands for anything.")
@click.option("--tag", "tags", multiple=True, help="Only for tasks with one of these tags.")
@click.option("--resource-type", "resource_types", multiple=True, help="Only for tasks with such resources.")
@click.option("--from-level", type=_LEVEL, default="low", show_default=True, help="Only from this risk on.")
@click.option("--to-level", type=_LEVEL, default="critical", show_default=True, help="Only up to this risk.")
@click.option("--cascade", "cascades", is_flag=True, help="Whoever gets it may pass it on.")
@as_option
@pass_session
def create(session: Session, /, **given: Any) -> None:
    """Let somebody answer in your place for a while, for everything or for some tasks only."""
    session.run(_create(session, **given))


async def _create(session: Session, *, from_level: str, to_level: str, **given: Any) -> None:
    async with session.api() as api:
        made = await api.create_delegation(from_level=RiskLevel(from_level), to_level=RiskLevel(to_level), **given)
    _tell(session, made)


@delegations.command("revoke")
@click.argument("delegation_id", metavar="ID")
@as_option
@pass_session
def revoke(session: Session, delegation_id: str) -> None:
    """End a delegation now. Votes that were given under it stay as they are."""
    session.run(_revoke(session, delegation_id))


async def _revoke(session: Session, delegation_id: str) -> None:
    async with session.api() as api:
        _tell(session, await api.revoke_delegation(delegation_id))


def _tell(session: Session, each: Delegation) -> None:
    if session.out.as_json:
        session.out.document(delegation_view(each, now_ms()))
    elif each.is_revoked:
        session.out.line(f"{each.id}: revoked")
    else:
        session.out.line(f"{each.id}: {each.delegate} answers for {each.delegator} until {local(each.ends_at)}")


def delegation_view(each: Delegation, now: int) -> dict[str, Any]:
    return {
        "id": each.id,
        "delegator": each.delegator,
        "delegate": each.delegate,
        "state": _state(each, now),
        "starts_at": moment(each.starts_at),
        "ends_at": moment(each.ends_at),
        "cascades": each.cascades,
        **conditions_of(each),
    }
