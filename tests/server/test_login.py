"""Who asks: tokens, sessions of browsers, the first link, and pages of other sites."""

import asyncio
from pathlib import Path

import pytest

from ade.settings import SettingsError
from tests.domain import Permission, Role, UserChanges, change_user, create_token, revoke_token
from tests.server.conftest import PASSWORD, Answer, ServerHarness, start_server
from tests.stores.urls import store_url

pytestmark = pytest.mark.usefixtures("cheap_passwords")

TASKS, ME, SESSIONS = "/api/v1/tasks", "/api/v1/me", "/api/v1/sessions"


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


async def signed_in(server: ServerHarness, name: str) -> str:
    answer = await server.ask("POST", SESSIONS, {"name": name, "password": PASSWORD}, by=None)
    assert answer.status == 200, answer
    return cookie_of(answer)


async def test_nobody_gets_in_without_showing_who_he_is(server: ServerHarness) -> None:
    answer = await server.ask("GET", TASKS, by=None)
    assert (answer.status, answer.code, answer.headers["www-authenticate"]) == (
        401, "not_authenticated", 'Bearer realm="ade"',
    )  # fmt: skip
    wrong = await server.ask("GET", TASKS, by=None, authorization="Bearer ade_" + "x" * 43)
    assert (wrong.status, wrong.code) == (401, "not_authenticated")
    basic = await server.ask("GET", TASKS, by=None, authorization="Basic YTpi")
    assert basic.status == 401


async def test_the_first_link_lets_the_first_admin_in_once(server: ServerHarness) -> None:
    answer = await server.ask("POST", f"{SESSIONS}/login-link", {"secret": server.secret}, by=None)
    assert (answer.status, answer.json()["account"], answer.json()["has_password"]) == (200, "admin", False)
    assert server.secret is not None
    assert server.secret not in answer.body.decode()
    cookie = answer.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=Lax", "Path=/", "Max-Age="))
    me = await server.ask("GET", ME, by=None, cookie=cookie_of(answer))
    assert (me.status, me.json()["user"]["id"]) == (200, "admin")
    again = await server.ask("POST", f"{SESSIONS}/login-link", {"secret": server.secret}, by=None)
    assert (again.status, again.code) == (401, "not_authenticated")


async def test_the_first_admin_sets_a_password_and_then_makes_accounts_and_tokens(server: ServerHarness) -> None:
    answer = await server.ask("POST", f"{SESSIONS}/login-link", {"secret": server.secret}, by=None)
    here = {"cookie": cookie_of(answer), "origin": server.url}
    rita = {"id": "rita", "roles": ["reviewer"]}
    early = await server.ask("POST", "/api/v1/users", rita, by=None, headers=here)
    assert (early.status, early.code) == (403, "reauthentication_needed")
    assert "admin has no password, so set one first" in early.json()["detail"]
    changed = await server.ask("PUT", f"{ME}/password", {"new": PASSWORD}, by=None, headers=here)
    assert (changed.status, changed.json()["must_change_password"]) == (200, False)
    here["cookie"] = cookie_of(changed)
    assert (await server.ask("POST", "/api/v1/users", rita, by=None, headers=here)).status == 201
    assert (await server.ask("POST", f"{ME}/tokens", {}, by=None, headers=here)).status == 201
    assert (await server.ask("POST", "/api/v1/users/rita/login-link", by=None, headers=here)).status == 201


async def test_the_page_of_the_link_keeps_its_secret_out_of_addresses(sqlite_server: ServerHarness) -> None:
    page = await sqlite_server.ask("GET", "/login", by=None)
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    script = await sqlite_server.ask("GET", "/login.js", by=None)
    assert b"login-link" in script.body
    asked = await sqlite_server.ask("GET", f"/login?token={sqlite_server.secret}", by=None)
    assert asked.status == 400


async def test_a_session_begins_with_a_new_secret_and_ends_when_told(server: ServerHarness) -> None:
    await server.person("ada", Role.OPERATOR, password=PASSWORD)
    first, second = await signed_in(server, "ada"), await signed_in(server, "ada")
    assert first != second
    host = server.url.removeprefix("http://")
    out = await server.ask("DELETE", f"{SESSIONS}/current", by=None, cookie=first, origin=f"http://{host}")
    assert out.status == 204
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert (await server.ask("GET", ME, by=None, cookie=first)).status == 401
    assert (await server.ask("GET", ME, by=None, cookie=second)).status == 200
    everywhere = await server.ask("DELETE", SESSIONS, by=None, cookie=second, origin=f"http://{host}")
    assert everywhere.status == 200
    assert (await server.ask("GET", ME, by=None, cookie=second)).status == 401


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
async def test_no_page_of_another_site_acts_through_a_session(
    sqlite_server: ServerHarness, headers: dict[str, str]
) -> None:
    server = sqlite_server
    await server.person("ada", Role.OPERATOR, password=PASSWORD)
    cookie, host = await signed_in(server, "ada"), server.url.removeprefix("http://")
    sent = {name: value.format(host=host) for name, value in headers.items()}
    refused = await server.ask("POST", TASKS, {"name": "greet"}, by=None, cookie=cookie, headers=sent)
    assert (refused.status, refused.code) == (403, "cross_site_request")
    text = b'{"name": "greet"}'
    own = {"origin": f"http://{host}"}
    plain = await server.ask("POST", TASKS, by=None, cookie=cookie, raw=text, content_type="text/plain", headers=own)
    assert plain.status == 415
    assert (await server.ask("GET", TASKS)).json()["items"] == []
    allowed = await server.ask("POST", TASKS, {"name": "greet"}, by=None, cookie=cookie, headers=own)
    assert allowed.status == 201


async def test_no_page_of_another_site_signs_somebody_in_behind_a_proxy_that_asks_for_a_password(
    sqlite_server: ServerHarness,
) -> None:
    """A browser sends such a password by itself, so it proves nothing about who asks."""
    await sqlite_server.person("ada", Role.OPERATOR, password=PASSWORD)
    form = {"name": "ada", "password": PASSWORD}
    answer = await sqlite_server.ask(
        "POST", SESSIONS, form, by=None, authorization="Basic YTpi", origin="https://evil.example"
    )
    assert (answer.status, answer.code) == (403, "cross_site_request")


async def test_a_page_of_another_site_cannot_listen_to_events(sqlite_server: ServerHarness) -> None:
    await sqlite_server.person("ada", Role.OPERATOR, password=PASSWORD)
    cookie = await signed_in(sqlite_server, "ada")
    answer = await sqlite_server.ask(
        "GET", "/api/v1/events", by=None, cookie=cookie, origin="https://evil.example", accept="text/event-stream"
    )
    assert (answer.status, answer.code) == (403, "cross_site_request")


async def test_a_token_in_an_address_is_refused_even_a_good_one(sqlite_server: ServerHarness) -> None:
    token = await sqlite_server.token(Role.OPERATOR)
    for query in (f"token={token}", f"q={token}", f"text={token}"):
        assert (await sqlite_server.ask("GET", f"{TASKS}?{query}")).status == 400


async def test_two_ways_to_show_who_one_is_are_one_too_many(sqlite_server: ServerHarness) -> None:
    await sqlite_server.person("ada", Role.OPERATOR, password=PASSWORD)
    cookie = await signed_in(sqlite_server, "ada")
    assert (await sqlite_server.ask("GET", TASKS, cookie=cookie)).status == 400


async def test_a_request_for_another_host_is_refused(sqlite_server: ServerHarness) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sqlite_server.url.rpartition(":")[2]))
    writer.write(b"GET /api/v1/tasks HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert b" 421 " in answer
    assert b"misdirected_request" in answer


async def test_a_role_that_is_taken_away_counts_from_the_next_request_on(server: ServerHarness) -> None:
    user = await server.person("ada", Role.OPERATOR, password=PASSWORD)
    cookie = await signed_in(server, "ada")
    assert (await server.ask("GET", TASKS, by=None, cookie=cookie)).status == 200
    await change_user(server.stores, user.id, UserChanges(roles=frozenset()))
    answer = await server.ask("GET", TASKS, by=None, cookie=cookie)
    assert answer.status in (401, 403)


async def test_a_token_allows_what_it_was_made_for_and_nothing_once_revoked(server: ServerHarness) -> None:
    user = await server.person("ada", Role.OPERATOR)
    secret, token = await create_token(server.stores, user.id, scopes=frozenset({Permission.READ}))
    asked = {"authorization": f"Bearer {secret}"}
    assert (await server.ask("GET", TASKS, by=None, headers=asked)).status == 200
    assert (await server.ask("POST", TASKS, {"name": "greet"}, by=None, headers=asked)).code == "not_permitted"
    await revoke_token(server.stores, token.id)
    assert (await server.ask("GET", TASKS, by=None, headers=asked)).status == 401


async def test_what_takes_a_session_is_not_open_to_a_token(server: ServerHarness) -> None:
    answer = await server.ask("PUT", "/api/v1/me/password", {"new": PASSWORD}, by=Role.ADMIN)
    assert (answer.status, answer.code) == (403, "not_permitted")


async def test_an_open_door_is_for_this_machine_alone(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        async with start_server(
            store_url("sqlite", tmp_path), tmp_path, **{"http.auth": "off", "http.host": "0.0.0.0"}
        ):
            pass
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.auth": "off"}) as server:
        me = await server.ask("GET", ME, by=None)
        assert me.json()["user"]["id"] == "local"
        assert "vote" not in me.json()["permissions"]
        foreign = await server.ask("POST", TASKS, {"name": "greet"}, by=None, origin="https://evil.example")
        assert (foreign.status, foreign.code) == (403, "cross_site_request")
        assert (await server.ask("POST", TASKS, {"name": "greet"}, by=None)).status == 201
