"""`ade users`: accounts of people and programs, and what they may do."""

from typing import TYPE_CHECKING, Any

import click

from ade.accounts.model import Permission, Token, normal_id
from ade.cli.command import command, group, pass_session
from ade.cli.identity import acting, as_option, me
from ade.cli.interaction import read_password
from ade.cli.output import Cell, Row, all_of
from ade.cli.parameters import DURATION, distance, local_with_distance, now_ms
from ade.cli.session import Session
from ade.tasks.reasons import moment

if TYPE_CHECKING:
    from ade.accounts.views import CreatedToken, CurrentAccount, UserView


USER_COLUMNS = ("account", "state", "roles", "kind", "password", "name")
_NAME = click.argument("name", metavar="NAME")
_PASSWORD_STDIN = click.option("--password-stdin", is_flag=True, help="Read the password from the first line of stdin.")


@group("users", bare="list")
def users() -> None:
    """Accounts of people and programs: list, add, change. `ade users` alone lists them."""


@users.command("list")
@pass_session
def list_users(session: Session) -> None:
    """List all accounts, the deactivated ones too."""
    session.look(_list(session))


async def _list(session: Session) -> None:
    async with session.api() as api:
        known = await all_of(api, api.list_users)
    if session.out.as_json:
        session.out.document({"users": [user_view(user) for user in known]})
        return
    session.out.table(USER_COLUMNS, [_row(user) for user in known], ("password", "kind"))
    if not known:
        session.out.note("No accounts. `ade users add NAME --role admin` makes the first one.")


def _row(user: "UserView") -> Row:
    return (
        user.id,
        Cell("active", "green") if user.is_active else Cell("deactivated", "dim"),
        ", ".join(sorted(user.roles)),
        "person" if user.is_human else f"program of {user.owner}",
        "yes" if user.has_password else "",
        user.display_name,
    )


@users.command("add")
@_NAME
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="May be given several times.")
@click.option("--name", "display_name", default="", help="What people call it.")
@click.option("--person", default="", help="Another account of the same human: the two count once.")
@click.option("--agent", "is_program", is_flag=True, help="A program, which never votes and has tokens.")
@click.option("--owner", default="", metavar="NAME", help="Of a program: the person who answers for it.")
@_PASSWORD_STDIN
@click.option("--no-password", is_flag=True, help="Nobody can sign in with a password.")
@as_option
@pass_session
def add(session: Session, /, name: str, **given: Any) -> None:
    """Make an account. Its name is for good: it can be deactivated, and never belongs to anybody else.

    Roles: viewer, operator, reviewer, admin, agent, worker; any other one is a mark that review rules can ask for.
    """
    session.run(_add(session, name, **given))


async def _add(
    session: Session,
    name: str,
    *,
    roles: tuple[str, ...],
    is_program: bool,
    password_stdin: bool,
    no_password: bool,
    **fields: Any,
) -> None:
    if no_password and password_stdin:
        raise click.UsageError("--no-password and --password-stdin exclude each other.")
    account, password = normal_id(name), None
    if password_stdin or not (no_password or is_program):
        password = read_password(session, account, from_stdin=password_stdin)
    async with session.api(must_exist=False) as api:
        made = await api.create_user(id=account, roles=roles, is_human=not is_program, password=password, **fields)
        _tell(session, made.record)


@users.command("change")
@_NAME
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="All its roles from now on; several times.")
@click.option("--add-role", "more", multiple=True, metavar="ROLE", help="One more role.")
@click.option("--remove-role", "less", multiple=True, metavar="ROLE", help="One role less.")
@click.option("--name", "display_name", help="What people call it.")
@click.option("--person", help="Another account of the same human; empty: none.")
@click.option("--owner", metavar="NAME", help="Of a program: the person who answers for it.")
@as_option
@pass_session
def change(session: Session, /, name: str, **given: Any) -> None:
    """Change what is given, and nothing else. It holds from the next thing the account does."""
    session.run(_change(session, name, **given))


async def _change(
    session: Session,
    name: str,
    *,
    roles: tuple[str, ...],
    more: tuple[str, ...],
    less: tuple[str, ...],
    **fields: Any,
) -> None:
    wanted = {"roles": list(roles) or None, "more_roles": more, "fewer_roles": less, **fields}
    async with session.api() as api:
        _tell(session, (await api.change_user(normal_id(name), if_match=None, **wanted)).record)


@users.command("password")
@_NAME
@_PASSWORD_STDIN
@click.option("--no-password", is_flag=True, help="Take the password away.")
@as_option
@pass_session
def password(session: Session, name: str, password_stdin: bool, no_password: bool) -> None:
    """Give an account another password. All its login sessions end; its tokens stay."""
    session.run(_password(session, name, password_stdin, no_password))


async def _password(session: Session, name: str, password_stdin: bool, no_password: bool) -> None:
    async with session.api() as api:
        account = (await api.get_user(normal_id(name))).record.id
        text = None if no_password else read_password(session, account, from_stdin=password_stdin)
        _tell(session, await api.set_user_password(account, password=text, remove=no_password))


@users.command("sign-out")
@_NAME
@as_option
@pass_session
def sign_out(session: Session, name: str) -> None:
    """End all login sessions of an account."""
    session.run(_sign_out(session, name))


async def _sign_out(session: Session, name: str) -> None:
    async with session.api() as api:
        gone = await api.end_user_sessions(normal_id(name))
    if session.out.as_json:
        session.out.document({"account": gone.account, "ended": gone.ended})
    else:
        session.out.line(f"{gone.account}: {gone.ended} sessions ended")


@users.command("login-link")
@_NAME
@as_option
@pass_session
def login_link(session: Session, name: str) -> None:
    """Make a link that lets a person sign in once, within ten minutes. Whoever has it is let in: show it to nobody."""
    session.run(_login_link(session, name))


async def _login_link(session: Session, name: str) -> None:
    from ade.accounts.model import link_address  # only here is an address made

    async with session.api() as api:
        made = await api.create_login_link(normal_id(name))
    address = link_address(_base(session), made.secret)
    if session.out.as_json:
        shown = {"account": made.account, "url": address, "secret": made.secret}
        session.out.document({**shown, "expires_at": moment(made.expires_at)})
        return
    elsewhere = "; for a server elsewhere change the host" if session.server is None else ""
    session.out.line(address)
    session.out.note(f"Good once, for {made.account}, within ten minutes{elsewhere}.")


def _base(session: Session) -> str:
    """Where the server is that takes the link: the one that was named, or the one that the settings would start."""
    if session.server is not None:
        return session.server.url.rstrip("/")
    from ade.server.addresses import base_url

    http = session.settings.http
    return base_url(http.host, http.port)


@users.command("deactivate")
@_NAME
@as_option
@pass_session
def deactivate(session: Session, name: str) -> None:
    """Switch an account off: it can do nothing, its sessions end, its tokens are revoked, its votes count no more."""
    session.run(_activate(session, name, is_active=False))


@users.command("activate")
@_NAME
@as_option
@pass_session
def activate(session: Session, name: str) -> None:
    """Switch an account on again, with its roles and its password; revoked tokens stay revoked."""
    session.run(_activate(session, name, is_active=True))


async def _activate(session: Session, name: str, *, is_active: bool) -> None:
    async with session.api() as api:
        _tell(session, (await api.change_user(normal_id(name), is_active=is_active, if_match=None)).record)


def _tell(session: Session, user: "UserView") -> None:
    if session.out.as_json:
        session.out.document(user_view(user))
        return
    state = "active" if user.is_active else "deactivated"
    session.out.line(f"{user.id}: {state}, {', '.join(sorted(user.roles)) or 'no roles'}")


def user_view(user: "UserView") -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": user.id,
        "display_name": user.display_name,
        "roles": sorted(user.roles),
        "permissions": sorted(user.permissions),
        "is_active": user.is_active,
        "is_human": user.is_human,
        "has_password": user.has_password,
        "created_at": moment(user.created_at),
        "updated_at": moment(user.updated_at),
    }
    return shown | {name: value for name in ("person", "owner") if (value := getattr(user, name))}


# `ade tokens`: how programs show whose they are.


TOKEN_COLUMNS = ("token", "account", "scopes", "ends", "last used", "label")


@group("tokens", bare="list")
def tokens() -> None:
    """Access tokens of accounts: list, create, revoke. `ade tokens` alone lists them."""


@tokens.command("list")
@click.option("--account", metavar="NAME", help="Only those of one account.")
@pass_session
def list_tokens(session: Session, account: str | None) -> None:
    """List tokens and when they were used last; those that were revoked are shown for 30 days."""
    session.look(_list_tokens(session, None if account is None else normal_id(account)))


async def _list_tokens(session: Session, account: str | None) -> None:
    async with session.api() as api:
        known = await all_of(api, api.list_tokens, account=account)
    now = now_ms()
    if session.out.as_json:
        session.out.document({"tokens": [token_view(token) for token in known]})
        return
    session.out.table(TOKEN_COLUMNS, [_row_tokens(token, now) for token in known], ("last used", "scopes"))
    if not known:
        session.out.note("No tokens. `ade tokens create ACCOUNT` makes one.")


def _row_tokens(token: Token, now: int) -> Row:
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


# `ade whoami`: the account that commands act for.


@command("whoami")
@as_option
@pass_session
def whoami(session: Session) -> None:
    """Show the account you act for and what it may do: at a server that of your token, else as --as says."""
    session.look(_whoami(session))


async def _whoami(session: Session) -> None:
    async with session.api() as api:
        found = await me(api)
    where = session.server.url if session.server is not None else None
    if found is None:
        _tell_nobody(session, acting(session))
    elif session.out.as_json:
        session.out.document(_document(found, where))
    else:
        _tell_whoami(session, found, where)


def _tell_nobody(session: Session, name: str) -> None:
    """Whoever can open a store may do all there, with an account or without one."""
    if session.out.as_json:
        session.out.document({"account": name, "user": None})
        return
    session.out.facts([("account", name)])
    session.out.note(f"There is no such account yet. `ade users add {name}` makes it; only accounts can vote.")


def _document(found: "CurrentAccount", where: str | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"account": found.user.id, "user": user_view(found.user)}
    shown["permissions"] = sorted(found.permissions)
    shown |= {} if where is None else {"url": where}
    return shown | ({} if found.token is None else {"token": token_view(found.token)})


def _tell_whoami(session: Session, found: "CurrentAccount", where: str | None) -> None:
    user, token = found.user, found.token
    session.out.facts(
        [
            ("account", user.id),
            ("name", user.display_name),
            ("state", "" if user.is_active else "deactivated"),
            ("roles", ", ".join(user.roles)),
            ("may", ", ".join(sorted(found.permissions))),
            ("program of", user.owner or ""),
            ("server", where or ""),
            ("token", "" if token is None else token.id),
            ("token ends", "" if token is None else local_with_distance(token.expires_at, now=now_ms())),
        ]
    )
