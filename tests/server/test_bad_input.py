"""Bad input, on every route that takes any: refused in words, nothing changed, and nothing of it can forge a line."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ade.logs import JsonFormatter, TextFormatter
from tests.domain import ROUTES, AuthLevel, Role, Route, shape_of
from tests.server.conftest import PASSWORD, ServerHarness, start_server
from tests.stores.urls import store_url

API = "/api/v1"
TASK = "01a1e503-5dba-7f16-87d1-29e75c2bd002"
JSON = "application/json"
BODIES = [
    (b'{"a": NaN}', JSON, 400),
    (b'{"a": -Infinity}', JSON, 400),
    (b'{"a": 1e999}', JSON, 400),
    (b'{"a": ' + b"9" * 250 + b"e99}", JSON, 400),
    (b'{"a": 1, "a": 2}', JSON, 400),
    (b'{"a": "\xff"}', JSON, 400),
    (b'{"a": "\\ud83d"}', JSON, 400),
    (b'{"a": "\\u0000"}', JSON, 400),
    (b"[" * 2_000 + b"]" * 2_000, JSON, 400),
    (b'{"a":' * 2_000 + b"1" + b"}" * 2_000, JSON, 400),
    (b"\x00", JSON, 400),
    (b"[]", JSON, 422),
    (b'"text"', JSON, 422),
    (b"null", JSON, 422),
    (b'{"nothing_of_this_name": 1}', JSON, 422),
    (b'{"id": "x", "status": "completed", "version": 7, "approved": true}', JSON, 422),
    (b"a=1", "text/plain", 415),
    (b"a=1", "application/x-www-form-urlencoded", 415),
    (b'{"a": 1}', "application/json; charset=utf-16", 415),
]
IDS = {
    **dict.fromkeys(("%00", "a%0d%0ab", "%7Fx", "%C3%28", "x" * 501), (400,)),
    **dict.fromkeys(("..", "%2e%2e%2f%2e%2e", "{x}", "a:b:c", "*", "%F0%9F%92%A9" * 40), range(400, 500)),
}
TAKING = [
    route for route in ROUTES if shape_of(route.operation).body is not None and route.door is not AuthLevel.SESSION
]


def _path(route: Route, value: str = TASK) -> str:
    path = route.path
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", value)
    return path


async def _events(server: ServerHarness) -> int:
    return len(await server.stores.events.read(0, 1_000))


async def test_a_body_that_is_none_changes_nothing(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **{"http.login_rate": "none"}) as server:
        await server.token(Role.ADMIN)
        before, wrong = await _events(server), []
        for route in TAKING:
            for body, kind, status in BODIES:
                headers = {"if-match": '"1"', "content-type": kind}
                answer = await server.ask(route.method, _path(route), raw=body, by=Role.ADMIN, headers=headers)
                if (answer.status, bool(answer.code)) != (status, True):
                    wrong.append((route.operation, body[:60], answer))
        assert wrong == []
        assert await _events(server) == before


async def test_an_id_that_is_none_finds_nothing(sqlite_server: ServerHarness) -> None:
    server, wrong = sqlite_server, []
    for route in (each for each in ROUTES if each.parameters):
        body: object = {} if shape_of(route.operation).body is not None else None
        for value, statuses in IDS.items():
            answer = await server.ask(route.method, _path(route, value), body, by=Role.ADMIN)
            if answer.status not in statuses or not answer.code:
                wrong.append((route.operation, value, answer))
    assert wrong == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("tasks", {"name": "greet", "backoff": {"base_ms": 5, "wish": 1}}, 422),
        ("tasks", {"name": "greet", "locks": [{"resource": "a", "mode": "shared", "holder": "me"}]}, 422),
        ("tasks", {"name": None}, 422),
        ("tasks", {"name": "greet", "deadline": "9999-12-31T23:59:59Z"}, 422),
        ("tasks", {"name": "greet", "deadline": "10000-01-01T00:00:00Z"}, 422),
        ("tasks", {"name": "greet", "delay": 1e300}, 422),
        ("tasks", {"name": "greet", "timeout": 1.7e306}, 422),
        ("tasks", {"name": "greet", "result_ttl": 1e308}, 422),
        ("tasks", {"name": "greet", "queue": None, "tags": None, "deadline": None, "backoff": None}, 201),
        ("tasks/bulk", {"tasks": [{"name": "greet"}, {"name": "greet", "priority": None, "queue": None}]}, 201),
    ],
)
async def test_null_says_as_little_as_nothing_and_no_field_is_unknown_however_deep(
    sqlite_server: ServerHarness, path: str, body: dict[str, Any], status: int
) -> None:
    answer = await sqlite_server.ask("POST", f"{API}/{path}", body)
    assert answer.status == status, answer
    kept = (await sqlite_server.ask("GET", f"{API}/tasks")).json()["items"]
    assert bool(kept) is (status == 201)


async def test_a_name_of_any_script_has_an_address(sqlite_server: ServerHarness) -> None:
    """The header Location is plain ASCII, and leads to what was made."""
    await sqlite_server.person("ada", Role.ADMIN, password=PASSWORD)
    here = await sqlite_server.signed_in("ada")
    made = await sqlite_server.ask("POST", f"{API}/users", {"id": "zoë@例え"}, by=None, headers=here)
    assert (made.status, made.headers["location"]) == (201, f"{API}/users/zo%C3%AB%40%E4%BE%8B%E3%81%88")
    found = await sqlite_server.ask("GET", made.headers["location"], by=Role.ADMIN)
    assert found.json()["id"] == "zoë@例え"


async def test_the_moment_of_an_assessment_is_written_as_all_are(sqlite_server: ServerHarness) -> None:
    policy = {"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}
    guard = {"do": "demand", "name": "greet", "reason": "somebody should look", "policy": "one"}
    rules = {"guard": [guard], "policy": [policy]}
    await sqlite_server.person("bob", Role.REVIEWER)
    known = await sqlite_server.ask("GET", f"{API}/policies", by=Role.ADMIN)
    put = await sqlite_server.ask(
        "PUT", f"{API}/policies", {"rules": rules}, by=Role.ADMIN, headers={"if-match": known.headers["etag"]}
    )
    assert put.status == 200, put
    task = await sqlite_server.task()
    risk = (await sqlite_server.ask("GET", f"{API}/tasks/{task['id']}")).json()["risk"]
    assert risk["assessed_at"].endswith("Z")


async def test_nothing_that_is_sent_begins_a_new_line_in_the_log(sqlite_server: ServerHarness) -> None:
    """Not even where a value of the request is part of what is told."""
    record = logging.LogRecord("ade.http", logging.WARNING, "", 1, "", (), None)
    record.event, record.fields = "http.refused", {"name": "a\r\nade.forged x=1\u2028\x1b[2J"}
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record)
        assert len(line.splitlines()) == 1
        assert "\x1b" not in line
    forged = "greet%0d%0a12:00:00 error forged"
    assert (await sqlite_server.ask("GET", f"{API}/queues/{forged.replace(' ', '%20')}")).status == 400
    answer = await sqlite_server.ask("POST", f"{API}/tasks", {"name": "greet\r\nforged: yes"})
    assert (answer.status, "\n" in answer.json()["detail"]) == (422, False)


async def test_no_secret_is_ever_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with start_server(store_url("sqlite", tmp_path), tmp_path) as server:
        await server.person("ada", Role.ADMIN, password=PASSWORD)
        token = await server.token(Role.ADMIN)
        signed = await server.ask("POST", f"{API}/sessions", {"name": "ada", "password": PASSWORD}, by=None)
        wrong = "not the right one at all"
        refused = await server.ask("POST", f"{API}/sessions", {"name": "ada", "password": wrong}, by=None)
        unfit = await server.ask("POST", f"{API}/sessions", {"name": "ada", "password": [PASSWORD]}, by=None)
        bearer = "ade_" + "q" * 43
        unknown = await server.ask("GET", f"{API}/tasks", by=None, authorization=f"Bearer {bearer}")
        hook = {"url": "https://example.org/hook", "events": ["*"]}
        made = await server.ask("POST", f"{API}/webhooks", hook, by=Role.ADMIN)
        assert (signed.status, refused.status, unfit.status, unknown.status, made.status) == (200, 401, 422, 401, 201)
        session = signed.headers["set-cookie"].partition("=")[2].partition(";")[0]
        secrets = [PASSWORD, wrong, token, bearer, session, made.json()["secret"]]
        events = json.dumps([event.payload for event in await server.stores.events.read(0, 1_000)])
        shown = (await server.ask("GET", f"{API}/webhooks", by=Role.ADMIN)).body.decode()
    told = "\n".join([caplog.text, events, shown, refused.body.decode(), unfit.body.decode(), unknown.body.decode()])
    assert [secret for secret in secrets if secret in told] == []


async def test_behind_a_proxy_that_speaks_https_the_cookie_is_the_browsers_own(tmp_path: Path) -> None:
    flags = {"http.trusted_proxies": ["127.0.0.0/8"], "http.allowed_hosts": ["ade.example"]}
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **flags) as server:
        await server.person("ada", Role.OPERATOR, password=PASSWORD)
        body = json.dumps({"name": "ada", "password": PASSWORD}).encode()
        answers = {}
        for scheme in ("https", "http"):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
            writer.write(
                b"POST /api/v1/sessions HTTP/1.1\r\nhost: ade.example\r\nconnection: close\r\n"
                b"content-type: application/json\r\nx-forwarded-for: 203.0.113.7\r\n"
                + f"x-forwarded-proto: {scheme}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            answers[scheme] = (await reader.read()).decode()
            writer.close()
        [cookie] = [line for line in answers["https"].split("\r\n") if line.lower().startswith("set-cookie:")]
        assert "__Host-ade=" in cookie
        assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
        assert "__Host-" not in answers["http"]
        [first, *_] = [each for each in await server.stores.events.read(0, 1_000) if each.type == "session.opened"]
        assert first.payload["ip"] == "203.0.113.7"


async def test_there_are_no_web_sockets(sqlite_server: ServerHarness) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sqlite_server.url.rpartition(":")[2]))
    writer.write(
        b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\norigin: https://evil.example\r\n\r\n"
    )
    head = await reader.readuntil(b"\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 4")
