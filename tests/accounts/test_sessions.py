"""Passwords and login sessions: who signs in, for how long that counts, and how it ends."""

import pytest
from msgspec import structs

from ade.accounts import passwords
from ade.accounts.model import IDLE_MS, MAX_SESSION_MS, NotAuthenticated, Permission, TooManyRequests
from ade.accounts.sessions import (
    SignInConditions,
    check_password,
    confirm,
    end,
    end_all,
    list_sessions,
    sign_in,
    use_session,
)
from ade.accounts.users import USERS, UserChanges, change_user, fingerprint, set_password
from ade.testing import TestClock
from tests.accounts.conftest import CHEAP, PASSWORD, Hire, everything, told
from tests.domain import Stores
from tests.stores.interleaved_writes import meanwhile


@pytest.fixture(autouse=True)
async def staff(hire: Hire) -> None:
    await hire("ada", "admin")
    await hire("bob", "viewer", "reviewer")


async def open_for(stores: Stores, name: str) -> str:
    secret, _ = await sign_in(stores, name, PASSWORD)
    return secret


async def is_over(stores: Stores, secret: str) -> bool:
    try:
        await use_session(stores, secret)
    except NotAuthenticated:
        return True
    return False


async def test_somebody_signs_in_and_is_known_from_then_on(stores: Stores, clock: TestClock) -> None:
    secret, session = await sign_in(stores, "BOB", PASSWORD, SignInConditions(ip="10.0.0.7", user_agent="x" * 1_000))

    caller = await use_session(stores, secret)

    assert (caller.user.id, caller.permissions) == ("bob", frozenset({Permission.READ, Permission.VOTE}))
    assert (session.ip, len(session.user_agent), session.reauthenticated_at) == ("10.0.0.7", 300, clock.now())
    assert len(secret) >= 43


@pytest.mark.parametrize("name", ["bob", "nobody", "no such name", ""])
async def test_a_wrong_password_and_an_unknown_name_look_alike(stores: Stores, name: str) -> None:
    with pytest.raises(NotAuthenticated, match="the name or the password is wrong"):
        await check_password(stores, name, "wrong password 123")


async def test_an_unknown_name_takes_the_same_work_and_the_same_limit(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[passwords.HashCost] = []
    hashing = passwords._scrypt

    def counted(password: str, salt: bytes, cost: passwords.HashCost) -> bytes:
        worked.append(cost)
        return hashing(password, salt, CHEAP)

    monkeypatch.setattr(passwords, "_scrypt", counted)
    await change_user(stores, "bob", UserChanges(is_active=False))
    for name in ("nobody", "bob"):  # unknown, deactivated
        for _ in range(10):
            with pytest.raises(NotAuthenticated):
                await check_password(stores, name, PASSWORD)
        with pytest.raises(TooManyRequests):
            await check_password(stores, name, PASSWORD)

    assert worked == [passwords.USUAL] * 20


async def test_guessing_is_slowed_down_for_one_account_alone(stores: Stores, clock: TestClock) -> None:
    for _ in range(10):
        with pytest.raises(NotAuthenticated):
            await sign_in(stores, "bob", "wrong password 123")

    with pytest.raises(TooManyRequests) as refused:
        await sign_in(stores, "bob", PASSWORD)

    assert 0 < refused.value.retry_after <= 6
    await sign_in(stores, "ada", PASSWORD)
    clock.advance(refused.value.retry_after)
    await sign_in(stores, "bob", PASSWORD)


async def test_the_cost_of_a_hash_is_its_own(stores: Stores) -> None:
    known = await passwords.hashed(PASSWORD, passwords.HashCost(n=4, r=2, p=2))

    assert known.startswith("scrypt$4$2$2$")
    assert await passwords.matches(PASSWORD, known)
    assert not await passwords.matches(PASSWORD + "x", known)
    assert known != await passwords.hashed(PASSWORD, passwords.HashCost(n=4, r=2, p=2))


async def test_a_session_ends_when_it_is_not_used(stores: Stores, clock: TestClock) -> None:
    secret = await open_for(stores, "bob")

    clock.advance(IDLE_MS / 1000 - 1)
    assert not await is_over(stores, secret)
    clock.advance(IDLE_MS / 1000 - 1)
    assert not await is_over(stores, secret)
    clock.advance(IDLE_MS / 1000)
    assert await is_over(stores, secret)


async def test_a_session_ends_after_a_day_however_much_it_is_used(stores: Stores, clock: TestClock) -> None:
    secret = await open_for(stores, "bob")
    step = 30 * 60

    for _ in range(MAX_SESSION_MS // 1000 // step - 1):
        clock.advance(step)
        assert not await is_over(stores, secret)
    clock.advance(step)

    assert await is_over(stores, secret)
    assert await list_sessions(stores) == []


async def test_use_is_noted_once_a_minute(stores: Stores, clock: TestClock) -> None:
    secret = await open_for(stores, "bob")
    began = clock.now()

    clock.advance(59)
    await use_session(stores, secret)
    assert [session.last_active_at for session in await list_sessions(stores)] == [began]
    clock.advance(1)
    await use_session(stores, secret)
    assert [session.last_active_at for session in await list_sessions(stores)] == [clock.now()]


async def test_a_role_that_was_taken_away_is_gone_at_the_next_use(stores: Stores) -> None:
    secret = await open_for(stores, "bob")
    await change_user(stores, "bob", UserChanges(fewer_roles=frozenset({"reviewer"})))

    assert (await use_session(stores, secret)).permissions == {Permission.READ}


async def test_signing_out_ends_this_session_alone(stores: Stores) -> None:
    here, there = await open_for(stores, "bob"), await open_for(stores, "bob")

    await end(stores, fingerprint(here))
    await end(stores, fingerprint(here))  # again: nothing to do

    assert (await is_over(stores, here), await is_over(stores, there)) == (True, False)
    assert (await told(stores)).count("session.ended") == 1


async def test_all_sessions_of_one_account_end_together(stores: Stores) -> None:
    secrets = [await open_for(stores, "bob"), await open_for(stores, "bob")]
    other = await open_for(stores, "ada")

    assert await end_all(stores, "Bob", actor="ada") == 2

    assert [await is_over(stores, secret) for secret in (*secrets, other)] == [True, True, False]
    event = (await stores.events.read(0, 100))[-1]
    assert (event.type, event.actor, event.payload["account"]) == ("session.ended", "ada", "bob")


@pytest.mark.parametrize("way", ["password", "deactivation"])
async def test_sessions_end_with_the_password_and_with_the_account(stores: Stores, way: str) -> None:
    secret = await open_for(stores, "bob")

    if way == "password":
        await set_password(stores, "bob", "another long password", cost=CHEAP)
    else:
        await change_user(stores, "bob", UserChanges(is_active=False))
        await change_user(stores, "bob", UserChanges(is_active=True))

    assert await is_over(stores, secret)
    assert await list_sessions(stores, "bob") == []


@pytest.mark.parametrize("way", ["password", "deactivation"])
async def test_whoever_signs_in_while_the_password_or_the_account_goes_is_refused(stores: Stores, way: str) -> None:
    async def change() -> None:
        if way == "password":
            await set_password(stores, "bob", "another long password", cost=CHEAP)
        else:
            await change_user(stores, "bob", UserChanges(is_active=False))

    with pytest.raises(NotAuthenticated, match="during the sign-in"):
        await sign_in(meanwhile(stores, change), "bob", PASSWORD)

    assert await list_sessions(stores) == []


async def test_a_session_that_was_opened_while_all_were_being_ended_ends_too(stores: Stores) -> None:
    first = await open_for(stores, "bob")
    late: list[str] = []

    async def open_another() -> None:
        late.append(await open_for(stores, "bob"))

    assert await end_all(meanwhile(stores, open_another), "bob") == 2
    assert [await is_over(stores, secret) for secret in (first, *late)] == [True, True]


async def test_a_session_that_ends_while_it_is_used_stays_ended(stores: Stores, clock: TestClock) -> None:
    secret = await open_for(stores, "bob")
    clock.advance(120)

    await use_session(meanwhile(stores, lambda: end(stores, fingerprint(secret))), secret)

    assert await is_over(stores, secret)


async def test_an_account_that_is_not_active_has_no_session_however_that_came_about(stores: Stores) -> None:
    secret = await open_for(stores, "bob")
    kept = await USERS.get(stores, "bob")
    assert kept is not None
    off = structs.replace(kept.record, is_active=False)
    await stores.documents.write([USERS.put("bob", off, seen=kept.version)])

    assert await is_over(stores, secret)


async def test_a_fresh_password_is_noted(stores: Stores, clock: TestClock) -> None:
    secret = await open_for(stores, "bob")
    clock.advance(600)

    with pytest.raises(NotAuthenticated):
        await confirm(stores, fingerprint(secret), "wrong password 123")
    assert (await confirm(stores, fingerprint(secret), PASSWORD)).reauthenticated_at == clock.now()

    caller = await use_session(stores, secret)
    assert caller.session is not None
    assert caller.session.reauthenticated_at == clock.now()


async def test_a_made_up_session_is_none(stores: Stores) -> None:
    secret = await open_for(stores, "bob")
    [session] = await list_sessions(stores)

    for guess in ("", "x" * 43, session.id, secret[:-1], "\ud800"):
        assert await is_over(stores, guess)
    with pytest.raises(NotAuthenticated):
        await confirm(stores, fingerprint("made up"), PASSWORD)


async def test_no_secret_of_a_session_is_ever_told_or_kept(stores: Stores) -> None:
    secret = await open_for(stores, "bob")
    [session] = await list_sessions(stores)
    await end(stores, fingerprint(secret))

    log = await everything(stores)

    assert secret not in log
    assert session.id not in log
    assert secret not in repr(session)
    assert PASSWORD not in log
