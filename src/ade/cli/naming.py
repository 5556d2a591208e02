"""Task names as an app and the workers know them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ade.cli.pages import all_of
from ade.cli.session import Session
from ade.core.admission import is_own_step
from ade.core.errors import UnknownName

if TYPE_CHECKING:
    from ade.app.ade import Ade
    from ade.client.client import Client


def own_app(session: Session) -> "Ade | None":
    """The app that was named. A server knows what workers have told it, and nothing of an app here."""
    return session.app if session.server is None and session.app_spec is not None else None


async def schema_of(session: Session, api: "Client", name: str) -> Mapping[str, Any] | None:
    """The JSON schema of a task's arguments; None when nobody has defined the name."""
    app = own_app(session)
    signature = None if app is None else app.signature_of(name)
    if signature is not None:
        return signature.schema()
    return next((known.schema for known in await all_of(api, api.list_definitions) if known.name == name), None)


async def known_names(session: Session, api: "Client | None") -> list[str]:
    """Those that somebody may enqueue."""
    registered = set() if api is None else {known.name for known in await all_of(api, api.list_definitions)}
    app = own_app(session)
    known = registered if app is None else registered | app.registry.names()
    return sorted(name for name in known if not is_own_step(name))


async def unknown_name(session: Session, api: "Client | None", name: str) -> UnknownName:
    """The error for it, with the names that were most likely meant; without a store there are those of the app."""
    from difflib import get_close_matches  # slow to load, and only needed here

    known = await known_names(session, api)
    nearest = get_close_matches(name, known, n=3, cutoff=0.5)
    if nearest:
        return UnknownName(f"no task is named {name[:200]!r}; did you mean {' or '.join(nearest)}?")
    if not known:
        named = "" if session.server is not None else "name the app with --app, "
        return UnknownName(
            f"no task is named {name[:200]!r}, and no worker has told of any yet: {named}start its worker first, or"
            " add --allow-unknown"
        )
    return UnknownName(
        f"no task is named {name[:200]!r}; known are {', '.join(known)}. --allow-unknown takes it all the same"
    )


async def check_name(session: Session, name: str) -> None:
    """Raises UnknownName where there is no store yet that could know it: a mistake makes none."""
    if session.server is None and not session.has_store() and session.any_app.signature_of(name) is None:
        raise await unknown_name(session, None, name)
