"""Authorization: who can grant access, which tokens are valid, which objects belong to a caller, rejected access,
bindings, and rate limits.

A caller cannot gain, through another account, a permission that it lacks itself.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum, auto

from msgspec import structs

from ade.accounts.model import (
    LONGEST_LABEL,
    MAX_TOKEN_MS,
    READING_ROLES,
    Caller,
    Directory,
    InvalidAccount,
    InvalidToken,
    Permission,
    Reads,
    Token,
    User,
    normal_id,
)
from ade.approvals.errors import PasswordChangeNeeded, ReauthenticationNeeded
from ade.errors import NotPermitted
from ade.events.model import Event


def check_grant(caller: Caller, user: User) -> None:
    """Raise NotPermitted unless this caller can grant access to this account, as it is or will be.

    A deactivated account counts with the permissions it has when active: it can be activated later.
    """
    check_granted(caller, user.id, structs.replace(user, is_active=True).permissions)


def check_granted(caller: Caller, account: str, granted: frozenset[Permission]) -> None:
    """The same for a part of an account's permissions, such as the scopes of a token. Raises NotPermitted."""
    missing = granted - caller.permissions
    if missing:
        through = "" if caller.token is None else " through this token"
        raise NotPermitted(
            f"{caller.user.id} cannot give access to {account}, which may {', '.join(sorted(missing))}:"
            f" {caller.user.id} does not have that permission{through}"
        )


def check_owner(caller: Caller, before: User, after: User) -> None:
    """Raise NotPermitted unless this caller can change the owner of a service account.

    Owners cannot approve what their service accounts do, but former owners can, so this requires the vote permission.
    """
    if after.owner != before.owner and Permission.VOTE not in caller.permissions:
        through = "" if caller.token is None else " through this token"
        raise NotPermitted(
            f"{caller.user.id} cannot give {after.id} another owner: {before.owner} could then approve what it does,"
            f" and {caller.user.id} does not have permission to vote{through}"
        )


def check_token(token: Token, user: User, creator: Caller | None = None) -> None:
    """Raise InvalidToken for a token without permissions, or one that outranks or outlives its account or creator."""
    if not token.scopes:
        raise InvalidToken(f"{user.id} has no permission that a token could have; give it a role first")
    beyond = token.scopes - user.permissions
    if beyond:
        raise InvalidToken(
            f"{user.id} does not have the permission {', '.join(sorted(beyond))}, so its tokens cannot have it"
        )
    if creator is not None and (more := token.scopes - creator.permissions):
        raise InvalidToken(f"{creator.user.id} does not have the permission {', '.join(sorted(more))} to give it away")
    if not token.created_at < token.expires_at <= token.created_at + MAX_TOKEN_MS:
        raise InvalidToken("a token must expire in the future, at most 366 days from now")
    if creator is not None and creator.token is not None and token.expires_at > creator.token.expires_at:
        raise InvalidToken("a token cannot outlive the token that creates it; choose an earlier end")
    if len(token.label) > LONGEST_LABEL or not token.label.isprintable():
        raise InvalidToken(f"a label has at most {LONGEST_LABEL} printable characters")


def check_fresh_session(caller: Caller, *, now: int, within_ms: int) -> None:
    """Raise ReauthenticationNeeded unless the caller has recently given their password in a login session.

    Required to act on the access of others, to create tokens, to delegate votes, and to change what people are notified
    of: a stolen token or session must not become a new password, role, or token, and must not go unnoticed. Raises
    PasswordChangeNeeded if another account knows the password. Without authentication (`http.auth = "off"`) there is
    nothing to steal, and the caller cannot give access to accounts that vote.
    """
    if caller.token is not None and not caller.token.id:
        return
    user, session = caller.user, caller.session
    at = 0 if session is None or user.password is None else session.reauthenticated_at
    if not at or not now - within_ms <= at <= now:
        instead = "" if session is not None else ", and an access token is not enough"
        first = "" if user.password is not None else f"; {user.id} has no password, so set one first"
        raise ReauthenticationNeeded(
            f"this requires a sign-in with a password within the last {within_ms / 60_000:g} minutes{instead}{first}",
            advice="`ade` asks for your password, or takes it with --own-password-stdin; a browser signs in again",
        )
    if user.must_change_password:
        raise password_change_needed(user.id, user.password_set_by)


def password_change_needed(account: str, set_by: str) -> PasswordChangeNeeded:
    """Return the error for an account whose password another account has set."""
    return PasswordChangeNeeded(
        f"{set_by} has set the password of {account}, or created the link to set it, and so could act as {account};"
        " change the password first",
        advice=PasswordChangeNeeded.usual_advice,
    )


def changes_access(before: User, after: User) -> bool:
    """Whether a change affects the permissions of an account, or its owner. Deactivation is left out: it can be
    urgent, and grants no access."""
    return is_grant(before, after) or after.roles != before.roles or after.reads != before.reads


def is_grant(before: User, after: User) -> bool:
    """Whether a change gives an account something. That includes its person, because votes of one person count once."""
    return (
        (after.is_active and not before.is_active)
        or bool(after.roles - before.roles)
        or (after.person != before.person)
        or (after.owner != before.owner)
        or (after.reads is Reads.ALL and before.reads is not Reads.ALL)
        or (after.queues, after.names) != (before.queues, before.names)
    )


def reads_as_before(user: User) -> bool:
    """Whether a program reads everything although its roles do not: by choice, or since before read limits."""
    is_program = not user.is_human and Permission.READ in user.permissions
    return is_program and user.reads is Reads.ALL and READING_ROLES.isdisjoint(user.roles)


# Ownership. A task belongs to its author, and to the owner of the service account that is its author.
#
# The parent of a task, another account of the same human, or an edit do not count; acting on the tasks of others
# requires a role.
#
# If `check_access` returns OWN, the operation loads the object and calls `check_own` of `ade.server.context`. That
# calls `is_own`, and raises the same error as for an object that does not exist.


def is_own(caller: Caller, author: str | None, directory: Directory) -> bool:
    """Whether objects of this author belong to the caller. Objects without an author belong to no one."""
    if not author:
        return False
    try:
        account = normal_id(author)  # in whatever spelling it was stored
    except InvalidAccount:
        return False
    if account == caller.user.id:
        return True
    known = directory.get(account)
    return known is not None and not known.is_human and known.owner == caller.user.id


# Events of rejected access.


ACCESS_REFUSED, FOREIGN_ASKED = "access.refused", "access.foreign"


def access_refused(address: str, granted: str, *, now: int) -> Event:
    """Return the event of an invalid token or session. It contains nothing of the secret, which might be a valid one
    with a typo."""
    payload: dict[str, object] = {"ip": address, "given": granted}
    return Event(type=ACCESS_REFUSED, at=now, payload=payload)


def foreign_access_event(account: str, operation: str, about: str, *, now: int) -> Event:
    """Return the event of a caller that requested another account's object and was told that it does not exist."""
    payload: dict[str, object] = {"account": account, "operation": operation, "about": about[:200]}
    return Event(type=FOREIGN_ASKED, at=now, actor=account, payload=payload)


# Bindings of worker accounts.


_MOST_BINDINGS, _LONGEST_BINDING = 100, 200


def normal_binding(what: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return queues or task names that an account is bound to, sorted and each once. Raises InvalidAccount."""
    bound = tuple(sorted(set(values)))
    if len(bound) > _MOST_BINDINGS:
        raise InvalidAccount(f"an account is bound to at most {_MOST_BINDINGS} {what}, not {len(bound)}")
    for value in bound:
        if not 1 <= len(value) <= _LONGEST_BINDING or not value.isprintable():
            raise InvalidAccount(
                f"{value[:60]!r} is not one of the {what} that an account can be bound to: use 1 to"
                f" {_LONGEST_BINDING} printable characters"
            )
    return bound


# Rate limits per account, by class of request.


class RateClass(StrEnum):
    """Classes of requests that are counted separately."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    READ = auto()
    WRITE = auto()
    VOTE = auto()
    LOGIN = auto()
    CONFIRM = auto()  # password confirmation: failed sign-ins from outside must not block it


Rate = tuple[int, int]  # number of requests, and period in milliseconds

RATES: Mapping[RateClass, Rate] = {
    RateClass.READ: (6_000, 60_000),
    RateClass.WRITE: (3_000, 60_000),
    RateClass.VOTE: (60, 60_000),
    RateClass.LOGIN: (10, 60_000),
    RateClass.CONFIRM: (10, 60_000),
}
