"""What is told of accounts, tokens, sessions and delegations."""

from contextlib import suppress

from ade.accounts import sessions, tokens, users
from ade.accounts.authentication import authenticate, log_foreign_access
from ade.approvals import delegations
from ade.server.credentials import Credentials
from tests.domain import Delegation, HashCost, NotAuthenticated, Stores, User, fingerprint, open_stores

_PASSWORD, _CHEAP = "correct horse battery staple", HashCost(n=2, r=1, p=1)


async def of_people() -> dict[str, list[set[str]]]:
    """Every type of event, and the fields of the payloads it was seen with."""
    stores = await open_stores("memory://")
    await _administer(stores)
    await _delegate(stores)
    await _refuse(stores)
    seen: dict[str, list[set[str]]] = {}
    for event in await stores.events.read(0, 1_000):
        seen.setdefault(event.type, []).append(set(event.payload))
    await stores.close()
    return seen


async def _administer(stores: Stores) -> None:
    ada = User(id="ada", roles=frozenset({"admin"}))
    await users.add_user(stores, ada, password=_PASSWORD, cost=_CHEAP)
    await users.add_user(stores, User(id="bob", roles=frozenset({"reviewer"})), actor="ada", login="root")
    await users.add_user(stores, User(id="bot", is_human=False, owner="ada", roles=frozenset({"agent"})))
    await users.add_user(stores, User(id="bob-ops", person="bob"))
    await users.change_user(stores, "bob-ops", users.UserChanges(person=""))
    await users.change_user(stores, "bot", users.UserChanges(owner="bob"))
    await users.change_user(stores, "bot", users.UserChanges(queues=("mail",), names=("send",)))
    for login in ("", "root"):  # of the person who changes it on the store itself
        await tokens.create_token(stores, "bot", login=login)
        for actor in ("ada", "bob"):
            await users.set_password(stores, "bob", _PASSWORD, actor=actor, login=login, cost=_CHEAP)
            roles = users.UserChanges(roles=frozenset({"reviewer", f"{actor}{login}"}))
            await users.change_user(stores, "bob", roles, actor=actor, login=login)
    secret, _ = await sessions.sign_in(stores, "ada", _PASSWORD)
    await sessions.confirm(stores, fingerprint(secret), _PASSWORD)
    await sessions.end(stores, fingerprint(secret))
    secret, _ = await sessions.sign_in(stores, "ada", _PASSWORD, sessions.SignInConditions(ip="10.0.0.7"))
    await sessions.confirm(stores, fingerprint(secret), _PASSWORD)
    await users.set_password(stores, "ada", None)
    await users.change_user(stores, "bot", users.UserChanges(is_active=False, more_roles=frozenset({"worker"})))


async def _refuse(stores: Stores) -> None:
    for manner in (sessions.SignInConditions(), sessions.SignInConditions(ip="10.0.0.7")):
        made = await sessions.create_link(stores, "ada", login="root")
        await sessions.use_link(stores, made.secret, manner)
    made = await sessions.create_link(stores, "bob", actor="ada")
    _, session = await sessions.use_link(stores, made.secret, manner)
    await sessions.confirm(stores, session.id, _PASSWORD)
    with suppress(NotAuthenticated):
        await authenticate(stores, Credentials(token="ade_made-up", address="10.0.0.7"))
    await log_foreign_access(stores, "ada", "cancel_task", "t1")


async def _delegate(stores: Stores) -> None:
    now = stores.clock.now()
    wanted = Delegation(id="", delegator="ada", delegate="bob", starts_at=now, ends_at=now + 1_000_000)
    made = await delegations.create(stores, wanted, actor="ada")
    back = Delegation(id="x", delegator="bob", delegate="ada", starts_at=made.starts_at, ends_at=made.ends_at)
    await stores.documents.write([delegations.DELEGATIONS.put("x", back, seen=0)])  # as if made at the same moment
    await delegations.report_cycle(stores, made, "ada")
    await delegations.revoke(stores, made.id, actor="ada")
