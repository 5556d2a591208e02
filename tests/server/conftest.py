"""A server on a real socket and a real store, and people who talk to it."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ade import VERSION, Ade
from ade.composition.server import serve_http
from ade.settings import load
from tests.accounts.issued_tokens import token_for
from tests.domain import Definition, HttpClient, Role, Stores, User, Worker, add_user
from tests.stores.urls import store_url

PASSWORD = "correct horse battery staple"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of a problem; everything that is wrong is answered as one."""
        assert self.headers["content-type"] == "application/problem+json", self
        told = self.json()
        assert told["status"] == self.status
        code: str = told["code"]
        return code


@dataclass
class ServerHarness:
    """A running server with the task `greet`, and accounts named after their roles."""

    app: Ade
    url: str
    secret: str | None  # of the first admin's link
    client: HttpClient
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def stores(self) -> Stores:
        assert self.app.opener.opened is not None
        return self.app.opener.opened.stores

    async def person(self, name: str, *roles: str, password: str | None = None) -> User:
        user = User(id=name, roles=frozenset(roles))
        return await add_user(self.stores, user, password=password)

    async def token(self, role: Role | str) -> str:
        """A token with all that the role allows, of an account of that name, made when first needed."""
        if role not in self.tokens:
            self.tokens[role] = await token_for(self.stores, role)
        return self.tokens[role]

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        by: Role | str | None = Role.OPERATOR,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **more: str,
    ) -> Answer:
        """One request; `by` is whose token goes with it. Underscores in names of headers stand for hyphens."""
        given = {name.replace("_", "-"): value for name, value in {**(headers or {}), **more}.items()}
        if by is not None:
            given["authorization"] = f"Bearer {await self.token(by)}"
        sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if sent and "content-type" not in given:
            given["content-type"] = "application/json"
        response = await self.client.request(method, path, headers=given, body=sent, timeout=90)
        return Answer(response.status, {name.lower(): value for name, value in response.headers}, response.body)

    async def signed_in(self, name: str) -> dict[str, str]:
        """The headers of a new session of this person, who has just given the password."""
        answer = await self.ask("POST", "/api/v1/sessions", {"name": name, "password": PASSWORD}, by=None)
        assert answer.status == 200, answer
        return {"cookie": answer.headers["set-cookie"].partition(";")[0], "origin": self.url}

    async def task(self, by: Role | str = Role.OPERATOR, **fields: object) -> dict[str, Any]:
        """A stored task."""
        answer = await self.ask("POST", "/api/v1/tasks", {"name": "greet", **fields}, by=by)
        assert answer.status == 201, answer
        made: dict[str, Any] = answer.json()
        return made


async def define(stores: Stores, *names: str) -> None:
    worker = Worker(id="w", hostname="h", pid=1, started_at=stores.clock.now(), version=VERSION, names=names)
    await stores.workers.register(worker, [Definition(name=name) for name in names], 600_000)


@asynccontextmanager
async def start_server(url: str, folder: Path, **flags: object) -> AsyncIterator[ServerHarness]:
    chosen = {
        "store.url": url,
        "events.audit_url": f"sqlite:///{folder / 'audit.db'}",
        "redis.allow_volatile": True,
        "http.port": 0,
        "http.grace_s": 2,
        **{f"http.{name}_rate": "none" for name in ("read", "write", "vote", "work", "lock", "stream")},
        **flags,
    }
    async with Ade(settings=load(flags=chosen, files=[]).settings) as app, serve_http(app) as served:
        client = HttpClient(served.url)
        try:
            server = ServerHarness(app, served.url, None if served.login is None else served.login.secret, client)
            await define(server.stores, "greet")
            yield server
        finally:
            await client.close()


@pytest.fixture(params=["sqlite", "valkey"])
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ServerHarness]:
    async with start_server(store_url(request.param, tmp_path), tmp_path) as each:
        yield each


@pytest.fixture
async def sqlite_server(tmp_path: Path) -> AsyncIterator[ServerHarness]:
    """On SQLite alone, for what has nothing to do with the store."""
    async with start_server(store_url("sqlite", tmp_path), tmp_path) as each:
        yield each
