"""Access tokens in the store: create, use, revoke, and list them. Only the hash of a secret is stored."""

from contextlib import suppress

from msgspec import structs

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
    check_token,
)
from ade.accounts.users import TOKENS, USERS, find, fingerprint, new_secret, of_token
from ade.errors import StaleWrite
from ade.events.model import Event
from ade.stores.ports import Stores
from ade.stores.repository import decided
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
) -> tuple[str, Token]:
    """Return the secret, which is not available later, and the record. Default scopes: all permissions of the account.

    The account is written unchanged with the token, so that a concurrent deactivation is detected. Raises
    UnknownAccount and InvalidToken.
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
        )
        check_token(token, user)
        writes = [USERS.put(user.id, user, seen=stored.version), TOKENS.put(fingerprint(secret), token, seen=0)]
        await stores.documents.write(writes, [_created(token, actor)])
        return token

    return secret, await decided(step)


def _created(token: Token, actor: str | None) -> Event:
    payload: dict[str, object] = {
        "account": token.account,
        "token": token.id,
        "scopes": sorted(token.scopes),
        "expires_at": token.expires_at,
    }
    return Event(type=TOKEN_CREATED, at=token.created_at, actor=actor, payload=payload)


async def use_token(stores: Stores, secret: str) -> Caller:
    """Authenticate by a token, with the current permissions that both it and its account have. Raises
    NotAuthenticated."""
    found = fingerprint(secret)
    stored, now = await TOKENS.get(stores, found), stores.clock.now()
    if stored is None or not stored.record.is_good(now):
        raise NotAuthenticated("the token is unknown, revoked, or expired")
    user = await USERS.get(stores, stored.record.account)
    if user is None or not user.record.is_active:
        raise NotAuthenticated("the account of this token is deactivated")
    await _check_owner(stores, user.record)
    token = stored.record
    if token.is_behind(now):
        token = structs.replace(token, last_used_at=now)
        with suppress(StaleWrite):  # another request has updated it, or has just revoked it
            put = TOKENS.put(found, token, seen=stored.version)
            await stores.documents.write([structs.replace(put, is_quiet=True)])  # nothing depends on it, so no wake-up
    return Caller(user=user.record, token=token)


async def _check_owner(stores: Stores, user: User) -> None:
    """A service account works only while its owner is active. Raises NotAuthenticated."""
    if not user.owner:
        return
    owner = await USERS.get(stores, user.owner)
    if owner is None or not owner.record.is_active:
        raise NotAuthenticated("the account of this token is a service account whose owner is deactivated")


async def revoke_token(stores: Stores, token_id: str, *, reason: str = "revoked", actor: str | None = None) -> Token:
    """Revoke a token, which is rejected from now on; repeating it has no effect. Raises UnknownToken."""

    async def step() -> Token:
        matching = [pair for pair in (await TOKENS.all(stores)).items() if pair[1].record.id == token_id]
        if not matching:
            raise UnknownToken(f"no access token {token_id[:60]!r} exists", advice=UnknownToken.usual_advice)
        [(found, stored)] = matching
        if stored.record.revoked_at is not None:
            return stored.record
        now = stores.clock.now()
        ending = of_token(found, stored, reason, now=now, actor=actor)
        await stores.documents.write(ending.writes, ending.events)
        return structs.replace(stored.record, revoked_at=now)

    return await decided(step)


async def list_tokens(stores: Stores, account: str | None = None) -> list[Token]:
    """List valid and recently revoked tokens, optionally of one account; oldest first."""
    tokens = [stored.record for stored in (await TOKENS.all(stores)).values()]
    return sorted((token for token in tokens if account in (None, token.account)), key=lambda token: token.id)
