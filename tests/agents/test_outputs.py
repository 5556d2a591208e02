"""What is printed comes out without secrets."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ade.agents.processes.output import SecretMask
from ade.agents.protocols.base import secrets_in

# Few letters, so that secrets overlap with themselves, with each other and with the ends of pieces.
secrets = st.lists(st.text("ab", min_size=6, max_size=9), max_size=3)
pieces = st.lists(st.text("ab\n", max_size=12).map(str.encode), max_size=12)


def masked(known: list[str], parts: list[bytes]) -> bytes:
    mask = SecretMask(known)
    return b"".join([*(mask.feed(part) for part in parts), mask.finish()])


@given(secrets, pieces)
def test_no_secret_gets_through_in_whatever_pieces_it_comes(known: list[str], parts: list[bytes]) -> None:
    out = masked(known, parts)

    assert [secret for secret in known if secret.encode() in out] == []


@given(secrets, pieces)
def test_the_pieces_make_no_difference(known: list[str], parts: list[bytes]) -> None:
    assert masked(known, parts) == masked(known, [b"".join(parts)])


@given(secrets, st.binary(max_size=200))
def test_what_holds_no_secret_is_left_alone(known: list[str], data: bytes) -> None:
    if not any(secret.encode() in data for secret in known):
        assert masked(known, [data]) == data


def test_a_line_that_ends_is_not_held_back() -> None:
    mask = SecretMask(["secret-of-mine"])

    assert mask.feed(b"is it sec") == b"is it "
    assert mask.feed(b"ond?\n") == b"second?\n"


def test_of_two_secrets_that_begin_alike_the_longer_one_goes_whole() -> None:
    assert masked(["secret", "secret-and-more"], [b"a secret", b"-and-more, a secret."]) == b"a [hidden], a [hidden]."


def test_a_secret_is_known_as_json_writes_it_too() -> None:
    key = '-----BEGIN "KEY"-----\nzÿ\n'
    line = json.dumps({"text": f"it is {key}"}).encode()

    assert json.loads(masked([key], [line])) == {"text": "it is [hidden]"}


def test_what_is_short_is_no_secret() -> None:
    assert masked(["", "on"], [b"it is on"]) == b"it is on"


def test_secrets_are_known_by_their_names_and_by_their_place_in_a_url() -> None:
    environment = {
        "LETTA_API_KEY": "one",
        "github_token": "two",
        "DB_PASSWORD": "three",
        "STORE": "redis://user:four@host/0",
        "MONKEY": "free",
        "KEYBOARD": "free",
        "HOME": "/users/ada",
    }

    assert secrets_in(environment) == ["one", "two", "three", "four"]
