"""What is whose."""

from hypothesis import given
from hypothesis import strategies as st

from ade.accounts.authorization import is_own
from ade.accounts.model import Caller, User, directory_of

USERS = {
    user.id: user
    for user in (
        User(id="ada", person="ada l."),
        User(id="ada2", person="ada l."),
        User(id="bob"),
        User(id="bot", is_human=False, owner="ada"),
        User(id="helper", is_human=False, owner="ada"),
    )
}
DIRECTORY = directory_of(USERS.values())


def own(caller: str, author: str | None) -> bool:
    return is_own(Caller(user=USERS[caller]), author, DIRECTORY)


def test_ones_own_is_what_one_has_written_or_ones_program_has() -> None:
    assert own("ada", "ada")
    assert own("ada", "ADA")  # however it was spelled
    assert own("ada", "bot")
    assert own("bot", "bot")


def test_nothing_else_makes_it_ones_own() -> None:
    assert not own("bob", "ada")
    assert not own("ada2", "ada")  # another account of the same human
    assert not own("bot", "ada")  # what the owner wrote is not the program's
    assert not own("bot", "helper")
    assert not own("ada", None)
    assert not own("ada", "")
    assert not own("ada", "nobody")
    assert not own("ada", "cli: ada")


@given(st.sampled_from(sorted(USERS)), st.none() | st.sampled_from(sorted(USERS)) | st.text(max_size=20))
def test_only_the_author_and_its_owner_ever_own(caller: str, author: str | None) -> None:
    if own(caller, author):
        assert author is not None
        known = USERS[author.casefold()]
        assert caller in (known.id, known.owner)
