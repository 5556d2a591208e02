"""A site under attack: a server on a real socket, a worker, reviewers, and an author who cheats."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ade import Ade, Context, Preview, Unrecoverable
from ade.approvals import repository as approvals_repository
from ade.composition.server import serve_http
from ade.settings import load
from ade.tasks.model import Task
from tests.domain import HttpClient, Role, Stores, TaskFunction, User, add_user, create_token, read_rulebook
from tests.server.conftest import Answer, ServerHarness
from tests.stores.urls import store_url
from tests.waiting import eventually

PASSWORD = "correct horse battery staple"
NOWHERE = "nowhere"  # what previews and rollbacks fail for
# The people: mallory owns the program that attacks, and would like to approve what it asks for.
PEOPLE = {
    "mallory": {Role.REVIEWER, Role.OPERATOR},
    "rita": {Role.REVIEWER},
    "rob": {Role.REVIEWER},
    "rosa": {Role.REVIEWER},
    "olga": {Role.OPERATOR},
    "ada": {Role.ADMIN},
}


class Site:
    """What an attacker meets: requests with the token of any account, and what the handlers did."""

    def __init__(self, server: ServerHarness, done: list[dict[str, Any]]) -> None:
        self.server, self.done = server, done

    @property
    def stores(self) -> Stores:
        return self.server.stores

    async def rules(self, **document: object) -> None:
        """Put a rulebook in force."""
        await approvals_repository.apply(self.stores, read_rulebook(document), actor="ada")

    async def ask(self, by: str, method: str, path: str, body: object = None) -> Answer:
        return await self.server.ask(method, f"/api/v1{path}", body, by=by)

    async def enqueue(self, name: str, by: str = "bot", **fields: object) -> dict[str, Any]:
        """A task of an author, stored."""
        answer = await self.ask(by, "POST", "/tasks", {"name": name, **fields})
        assert answer.status == 201, answer
        made: dict[str, Any] = answer.json()
        return made

    async def task(self, task_id: str) -> Task:
        [task] = await self.stores.tasks.get([task_id])
        assert task is not None
        return task

    async def status(self, task_id: str) -> str:
        return str((await self.task(task_id)).status)

    async def until(self, task_id: str, *statuses: str) -> Task:
        async def look() -> Task | None:
            task = await self.task(task_id)
            return task if task.status in statuses else None

        return await eventually(look)

    async def vote(self, voter: str, task_id: str, decision: str = "approve", **fields: object) -> Answer:
        """A vote on what the voter is shown, or else on what a reviewer has passed on."""
        answers = [await self.ask(each, "GET", f"/approvals/{task_id}") for each in (voter, "rita")]
        shown = next(answer for answer in answers if answer.status == 200).json()
        gate = shown["review"]["gates"][-1]
        body = {"decision": decision, "digest": gate["digest"], "approval": gate["id"], "password": PASSWORD, **fields}
        return await self.ask(voter, "POST", f"/approvals/{task_id}/respond", body)


def bank(done: list[dict[str, Any]], settings: Any, clock: Any = None) -> Ade:
    """An app with tasks that move money, deploy, and undo it."""
    app = Ade(settings=settings, clock=clock)

    @app.task(name="pay")
    async def pay(to: str, amount: int = 1, fails: bool = False) -> str:
        done.append({"pay": to, "amount": amount})
        if fails:
            raise RuntimeError("the bank is closed")
        return "paid"

    @pay.rollback
    async def refund(to: str, amount: int = 1, fails: bool = False) -> str:
        _check_exists(to)
        done.append({"refund": to, "amount": amount})
        return "refunded"

    @app.task(name="deploy")
    async def deploy(service: str) -> str:
        done.append({"deploy": service})
        return "deployed"

    @deploy.preview
    async def plan(service: str) -> Preview:
        _check_exists(service)
        return Preview(changes=[f"{service} is replaced"])

    @app.task(name="parent")
    async def parent(ctx: Context, to: str, author: str | None = None) -> str:
        return (await ctx.enqueue(pay if author is None else pay.with_options(author=author), to)).id

    _with_messengers(app, pay)

    @app.task(name="wipe")
    async def wipe(disk: str, ctx: Context) -> str:
        await ctx.hold("wipe the disk", {"disk": disk})  # does not read responses
        done.append({"wipe": disk})
        return "wiped"

    @app.task(name="drop")
    async def drop(table: str, ctx: Context) -> str:
        response = await ctx.hold("drop the table", {"table": table}, responses=True)
        if response:
            done.append({"drop": (response.args or {"table": table})["table"]})
        return response.text

    _with_resources(app, done)
    return app


def _with_messengers(app: Ade, pay: TaskFunction[..., str]) -> None:
    """Tasks that pay by enqueuing it, not as a child."""

    @app.task(name="courier")
    async def courier(to: str, author: str | None = None) -> str:
        return (await (pay if author is None else pay.with_options(author=author)).enqueue(to)).id  # not as a child

    @app.task(name="sender")
    async def sender(ctx: Context, to: str) -> str:
        return (await ctx.enqueue(courier, to)).id

    @app.task(name="clerk")
    def clerk(to: str) -> str:
        return pay.enqueue(to).wait().id  # in a thread


def _check_exists(name: str) -> None:
    if name == NOWHERE:
        raise Unrecoverable(f"{name} does not exist")


def _with_resources(app: Ade, done: list[dict[str, Any]]) -> None:
    """Tasks whose definition or preview says what they change."""

    @app.task(name="wire", resources=["bank:main"], tags=["money"])
    async def wire(to: str) -> str:
        done.append({"wire": to})
        return "wired"

    @app.task(name="migrate")
    async def migrate(table: str = "people") -> str:
        done.append({"migrate": table})
        return "migrated"

    @migrate.preview
    async def plan_migration(table: str = "people") -> Preview:
        return Preview(changes=[{"resource": "db:main", "table": table}], versions={"schema:main": "7"})


@asynccontextmanager
async def open_site(
    kind: str, folder: Path, queues: Sequence[str] = ("default",), clock: Any = None, **flags: object
) -> AsyncIterator[Site]:
    chosen = {
        "store.url": store_url(kind, folder),
        "events.audit_url": f"sqlite:///{folder / 'audit.db'}",
        "redis.allow_volatile": True,
        "http.port": 0,
        "http.grace_s": 2,
        **{f"http.{name}_rate": "none" for name in ("read", "write", "vote", "work", "lock", "stream")},
        **flags,
    }
    done: list[dict[str, Any]] = []
    settings = load(flags=chosen, files=[]).settings
    async with bank(done, settings, clock) as app, serve_http(app) as served, app.worker(queues=list(queues)):
        client = HttpClient(served.url)
        try:
            server = ServerHarness(app, served.url, None, client)
            for name, roles in PEOPLE.items():
                user = await add_user(server.stores, User(id=name, roles=frozenset(roles)), password=PASSWORD)
                server.tokens[name] = await _token(server.stores, user)
            for name, role in (("bot", Role.AGENT), ("machine", Role.WORKER)):
                bot = User(
                    id=name, roles=frozenset({role}), is_human=False, owner="mallory" if name == "bot" else "olga"
                )
                server.tokens[name] = await _token(server.stores, await add_user(server.stores, bot))
            yield Site(server, done)
        finally:
            await client.close()


async def _token(stores: Stores, user: User) -> str:
    secret, _ = await create_token(stores, user.id, scopes=user.permissions, lasts_ms=3_600_000)
    return secret
