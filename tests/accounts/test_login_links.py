"""Links that let one person in once, and the first password."""

import asyncio
import json

import pytest
from msgspec import Raw

from ade.accounts.model import (
    FRESH_MS,
    LASTS_MS,
    RESET_SHOWN_MS,
    InvalidAccount,
    NotAuthenticated,
    Permission,
    UnknownAccount,
    User,
    WeakPassword,
    link_address,
)
from ade.accounts.sessions import (
    SignInConditions,
    change_password_of,
    create_link,
    end_all,
    first_admin,
    list_sessions,
    sign_in,
    use_link,
    use_session,
)
from ade.accounts.users import UserChanges, add_user, change_user, get_user, list_users, load_directory, set_password
from ade.testing import TestClock
from tests.accounts.conftest import CHEAP, PASSWORD, Hire, everything, told
from tests.domain import DocumentWrite, ReauthenticationNeeded, Stores, local_caller
from tests.stores.interleaved_writes import meanwhile

HERE = SignInConditions(ip="10.0.0.7", user_agent="a browser", idle_ms=600_000, lasts_ms=3_600_000)


async def refused(stores: Stores, secret: str) -> bool:
    try:
        await use_link(stores, secret, HERE)
    except NotAuthenticated:
        return True
    return False


async def test_the_first_start_makes_an_admin_and_a_link_for_it(stores: Stores, clock: TestClock) -> None:
    made = await first_admin(stores)
    assert made is not None
    assert link_address("http://127.0.0.1:8411", made.secret) == f"http://127.0.0.1:8411/login#{made.secret}"

    secret, session = await use_link(stores, made.secret, HERE)

    caller = await use_session(stores, secret)
    assert (caller.user.id, caller.user.is_admin, caller.user.password) == ("admin", True, None)
    assert (session.ip, session.idle_ms, session.ends_at) == ("10.0.0.7", 600_000, clock.now() + 600_000)
    assert await told(stores) == ["user.added", "login_link.created", "login_link.used", "session.opened"]
    assert await first_admin(stores) is None


async def test_servers_that_start_at_once_make_one_admin(stores: Stores) -> None:
    made = await asyncio.gather(*(first_admin(stores) for _ in range(5)))

    assert [user.id for user in await list_users(stores)] == ["admin"]
    assert len([each for each in made if each is not None]) == 1


async def test_where_there_is_an_account_no_admin_is_made(stores: Stores, hire: Hire) -> None:
    await hire("bob", "viewer")

    assert await first_admin(stores) is None


async def test_a_link_is_used_once_however_many_try(stores: Stores, hire: Hire) -> None:
    await hire("bob", "viewer")
    made = await create_link(stores, "BOB", actor="ada")

    answers = await asyncio.gather(*(refused(stores, made.secret) for _ in range(10)))

    assert sorted(answers) == [False] + [True] * 9
    assert len(await list_sessions(stores, "bob")) == 1
    assert (await told(stores)).count("login_link.used") == 1


async def test_somebody_uses_it_between_a_look_and_the_write(stores: Stores, hire: Hire) -> None:
    await hire("bob", "viewer")
    made = await create_link(stores, "bob")

    with pytest.raises(NotAuthenticated, match="already used"):
        await use_link(meanwhile(stores, lambda: use_link(stores, made.secret, HERE)), made.secret, HERE)

    assert len(await list_sessions(stores, "bob")) == 1


async def test_a_link_ends_after_ten_minutes(stores: Stores, hire: Hire, clock: TestClock) -> None:
    await hire("bob", "viewer")
    first, second = await create_link(stores, "bob"), await create_link(stores, "bob")

    clock.advance(LASTS_MS / 1000 - 1)
    assert not await refused(stores, first.secret)
    clock.advance(1)
    assert await refused(stores, second.secret)


@pytest.mark.parametrize("way", ["deactivated", "password", "signed out"])
async def test_a_link_ends_with_all_else_that_lets_somebody_in(stores: Stores, hire: Hire, way: str) -> None:
    await hire("bob", "viewer")
    made = await create_link(stores, "bob")

    if way == "deactivated":
        await change_user(stores, "bob", UserChanges(is_active=False))
        await change_user(stores, "bob", UserChanges(is_active=True))
    elif way == "password":
        await set_password(stores, "bob", "another long password", cost=CHEAP)
    else:
        assert await end_all(stores, "bob") == 0

    assert await refused(stores, made.secret)


async def test_a_link_that_is_made_while_its_account_goes_is_good_for_nothing(stores: Stores, hire: Hire) -> None:
    await hire("bob", "viewer")

    with pytest.raises(InvalidAccount, match="deactivated"):
        await create_link(meanwhile(stores, lambda: change_user(stores, "bob", UserChanges(is_active=False))), "bob")


async def test_programs_and_strangers_get_none(stores: Stores, hire: Hire) -> None:
    await hire("ada", "admin")
    await hire("bot", "agent", is_human=False, owner="ada")

    with pytest.raises(InvalidAccount, match="service account"):
        await create_link(stores, "bot")
    with pytest.raises(UnknownAccount):
        await create_link(stores, "nobody")


async def test_no_secret_of_a_link_is_told_or_kept(stores: Stores, hire: Hire) -> None:
    await hire("bob", "viewer")
    made = await create_link(stores, "bob")
    [kept] = await stores.documents.list_documents("login_link")
    await use_link(stores, made.secret, HERE)

    assert made.secret not in await everything(stores)
    assert made.secret not in f"{kept.id}{bytes(kept.body).decode()}"
    for guess in ("", kept.id, made.secret, made.secret[:-1], "\ud800"):
        assert await refused(stores, guess)


async def test_a_link_is_a_fresh_proof_only_where_there_is_no_password(
    stores: Stores, hire: Hire, clock: TestClock
) -> None:
    """Whoever may make links could else approve in the name of others."""
    await hire("bob", "reviewer")
    await hire("cyd", "reviewer", password=None)

    _, with_password = await use_link(stores, (await create_link(stores, "bob")).secret, HERE)
    _, without = await use_link(stores, (await create_link(stores, "cyd")).secret, HERE)

    assert not with_password.is_fresh(clock.now())
    assert without.is_fresh(clock.now())


async def test_the_first_password_takes_a_fresh_link(stores: Stores, clock: TestClock) -> None:
    made = await first_admin(stores)
    assert made is not None
    secret, _ = await use_link(stores, made.secret, HERE)
    with pytest.raises(WeakPassword):
        await change_password_of(stores, await use_session(stores, secret), "short", cost=CHEAP)

    after, session = await change_password_of(stores, await use_session(stores, secret), PASSWORD, cost=CHEAP)

    assert session.ip == "10.0.0.7"
    assert (await use_session(stores, after)).user.id == "admin"
    with pytest.raises(NotAuthenticated):  # the old secret is worth nothing any more
        await use_session(stores, secret)
    await sign_in(stores, "admin", PASSWORD)


async def test_a_link_of_six_minutes_ago_sets_no_password(stores: Stores, clock: TestClock) -> None:
    made = await first_admin(stores)
    assert made is not None
    secret, _ = await use_link(stores, made.secret, HERE)
    clock.advance(FRESH_MS / 1000 + 1)

    with pytest.raises(ReauthenticationNeeded, match="login-link"):
        await change_password_of(stores, await use_session(stores, secret), PASSWORD, cost=CHEAP)


async def test_another_password_takes_the_old_one(stores: Stores, hire: Hire) -> None:
    await hire("bob", "viewer")
    here, _ = await sign_in(stores, "bob", PASSWORD)
    there, _ = await sign_in(stores, "bob", PASSWORD)
    for wrong in (None, "", "not the password"):
        with pytest.raises(NotAuthenticated):
            await change_password_of(
                stores, await use_session(stores, here), "another long password", old=wrong, cost=CHEAP
            )

    after, _ = await change_password_of(
        stores, await use_session(stores, here), "another long password", old=PASSWORD, cost=CHEAP
    )

    assert (await use_session(stores, after)).user.id == "bob"
    assert len(await list_sessions(stores, "bob")) == 1
    with pytest.raises(NotAuthenticated):
        await use_session(stores, there)


async def test_where_nobody_is_asked_who_he_is_there_is_an_admin_without_a_vote(stores: Stores) -> None:
    caller = await local_caller(stores)

    assert caller.user.id == "local"
    assert caller.permissions == frozenset(Permission) - {Permission.VOTE, Permission.BREAK_GLASS}
    assert caller.session is None
    assert (await local_caller(stores)).user == caller.user
    assert await first_admin(stores) is not None  # once people are asked, there is still nobody who could sign in


async def test_nobody_else_becomes_the_operator_of_the_machine(stores: Stores) -> None:
    await add_user(stores, User(id="local", roles=frozenset({"viewer"})))

    with pytest.raises(InvalidAccount, match="not an active admin"):
        await local_caller(stores)


NEW = "another long password"


async def test_a_link_of_somebody_else_proves_nothing(stores: Stores, hire: Hire, clock: TestClock) -> None:
    """The account that created it might also have used it."""
    await hire("bob", "reviewer", password=None)
    for by, proves in (("ada", False), ("bob", True), (None, True)):
        _, session = await use_link(stores, (await create_link(stores, "bob", actor=by)).secret, HERE)
        assert (session.is_fresh(clock.now()), not session.proves_nothing) == (proves, proves), by


@pytest.mark.parametrize(("by", "is_flagged"), [("ada", True), ("bob", False), (None, False)])
async def test_a_first_password_through_a_link_of_somebody_else_is_to_be_changed(
    stores: Stores, hire: Hire, by: str | None, is_flagged: bool
) -> None:
    await hire("bob", "reviewer", password=None)
    secret, _ = await use_link(stores, (await create_link(stores, "bob", actor=by)).secret, HERE)
    secret, _ = await change_password_of(stores, await use_session(stores, secret), PASSWORD, cost=CHEAP)
    caller = await use_session(stores, secret)
    assert (caller.user.must_change_password, caller.user.password_set_by) == (is_flagged, "ada" if is_flagged else "")

    await change_password_of(stores, caller, NEW, old=PASSWORD, cost=CHEAP)

    bob = await get_user(stores, "bob")
    assert (bob.must_change_password, bob.password_set_by) == (False, "ada" if is_flagged else "")


async def test_a_link_of_somebody_else_sets_no_password_after_five_minutes(
    stores: Stores, hire: Hire, clock: TestClock
) -> None:
    await hire("bob", "reviewer", password=None)
    secret, _ = await use_link(stores, (await create_link(stores, "bob", actor="ada")).secret, HERE)
    clock.advance(FRESH_MS / 1000 + 1)

    with pytest.raises(ReauthenticationNeeded, match="login-link"):
        await change_password_of(stores, await use_session(stores, secret), PASSWORD, cost=CHEAP)


async def test_votes_tell_for_a_week_who_has_set_the_password(stores: Stores, hire: Hire, clock: TestClock) -> None:
    await hire("bob", "reviewer")  # by ada
    account = (await load_directory(stores)).get("bob")
    assert account is not None
    assert (account.must_change_password, account.recent_reset_by(clock.now())) == (True, "ada")
    clock.advance(RESET_SHOWN_MS / 1000)
    assert account.recent_reset_by(clock.now()) == ""


async def test_an_account_from_before_is_read_and_votes(stores: Stores, hire: Hire) -> None:
    await hire("bob", "reviewer")
    [kept] = await stores.documents.list_documents("user")
    new = ("must_change_password", "password_set_by", "password_set_at")
    old = {name: value for name, value in json.loads(bytes(kept.body)).items() if name not in new}
    write = DocumentWrite(kind="user", id="bob", body=Raw(json.dumps(old).encode()), seen=kept.version)
    await stores.documents.write([write])

    assert not (await get_user(stores, "bob")).must_change_password
