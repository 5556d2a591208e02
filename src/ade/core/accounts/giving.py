"""Who may give access: nobody gets, through the account of another, what he may not do himself."""

from msgspec import structs

from ade.core.accounts.callers import Caller
from ade.core.accounts.permissions import Permission
from ade.core.accounts.users import User
from ade.core.approvals.refusals import NotPermitted


def check_giving(caller: Caller, user: User) -> None:
    """Whether this caller may give somebody access to this account, as it is or is to be.

    What counts is what the account may do while it is active: it may be switched on later. Raises NotPermitted.
    """
    check_given(caller, user.id, structs.replace(user, is_active=True).permissions)


def check_given(caller: Caller, account: str, given: frozenset[Permission]) -> None:
    """The same for a part of what an account may do, such as a token is for. Raises NotPermitted."""
    missing = given - caller.permissions
    if missing:
        through = "" if caller.token is None else " through this token"
        raise NotPermitted(
            f"{caller.user.id} cannot give access to {account}, which may {', '.join(sorted(missing))}:"
            f" {caller.user.id} has not that permission{through}"
        )


def check_owner(caller: Caller, before: User, after: User) -> None:
    """Whether this caller may say who answers for a program. Nobody approves what his own programs do, so that whoever
    is its owner no more may vote on it: that is for who votes. Raises NotPermitted."""
    if after.owner != before.owner and Permission.VOTE not in caller.permissions:
        through = "" if caller.token is None else " through this token"
        raise NotPermitted(
            f"{caller.user.id} cannot give {after.id} another owner: {before.owner} could then approve what it does,"
            f" and {caller.user.id} may not vote{through}"
        )


def is_giving(before: User, after: User) -> bool:
    """Whether a change of an account gives it something. Votes of one person count once, so that is something too."""
    return (
        (after.is_active and not before.is_active)
        or bool(after.roles - before.roles)
        or (after.person != before.person)
        or (after.owner != before.owner)
    )
