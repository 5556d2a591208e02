"""Objects of others: who may only act on his own is told that they do not exist, and the log tells of it."""

from ade.core.accounts.callers import Caller
from ade.core.accounts.refused import foreign_asked
from ade.core.errors import AdeError
from ade.core.web.ownership import is_own
from ade.governance.directory.users import load_directory
from ade.ports import Stores

_TOLD = (10, 60_000)  # how often the log tells of one account


async def require_own(
    stores: Stores, caller: Caller, author: str | None, missing: AdeError, *, operation: str, about: str
) -> None:
    """Raise `missing`, the very error of an object that does not exist, unless this one is the caller's to act on.

    `about` is where it is, for the log.
    """
    if author == caller.user.id or is_own(caller, author, await load_directory(stores)):
        return
    await tell_foreign(stores, caller.user.id, operation, about)
    raise missing


async def tell_foreign(stores: Stores, account: str, operation: str, about: str) -> None:
    """Sparingly: somebody who tries out all ids is told of ten times a minute."""
    if await stores.documents.take_rate(f"foreign-told:{account}", *_TOLD):
        return
    await stores.documents.write([], [foreign_asked(account, operation, about, now=stores.clock.now())])
