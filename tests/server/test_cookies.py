"""The cookie of a session: what is written so that a browser keeps it safe, and what is read of what comes back."""

from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.server.credentials import cookie_name, delete_cookie, read_cookie, set_cookie

SECRET = "Q0zN2m3bW9nZ2VkIGJ5IG5vYm9keSBhdCBhbGwgLSBv"
SAFE = "__Host-ade"


def test_over_https_the_browser_itself_keeps_it_apart() -> None:
    assert cookie_name("https", "ade.example.org") == SAFE
    assert set_cookie(SAFE, SECRET, 3_600) == (
        f"__Host-ade={SECRET}; Max-Age=3600; Path=/; HttpOnly; SameSite=Lax; Secure"
    )


def test_over_http_it_has_a_name_of_its_own_for_each_port() -> None:
    """Safari drops Secure cookies over http on the own machine, and no browser tells ports apart."""
    name = cookie_name("http", "127.0.0.1:8411")

    assert name == "ade-session-8411"
    assert cookie_name("http", "[::1]:8412") == "ade-session-8412"
    assert (
        cookie_name("http", "localhost") == cookie_name("http", "[::1]") == cookie_name("http", None) == "ade-session"
    )
    assert set_cookie(name, SECRET, 60) == f"ade-session-8411={SECRET}; Max-Age=60; Path=/; HttpOnly; SameSite=Lax"


def test_a_cookie_is_deleted_with_the_attributes_it_was_set_with() -> None:
    assert delete_cookie(SAFE) == "__Host-ade=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax; Secure"
    assert delete_cookie("ade-session-8411") == "ade-session-8411=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax"


@pytest.mark.parametrize("name", [SAFE, "ade-session-8411"])
def test_what_was_set_comes_back(name: str) -> None:
    assert read_cookie([("Cookie", f"theme=dark; {name}={SECRET}; x")], name) == SECRET
    assert read_cookie([("cookie", "theme=dark"), ("cookie", f"{name}={SECRET}")], name) == SECRET
    assert read_cookie([("cookie", f"{name}={SECRET}; {name}={SECRET[::-1]}")], name) == SECRET


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";;;",
        "=",
        SAFE,
        f"{SAFE}=",
        f"{SAFE.lower()}={SECRET}",
        f"x{SAFE}={SECRET}",
        f'{SAFE}="{SECRET}"',
        f"{SAFE}={SECRET}\u00e4",
        f"{SAFE}=short",
        f"{SAFE}={'x' * 300}",
        f"ade-session-8411={SECRET}",
        ("a=b;" * 100) + f"{SAFE}={SECRET}",
        f"a={'b' * 20_000}; {SAFE}={SECRET}",
    ],
)
def test_what_is_malformed_or_too_much_is_no_session(text: str) -> None:
    assert read_cookie([("Cookie", text)], SAFE) is None


def test_nothing_but_a_secret_is_set() -> None:
    for wrong in ("", "x; Domain=example.org", "a\r\nX: y" + SECRET, SECRET + ";"):
        with pytest.raises(ValueError, match="no secret"):
            set_cookie(SAFE, wrong, 60)


def test_what_a_stranger_calls_the_host_is_not_kept() -> None:
    """Probes are answered whatever their header Host is."""

    class Host(str):
        pass

    host = Host(f"{'x' * 10_000}:8411")
    is_kept = ref(host)
    assert cookie_name("http", host) == "ade-session-8411"
    del host
    assert is_kept() is None


@given(st.text(max_size=200))
def test_reading_never_fails(text: str) -> None:
    found = read_cookie([("Cookie", text)], SAFE)
    assert found is None or f"{SAFE}=" in text
