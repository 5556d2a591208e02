"""A store with a few people in it, a rulebook, and a governed task to be approved."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ade import Ade, Context, HoldResponse, Preview, Task, TaskHandle
from ade.approvals import repository as approvals_repository
from ade.approvals import service as approvals_service
from ade.settings import load
from ade.testing import TestKit, harness
from tests.domain import Decision, Gate, User, UserChanges, VoteRequest, add_user, change_user, read_rulebook

APPROVE, REJECT, CHANGES = Decision.APPROVE, Decision.REJECT, Decision.REQUEST_CHANGES
RESPOND = Decision.RESPOND
TWO = {"id": "two", "names": ["deploy"], "rules": [{"needed": 2, "roles": ["reviewer"]}]}
ONE = {"id": "one", "names": ["deploy"], "rules": [{"needed": 1, "roles": ["reviewer"]}]}


class Scene:
    """`deploy` is governed by what the rulebook says; its author is ada, unless said otherwise."""

    def __init__(self, app: Ade, kit: TestKit) -> None:
        self.app, self.kit, self.stores = app, kit, kit.stores
        self.versions = {"site": "v1"}
        self.deployed: list[str] = []
        self.fails = self.is_restless = False
        self.faults: list[str] = []  # what a preview finds wrong
        self.done: list[str] = []  # what tasks of a test's own did
        self.failures: list[Exception] = []  # of their next runs
        self.responses: list[HoldResponse] = []  # what handlers got from `ctx.hold`

    async def people(self, **roles: str) -> None:
        for name, given in roles.items():
            await add_user(self.stores, User(id=name, roles=frozenset(given.split())))

    async def rules(self, *policies: Mapping[str, Any], **more: Any) -> None:
        await approvals_repository.apply(self.stores, read_rulebook({"policy": list(policies), **more}), actor="root")

    async def change(self, account: str, **fields: Any) -> None:
        await change_user(self.stores, account, UserChanges(**fields))

    async def asked(self, what: str = "shop", **options: Any) -> TaskHandle[Any]:
        """A task that was previewed and waits for people."""
        handle = await self.app.enqueue("deploy", {"what": what}, **{"author": "ada", **options})
        await self.kit.drain()
        return handle

    async def gate(self, handle: TaskHandle[Any]) -> Gate:
        review = (await handle.get()).review
        assert review is not None
        assert review.gate is not None
        return review.gate

    async def vote(self, handle: TaskHandle[Any], voter: str, decision: Decision = APPROVE, **more: Any) -> Task:
        gate = await self.gate(handle)
        known = {"approval": gate.id, "digest": gate.digest, "reason": "because"}
        return await approvals_service.vote(
            self.stores, handle.id, VoteRequest(voter=voter, decision=decision, **(known | more))
        )

    async def types(self, handle: TaskHandle[Any]) -> list[str]:
        return [event.type async for event in handle.events()]


@asynccontextmanager
async def scene(url: str = "memory://") -> AsyncIterator[Scene]:
    app = Ade(settings=load(flags={"store.url": url, "redis.allow_volatile": True}, files=[]).settings)

    @app.task
    async def deploy(what: str) -> str:
        made.deployed.append(what)
        if made.fails:
            raise RuntimeError("no luck")
        return what

    @app.task
    async def publish(page: str, ctx: Context, reads: bool = True) -> str:
        response = await ctx.hold("go live", {"page": page}, responses=reads)
        made.responses.append(response)
        return page

    @deploy.preview
    async def plan(what: str) -> Preview:
        if made.is_restless:
            made.versions["site"] += "'"
        return Preview(changes=[{"deploy": what}], errors=list(made.faults), versions=dict(made.versions))

    async with harness(app, url) as kit:
        made = Scene(app, kit)
        yield made
