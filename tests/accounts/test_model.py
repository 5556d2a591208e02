"""Accounts: one name for all its spellings, roles that mean something, and programs that never vote."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.accounts.authorization import check_token
from ade.accounts.model import (
    FOR_PEOPLE,
    MAX_TOKEN_MS,
    Caller,
    InvalidAccount,
    InvalidToken,
    Permission,
    Role,
    Token,
    User,
    check_user,
    directory_of,
    normal_id,
    normal_roles,
    permissions_of,
)
from ade.errors import NotPermitted


@pytest.mark.parametrize("spelling", ["ada", "Ada", "ADA", "\uff41\uff44\uff41", "\uff21da"])
def test_all_spellings_of_a_name_are_one_account(spelling: str) -> None:
    assert normal_id(spelling) == "ada"


@pytest.mark.parametrize("name", ["straße", "STRASSE", "\u00c5dne", "A\u030adne", "ada@example.com", "o.neil-2", "李"])
def test_names_of_all_the_world_are_names(name: str) -> None:
    assert normal_id(normal_id(name)) == normal_id(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "two words", "tab\t", "line\n", "a:b", "a/b", "a,b", "{a}", "a}", '"a"', "a'b", "a\x00"),
        *("\u202eada", "a\u200bb", "x" * 101, "a\u00a0b", "\uff1aa"),
    ],
)
def test_what_no_name_can_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidAccount):
        normal_id(name)


@given(st.text(max_size=30))
def test_a_name_that_was_made_normal_stays_as_it_is(text: str) -> None:
    try:
        normal = normal_id(text)
    except InvalidAccount:
        return
    assert normal_id(normal) == normal == normal_id(text.casefold())


def test_roles_are_words() -> None:
    assert normal_roles(["DBA", "on-call.2"]) == {"dba", "on-call.2"}
    for wrong in ("", "two words", "-x", "a,b"):
        with pytest.raises(InvalidAccount):
            normal_roles([wrong])
    with pytest.raises(InvalidAccount):
        normal_roles(f"r{number}" for number in range(51))


def test_an_admin_may_do_everything_and_a_mark_gives_nothing() -> None:
    assert permissions_of({Role.ADMIN}, is_human=True) == set(Permission)
    assert permissions_of({"dba"}, is_human=True) == set()
    assert permissions_of({Role.VIEWER, Role.REVIEWER}, is_human=True) == {Permission.READ, Permission.VOTE}


@given(st.sets(st.sampled_from([*Role, "dba"])))
def test_a_program_never_votes_whatever_its_roles(roles: set[str]) -> None:
    assert permissions_of(roles, is_human=False).isdisjoint(FOR_PEOPLE)


def test_whoever_is_deactivated_may_do_nothing() -> None:
    assert User(id="ada", roles=frozenset({"admin"}), is_active=False).permissions == set()


@pytest.mark.parametrize(
    "wrong",
    [
        User(id="system"),
        User(id="ada", owner="bob"),
        User(id="bot", is_human=False),
        User(id="bot", is_human=False, owner="ada", password="x"),
        User(id="bot", is_human=False, owner="ada", roles=frozenset({"reviewer"})),
        User(id="bot", is_human=False, owner="ada", roles=frozenset({"admin"})),
        User(id="ada", display_name="x" * 201),
        User(id="ada", display_name="two\nlines"),
    ],
)
def test_what_no_account_may_be_is_refused(wrong: User) -> None:
    with pytest.raises(InvalidAccount):
        check_user(wrong)


def test_the_directory_knows_people_and_who_answers_for_programs() -> None:
    ada = User(id="ada", roles=frozenset({"dba"}))
    root = User(id="ada-root", person="ada")
    bot = User(id="bot", is_human=False, owner="ada")
    directory = directory_of([ada, root, bot])

    assert directory.who("ada") == directory.who("ada-root") == "ada"
    known = directory.get("bot")
    assert known is not None
    assert (known.is_human, known.owner) == (False, "ada")


LINKED = st.dictionaries(st.sampled_from("abcdefg"), st.sampled_from(["", *"abcdefgxy"]))


@given(LINKED)
def test_accounts_that_are_linked_in_any_way_are_one_person(links: dict[str, str]) -> None:
    directory = directory_of(User(id=name, person=person) for name, person in links.items())
    groups: list[set[str]] = [{name} for name in links]
    for name, person in links.items():
        joined = [group for group in groups if group & {name, person}]
        groups = [group for group in groups if group not in joined] + [{name, person}.union(*joined) - {""}]

    for one, other in itertools.combinations(links, 2):
        assert (directory.who(one) == directory.who(other)) == any({one, other} <= group for group in groups)
    assert all(directory.who(directory.who(name)) == directory.who(name) for name in links)
    assert all(account.who == directory.who(account.id) for account in directory.everybody())


def test_a_hash_is_in_no_text_of_a_user() -> None:
    user = User(id="ada", password="scrypt$hash")

    assert "hash" not in f"{user!r} {user} {Caller(user=user)}"


def token(**more: object) -> Token:
    known: dict[str, object] = {"scopes": frozenset({Permission.READ}), "created_at": 100, "expires_at": 200}
    return Token(id="t", account="ada", **(known | more))  # type: ignore[arg-type]  # its fields by name


def test_a_token_may_never_do_more_than_its_account() -> None:
    viewer = User(id="ada", roles=frozenset({"viewer"}))
    wide = token(scopes=frozenset({Permission.READ, Permission.ENQUEUE}))

    assert Caller(user=viewer, token=wide).permissions == {Permission.READ}
    with pytest.raises(NotPermitted, match="enqueue through this token"):
        Caller(user=viewer, token=wide).require(Permission.ENQUEUE)
    Caller(user=viewer, token=wide).require(Permission.READ)
    with pytest.raises(InvalidToken, match="enqueue"):
        check_token(wide, viewer)


@pytest.mark.parametrize(
    "wrong",
    [
        token(scopes=frozenset()),
        token(expires_at=100),
        token(expires_at=100 + MAX_TOKEN_MS + 1),
        token(label="x" * 101),
        token(label="two\nlines"),
    ],
)
def test_what_no_token_may_be_is_refused(wrong: Token) -> None:
    with pytest.raises(InvalidToken):
        check_token(wrong, User(id="ada", roles=frozenset({"viewer"})))
