"""`ade serve` killed again and again while many talk to it: what was accepted stays, nothing is done twice, and whoever
listens misses nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import Sized
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ade import Task, connect
from ade.errors import ServerUnreachable
from ade.server.problems import HttpFault
from tests.domain import Event, HttpClient, Role, Stores, TaskQuery
from tests.faults.served import Served, served_on
from tests.faults.workers import until
from tests.server.conftest import define
from tests.waiting import eventually, is_set_within

pytestmark = [pytest.mark.faults]

CUSTOMERS, LISTENERS, KILLS = 8, 3, 4
BETWEEN_KILLS = 60  # tasks accepted
_PAGE = 500
_ACCEPTED, _CONFLICT = 201, 409


@dataclass
class Ledger:
    """What was asked under which key, and how it was answered."""

    bodies: dict[str, bytes] = field(default_factory=dict)  # of those that were accepted
    broken: set[str] = field(default_factory=set)  # whose first answer was lost, or never came
    refused: dict[str, bytes] = field(default_factory=dict)  # nobody knows yet: another server died over them


class Customer:
    """Enqueues one task after the other, each under a key of its own; asks again when the server was away."""

    def __init__(self, served: Served, token: str, ledger: Ledger, number: int) -> None:
        self._client = HttpClient(served.url)
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self._ledger = ledger
        self._number = number

    async def shop(self, is_over: asyncio.Event) -> None:
        count = 0
        while not is_over.is_set():
            count += 1
            await self._enqueue(f"customer-{self._number}-{count}", is_over)

    async def ask(self, key: str) -> tuple[int, bytes]:
        """The very same request, however often. Raises ServerUnreachable."""
        body = json.dumps({"name": "greet", "args": {"key": key}}).encode()
        headers = {**self._headers, "idempotency-key": key}
        answer = await self._client.request("POST", "/api/v1/tasks", headers, body, timeout=20)
        return answer.status, answer.body

    async def _enqueue(self, key: str, is_over: asyncio.Event) -> None:
        while True:
            try:
                status, body = await self.ask(key)
            except ServerUnreachable:
                self._ledger.broken.add(key)
                if is_over.is_set():
                    return
                await is_set_within(is_over, 0.05)
                continue
            if status == _CONFLICT:
                assert json.loads(body)["code"] == HttpFault.REQUEST_IN_PROGRESS, body
                self._ledger.refused[key] = body
                return
            assert status == _ACCEPTED, (status, body)
            self._ledger.bodies[key] = body
            return

    async def leave(self) -> None:
        await self._client.close()


async def listen(served: Served, token: str, heard: list[Event]) -> None:
    """Hear of every task, whatever happens to the server. Raises TypeError for a gap."""
    async with connect(served.url, token=token) as client:
        async for event in client.follow_events(after=0, types=["task.created"]):
            if not isinstance(event, Event):
                raise TypeError(f"some may be missing: {event}")
            heard.append(event)


@pytest.mark.parametrize("store", ["sqlite", "valkey"])
async def test_a_server_killed_under_load_loses_nothing_and_does_nothing_twice(store: str, tmp_path: Path) -> None:
    async with served_on(store, tmp_path) as served:
        await define(served.stores, "greet")
        token, watching = await served.token(Role.OPERATOR), await served.token(Role.VIEWER)
        ledger, is_over = Ledger(), asyncio.Event()
        heard: list[list[Event]] = [[] for _ in range(LISTENERS)]
        listening = [asyncio.create_task(listen(served, watching, each)) for each in heard]
        customers = [Customer(served, token, ledger, number) for number in range(CUSTOMERS)]
        shopping = [asyncio.create_task(customer.shop(is_over)) for customer in customers]
        for _ in range(KILLS):
            await until(partial(_are_enough, ledger.bodies, len(ledger.bodies) + BETWEEN_KILLS), "much was accepted")
            await served.kill()
            await served.start()
        is_over.set()
        await asyncio.gather(*shopping)
        await _judge_tasks(served.stores, ledger)
        await _judge_keys(customers[0], ledger)
        await _judge_listeners(served.stores, heard, listening)
        for customer in customers:
            await customer.leave()
        assert ledger.broken, "no kill has hit anybody"


async def _judge_tasks(stores: Stores, ledger: Ledger) -> None:
    """All that were accepted are there as they were told, and none of them twice."""
    tasks = await _all_tasks(stores)
    known = {task.id: task for task in tasks}
    made = Counter(task.arguments()["key"] for task in tasks)
    assert {key: count for key, count in made.items() if count > 1} == {}
    for key, body in ledger.bodies.items():
        told: dict[str, Any] = json.loads(body)
        assert known[told["id"]].arguments()["key"] == key


async def _judge_keys(customer: Customer, ledger: Ledger) -> None:
    """Who asks again hears the same, byte for byte; of those that a server died over nobody makes a second one."""
    for key, body in ledger.bodies.items():
        assert await customer.ask(key) == (_ACCEPTED, body)
    for key in ledger.refused:
        status, again = await customer.ask(key)
        assert status == _CONFLICT, (status, again)  # until it may be taken over, two minutes later


async def _judge_listeners(stores: Stores, heard: list[list[Event]], listening: list[asyncio.Task[None]]) -> None:
    """Everybody has heard of everything once, in its order."""
    happened = [event.seq for event in await _all_events(stores) if event.type == "task.created"]
    for events, job in zip(heard, listening, strict=True):
        await until(partial(_are_enough, events, len(happened), job), "all of it is heard")
        if job.done():
            job.result()
        job.cancel()
        assert [event.seq for event in events] == happened
    await asyncio.gather(*listening, return_exceptions=True)


def _are_enough(things: Sized, count: int, job: "asyncio.Task[None] | None" = None) -> bool:
    """Or no more will come, because the job that brings them has ended."""
    return len(things) >= count or (job is not None and job.done())


async def _all_tasks(stores: Stores) -> list[Task]:
    found, after = list[Task](), None
    while True:
        page = await stores.tasks.find(TaskQuery(name="greet", limit=_PAGE, after=after))
        found += page.tasks
        after = page.next
        if after is None:
            return found


async def _all_events(stores: Stores) -> list[Event]:
    found = list[Event]()
    while page := await stores.events.read(found[-1].seq if found else 0, _PAGE):
        found += page
    return found


async def test_a_process_that_only_serves_is_not_counted_as_a_worker(tmp_path: Path) -> None:
    """`ade serve` delivers webhooks through the queue. Tasks that wait for a worker are not explained by it."""
    async with served_on("sqlite", tmp_path) as served:
        client = HttpClient(served.url)
        headers = {"authorization": f"Bearer {await served.token(Role.OPERATOR)}", "content-type": "application/json"}

        async def get(path: str) -> bytes:
            answer = await client.request("GET", path, headers, timeout=60)
            assert answer.status == 200, answer
            return answer.body

        async def registered() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = json.loads(await get("/api/v1/workers"))["items"]
            return found

        try:
            [seen] = await eventually(registered)
            body = json.dumps({"name": "greet", "allow_unknown": True}).encode()
            made = await client.request("POST", "/api/v1/tasks", headers, body, timeout=60)
            explained = json.loads(await get(f"/api/v1/tasks/{json.loads(made.body)['id']}/explain"))
            metrics = (await get("/metrics")).decode().splitlines()
            health = json.loads(await get("/api/v1/health"))
        finally:
            await client.close()
    assert seen["only_delivers"]
    assert explained["reasons"][0]["sentence"] == "no worker is running"
    assert "ade_workers_active_total 0" in metrics
    assert 'ade_tasks_without_worker{name="greet"} 1' in metrics
    assert "none is running, and 1 tasks are pending" in [each["sentence"] for each in health["findings"]]
