"""Accounts for tests that speak to a server: one for each role, made in the store behind it."""

from ade.server.operation import PROGRAMS
from tests.domain import Role, Stores, User, add_user, create_token, list_users

OWNER = "owner-of-programs"
_HOUR_MS = 3_600_000
# As settings in the environment of `ade serve`: requests that no rate limit refuses.
PLENTY = {f"ADE_HTTP__{kind}_RATE": "none" for kind in ("READ", "WRITE", "VOTE", "WORK", "LOCK", "STREAM")}


async def token_for(stores: Stores, role: Role | str) -> str:
    """A token with all that the role allows, of a new account `the-ROLE`; a program's belongs to an owner."""
    is_program = role in PROGRAMS
    if is_program and OWNER not in {user.id for user in await list_users(stores)}:
        await add_user(stores, User(id=OWNER, roles=frozenset({Role.OPERATOR})))
    owner = OWNER if is_program else ""
    return await token_of(stores, User(id=f"the-{role}", roles=frozenset({role}), is_human=not is_program, owner=owner))


async def token_of(stores: Stores, user: User) -> str:
    """A token with all that this new account may do."""
    made = await add_user(stores, user)
    secret, _ = await create_token(stores, made.id, scopes=made.permissions, lasts_ms=_HOUR_MS)
    return secret
