"""Accounts in the store: create, change, and deactivate them, with password hashes, rate limits, and revocation.

Accounts are never deleted, so that no name gets a second owner.
"""

import hashlib
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from msgspec import UNSET, Struct, UnsetType, structs

from ade.accounts.authorization import RATES, Rate, RateClass, normal_binding
from ade.accounts.model import (
    PASSWORD_CHANGED,
    PASSWORD_SET,
    READING_ROLES,
    ROLES_CHANGED,
    SESSION_ENDED,
    TOKEN_REVOKED,
    USER_ADDED,
    USER_CHANGED,
    AccountExists,
    Directory,
    InvalidAccount,
    LastAdmin,
    LoginLink,
    LoginSession,
    Permission,
    Reads,
    Token,
    TooManyRequests,
    UnknownAccount,
    User,
    check_user,
    directory_of,
    normal_id,
    normal_roles,
)
from ade.accounts.passwords import USUAL, HashCost, check_strength, hashed
from ade.errors import NotPermitted, StaleWrite
from ade.events.model import Event, record_digest
from ade.stores.ports import Stores
from ade.stores.repository import Repository, StoredRecord, decided
from ade.stores.resource_ports import DocumentWrite

# Rate limits.


async def take(stores: Stores, account: str, asking: RateClass, rates: Mapping[RateClass, Rate] = RATES) -> None:
    """Count one request. Raises TooManyRequests, and then the request is not counted."""
    count, period_ms = rates[asking]
    wait_ms = await stores.documents.take_rate(f"{asking}:{account}", count, period_ms)
    if wait_ms:
        seconds = wait_ms / 1000
        raise TooManyRequests(
            f"{account} may do this {count} times in {period_ms // 1000} s ({asking}); try again in {seconds:.1f} s",
            retry_after=seconds,
        )


# Repositories. Tokens, sessions, and links are stored under the hash of their secret.


USERS = Repository("user", User)
TOKENS = Repository("token", Token, lambda token: token.kept_until)
SESSIONS = Repository("session", LoginSession, lambda session: session.ends_at)
LINKS = Repository("login_link", LoginLink, lambda link: link.expires_at)


# Revocation: the writes and events that end sessions and revoke tokens. Links end with sessions.


class AccessRevocation(NamedTuple):
    """Writes and events to store together with the change that causes them."""

    writes: Sequence[DocumentWrite] = ()
    events: Sequence[Event] = ()
    sessions: int = 0  # how many sessions end


async def of_account(
    stores: Stores, account: str, reason: str, *, actor: str | None = None, tokens: bool = False
) -> AccessRevocation:
    """Return the revocation of all sessions and login links of an account, and if requested of its tokens and of those
    that it created."""
    now = stores.clock.now()
    sessions = [stored.record for stored in (await SESSIONS.all(stores)).values() if stored.record.account == account]
    links = [
        LINKS.remove(each) for each, stored in (await LINKS.all(stores)).items() if stored.record.account == account
    ]
    ended = of_sessions(sessions, account, reason, now=now, actor=actor)
    ending = ended._replace(writes=[*ended.writes, *links])
    if not tokens:
        return ending
    known = await TOKENS.all(stores)
    own = {each.record.id for each in known.values() if account in (each.record.account, each.record.created_by)}
    ended_tokens = of_tokens(known, own, reason, now=now, actor=actor)
    return AccessRevocation(
        [*ending.writes, *ended_tokens.writes], [*ending.events, *ended_tokens.events], ending.sessions
    )


def of_sessions(
    sessions: Sequence[LoginSession], account: str, reason: str, *, now: int, actor: str | None
) -> AccessRevocation:
    """Return the revocation of these sessions of an account."""
    if not sessions:
        return AccessRevocation()
    payload: dict[str, object] = {
        "account": account,
        "sessions": [session.short_id for session in sessions],
        "reason": reason,
    }
    event = Event(type=SESSION_ENDED, at=now, actor=actor, payload=payload)
    return AccessRevocation([SESSIONS.remove(session.id) for session in sessions], [event], len(sessions))


def of_tokens(
    known: Mapping[str, StoredRecord[Token]], ids: Set[str], reason: str, *, now: int, actor: str | None
) -> AccessRevocation:
    """Return the revocation of the tokens with these IDs, and of all tokens that were created with them."""
    ended = set(ids)
    while more := {each.record.id for each in known.values() if each.record.parent in ended} - ended:
        ended |= more
    writes, events = [], []
    for found, stored in known.items():
        token = stored.record
        if token.id not in ended or not token.is_good(now):
            continue
        why = reason if token.id in ids else f"created with a token that ended: {reason}"
        payload: dict[str, object] = {"account": token.account, "token": token.id, "reason": why}
        writes.append(TOKENS.put(found, structs.replace(token, revoked_at=now), seen=stored.version))
        events.append(Event(type=TOKEN_REVOKED, at=now, actor=actor, payload=payload))
    return AccessRevocation(writes, events)


def with_login(payload: dict[str, object], login: str) -> dict[str, object]:
    """Return the payload with the login name of the person who ran a command on the store itself, whatever account
    they named."""
    return {**payload, "login": login} if login else payload


class UserChanges(Struct, frozen=True, kw_only=True):
    """Changes of an account; all other fields stay as they are."""

    display_name: str | UnsetType = UNSET
    roles: frozenset[str] | UnsetType = UNSET  # replaces all roles
    more_roles: frozenset[str] = frozenset()
    fewer_roles: frozenset[str] = frozenset()
    person: str | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    is_active: bool | UnsetType = UNSET
    reads: Reads | UnsetType = UNSET
    queues: tuple[str, ...] | UnsetType = UNSET  # replaces all of them; empty: any queue
    names: tuple[str, ...] | UnsetType = UNSET


async def add_user(
    stores: Stores,
    user: User,
    *,
    password: str | None = None,
    reads: Reads = Reads.OWN,
    actor: str | None = None,
    login: str = "",
    cost: HashCost = USUAL,
) -> User:
    """Create an account. If another account is the actor, the password must be changed before the new one votes.
    `reads` counts if none of its roles reads everything.

    Raises InvalidAccount, WeakPassword, AccountExists, and UnknownAccount for an owner that does not exist.
    """
    now = stores.clock.now()
    new = structs.replace(
        user,
        id=normal_id(user.id),
        roles=normal_roles(user.roles),
        person=user.person and normal_id(user.person),
        owner=user.owner and normal_id(user.owner),
        reads=reads,
        queues=normal_binding("queues", user.queues),
        names=normal_binding("task names", user.names),
        created_at=now,
        updated_at=now,
    )
    new = _with_password(new, await _hash_of(password, cost), actor, now)
    check_user(new)
    await _check_owner(stores, new)

    async def step() -> User:
        linked, moved = await _linked(stores, new)
        payload: dict[str, object] = {"account": new.id, "roles": sorted(new.roles), "is_human": new.is_human}
        payload |= {name: value for name in ("owner", "person") if (value := getattr(linked, name))}
        payload |= {} if not READING_ROLES.isdisjoint(linked.roles) else _access(linked)
        payload["digest"] = record_digest(linked)
        event = Event(type=USER_ADDED, at=now, actor=actor, payload=with_login(payload, login))
        writes, events = _moves(moved, linked.person, now=now, actor=actor, login=login)
        try:
            await stores.documents.write([USERS.put(new.id, linked, seen=0), *writes], [event, *events])
        except StaleWrite:
            if await USERS.get(stores, new.id) is None:
                raise  # an account that is linked to it has changed
            raise AccountExists(
                f"account {new.id} already exists, perhaps deactivated; names are never reassigned"
            ) from None
        return linked

    return await decided(step)


async def get_user(stores: Stores, account: str) -> User:
    """Return an account. Raises UnknownAccount."""
    return (await find(stores, account)).record


async def list_users(stores: Stores) -> list[User]:
    """List all accounts, including deactivated ones."""
    return [stored.record for stored in (await USERS.all(stores)).values()]


async def load_directory(stores: Stores) -> Directory:
    """Load all accounts as they are now, in one read."""
    return directory_of(await list_users(stores))


async def find(stores: Stores, account: str) -> StoredRecord[User]:
    """Return the stored account under any spelling of its name. Raises UnknownAccount."""
    stored = await USERS.get(stores, normal_id(account))
    if stored is None:
        raise UnknownAccount(f"no account {account[:100]!r} exists", advice=UnknownAccount.usual_advice)
    return stored


async def change_user(
    stores: Stores,
    account: str,
    changes: UserChanges,
    *,
    actor: str | None = None,
    login: str = "",
    seen: int | None = None,
) -> User:
    """Change an account. Deactivation revokes all its sessions and tokens in the same write. `seen`: the expected
    version.

    Raises UnknownAccount, InvalidAccount, LastAdmin, and StaleWrite if the version differs.
    """

    async def step() -> User:
        stored = await find(stores, account)
        if seen not in (None, stored.version):
            raise StaleWrite(f"the account {stored.record.id} has changed since it was read; read it again")
        return await _write(stores, stored, changed(stored.record, changes), actor, login)

    return await decided(step)


def changed(user: User, changes: UserChanges) -> User:
    """Return the account with these changes. Raises InvalidAccount."""
    roles = user.roles if changes.roles is UNSET else normal_roles(changes.roles)
    return structs.replace(
        user,
        display_name=user.display_name if changes.display_name is UNSET else changes.display_name,
        roles=normal_roles((roles | normal_roles(changes.more_roles)) - normal_roles(changes.fewer_roles)),
        person=user.person if changes.person is UNSET else changes.person and normal_id(changes.person),
        owner=user.owner if changes.owner is UNSET else changes.owner and normal_id(changes.owner),
        is_active=user.is_active if changes.is_active is UNSET else changes.is_active,
        reads=user.reads if changes.reads is UNSET else changes.reads,
        queues=user.queues if changes.queues is UNSET else normal_binding("queues", changes.queues),
        names=user.names if changes.names is UNSET else normal_binding("task names", changes.names),
    )


async def set_password(
    stores: Stores,
    account: str,
    password: str | None,
    *,
    actor: str | None = None,
    link_by: str = "",
    login: str = "",
    cost: HashCost = USUAL,
) -> User:
    """Set a password, or remove it with None. All sessions end.

    If another account is the actor, or made the login link for it (`link_by`), the password must be changed once more
    before the account votes. Raises UnknownAccount, InvalidAccount, and WeakPassword.
    """
    await find(stores, account)  # fail before the expensive hash
    text = await _hash_of(password, cost)

    async def step() -> User:
        stored, now = await find(stores, account), stores.clock.now()
        after = _with_password(stored.record, text, link_by or actor, now)
        return await _write(stores, stored, after, actor, login)

    return await decided(step)


def _with_password(user: User, text: str | None, set_by: str | None, now: int) -> User:
    """Return the account with this password hash. Who else set it stays on record after the owner has changed it."""
    if text is None or set_by in (None, user.id):
        return structs.replace(user, password=text, must_change_password=False)
    return structs.replace(user, password=text, must_change_password=True, password_set_by=set_by, password_set_at=now)


async def _hash_of(password: str | None, cost: HashCost) -> str | None:
    if password is None:
        return None
    check_strength(password)
    return await hashed(password, cost)


async def _write(stores: Stores, stored: StoredRecord[User], after: User, actor: str | None, login: str) -> User:
    before, now = stored.record, stores.clock.now()
    moved: list[StoredRecord[User]] = []
    if before.person != after.person:
        after, moved = await _linked(stores, after)
    fields = [name for name in User.__struct_fields__ if getattr(before, name) != getattr(after, name)]
    if not fields:
        return before
    check_user(after)
    if "owner" in fields:
        await _check_owner(stores, after)
    after = structs.replace(after, updated_at=now)
    events = [
        Event(type=kind, at=now, actor=actor, payload=with_login(about, login))
        for kind, about in [(USER_CHANGED, _change(before, after, fields)), *_notices(before, after, actor)]
    ]
    ending = await _ending(stores, before, after, actor)
    moves, their_events = _moves(moved, after.person, now=now, actor=actor, login=login)
    witness = await _witness(stores, before, after, moved)
    writes = [USERS.put(after.id, after, seen=stored.version), *moves, *witness, *ending.writes]
    await stores.documents.write(writes, [*events, *their_events, *ending.events])
    return after


def _access(user: User) -> dict[str, object]:
    """Return what the account reads and claims, for the log."""
    return {"reads": user.reads, "queues": list(user.queues), "names": list(user.names)}


def _change(before: User, after: User, fields: Sequence[str]) -> dict[str, object]:
    """Return the payload of `user.changed`. Former persons and owners are in it, because they are notified, too."""
    payload: dict[str, object] = {"account": after.id, "fields": fields}
    if "roles" in fields:
        payload |= {"roles": sorted(after.roles), "roles_before": sorted(before.roles)}
    for name in ("person", "owner"):
        if name in fields:
            payload |= {name: getattr(after, name), f"{name}_before": getattr(before, name)}
    if "is_active" in fields:
        payload["is_active"] = after.is_active
    if not {"reads", "queues", "names"}.isdisjoint(fields):
        payload |= _access(after)
    return payload | {"digest": record_digest(after)}


async def _linked(stores: Stores, user: User) -> tuple[User, list[StoredRecord[User]]]:
    """Return the account linked to the person at the end of all links, and the accounts linked to it, which move along.

    Two concurrent changes can still make a chain, which `Directory` follows.
    """
    if not user.person:
        return user, []
    known = await USERS.all(stores)
    others = directory_of(each.record for name, each in known.items() if name != user.id)
    person = others.who(user.person)
    if person == user.id:  # the others are linked to this account already
        return structs.replace(user, person=""), []
    moved = [each for name, each in known.items() if name != user.id and others.who(name) == user.id]
    return structs.replace(user, person=person), moved


def _moves(
    moved: Sequence[StoredRecord[User]], person: str, *, now: int, actor: str | None, login: str
) -> tuple[list[DocumentWrite], list[Event]]:
    """Return the writes and events that link these accounts to another person."""
    writes, events = [], []
    for stored in moved:
        after = structs.replace(stored.record, person=person, updated_at=now)
        payload = with_login(_change(stored.record, after, ["person"]), login)
        writes.append(USERS.put(after.id, after, seen=stored.version))
        events.append(Event(type=USER_CHANGED, at=now, actor=actor, payload=payload))
    return writes, events


def _notices(before: User, after: User, actor: str | None) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the events that notify the person behind the account of a change of their access, with their payloads."""
    if before.roles != after.roles:
        roles = {"roles": sorted(after.roles), "roles_before": sorted(before.roles)}
        yield ROLES_CHANGED, {"account": after.id, **roles}
    if before.password != after.password:
        set_by = after.password_set_by if after.must_change_password else actor
        if set_by in (None, after.id):
            yield PASSWORD_CHANGED, {"account": after.id}
        else:
            yield PASSWORD_SET, {"account": after.id, "set_by": set_by}


async def _ending(stores: Stores, before: User, after: User, actor: str | None) -> AccessRevocation:
    """Return the access that this change revokes."""
    if before.is_active and not after.is_active:
        return await of_account(stores, after.id, "account deactivated", actor=actor, tokens=True)
    if before.password != after.password:
        return await of_account(stores, after.id, "password changed", actor=actor)
    return AccessRevocation()


async def _witness(
    stores: Stores, before: User, after: User, moved: Sequence[StoredRecord[User]]
) -> list[DocumentWrite]:
    """Return an unchanged write of another admin if one is lost: of two concurrent removals, one write then fails."""
    if not before.is_admin or after.is_admin or any(each.record.is_admin for each in moved):
        return []  # accounts that move along are written already
    for account, stored in (await USERS.all(stores)).items():
        if account != after.id and stored.record.is_admin:
            return [USERS.put(account, stored.record, seen=stored.version)]
    raise LastAdmin(f"{after.id} is the last active admin; make someone else an admin first")


async def _check_owner(stores: Stores, user: User) -> None:
    if not user.owner:
        return
    owner = (await find(stores, user.owner)).record
    if not owner.is_human or not owner.is_active:
        raise InvalidAccount(
            f"{owner.id} cannot be the owner of {user.id}: the owner of a service account must be an active person"
        )


async def permitted(stores: Stores, actor: str, permission: Permission, what: str) -> User:
    """Return the account if it has a permission. Raises NotPermitted and UnknownAccount."""
    user = await get_user(stores, actor)
    if permission not in user.permissions:
        raise NotPermitted(f"{actor} may not {what}: none of its roles grants the permission {permission}")
    return user


# Secrets: shown once, and stored only as a hash.


_BYTES = 32  # too long to guess, so one fast hash is enough


def new_secret(prefix: str = "") -> str:
    """Return a new random secret."""
    return prefix + urlsafe_b64encode(os.urandom(_BYTES)).rstrip(b"=").decode()


def fingerprint(secret: str) -> str:
    """Return the hash under which a secret is stored. Neither the hash nor the lookup time reveals the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
