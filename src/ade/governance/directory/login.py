"""Whether somebody is who he says: nobody learns from the answer, or from its time, which names exist."""

from collections.abc import Mapping

from ade.core.accounts.errors import InvalidAccount, NotAuthenticated
from ade.core.accounts.rates import RATES, Asking, Rate
from ade.core.accounts.users import User, normal_id
from ade.governance.directory.passwords import matches
from ade.governance.directory.rates import take
from ade.governance.directory.shelves import USERS
from ade.governance.kept import Kept
from ade.ports import Stores

_NO_NAME = "?"  # what no account can be called is counted together


async def check_password(
    stores: Stores,
    name: str,
    password: str,
    rates: Mapping[Asking, Rate] = RATES,
    *,
    asking: Asking = Asking.LOGIN,
) -> Kept[User]:
    """The account, as it was when its password was compared. `asking` says as what the try counts.

    Raises NotAuthenticated and TooManyRequests."""
    try:
        account = normal_id(name)
    except InvalidAccount:
        account = _NO_NAME
    await take(stores, account, asking, rates)
    kept = await USERS.get(stores, account)
    known = None if kept is None or not kept.record.is_active else kept.record.password
    if not await matches(password, known) or kept is None:
        raise NotAuthenticated("the name or the password is wrong, or the account is deactivated")
    return kept
