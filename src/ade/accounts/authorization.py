"""Who may give access: nobody gets, through the account of another, what he may not do himself."""

from msgspec import structs

from ade.accounts.model import Caller, Directory, InvalidAccount, Permission, User, normal_id
from ade.errors import NotPermitted
from ade.events.model import Event


def check_grant(caller: Caller, user: User) -> None:
    """Whether this caller may give somebody access to this account, as it is or is to be.

    What counts is what the account may do while it is active: it may be switched on later. Raises NotPermitted.
    """
    check_granted(caller, user.id, structs.replace(user, is_active=True).permissions)


def check_granted(caller: Caller, account: str, given: frozenset[Permission]) -> None:
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


def is_grant(before: User, after: User) -> bool:
    """Whether a change of an account gives it something. Votes of one person count once, so that is something too."""
    return (
        (after.is_active and not before.is_active)
        or bool(after.roles - before.roles)
        or (after.person != before.person)
        or (after.owner != before.owner)
    )


# What is whose. A task is one's own if one is its author, or answers for the program that is: nothing else counts.
#
# So neither the parent of a task, nor another account of the same human, nor having edited it makes it one's own;
# whoever is to do more with the tasks of others gets the role for it.
#
# `check_access` answers OWN; then the operation loads the object and calls `check_own` of `ade.server.operations`,
# which asks here, with the very error that it raises where the object does not exist.


def is_own(caller: Caller, author: str | None, directory: Directory) -> bool:
    """Whether what this author has made is the caller's. What has no author is nobody's."""
    if not author:
        return False
    try:
        account = normal_id(author)  # however it was spelled when the task was made
    except InvalidAccount:
        return False
    if account == caller.user.id:
        return True
    known = directory.get(account)
    return known is not None and not known.is_human and known.owner == caller.user.id


# What is told when somebody was not let in, or asked for what is not his.


ACCESS_REFUSED, FOREIGN_ASKED = "access.refused", "access.foreign"


def access_refused(address: str, given: str, *, now: int) -> Event:
    """A token or a session that is none. Of the secret nothing is told: it may be a good one with a slip in it."""
    payload: dict[str, object] = {"ip": address, "given": given}
    return Event(type=ACCESS_REFUSED, at=now, payload=payload)


def foreign_access_event(account: str, operation: str, about: str, *, now: int) -> Event:
    """Somebody known asked for an object of somebody else, and was told that there is none."""
    payload: dict[str, object] = {"account": account, "operation": operation, "about": about[:200]}
    return Event(type=FOREIGN_ASKED, at=now, actor=account, payload=payload)
