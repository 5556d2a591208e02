"""In whose name something is done, and when that person last showed who he is."""

from ade.core.accounts.errors import InvalidAccount, UnknownAccount
from ade.core.accounts.permissions import Permission
from ade.core.accounts.users import normal_id
from ade.core.approvals.refusals import NotPermitted
from ade.operations.kit import Asked, Office


def acting(asked: Asked) -> str:
    """The id of the account. On a local store it may be one that does not exist. Raises InvalidAccount."""
    return normal_id(asked.author or asked.actor) if asked.caller is None else asked.caller.user.id


def voter(asked: Asked) -> str:
    """Who answers. The table of routes keeps programs away; this does it again, whichever way somebody came here.

    Raises NotPermitted.
    """
    if asked.caller is not None and not asked.caller.user.is_human:
        raise NotPermitted(f"{asked.caller.user.id} is a program, and programs never answer")
    asked.require(Permission.VOTE)
    return acting(asked)


def account_id(text: str) -> str:
    """The account that an address names. What can be no name is nobody's. Raises UnknownAccount."""
    try:
        return normal_id(text)
    except InvalidAccount:
        raise UnknownAccount(f"no account {text[:100]!r} exists", advice=UnknownAccount.usual_advice) from None


def way(asked: Asked) -> str:
    """How an answer was given, for the record."""
    return "cli" if asked.caller is None else "api"


async def confirmed_at(office: Office, asked: Asked, password: str | None) -> int | None:
    """When who acts last showed his password: now if he gives it, else in his session. None: not yet.

    A token shows whose it is, and not that its person is there. Raises NotAuthenticated and TooManyRequests.
    """
    if password is None:
        session = None if asked.caller is None else asked.caller.session
        return None if session is None else session.reauthenticated_at or None
    from ade.core.accounts.rates import Asking
    from ade.governance.directory.login import check_password
    from ade.operations.signing_in import login_rates

    asking = Asking.LOGIN if asked.caller is None else Asking.CONFIRM
    await check_password(office.stores, acting(asked), password, login_rates(office), asking=asking)
    return office.stores.clock.now()
