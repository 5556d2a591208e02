"""By what a request shows who asks."""

import pytest

from ade.server.addresses import check_same_origin_write, counted_address, origin_of
from ade.server.credentials import Credentials, check_query, read_credentials
from tests.server.refusals import refused

SECRET = "Q0zN2m3bW9nZ2VkIGJ5IG5vYm9keSBhdCBhbGwgLSBv"
TOKEN = f"ade_{SECRET}"
COOKIE = ("Cookie", f"ade-session-8411={SECRET}")


def read(*headers: tuple[str, str], scheme: str = "http") -> Credentials:
    return read_credentials(headers, scheme=scheme, host="127.0.0.1:8411", address="10.0.0.7")


def test_a_token_or_a_session_or_nothing() -> None:
    assert read(("Authorization", f"bearer  {TOKEN} ")) == Credentials(token=TOKEN, address="10.0.0.7")
    assert read(COOKIE) == Credentials(session=SECRET, address="10.0.0.7")
    assert read(("Accept", "*/*")) == Credentials(address="10.0.0.7")


def test_both_together_are_refused() -> None:
    assert refused(lambda: read(("authorization", f"Bearer {TOKEN}"), COOKIE)) == 400


def test_a_cookie_of_the_other_scheme_is_none() -> None:
    assert read(COOKIE, scheme="https").session is None
    assert read(("Cookie", f"__Host-ade={SECRET}")).session is None
    assert read(("Cookie", f"__Host-ade={SECRET}"), scheme="https").session == SECRET


@pytest.mark.parametrize("sent", ["", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {'x' * 5_000}"])
def test_what_is_no_bearer_token_is_a_wrong_one(sent: str) -> None:
    assert read(("Authorization", sent)).token == ""


def test_no_secret_shows_in_a_log() -> None:
    assert TOKEN not in repr(read(("Authorization", f"Bearer {TOKEN}")))
    assert SECRET not in str(read(COOKIE))


@pytest.mark.parametrize("pair", [("access_token", TOKEN), ("x", TOKEN), (TOKEN, ""), ("q", f"name:{TOKEN}")])
def test_a_token_in_the_address_is_refused_whatever_it_is_called(pair: tuple[str, str]) -> None:
    assert refused(lambda: check_query([("status", "failed"), pair])) == 400
    check_query([("name", "ade_demo"), ("q", "ade_ is what tokens begin with")])


def test_one_customer_is_counted_once() -> None:
    assert counted_address("203.0.113.9") == "203.0.113.9"
    assert counted_address("2001:db8:1:2::a") == counted_address("2001:db8:1:2:ffff::b") == "2001:db8:1:2::/64"
    assert counted_address("::ffff:203.0.113.9") == "203.0.113.9"
    assert counted_address("") == ""


@pytest.mark.parametrize(
    ("origin", "site"),
    [
        (None, None),
        (None, "same-origin"),
        ("null", None),
        ("http://evil.example.com", None),
        ("http://127.0.0.1:8412", "same-site"),  # another server on this machine
        ("https://127.0.0.1:8411", None),
        ("http://127.0.0.1:8411", "cross-site"),
    ],
)
def test_a_session_changes_nothing_for_a_page_that_is_not_ours(origin: str | None, site: str | None) -> None:
    own = {origin_of("http", "127.0.0.1:8411")}

    assert refused(lambda: check_same_origin_write(own, origin=origin, fetch_site=site)) == 403
    check_same_origin_write(own, origin="http://127.0.0.1:8411", fetch_site="same-origin")
