"""Access tokens: shown once, good for what they were made for, and refused once they are over."""

import json

import pytest
from msgspec import Raw, structs

from ade.accounts.model import (
    Caller,
    InvalidToken,
    NotAuthenticated,
    Permission,
    TooManyRequests,
    UnknownAccount,
    UnknownToken,
)
from ade.accounts.users import USERS, UserChanges, change_user, get_user, take
from ade.testing import TestClock
from tests.accounts.conftest import Hire, everything, told
from tests.domain import RATES, DocumentWrite, RateClass, Stores, create_token, list_tokens, revoke_token, use_token
from tests.stores.interleaved_writes import meanwhile

DAY_MS = 86_400_000


ALL_OF_BOT = frozenset({Permission.READ, Permission.READ_PAYLOADS, Permission.ENQUEUE})


@pytest.fixture(autouse=True)
async def staff(hire: Hire) -> None:
    await hire("ada", "admin")
    await hire("bot", "agent", is_human=False, owner="ada")


async def test_a_token_speaks_for_its_account(stores: Stores) -> None:
    secret, token = await create_token(stores, "Bot", label="ci", actor="ada")

    caller = await use_token(stores, secret)

    assert secret.startswith("ade_")
    assert len(secret) >= 47
    assert (caller.user.id, caller.permissions) == ("bot", ALL_OF_BOT)
    event = (await stores.events.read(0, 100))[-1]
    assert (event.type, event.actor) == ("token.created", "ada")
    assert event.payload == {
        "account": "bot",
        "token": token.id,
        "scopes": ["enqueue", "read", "read_payloads"],
        "expires_at": token.expires_at,
    }


async def test_a_token_is_good_for_its_scopes_and_its_account_for_now(stores: Stores) -> None:
    secret, _ = await create_token(stores, "ada", scopes=frozenset({Permission.READ, Permission.OPERATE}))
    assert (await use_token(stores, secret)).permissions == {Permission.READ, Permission.OPERATE}

    await change_user(stores, "ada", UserChanges(more_roles=frozenset({"dba"})))
    narrow, _ = await create_token(stores, "bot", scopes=frozenset({Permission.ENQUEUE}))
    await change_user(stores, "bot", UserChanges(roles=frozenset({"viewer"})))
    assert (await use_token(stores, narrow)).permissions == set()


async def test_no_token_can_do_more_than_its_account(stores: Stores) -> None:
    with pytest.raises(InvalidToken, match="vote"):
        await create_token(stores, "bot", scopes=frozenset({Permission.VOTE}))
    with pytest.raises(InvalidToken, match="366 days"):
        await create_token(stores, "bot", lasts_ms=367 * DAY_MS)
    with pytest.raises(UnknownAccount):
        await create_token(stores, "nobody")
    assert await list_tokens(stores) == []


async def test_a_revoked_token_is_refused_and_still_listed(stores: Stores, clock: TestClock) -> None:
    secret, token = await create_token(stores, "bot")
    kept, _ = await create_token(stores, "bot")

    await revoke_token(stores, token.id, actor="ada")
    await revoke_token(stores, token.id, actor="ada")  # again: nothing to do

    with pytest.raises(NotAuthenticated):
        await use_token(stores, secret)
    await use_token(stores, kept)
    assert [each.revoked_at for each in await list_tokens(stores, "bot") if each.id == token.id] == [clock.now()]
    assert (await told(stores)).count("token.revoked") == 1
    clock.advance(31 * 86_400)
    assert token.id not in [each.id for each in await list_tokens(stores)]


async def test_a_token_that_nobody_made_cannot_be_revoked_or_used(stores: Stores) -> None:
    with pytest.raises(UnknownToken, match="ade tokens list"):
        await revoke_token(stores, "nonsense")
    for guess in ("", "ade_", "ade_" + "x" * 43, "\ud800"):
        with pytest.raises(NotAuthenticated):
            await use_token(stores, guess)


async def test_a_token_ends_by_itself(stores: Stores, clock: TestClock) -> None:
    secret, _ = await create_token(stores, "bot", lasts_ms=DAY_MS)

    clock.advance(86_399)
    await use_token(stores, secret)
    clock.advance(1)
    with pytest.raises(NotAuthenticated):
        await use_token(stores, secret)


async def test_tokens_of_a_deactivated_account_stay_revoked(stores: Stores) -> None:
    secret, _ = await create_token(stores, "bot")

    await change_user(stores, "bot", UserChanges(is_active=False))
    with pytest.raises(NotAuthenticated):
        await use_token(stores, secret)
    with pytest.raises(InvalidToken, match="deactivated"):
        await create_token(stores, "bot")
    await change_user(stores, "bot", UserChanges(is_active=True))

    with pytest.raises(NotAuthenticated):
        await use_token(stores, secret)


async def test_the_token_of_a_program_works_only_while_its_owner_may(stores: Stores, hire: Hire) -> None:
    await hire("root", "admin")
    secret, _ = await create_token(stores, "bot")

    await change_user(stores, "ada", UserChanges(is_active=False))
    with pytest.raises(NotAuthenticated, match="owner is deactivated"):
        await use_token(stores, secret)
    await change_user(stores, "ada", UserChanges(is_active=True))

    assert (await use_token(stores, secret)).user.id == "bot"


async def test_no_token_is_made_for_an_account_that_is_deactivated_meanwhile(stores: Stores) -> None:
    async def deactivate() -> None:
        await change_user(stores, "bot", UserChanges(is_active=False))

    with pytest.raises(InvalidToken, match="deactivated"):
        await create_token(meanwhile(stores, deactivate), "bot")

    assert await list_tokens(stores) == []


async def test_a_token_that_is_made_while_its_account_goes_is_revoked_with_it(stores: Stores) -> None:
    late: list[str] = []

    async def make() -> None:
        late.append((await create_token(stores, "bot"))[0])

    await change_user(meanwhile(stores, make), "bot", UserChanges(is_active=False))
    await change_user(stores, "bot", UserChanges(is_active=True))

    with pytest.raises(NotAuthenticated):
        await use_token(stores, late[0])


async def test_a_token_that_is_revoked_while_it_is_used_stays_revoked(stores: Stores) -> None:
    secret, token = await create_token(stores, "bot")

    await use_token(meanwhile(stores, lambda: revoke_token(stores, token.id)), secret)

    with pytest.raises(NotAuthenticated):
        await use_token(stores, secret)


async def test_an_account_that_is_not_active_has_no_token_however_that_came_about(stores: Stores) -> None:
    secret, _ = await create_token(stores, "bot")
    kept = await USERS.get(stores, "bot")
    assert kept is not None
    off = structs.replace(kept.record, is_active=False)
    await stores.documents.write([USERS.put("bot", off, seen=kept.version)])

    with pytest.raises(NotAuthenticated, match="account"):
        await use_token(stores, secret)


async def test_use_is_noted_once_a_minute_and_never_told(stores: Stores, clock: TestClock) -> None:
    secret, _ = await create_token(stores, "bot")
    before = await told(stores)
    began = clock.now()

    await use_token(stores, secret)
    clock.advance(59)
    await use_token(stores, secret)
    assert [token.last_used_at for token in await list_tokens(stores)] == [began]
    clock.advance(1)
    await use_token(stores, secret)
    assert [token.last_used_at for token in await list_tokens(stores)] == [clock.now()]
    assert await told(stores) == before


async def test_no_secret_of_a_token_is_ever_told_or_kept(stores: Stores) -> None:
    secret, token = await create_token(stores, "bot")
    await use_token(stores, secret)
    documents = await stores.documents.list_documents("token")

    assert secret not in await everything(stores)
    assert secret not in repr(documents) + repr(token) + repr(await list_tokens(stores))


async def test_each_account_and_each_kind_of_request_is_counted_apart(stores: Stores, clock: TestClock) -> None:
    count, period_ms = RATES[RateClass.VOTE]
    for _ in range(count):
        await take(stores, "ada", RateClass.VOTE)

    with pytest.raises(TooManyRequests, match="ada may do this 60 times") as refused:
        await take(stores, "ada", RateClass.VOTE)

    assert refused.value.retry_after == pytest.approx(period_ms / count / 1000, abs=0.01)
    await take(stores, "bot", RateClass.VOTE)
    await take(stores, "ada", RateClass.READ)
    clock.advance(refused.value.retry_after)
    await take(stores, "ada", RateClass.VOTE)


async def _successor(stores: Stores, secret: str, lasts_ms: int = 1_000_000) -> str:
    made, _ = await create_token(stores, "bot", creator=await use_token(stores, secret), lasts_ms=lasts_ms)
    return made


async def test_whoever_is_revoked_meanwhile_makes_no_successor(stores: Stores) -> None:
    secret, token = await create_token(stores, "bot")
    caller = await use_token(stores, secret)

    with pytest.raises(InvalidToken, match="revoked"):
        await create_token(
            meanwhile(stores, lambda: revoke_token(stores, token.id)), "bot", creator=caller, lasts_ms=1_000
        )

    assert [each.id for each in await list_tokens(stores)] == [token.id]


async def test_a_successor_that_is_made_meanwhile_is_revoked_too(stores: Stores) -> None:
    secret, token = await create_token(stores, "bot")
    late: list[str] = []

    async def make() -> None:
        late.append(await _successor(stores, secret))

    await revoke_token(meanwhile(stores, make), token.id)

    with pytest.raises(NotAuthenticated):
        await use_token(stores, late[0])


async def test_no_token_is_made_by_an_admin_who_is_deactivated_meanwhile(stores: Stores, hire: Hire) -> None:
    await hire("eve", "admin")
    caller = Caller(user=await get_user(stores, "eve"))

    async def deactivate() -> None:
        await change_user(stores, "eve", UserChanges(is_active=False))

    with pytest.raises(InvalidToken, match="eve is deactivated"):
        await create_token(meanwhile(stores, deactivate), "bot", creator=caller)


async def test_a_token_from_before_is_read_and_depends_on_its_account_alone(stores: Stores) -> None:
    secret, _ = await create_token(stores, "bot")
    [kept] = await stores.documents.list_documents("token")
    old = {name: value for name, value in json.loads(bytes(kept.body)).items() if name not in ("created_by", "parent")}
    body = Raw(json.dumps(old).encode())
    await stores.documents.write(
        [DocumentWrite(kind="token", id=kept.id, body=body, seen=kept.version, expires_at=old["expires_at"])]
    )

    caller = await use_token(stores, secret)

    assert caller.creator is None
    assert caller.permissions == ALL_OF_BOT
