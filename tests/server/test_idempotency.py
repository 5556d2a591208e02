"""The decision table of Idempotency-Key."""

import pytest

from ade.server.idempotency import (
    MOST_BODY,
    RUNS_MS,
    KeyStanding,
    StoredRequest,
    StoredResponse,
    again,
    fingerprint,
    is_storable,
    place_of,
    read_key,
    refusal,
    standing,
    stored_response,
    task_key,
)
from tests.domain import RequestRefused

NOW = 1_000_000
RUNNING = StoredRequest(fingerprint="f", holder="h", begun_at=NOW, runs_until=NOW + RUNS_MS)
DONE = StoredRequest(
    fingerprint="f", holder="h", begun_at=NOW, runs_until=NOW + RUNS_MS, answer=StoredResponse(status=201)
)


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("abc", "abc"),
        (' "a b" ', "a b"),
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
    ],
)
def test_keys_are_read_bare_or_quoted(header: str, key: str) -> None:
    assert read_key(header) == key


@pytest.mark.parametrize("header", ["", " ", '""', "a b", 'a"b', '"a', "x" * 256, "ä", "a\nb", "a\\b", '"a\\"b"'])
def test_what_is_no_key_is_refused(header: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        read_key(header)

    assert refused.value.problem.status == 400


def test_only_the_same_request_has_the_same_fingerprint() -> None:
    same = fingerprint("POST", "/a?b=1", b"{}")

    assert fingerprint("post", "/a?b=1", b"{}") == same
    others = {
        fingerprint("PUT", "/a?b=1", b"{}"),
        fingerprint("POST", "/a?b=2", b"{}"),
        fingerprint("POST", "/a?b=1", b"{ }"),
        fingerprint("POST", "/a?b=", b"1{}"),
    }
    assert len(others | {same}) == 5


def test_keys_of_two_accounts_are_two() -> None:
    assert place_of("ada", "k") != place_of("bob", "k")
    assert len(task_key("ada", "k" * 255)) < 100


@pytest.mark.parametrize(
    ("kept", "wanted", "steady", "expected"),
    [
        (None, "f", NOW, KeyStanding.FIRST),
        (RUNNING, "f", NOW, KeyStanding.RUNNING),
        (RUNNING, "f", NOW + RUNS_MS - 1, KeyStanding.RUNNING),
        (RUNNING, "f", NOW + RUNS_MS, KeyStanding.ABANDONED),
        (RUNNING, "f", 5, KeyStanding.ABANDONED),  # the steady clock began anew
        (RUNNING, "g", NOW, KeyStanding.OTHER),
        (RUNNING, "g", NOW + RUNS_MS, KeyStanding.OTHER),
        (DONE, "f", NOW, KeyStanding.REPEAT),
        (DONE, "f", NOW + 10 * RUNS_MS, KeyStanding.REPEAT),
        (DONE, "g", NOW, KeyStanding.OTHER),
    ],
)
def test_the_table(kept: StoredRequest | None, wanted: str, steady: int, expected: KeyStanding) -> None:
    assert standing(kept, wanted, steady=steady, judged=steady) is expected


def test_who_must_not_go_on_is_told_why() -> None:
    assert refusal(KeyStanding.OTHER).problem.status == 422
    assert refusal(KeyStanding.OTHER).problem.code == "idempotency_conflict"
    assert refusal(KeyStanding.RUNNING).problem.status == 409


def test_only_what_was_done_is_kept() -> None:
    assert all(is_storable(status) for status in (200, 201, 202, 204, 303))
    assert not any(is_storable(status) for status in (400, 401, 404, 409, 422, 429, 500, 503))


def test_an_answer_is_kept_without_what_belongs_to_one_connection() -> None:
    answer = StoredResponse(status=201, headers={"Location": "/x", "Set-Cookie": "s", "Date": "d"}, body=b"{}")

    assert stored_response(answer) == StoredResponse(status=201, headers={"location": "/x"}, body=b"{}")
    assert again(stored_response(answer)).headers == {"location": "/x", "idempotency-replayed": "true"}


def test_an_answer_too_large_to_be_kept_is_not_made_up() -> None:
    large = stored_response(StoredResponse(status=201, headers={"Location": "/x"}, body=b"x" * (MOST_BODY + 1)))

    assert large.body is None
    with pytest.raises(RequestRefused) as refused:
        again(large)
    assert refused.value.problem.status == 409
    assert refused.value.problem.more == {"first_status": 201, "location": "/x"}
