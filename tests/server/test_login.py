"""Who asks: tokens, sessions of browsers, the first link, and pages of other sites."""

import asyncio
from pathlib import Path

import pytest

from ade.accounts.tokens import create_token, revoke_token
from ade.settings import SettingsError
from tests.domain import Permission, Role, UserChanges, change_user
from tests.server.conftest import PASSWORD, Answer, House, open_house
from tests.stores.urls import store_url

pytestmark = pytest.mark.usefixtures("cheap_passwords")

TASKS, ME, SESSIONS = "/api/v1/tasks", "/api/v1/me", "/api/v1/sessions"


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


async def signed_in(house: House, name: str) -> str:
    answer = await house.ask("POST", SESSIONS, {"name": name, "password": PASSWORD}, by=None)
    assert answer.status == 200, answer
    return cookie_of(answer)


async def test_nobody_gets_in_without_showing_who_he_is(house: House) -> None:
    answer = await house.ask("GET", TASKS, by=None)
    assert (answer.status, answer.code, answer.headers["www-authenticate"]) == (
        401, "not_authenticated", 'Bearer realm="ade"',
    )  # fmt: skip
    wrong = await house.ask("GET", TASKS, by=None, authorization="Bearer ade_" + "x" * 43)
    assert (wrong.status, wrong.code) == (401, "not_authenticated")
    basic = await house.ask("GET", TASKS, by=None, authorization="Basic YTpi")
    assert basic.status == 401


async def test_the_first_link_lets_the_first_admin_in_once(house: House) -> None:
    answer = await house.ask("POST", f"{SESSIONS}/login-link", {"secret": house.secret}, by=None)
    assert (answer.status, answer.json()["account"], answer.json()["has_password"]) == (200, "admin", False)
    assert house.secret is not None
    assert house.secret not in answer.body.decode()
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Lax", "Path=/", "Max-Age="))
    me = await house.ask("GET", ME, by=None, cookie=cookie_of(answer))
    assert (me.status, me.json()["user"]["id"]) == (200, "admin")
    again = await house.ask("POST", f"{SESSIONS}/login-link", {"secret": house.secret}, by=None)
    assert (again.status, again.code) == (401, "not_authenticated")


async def test_the_page_of_the_link_keeps_its_secret_out_of_addresses(small_house: House) -> None:
    page = await small_house.ask("GET", "/login", by=None)
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    script = await small_house.ask("GET", "/login.js", by=None)
    assert b"login-link" in script.body
    asked = await small_house.ask("GET", f"/login?token={small_house.secret}", by=None)
    assert asked.status == 400


async def test_a_session_begins_with_a_new_secret_and_ends_when_told(house: House) -> None:
    await house.person("ada", Role.OPERATOR, password=PASSWORD)
    first, second = await signed_in(house, "ada"), await signed_in(house, "ada")
    assert first != second
    host = house.url.removeprefix("http://")
    out = await house.ask("DELETE", f"{SESSIONS}/current", by=None, cookie=first, origin=f"http://{host}")
    assert out.status == 204
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert (await house.ask("GET", ME, by=None, cookie=first)).status == 401
    assert (await house.ask("GET", ME, by=None, cookie=second)).status == 200
    everywhere = await house.ask("DELETE", SESSIONS, by=None, cookie=second, origin=f"http://{host}")
    assert everywhere.status == 200
    assert (await house.ask("GET", ME, by=None, cookie=second)).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://{host}", "sec_fetch_site": "cross-site"},
        {"origin": "http://{host}.evil.example"},
        {"origin": "https://{host}"},
    ],
)
async def test_no_page_of_another_site_acts_through_a_session(small_house: House, headers: dict[str, str]) -> None:
    house = small_house
    await house.person("ada", Role.OPERATOR, password=PASSWORD)
    cookie, host = await signed_in(house, "ada"), house.url.removeprefix("http://")
    sent = {name: value.format(host=host) for name, value in headers.items()}
    refused = await house.ask("POST", TASKS, {"name": "greet"}, by=None, cookie=cookie, headers=sent)
    assert (refused.status, refused.code) == (403, "cross_site_request")
    text = b'{"name": "greet"}'
    own = {"origin": f"http://{host}"}
    plain = await house.ask("POST", TASKS, by=None, cookie=cookie, raw=text, content_type="text/plain", headers=own)
    assert plain.status == 415
    assert (await house.ask("GET", TASKS)).json()["items"] == []
    allowed = await house.ask("POST", TASKS, {"name": "greet"}, by=None, cookie=cookie, headers=own)
    assert allowed.status == 201


async def test_no_page_of_another_site_signs_somebody_in_behind_a_proxy_that_asks_for_a_password(
    small_house: House,
) -> None:
    """A browser sends such a password by itself, so it proves nothing about who asks."""
    await small_house.person("ada", Role.OPERATOR, password=PASSWORD)
    form = {"name": "ada", "password": PASSWORD}
    answer = await small_house.ask(
        "POST", SESSIONS, form, by=None, authorization="Basic YTpi", origin="https://evil.example"
    )
    assert (answer.status, answer.code) == (403, "cross_site_request")


async def test_a_page_of_another_site_cannot_listen_to_events(small_house: House) -> None:
    await small_house.person("ada", Role.OPERATOR, password=PASSWORD)
    cookie = await signed_in(small_house, "ada")
    answer = await small_house.ask(
        "GET", "/api/v1/events", by=None, cookie=cookie, origin="https://evil.example", accept="text/event-stream"
    )
    assert (answer.status, answer.code) == (403, "cross_site_request")


async def test_a_token_in_an_address_is_refused_even_a_good_one(small_house: House) -> None:
    token = await small_house.token(Role.OPERATOR)
    for query in (f"token={token}", f"q={token}", f"text={token}"):
        assert (await small_house.ask("GET", f"{TASKS}?{query}")).status == 400


async def test_two_ways_to_show_who_one_is_are_one_too_many(small_house: House) -> None:
    await small_house.person("ada", Role.OPERATOR, password=PASSWORD)
    cookie = await signed_in(small_house, "ada")
    assert (await small_house.ask("GET", TASKS, cookie=cookie)).status == 400


async def test_a_request_for_another_host_is_refused(small_house: House) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(small_house.url.rpartition(":")[2]))
    writer.write(b"GET /api/v1/tasks HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert b" 421 " in answer
    assert b"misdirected_request" in answer


async def test_a_role_that_is_taken_away_counts_from_the_next_request_on(house: House) -> None:
    user = await house.person("ada", Role.OPERATOR, password=PASSWORD)
    cookie = await signed_in(house, "ada")
    assert (await house.ask("GET", TASKS, by=None, cookie=cookie)).status == 200
    await change_user(house.stores, user.id, UserChanges(roles=frozenset()))
    answer = await house.ask("GET", TASKS, by=None, cookie=cookie)
    assert answer.status in (401, 403)


async def test_a_token_allows_what_it_was_made_for_and_nothing_once_revoked(house: House) -> None:
    user = await house.person("ada", Role.OPERATOR)
    secret, token = await create_token(house.stores, user.id, scopes=frozenset({Permission.READ}))
    asked = {"authorization": f"Bearer {secret}"}
    assert (await house.ask("GET", TASKS, by=None, headers=asked)).status == 200
    assert (await house.ask("POST", TASKS, {"name": "greet"}, by=None, headers=asked)).code == "not_permitted"
    await revoke_token(house.stores, token.id)
    assert (await house.ask("GET", TASKS, by=None, headers=asked)).status == 401


async def test_what_takes_a_session_is_not_open_to_a_token(house: House) -> None:
    answer = await house.ask("PUT", "/api/v1/me/password", {"new": PASSWORD}, by=Role.ADMIN)
    assert (answer.status, answer.code) == (403, "not_permitted")


async def test_an_open_door_is_for_this_machine_alone(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        async with open_house(store_url("sqlite", tmp_path), tmp_path, **{"http.auth": "off", "http.host": "0.0.0.0"}):
            pass
    async with open_house(store_url("sqlite", tmp_path), tmp_path, **{"http.auth": "off"}) as house:
        me = await house.ask("GET", ME, by=None)
        assert me.json()["user"]["id"] == "local"
        assert "vote" not in me.json()["permissions"]
        foreign = await house.ask("POST", TASKS, {"name": "greet"}, by=None, origin="https://evil.example")
        assert (foreign.status, foreign.code) == (403, "cross_site_request")
        assert (await house.ask("POST", TASKS, {"name": "greet"}, by=None)).status == 201
