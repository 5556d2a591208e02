"""`ade whoami`: the account that commands act for."""

from typing import TYPE_CHECKING, Any

from ade.cli.identity import acting, as_option, me
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.times import local_with_distance, now_ms
from ade.cli.tokens import token_view
from ade.cli.users import user_view

if TYPE_CHECKING:
    from ade.insight.accounts import Me


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
        _tell(session, found, where)


def _tell_nobody(session: Session, name: str) -> None:
    """Whoever can open a store may do all there, with an account or without one."""
    if session.out.as_json:
        session.out.document({"account": name, "user": None})
        return
    session.out.facts([("account", name)])
    session.out.note(f"There is no such account yet. `ade users add {name}` makes it; only accounts can vote.")


def _document(found: "Me", where: str | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"account": found.user.id, "user": user_view(found.user)}
    shown["permissions"] = sorted(found.permissions)
    shown |= {} if where is None else {"url": where}
    return shown | ({} if found.token is None else {"token": token_view(found.token)})


def _tell(session: Session, found: "Me", where: str | None) -> None:
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
