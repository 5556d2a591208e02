"""Webhooks from end to end: a real worker process, a real receiver, and trouble on the way."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook as Receiver

from ade.settings import Settings
from ade.webhooks.deliveries import Delivery, DeliveryState
from ade.webhooks.dispatch import list_deliveries, replay
from ade.webhooks.service import create, enable, find, list_webhooks, send_test
from tests.common.http.servers import Server, Visit, answer, serving
from tests.depth import sampled
from tests.domain import NetworkPolicy, Payloads, RedisSettings, Stores, Webhook, networks_of, open_stores
from tests.faults.programs import Program, Stage, stage
from tests.servers.pool import POOL
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.realtime]

HOME = NetworkPolicy(allow_http=True, allowed=networks_of(["127.0.0.0/8"]))
BUSY = answer(b"not now", status="503 Service Unavailable", headers="retry-after: 7\r\n")
GONE = answer(b"", status="410 Gone")
PATIENCE_S = 90.0


class Message:
    """One that came, as its receiver sees it."""

    def __init__(self, request: bytes) -> None:
        head, _, self.body = request.partition(b"\r\n\r\n")
        self.headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        self.id = self.headers["webhook-id"]
        self.type = json.loads(self.body)["type"]
        self.came_at = time.monotonic()


class Inbox:
    """A receiver: keeps what comes, and answers in turn. An empty answer is none: it only listens."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.messages: list[Message] = []
        self._came = asyncio.Event()

    async def behave(self, _server: Server, visit: Visit) -> None:
        self.messages.append(Message(await visit.request()))
        said = self.answers.pop(0) if self.answers else answer(b"thanks")
        self._came.set()
        if said:
            await visit.say(said)
        else:
            await visit.gone()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.messages) < count:
                self._came.clear()
                await self._came.wait()


class Scene:
    def __init__(self, url: str, stores: Stores, programs: Stage) -> None:
        self.url = url
        self.stores = stores
        self.payloads = Payloads(stores.blobs)
        self._programs = programs

    async def worker(self, name: str) -> Program:
        settings = {
            "ADE_STORE__URL": self.url,
            "ADE_REDIS__ALLOW_VOLATILE": "true",
            "ADE_WORKER__LEASE_S": "6",
            "ADE_WORKER__HEARTBEAT_S": "1",
            "ADE_WEBHOOKS__ALLOW_HTTP": "true",
            "ADE_WEBHOOKS__ALLOWED_NETWORKS": "127.0.0.0/8",
        }
        program = self._programs.start(name, "tests.faults.default_worker", **settings)
        await program.until_it_says("worker.started")
        return program

    async def webhook(self, server: Server) -> Webhook:
        """One that wants nothing but tests."""
        return await create(self.stores, f"{server.url}/in", ["webhook.tested"], actor="root", reach=HOME)

    async def delivery(self, webhook: Webhook, state: DeliveryState) -> Delivery:
        async def look() -> Delivery | None:
            found = await list_deliveries(self.stores, webhook.id, state=state)
            return found[0] if found else None

        return await eventually(look, PATIENCE_S)


@asynccontextmanager
async def scene_on(store: str, folder: Path) -> AsyncIterator[Scene]:
    url = f"sqlite:///{folder / 'ade.db'}" if store == "sqlite" else POOL.standalone(store).url
    stores = await open_stores(url, Settings(redis=RedisSettings(allow_volatile=True)))
    with stage(folder) as programs:
        yield Scene(url, stores, programs)
    assert await stores.maintenance.check_invariants() == []
    await stores.close()


@pytest.fixture(params=sampled(["sqlite", "valkey"], quick=1))
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene_on(request.param, tmp_path) as made:
        yield made


async def test_a_message_is_delivered_after_trouble_replayed_and_at_last_not_wanted_any_more(scene: Scene) -> None:
    inbox = Inbox(BUSY)
    async with serving(inbox.behave) as server:
        webhook = await scene.webhook(server)
        await scene.worker("worker")
        await send_test(scene.stores, webhook.id, actor="ada")
        await inbox.until(2)

        busy, good = inbox.messages
        assert (busy.id, busy.body, busy.type) == (good.id, good.body, "webhook.tested")
        assert good.came_at - busy.came_at >= 7 * 0.9  # as Retry-After asked; the clocks are two
        for message in inbox.messages:
            assert Receiver(webhook.secrets[0].value).verify(message.body, message.headers)
        delivered = await scene.delivery(webhook, DeliveryState.DELIVERED)
        assert [attempt.status for attempt in delivered.attempts] == [503, 200]
        assert delivered.id == good.id

        await replay(scene.stores, scene.payloads, webhook.id, delivered.id, actor="ada")
        await inbox.until(3)
        assert inbox.messages[2].id == good.id

        inbox.answers.append(GONE)
        await send_test(scene.stores, webhook.id, actor="ada")
        await inbox.until(4)
        await scene.delivery(webhook, DeliveryState.FAILED)

        async def is_disabled() -> bool:
            return not (await find(scene.stores, webhook.id)).record.is_active

        await eventually(is_disabled, PATIENCE_S)
        assert "410" in ((await find(scene.stores, webhook.id)).record.disabled_why or "")
        await enable(scene.stores, webhook.id, actor="ada", reach=HOME)
        await send_test(scene.stores, webhook.id, actor="ada")
        await inbox.until(5)
        assert [known.id for known in await list_webhooks(scene.stores)] == [webhook.id]


async def test_a_message_whose_worker_is_killed_while_sending_it_is_sent_by_another_one(scene: Scene) -> None:
    inbox = Inbox(b"")
    async with serving(inbox.behave) as server:
        webhook = await scene.webhook(server)
        killed = await scene.worker("killed")
        await send_test(scene.stores, webhook.id, actor="ada")
        await inbox.until(1)

        killed.send(signal.SIGKILL)
        await scene.worker("heir")
        await inbox.until(2)

        first, second = inbox.messages
        assert (first.id, first.body) == (second.id, second.body)
        delivered = await scene.delivery(webhook, DeliveryState.DELIVERED)
        assert (delivered.id, len(inbox.messages)) == (first.id, 2)
