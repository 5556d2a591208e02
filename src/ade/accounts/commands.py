"""The commands `ade users`, `ade tokens`, and `ade whoami`."""

from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from ade.accounts.model import Permission, Reads, Token, link_address, normal_id
from ade.accounts.views import CurrentAccount, UserView
from ade.cli.command import command, group
from ade.cli.identity import as_option, me
from ade.cli.interaction import account_to_sign_in, ask_password, own_password_option, read_password, signed_in_api
from ade.cli.output import Cell, Row, all_of
from ade.cli.parameters import DURATION, distance, local_with_distance, now_ms
from ade.server.addresses import base_url

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


USER_COLUMNS = ("account", "state", "roles", "kind", "password", "name")
_NAME = click.argument("name", metavar="NAME")
_READS = click.option(
    "--reads",
    type=click.Choice(["own", "all"]),
    help="What an agent or worker reads: its own tasks, their children, and its queues, or everything.",
)
_QUEUES = click.option(
    "--queue", "queues", multiple=True, metavar="QUEUE", help="Claim only from this queue, and read it; repeatable."
)
_TASKS = click.option("--task", "names", multiple=True, metavar="TASK", help="Claim only this task; repeatable.")
_PASSWORD_STDIN = click.option("--password-stdin", is_flag=True, help="Read the password from the first line of stdin.")


@group("users", bare="list")
def users() -> None:
    """Accounts of people and programs: list, add, change. `ade users` alone lists them."""


@users.command("list", reads=True)
async def list_users(session: "Session") -> None:
    """List all accounts, including deactivated ones."""
    async with session.api() as api:
        known = await all_of(api, api.list_users)
    if session.out.as_json:
        session.out.items(known)
        return
    session.out.table(USER_COLUMNS, [_user_row(user) for user in known], ("password", "kind"))
    if not known:
        session.out.note("No accounts. `ade users add NAME --role admin` creates the first one.")


def _user_row(user: UserView) -> Row:
    return (
        user.id,
        Cell("active", "green") if user.is_active else Cell("deactivated", "dim"),
        ", ".join(sorted(user.roles)),
        "person" if user.is_human else f"program of {user.owner}",
        "to be changed" if user.must_change_password else "yes" if user.has_password else "",
        user.display_name,
    )


@users.command("add")
@_NAME
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="Repeatable.")
@click.option("--name", "display_name", default="", help="The display name.")
@click.option("--person", default="", help="Another account of the same person; the two count as one voter.")
@click.option("--agent", "is_program", is_flag=True, help="A service account: it has tokens and never votes.")
@click.option("--owner", default="", metavar="NAME", help="The person responsible for a service account.")
@_READS
@_QUEUES
@_TASKS
@_PASSWORD_STDIN
@click.option("--no-password", is_flag=True, help="Disable sign-in with a password.")
@own_password_option
@as_option
async def add(
    session: "Session",
    /,
    name: str,
    roles: tuple[str, ...],
    is_program: bool,
    password_stdin: bool,
    no_password: bool,
    own_password_stdin: bool,
    reads: str | None,
    **fields: Any,
) -> None:
    """Create an account. Its name is permanent: it can be deactivated, but never reassigned.

    A password that another account sets must be changed by its owner before the account can vote.

    Roles: viewer, operator, reviewer, admin, agent, worker, payload-reader; any other name is a label that review rules
    can require. Agents and workers read their own tasks, their children, and their queues, unless --reads all is given.
    """
    if no_password and password_stdin:
        raise click.UsageError("--no-password and --password-stdin are mutually exclusive.")
    account, password = normal_id(name), None
    if reads is not None:
        fields["reads"] = Reads(reads)
    async with signed_in_api(session, own_password_stdin=own_password_stdin, must_exist=False) as api:
        if password_stdin or not (no_password or is_program):
            password = read_password(session, account, from_stdin=password_stdin)
        made = await api.create_user(id=account, roles=roles, is_human=not is_program, password=password, **fields)
        _print_user(session, made.record)


@users.command("change")
@_NAME
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="Replace all roles; repeatable.")
@click.option("--add-role", "more", multiple=True, metavar="ROLE", help="Add a role; repeatable.")
@click.option("--remove-role", "less", multiple=True, metavar="ROLE", help="Remove a role; repeatable.")
@click.option("--name", "display_name", help="The display name.")
@click.option("--person", help="Another account of the same person; empty for none.")
@click.option("--owner", metavar="NAME", help="The person responsible for a service account.")
@_READS
@_QUEUES
@_TASKS
@click.option("--any-queue", is_flag=True, help="Claim from any queue again.")
@click.option("--any-task", is_flag=True, help="Claim any task again.")
@own_password_option
@as_option
async def change(
    session: "Session",
    /,
    name: str,
    roles: tuple[str, ...],
    more: tuple[str, ...],
    less: tuple[str, ...],
    own_password_stdin: bool,
    reads: str | None,
    queues: tuple[str, ...],
    names: tuple[str, ...],
    any_queue: bool,
    any_task: bool,
    **fields: Any,
) -> None:
    """Change the given fields only. Changes apply to the next request of the account.

    --queue and --task replace all queues and tasks that the account is bound to.
    """
    if (queues and any_queue) or (names and any_task):
        raise click.UsageError("--any-queue excludes --queue, and --any-task excludes --task.")
    changes = {"roles": list(roles) or None, "more_roles": more, "fewer_roles": less, **fields}
    changes["reads"] = None if reads is None else Reads(reads)
    changes["queues"] = list(queues) if queues or any_queue else None
    changes["names"] = list(names) if names or any_task else None
    async with signed_in_api(session, own_password_stdin=own_password_stdin) as api:
        _print_user(session, (await api.change_user(normal_id(name), if_match=None, **changes)).record)


@users.command("password")
@_NAME
@_PASSWORD_STDIN
@click.option("--no-password", is_flag=True, help="Remove the password.")
@own_password_option
@as_option
async def password(
    session: "Session", name: str, password_stdin: bool, no_password: bool, own_password_stdin: bool
) -> None:
    """Set the password of an account. All its login sessions end; its tokens stay.

    If it is not yours, its owner must change it before the account can vote. On a server, changing your own requires
    the old one.
    """
    if session.server is not None and not no_password:
        async with session.api() as api:
            if await account_to_sign_in(session, api) == normal_id(name):
                await _change_own_password(session, api, normal_id(name), password_stdin, own_password_stdin)
                return
    async with signed_in_api(session, own_password_stdin=own_password_stdin) as api:
        account = (await api.get_user(normal_id(name))).record.id
        text = None if no_password else read_password(session, account, from_stdin=password_stdin)
        _print_user(session, await api.set_user_password(account, password=text, remove=no_password))


async def _change_own_password(
    session: "Session", api: "Client", account: str, password_stdin: bool, own_password_stdin: bool
) -> None:
    old = ask_password(session, account, from_stdin=own_password_stdin, option="--own-password-stdin")
    new = read_password(session, account, from_stdin=password_stdin)
    await api.sign_in(name=account, password=old)
    try:
        await api.change_own_password(old=old, new=new)
        _print_user(session, (await api.get_me()).user)
    finally:
        await api.sign_out()


@users.command("sign-out")
@_NAME
@as_option
async def sign_out(session: "Session", name: str) -> None:
    """End all login sessions of an account."""
    async with session.api() as api:
        gone = await api.end_user_sessions(normal_id(name))
    if session.out.as_json:
        session.out.document(gone)
    else:
        session.out.line(f"{gone.account}: {gone.ended} sessions ended")


@users.command("login-link")
@_NAME
@own_password_option
@as_option
async def login_link(session: "Session", name: str, own_password_stdin: bool) -> None:
    """Create a link to sign in once, within ten minutes. Keep it secret: anyone who has it can sign in."""
    async with signed_in_api(session, own_password_stdin=own_password_stdin) as api:
        made = await api.create_login_link(normal_id(name))
    address = link_address(_base(session), made.secret)
    if session.out.as_json:
        from ade.server.wire_format import members_of  # needed only for this document

        session.out.document({**members_of(made), "url": address})
        return
    elsewhere = "; replace the host if the server runs elsewhere" if session.server is None else ""
    session.out.line(address)
    session.out.note(f"Valid once, for {made.account}, within ten minutes{elsewhere}.")


def _base(session: "Session") -> str:
    """Return the URL of the server that takes the link: the given one, or the one that the settings would start."""
    if session.server is not None:
        return session.server.url.rstrip("/")
    http = session.settings.http
    return base_url(http.host, http.port) + http.base_path


@users.command("deactivate")
@_NAME
@as_option
async def deactivate(session: "Session", name: str) -> None:
    """Deactivate an account: its sessions end, its tokens and those it created are revoked, and its votes no longer
    count."""
    async with session.api() as api:
        _print_user(session, (await api.change_user(normal_id(name), is_active=False, if_match=None)).record)


@users.command("activate")
@_NAME
@own_password_option
@as_option
async def activate(session: "Session", name: str, own_password_stdin: bool) -> None:
    """Reactivate an account with its roles and password; revoked tokens stay revoked."""
    async with signed_in_api(session, own_password_stdin=own_password_stdin) as api:
        _print_user(session, (await api.change_user(normal_id(name), is_active=True, if_match=None)).record)


def _print_user(session: "Session", user: UserView) -> None:
    if session.out.as_json:
        session.out.document(user)
        return
    state = "active" if user.is_active else "deactivated"
    limits = ["reads its own tasks"] if user.reads is Reads.OWN else []
    limits += [f"queues {', '.join(user.queues)}"] if user.queues else []
    limits += [f"tasks {', '.join(user.names)}"] if user.names else []
    session.out.line("; ".join([f"{user.id}: {state}, {', '.join(sorted(user.roles)) or 'no roles'}", *limits]))


# `ade tokens`.


TOKEN_COLUMNS = ("token", "account", "scopes", "ends", "last used", "label")


@group("tokens", bare="list")
def tokens() -> None:
    """Access tokens of accounts: list, create, revoke. `ade tokens` alone lists them."""


@tokens.command("list", reads=True)
@click.option("--account", metavar="NAME", help="Only those of one account.")
async def list_tokens(session: "Session", account: str | None) -> None:
    """List tokens and when they were last used; revoked tokens are shown for 30 days."""
    named = None if account is None else normal_id(account)
    async with session.api() as api:
        known = await all_of(api, api.list_tokens, account=named)
    if session.out.as_json:
        session.out.items(known)
        return
    now = now_ms()
    session.out.table(TOKEN_COLUMNS, [_token_row(token, now) for token in known], ("last used", "scopes"))
    if not known:
        session.out.note("No tokens. `ade tokens create ACCOUNT` creates one.")


def _token_row(token: Token, now: int) -> Row:
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
    help="A permission of the token; repeatable. Default: all permissions of its account.",
)
@click.option("--expires", type=DURATION, default="90d", show_default=True, help="How long it is valid, at most 366d.")
@click.option("--label", default="", help="What it is for.")
@own_password_option
@as_option
async def create(
    session: "Session", account: str, scopes: tuple[str, ...], expires: float, label: str, own_password_stdin: bool
) -> None:
    """Create a token and print its secret, which is not stored and not shown again."""
    async with signed_in_api(session, own_password_stdin=own_password_stdin) as api:
        token = await api.create_token(
            account=normal_id(account),
            scopes=frozenset(Permission(scope) for scope in scopes) or None,
            seconds=expires,
            label=label,
        )
    if session.out.as_json:
        session.out.document(token)
        return
    session.out.line(token.secret)
    session.out.note(f"This is token {token.id} of {token.account}. It is not shown again.")


@tokens.command("revoke")
@click.argument("token_id", metavar="ID")
@as_option
async def revoke(session: "Session", token_id: str) -> None:
    """Revoke a token and all tokens created with it. They are rejected from now on."""
    async with session.api() as api:
        token = await api.revoke_token(token_id)
    if session.out.as_json:
        session.out.document(token)
    else:
        session.out.line(f"{token.id}: revoked, was for {token.account}")


# `ade whoami`: the account that commands act for.


@command("whoami", reads=True)
@as_option
async def whoami(session: "Session") -> None:
    """Show the account you act as and its permissions: with a server, that of your token; otherwise that of --as."""
    async with session.api() as api:
        found = await me(api)
    if session.out.as_json:
        session.out.document(_json_of(found, session.account if found is None else found.user.id))
    elif found is None:
        session.out.facts([("account", session.account)])
        session.out.note(
            f"There is no such account yet. `ade users add {session.account}` creates it; only accounts can vote."
        )
    else:
        _print_me(session, found, session.server.url if session.server is not None else "")


def _json_of(found: CurrentAccount | None, account: str) -> dict[str, object]:
    """Return the HTTP form of the account with its ID. A local store needs no account: `user` is then null."""
    if found is None:
        return {"account": account, "user": None, "permissions": []}
    return {"account": account} | {name: value for name, value in structs.asdict(found).items() if value is not None}


def _print_me(session: "Session", found: CurrentAccount, where: str) -> None:
    user, token = found.user, found.token
    session.out.facts(
        [
            ("account", user.id),
            ("name", user.display_name),
            ("state", "" if user.is_active else "deactivated"),
            ("roles", ", ".join(user.roles)),
            ("may", ", ".join(sorted(found.permissions))),
            ("program of", user.owner or ""),
            ("server", where),
            ("token", "" if token is None else token.id),
            ("token ends", "" if token is None else local_with_distance(token.expires_at, now=now_ms())),
        ]
    )
