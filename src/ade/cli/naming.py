"""Task names as an app and the workers know them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ade.core.errors import UnknownName
from ade.ports import Stores

if TYPE_CHECKING:
    from ade.app.ade import Ade


async def schema_of(app: "Ade", stores: Stores, name: str) -> Mapping[str, Any] | None:
    """The JSON schema of a task's arguments; None when nobody has defined the name."""
    signature = app.signature_of(name)
    if signature is not None:
        return signature.schema()
    return next((known.schema for known in await stores.workers.definitions() if known.name == name), None)


async def known_names(app: "Ade", stores: Stores | None) -> list[str]:
    registered = set() if stores is None else {known.name for known in await stores.workers.definitions()}
    return sorted(registered | app.registry.names())


async def unknown_name(app: "Ade", stores: Stores | None, name: str) -> UnknownName:
    """The error for it, with the names that were most likely meant; without a store there are those of the app."""
    from difflib import get_close_matches  # slow to load, and only needed here

    known = await known_names(app, stores)
    nearest = get_close_matches(name, known, n=3, cutoff=0.5)
    if nearest:
        return UnknownName(f"no task is named {name[:200]!r}; did you mean {' or '.join(nearest)}?")
    if not known:
        return UnknownName(
            f"no task is named {name[:200]!r}, and no worker has told of any yet: name the app with --app, start its"
            " worker first, or add --allow-unknown"
        )
    return UnknownName(
        f"no task is named {name[:200]!r}; known are {', '.join(known)}. --allow-unknown takes it all the same"
    )
