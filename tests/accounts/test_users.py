"""Accounts are made and changed, each change is told, and somebody is always left to administer."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from ade.accounts.model import AccountExists, InvalidAccount, LastAdmin, Permission, UnknownAccount, User, WeakPassword
from ade.accounts.users import UserChanges, add_user, change_user, get_user, list_users, load_directory, set_password
from ade.events import model as events_model
from ade.testing import TestClock
from tests.accounts.conftest import CHEAP, PASSWORD, Hire, everything, told
from tests.domain import Stores


async def test_two_spellings_of_one_name_are_one_account(stores: Stores, hire: Hire) -> None:
    await hire("Ada", "admin")

    assert (await get_user(stores, "\uff21DA")).id == "ada"
    with pytest.raises(AccountExists):
        await hire("aDA", "viewer")
    assert [user.id for user in await list_users(stores)] == ["ada"]


async def test_of_many_that_take_a_name_at_once_one_gets_it(stores: Stores, hire: Hire) -> None:
    answers = await asyncio.gather(*(hire("ada", "admin") for _ in range(5)), return_exceptions=True)

    assert sum(isinstance(answer, User) for answer in answers) == 1
    assert sum(isinstance(answer, AccountExists) for answer in answers) == 4
    assert await told(stores) == ["user.added"]


async def test_the_name_of_somebody_who_left_is_never_given_away(stores: Stores, hire: Hire) -> None:
    await hire("ada", "admin")
    await hire("bob", "viewer")
    await change_user(stores, "bob", UserChanges(is_active=False))

    with pytest.raises(AccountExists):
        await hire("Bob", "viewer")


async def test_changes_are_told_with_what_changed(stores: Stores, hire: Hire, clock: TestClock) -> None:
    await hire("ada", "admin")
    await hire("bob", "viewer")
    clock.advance(5)
    changes = UserChanges(display_name="Bob B.", more_roles=frozenset({"DBA"}), fewer_roles=frozenset({"Viewer"}))

    changed = await change_user(stores, "BOB", changes, actor="ada")

    assert (changed.display_name, changed.roles, changed.updated_at) == ("Bob B.", frozenset({"dba"}), clock.now())
    assert changed == await get_user(stores, "bob")
    event, notice = (await stores.events.read(0, 100))[-2:]
    assert (event.type, event.actor) == ("user.changed", "ada")
    assert (notice.type, notice.actor, notice.payload["roles_before"]) == ("user.roles_changed", "ada", ["viewer"])
    assert event.payload == {
        "account": "bob",
        "fields": ["display_name", "roles"],
        "roles": ["dba"],
        "roles_before": ["viewer"],
        "digest": events_model.record_digest(changed),
    }


async def test_a_change_that_changes_nothing_is_not_told(stores: Stores, hire: Hire) -> None:
    await hire("ada", "admin")

    await change_user(stores, "ada", UserChanges(roles=frozenset({"ADMIN"})))

    assert await told(stores) == ["user.added"]


async def test_changes_made_at_once_are_all_kept(stores: Stores, hire: Hire) -> None:
    await hire("ada", "admin")

    await asyncio.gather(
        *(change_user(stores, "ada", UserChanges(more_roles=frozenset({f"mark{number}"}))) for number in range(4))
    )

    assert (await get_user(stores, "ada")).roles == {"admin", "mark0", "mark1", "mark2", "mark3"}


@pytest.mark.parametrize("changes", [UserChanges(is_active=False), UserChanges(roles=frozenset({"viewer"}))])
async def test_the_last_admin_stays(stores: Stores, hire: Hire, changes: UserChanges) -> None:
    await hire("ada", "admin")
    await hire("bob", "admin")
    await change_user(stores, "bob", changes)

    with pytest.raises(LastAdmin, match="ada"):
        await change_user(stores, "ada", changes)

    assert (await get_user(stores, "ada")).is_admin


async def test_admins_who_are_taken_away_at_once_are_not_all_gone(stores: Stores, hire: Hire) -> None:
    names = ("ada", "bob", "cyd")
    for name in names:
        await hire(name, "admin")

    answers = await asyncio.gather(
        *(change_user(stores, name, UserChanges(is_active=False)) for name in names), return_exceptions=True
    )

    assert [type(answer) for answer in answers if isinstance(answer, Exception)] == [LastAdmin]
    assert sum(user.is_admin for user in await list_users(stores)) == 1


async def test_a_program_needs_a_person_who_answers_for_it(stores: Stores, hire: Hire) -> None:
    await hire("ada", "admin")
    bot = await hire("bot", "agent", is_human=False, owner="ADA")

    assert bot.owner == "ada"
    assert bot.permissions == {Permission.READ, Permission.READ_PAYLOADS, Permission.ENQUEUE}
    with pytest.raises(UnknownAccount):
        await hire("bot2", "agent", is_human=False, owner="nobody")
    with pytest.raises(InvalidAccount, match="active person"):
        await hire("bot3", "agent", is_human=False, owner="bot")
    with pytest.raises(InvalidAccount, match="only people"):
        await change_user(stores, "bot", UserChanges(more_roles=frozenset({"reviewer"})))
    with pytest.raises(InvalidAccount, match="not a password"):
        await set_password(stores, "bot", PASSWORD, cost=CHEAP)


async def test_a_password_that_can_be_guessed_is_refused(stores: Stores, hire: Hire) -> None:
    await hire("ada", "admin")

    for weak in ("", "short", "x" * 11, "x" * 1_001):
        with pytest.raises(WeakPassword):
            await set_password(stores, "ada", weak, cost=CHEAP)
        with pytest.raises(WeakPassword):
            await add_user(stores, User(id="bob"), password=weak, cost=CHEAP)


async def test_nobody_changes_an_account_that_is_not_there(stores: Stores) -> None:
    with pytest.raises(UnknownAccount, match="ade users list"):
        await change_user(stores, "nobody", UserChanges(is_active=False))
    with pytest.raises(UnknownAccount):
        await set_password(stores, "nobody", PASSWORD, cost=CHEAP)


async def test_no_password_and_no_hash_is_ever_told(stores: Stores, hire: Hire) -> None:
    await hire("ada", "admin")
    await set_password(stores, "ada", "another long password", cost=CHEAP)

    log = await everything(stores)

    assert "'fields': ['password']" in log
    for secret in (PASSWORD, "another long password", "scrypt"):
        assert secret not in log


@pytest.mark.parametrize("order", [*itertools.permutations([("a", "b"), ("b", "c"), ("d", "a")])])
async def test_links_lead_to_one_person_in_whatever_order_they_are_made(
    stores: Stores, hire: Hire, order: Sequence[tuple[str, str]]
) -> None:
    for name in "abcd":
        await hire(name, "reviewer")
    for account, person in order:
        await change_user(stores, account, UserChanges(person=person), actor="root")
    assert {name: (await get_user(stores, name)).person for name in "abcd"} == {"a": "c", "b": "c", "c": "", "d": "c"}

    back = await change_user(stores, "c", UserChanges(person="A"), actor="root")
    assert back.person == "", "the others are linked to it already"
    await change_user(stores, "b", UserChanges(person=""), actor="root")
    directory = await load_directory(stores)
    assert [directory.who(name) for name in "abcd"] == ["c", "b", "c", "c"]


async def test_accounts_that_move_along_are_told_apart_in_the_log(stores: Stores, hire: Hire) -> None:
    await hire("ada", "admin")
    await hire("ada-root", "admin", person="ada")
    await hire("ada-ops", "reviewer", person="ADA-ROOT")
    changes = UserChanges(person="countess", roles=frozenset({"viewer"}))
    await change_user(stores, "ada", changes, actor="root")  # the other admin moves along, and still is one

    moved = [event for event in await stores.events.read(0, 100) if "person" in event.payload.get("fields", ())]  # type: ignore[operator]
    found = {event.payload["account"]: (event.payload["person"], event.payload["person_before"]) for event in moved}
    assert found == {"ada": ("countess", ""), "ada-root": ("countess", "ada"), "ada-ops": ("countess", "ada")}
    with pytest.raises(LastAdmin):
        await change_user(stores, "ada-root", UserChanges(roles=frozenset(), person="other"), actor="root")
    late = await add_user(stores, User(id="countess", person="lovelace"))
    assert late.person == "lovelace"
    people = {name: (await get_user(stores, name)).person for name in ("ada", "ada-root", "ada-ops")}
    assert set(people.values()) == {"lovelace"}


async def test_the_directory_is_everybody_as_they_are_now(stores: Stores, hire: Hire) -> None:
    await hire("ada", "admin")
    await hire("ada-root", "reviewer", person="ADA")
    directory = await load_directory(stores)

    assert {account.id for account in directory.everybody()} == {"ada", "ada-root"}
    assert directory.who("ada-root") == "ada"
