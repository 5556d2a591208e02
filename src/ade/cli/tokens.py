"""`ade tokens`: how programs show whose they are."""

from typing import TYPE_CHECKING, Any

import click

from ade.cli.identity import as_option
from ade.cli.output import Cell, Row
from ade.cli.pages import all_of
from ade.cli.parsing import DURATION
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import distance, now_ms
from ade.core.accounts.permissions import Permission
from ade.core.accounts.tokens import Token
from ade.core.accounts.users import normal_id
from ade.insight.reasons import moment

if TYPE_CHECKING:
    from ade.insight.accounts import CreatedToken

HEAD = ("token", "account", "scopes", "ends", "last used", "label")


@group("tokens", bare="list")
def tokens() -> None:
    """Access tokens of accounts: list, create, revoke. `ade tokens` alone lists them."""


@tokens.command("list")
@click.option("--account", metavar="NAME", help="Only those of one account.")
@pass_session
def list_tokens(session: Session, account: str | None) -> None:
    """List tokens and when they were used last; those that were revoked are shown for 30 days."""
    session.look(_list(session, None if account is None else normal_id(account)))


async def _list(session: Session, account: str | None) -> None:
    async with session.api() as api:
        known = await all_of(api, api.list_tokens, account=account)
    now = now_ms()
    if session.out.as_json:
        session.out.document({"tokens": [token_view(token) for token in known]})
        return
    session.out.table(HEAD, [_row(token, now) for token in known], ("last used", "scopes"))
    if not known:
        session.out.note("No tokens. `ade tokens create ACCOUNT` makes one.")


def _row(token: Token, now: int) -> Row:
    return (
        token.id,
        token.account,
        ", ".join(sorted(token.scopes)),
        distance(token.expires_at, now=now) if token.revoked_at is None else Cell("revoked", "dim"),
        "never" if token.last_used_at is None else distance(token.last_used_at, now=now),
        token.label,
    )


@tokens.command("create")
@click.argument("account")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([str(permission) for permission in Permission]),
    help="What it may do, of what its account may do; several times. Otherwise: all of that.",
)
@click.option(
    "--expires", type=DURATION, default="90d", show_default=True, help="How long it is good for, 366d at most."
)
@click.option("--label", default="", help="What it is for.")
@as_option
@pass_session
def create(session: Session, account: str, scopes: tuple[str, ...], expires: float, label: str) -> None:
    """Make a token and print its secret, which is shown this once and kept nowhere."""
    session.run(_create(session, account, scopes, expires, label))


async def _create(session: Session, account: str, scopes: tuple[str, ...], expires: float, label: str) -> None:
    async with session.api() as api:
        token = await api.create_token(
            account=normal_id(account),
            scopes=frozenset(Permission(scope) for scope in scopes) or None,
            seconds=expires,
            label=label,
        )
    if session.out.as_json:
        session.out.document({**token_view(token), "secret": token.secret})
        return
    session.out.line(token.secret)
    session.out.note(f"This is token {token.id} of {token.account}. It is not shown again.")


@tokens.command("revoke")
@click.argument("token_id", metavar="ID")
@as_option
@pass_session
def revoke(session: Session, token_id: str) -> None:
    """Take a token back: it is refused from now on."""
    session.run(_revoke(session, token_id))


async def _revoke(session: Session, token_id: str) -> None:
    async with session.api() as api:
        token = await api.revoke_token(token_id)
    if session.out.as_json:
        session.out.document(token_view(token))
    else:
        session.out.line(f"{token.id}: revoked, was for {token.account}")


def token_view(token: "Token | CreatedToken") -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": token.id,
        "account": token.account,
        "label": token.label,
        "scopes": sorted(token.scopes),
        "created_at": moment(token.created_at),
        "expires_at": moment(token.expires_at),
    }
    later = {name: getattr(token, name, None) for name in ("last_used_at", "revoked_at")}
    return shown | {name: moment(at) for name, at in later.items() if at is not None}
