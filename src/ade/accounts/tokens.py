"""Access tokens in the store: create, use, revoke, and list them. Only the hash of a secret is stored."""

from contextlib import suppress

from msgspec import structs

from ade.accounts.authorization import check_token
from ade.accounts.model import (
    TOKEN_CREATED,
    USUAL_MS,
    Caller,
    InvalidToken,
    NotAuthenticated,
    Permission,
    Token,
    UnknownToken,
    User,
)
from ade.accounts.users import TOKENS, USERS, find, fingerprint, new_secret, of_tokens, with_login
from ade.errors import StaleWrite
from ade.events.model import Event
from ade.stores.ports import Stores
from ade.stores.repository import decided
from ade.stores.resource_ports import DocumentWrite
from ade.tasks.enqueue import fresh_id

PREFIX = "ade_"  # so that people and secret scanners recognize a token


async def create_token(
    stores: Stores,
    account: str,
    *,
    scopes: frozenset[Permission] | None = None,
    lasts_ms: int = USUAL_MS,
    label: str = "",
    actor: str | None = None,
    creator: Caller | None = None,
    login: str = "",
) -> tuple[str, Token]:
    """Return the secret, which is not available later, and the record. Default scopes: all permissions of the account.

    The token has at most the permissions of its `creator`, also later, and does not outlive it. None: it is created on
    the store itself. The account and the creator are written unchanged with the token, so that a concurrent
    deactivation or revocation is detected. Raises UnknownAccount and InvalidToken.
    """
    secret = new_secret(PREFIX)

    async def step() -> Token:
        stored, now = await find(stores, account), stores.clock.now()
        user = stored.record
        if not user.is_active:
            raise InvalidToken(f"{user.id} is deactivated, so its tokens would not work")
        token = Token(
            id=fresh_id(now),
            account=user.id,
            scopes=user.permissions if scopes is None else scopes,
            created_at=now,
            expires_at=now + lasts_ms,
            label=label,
            created_by="" if creator is None else creator.user.id,
            parent="" if creator is None or creator.token is None else creator.token.id,
        )
        check_token(token, user, creator)
        writes = [USERS.put(user.id, user, seen=stored.version), TOKENS.put(fingerprint(secret), token, seen=0)]
        await stores.documents.write(
            [*writes, *await _creator_unchanged(stores, token)], [_created(token, actor, login)]
        )
        return token

    return secret, await decided(step)


async def _creator_unchanged(stores: Stores, token: Token) -> list[DocumentWrite]:
    """Return writes that fail if the creator of a new token changes meanwhile. Raises InvalidToken if it has ended."""
    writes = []
    if token.created_by not in ("", token.account):
        creator = await find(stores, token.created_by)
        if not creator.record.is_active:
            raise InvalidToken(f"{token.created_by} is deactivated, so it cannot create tokens")
        writes.append(USERS.put(token.created_by, creator.record, seen=creator.version))
    if token.parent:
        known = (await TOKENS.all(stores)).items()
        parent = next((pair for pair in known if pair[1].record.id == token.parent), None)
        if parent is None or not parent[1].record.is_good(token.created_at):
            raise InvalidToken("the token that creates this one is revoked or expired")
        writes.append(TOKENS.put(parent[0], parent[1].record, seen=parent[1].version))
    return writes


def _created(token: Token, actor: str | None, login: str) -> Event:
    payload: dict[str, object] = {
        "account": token.account,
        "token": token.id,
        "scopes": sorted(token.scopes),
        "expires_at": token.expires_at,
    }
    return Event(type=TOKEN_CREATED, at=token.created_at, actor=actor, payload=with_login(payload, login))


async def use_token(stores: Stores, secret: str) -> Caller:
    """Authenticate by a token, with the current permissions that it, its account, and its creator have. Raises
    NotAuthenticated."""
    found = fingerprint(secret)
    stored, now = await TOKENS.get(stores, found), stores.clock.now()
    if stored is None or not stored.record.is_good(now):
        raise NotAuthenticated("the token is unknown, revoked, or expired")
    token = stored.record
    by_another = token.created_by not in ("", token.account)
    user, *creators = await USERS.each(stores, [token.account, token.created_by] if by_another else [token.account])
    if user is None or not user.record.is_active:
        raise NotAuthenticated("the account of this token is deactivated")
    creator = creators[0].record if creators and creators[0] is not None else None
    if by_another and (creator is None or not creator.is_active):
        raise NotAuthenticated("the account that created this token is deactivated")
    if creator is None or creator.id != user.record.owner:  # which is active
        await _check_owner(stores, user.record)
    if token.is_behind(now):
        token = structs.replace(token, last_used_at=now)
        with suppress(StaleWrite):  # another request has updated it, or has just revoked it
            put = TOKENS.put(found, token, seen=stored.version)
            await stores.documents.write([structs.replace(put, is_quiet=True)])  # nothing depends on it, so no wake-up
    return Caller(user=user.record, token=token, creator=creator)


async def _check_owner(stores: Stores, user: User) -> None:
    """A service account works only while its owner is active. Raises NotAuthenticated."""
    if not user.owner:
        return
    owner = await USERS.get(stores, user.owner)
    if owner is None or not owner.record.is_active:
        raise NotAuthenticated("the account of this token is a service account whose owner is deactivated")


async def revoke_token(stores: Stores, token_id: str, *, reason: str = "revoked", actor: str | None = None) -> Token:
    """Revoke a token and all tokens that were created with it, which are rejected from now on; repeating it has no
    effect. Raises UnknownToken."""

    async def step() -> Token:
        known = await TOKENS.all(stores)
        token = next((stored.record for stored in known.values() if stored.record.id == token_id), None)
        if token is None:
            raise UnknownToken(f"no access token {token_id[:60]!r} exists", advice=UnknownToken.usual_advice)
        now = stores.clock.now()
        ending = of_tokens(known, {token_id}, reason, now=now, actor=actor)
        if ending.writes:
            await stores.documents.write(ending.writes, ending.events)
        return token if token.revoked_at is not None else structs.replace(token, revoked_at=now)

    return await decided(step)


async def list_tokens(stores: Stores, account: str | None = None) -> list[Token]:
    """List valid and recently revoked tokens, optionally of one account; oldest first."""
    tokens = [stored.record for stored in (await TOKENS.all(stores)).values()]
    return sorted((token for token in tokens if account in (None, token.account)), key=lambda token: token.id)
