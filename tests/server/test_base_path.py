"""A server below `http.base_path`: every path, link, and cookie has the prefix, also behind a reverse proxy."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ade import connect
from ade.server.credentials import cookie_name, delete_cookie, set_cookie
from ade.settings import SettingsError, load
from tests.domain import HttpClient, Role
from tests.server.conftest import PASSWORD, ServerHarness, start_server
from tests.servers.ports import ReservedPort
from tests.stores.urls import store_url
from tests.waiting import eventually

API = "/api/v1"
BASE = "/tools/ade"
NGINX = """
daemon off;
error_log stderr;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location {base}/ {{
            proxy_pass {upstream};
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_buffering off;
        }}
        location / {{ return 418; }}
    }}
}}
"""


@pytest.fixture
async def below(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    flags = {"http.base_path": BASE, "http.trusted_proxies": ["127.0.0.1"]}
    async with start_server(store_url("sqlite", tmp_path), tmp_path, **flags) as server:
        yield server


def origin_of(server: ServerHarness) -> str:
    return server.url.removesuffix(BASE)


async def test_every_route_is_below_the_base_path(below: ServerHarness) -> None:
    assert below.url.endswith(BASE)

    async def is_ready() -> bool:
        return (await below.ask("GET", "/readyz", by=None)).status == 200

    await eventually(is_ready)
    for path in ("/livez", "/readyz", "/login", "/login.js", "/problems/unknown_task", f"{API}/openapi.json"):
        assert (await below.ask("GET", path, by=None)).status == 200, path
    outside = HttpClient(origin_of(below))
    try:
        for path in (
            "/livez",
            f"{API}/openapi.json",
            "/",
            BASE,
            f"{BASE}x/livez",
            f"/tools{BASE}/livez",
            "/tools//ade/livez",
        ):
            answer = await outside.request("GET", path)
            assert answer.status == 404, path
    finally:
        await outside.close()


async def test_links_of_responses_have_the_base_path(below: ServerHarness) -> None:
    created = await below.ask("POST", f"{API}/tasks", {"name": "greet"}, idempotency_key="one")
    again = await below.ask("POST", f"{API}/tasks", {"name": "greet"}, idempotency_key="one")
    missing = await below.ask("GET", f"{API}/tasks/01a1ee05-1057-708b-8c02-eeabbab879a3")
    described = (await below.ask("GET", f"{API}/openapi.json", by=None)).json()
    page = (await below.ask("GET", "/login", by=None)).body.decode()

    assert created.headers["location"] == again.headers["location"] == f"{BASE}{API}/tasks/{created.json()['id']}"
    assert missing.json()["type"] == f"{BASE}/problems/unknown_task"
    assert described["servers"] == [{"url": BASE}]
    assert described["components"]["securitySchemes"]["session"]["name"] == "__Secure-ade"
    assert 'src="login.js"' in page
    assert '="/' not in page


async def test_what_is_no_http_is_told_the_same_place(below: ServerHarness) -> None:
    host, _, port = origin_of(below).removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"nonsense\r\n\r\n")
    told = await reader.read()
    writer.close()

    assert f'"type":"{BASE}/problems/bad_request"'.encode() in told


async def test_the_session_cookie_is_limited_to_the_base_path(below: ServerHarness) -> None:
    await below.person("ada", Role.ADMIN, password=PASSWORD)
    body = {"account": "ada", "password": PASSWORD}
    signed_in = await below.ask("POST", f"{API}/sessions", body, by=None, origin=origin_of(below))
    cookie, *attributes = signed_in.headers["set-cookie"].split("; ")
    session = {"cookie": cookie, "origin": origin_of(below)}

    assert f"Path={BASE}" in attributes
    assert (await below.ask("GET", f"{API}/me", by=None, headers=session)).json()["user"]["id"] == "ada"
    signed_out = await below.ask("DELETE", f"{API}/sessions/current", by=None, headers=session)
    assert f"Path={BASE}" in signed_out.headers["set-cookie"].split("; ")


def test_over_https_the_cookie_is_still_secure() -> None:
    name = cookie_name("https", "example.org", BASE)

    assert name == "__Secure-ade"  # __Host- requires Path=/
    assert set_cookie(name, "s" * 43, 60, BASE).endswith(f"; Path={BASE}; HttpOnly; SameSite=Lax; Secure")
    assert delete_cookie(name, BASE).endswith("; Secure")


@pytest.mark.parametrize("wrong", ["ade", "/", "/ade/", "//ade", "/a de", "/ade?x", "/..", "/a/../b", "/.", "/ä"])
def test_a_base_path_is_checked(wrong: str) -> None:
    with pytest.raises(SettingsError, match=r"http\.base_path"):
        load(flags={"http.base_path": wrong}, files=[])


@pytest.mark.parametrize(
    ("public_url", "base_path", "links"),
    [
        ("", "/ade", ""),
        ("https://example.org", "", "https://example.org"),
        ("https://example.org/", "/ade", "https://example.org/ade"),
        ("https://example.org/ade/", "/ade", "https://example.org/ade"),
        ("https://example.org/ade", "", "https://example.org/ade"),
    ],
)
def test_links_for_people_have_the_base_path_once(public_url: str, base_path: str, links: str) -> None:
    flags = {"notifications.public_url": public_url, "http.base_path": base_path}

    assert load(flags=flags, files=[]).settings.public_url == links


@asynccontextmanager
async def nginx(upstream: str, folder: Path) -> AsyncIterator[str]:
    """A reverse proxy that passes the base path on. Yields its origin."""
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("there is no nginx on this machine")
    port = ReservedPort()
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, port=port.number, base=BASE, upstream=upstream))
    process = await asyncio.create_subprocess_exec(program, "-p", str(folder), "-e", "stderr", "-c", str(config))
    client = HttpClient(f"http://127.0.0.1:{port.number}")
    try:

        async def is_up() -> bool:
            assert process.returncode is None
            try:
                return (await client.request("GET", "/")).status == 418
            except Exception:  # not listening yet
                return False

        await eventually(is_up)
        yield f"http://127.0.0.1:{port.number}"
    finally:
        await client.close()
        process.terminate()
        await process.wait()
        port.release()


@pytest.mark.slow
async def test_a_client_works_through_a_reverse_proxy_that_passes_the_base_path_on(
    below: ServerHarness, tmp_path: Path
) -> None:
    await below.person("ada", Role.ADMIN, Role.OPERATOR, password=PASSWORD)
    async with nginx(origin_of(below), tmp_path) as origin:
        url = f"{origin}{BASE}"
        client = connect(url, token=await below.token(Role.OPERATOR))
        try:
            task = await client.create_task(name="greet", tags=["proxied"])
            assert [each.id for each in (await client.list_tasks(tag="proxied")).items] == [task.id]
            assert (await client.cancel_task(task.id)).status == "cancelled"
            async for event in client.follow_events(after=0, types=["task.cancelled"]):
                assert getattr(event, "task_id", None) == task.id
                break
        finally:
            await client.close()
        outside = HttpClient(url)
        try:
            assert (await outside.request("GET", "/livez")).status == 200
            assert (await outside.request("GET", "/readyz")).status == 200
            sent = {"content-type": "application/json", "origin": origin}
            body = b'{"account": "ada", "password": "%s"}' % PASSWORD.encode()
            signed_in = await outside.request("POST", f"{API}/sessions", headers=sent, body=body)
            [cookie] = [value for name, value in signed_in.headers if name.lower() == "set-cookie"]
            assert f"Path={BASE};" in cookie
            me = await outside.request("GET", f"{API}/me", headers={"cookie": cookie.partition(";")[0]})
            assert me.status == 200
        finally:
            await outside.close()
