"""A store with inboxes, houses full of pumps, and consumers that can be looked at."""

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from ade.agents.conversations import rules as conversations_rules
from ade.agents.conversations.agent_consumer import Consume
from ade.agents.conversations.consumer_loop import ConversationOptions, ConversationProbe
from ade.agents.conversations.model import ItemBatch, ItemKind, NewItem
from ade.agents.conversations.rules import BatchClaimant, RestartLimits
from ade.agents.conversations.scheduler import NAMESPACE, ConversationScheduler
from ade.failures import Backoff
from tests.domain import DurableInbox, Event, Inbox, LockQuery, Stores
from tests.waiting import eventually

CODER = "agent:coder"
ONLY_WHEN_TOLD = 600.0  # a poll so slow that whatever happens was not found by polling
AT_ONCE = RestartLimits(pause=Backoff(base_ms=0, cap_ms=0))
OPTIONS = ConversationOptions(
    lease_s=20.0,
    idle_s=ONLY_WHEN_TOLD,
    grace_s=10.0,
    restarts=AT_ONCE,
    starts_per_s=10_000,
    poll_s=ONLY_WHEN_TOLD,
    refused_s=0.05,
)


def texts_of(batch: ItemBatch) -> list[str]:
    return [str(item.content) for item in batch.items]


class Listener:
    """A consumer that remembers what it was told, by conversation."""

    def __init__(self) -> None:
        self.heard: dict[str, list[list[str]]] = defaultdict(list)
        self.at_once = 0
        self.most_at_once = 0
        self.memories: list[dict[str, Any]] = []
        self.then: Callable[[ItemBatch, Inbox], Any] | None = None  # awaited, and answers the memory

    async def __call__(self, batch: ItemBatch, inbox: Inbox) -> dict[str, Any] | None:
        self.heard[inbox.id].append(texts_of(batch))
        self.memories.append(inbox.memory)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return None if self.then is None else await self.then(batch, inbox)
        finally:
            self.at_once -= 1


class Points:
    """Counts how often each probe was passed, by conversation."""

    def __init__(self, probe: ConversationProbe, *points: str) -> None:
        self.passed: dict[tuple[str, str], int] = defaultdict(int)
        self._changed = asyncio.Condition()
        for point in points:
            probe.on(point, self._hook(point))

    def _hook(self, point: str) -> Callable[[str], Any]:
        async def hook(inbox_id: str) -> None:
            async with self._changed:
                self.passed[point, inbox_id] += 1
                self._changed.notify_all()

        return hook

    async def until(self, point: str, inbox_id: str, count: int = 1) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: self.passed[point, inbox_id] >= count)


class Waterworks:
    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.probe = ConversationProbe()

    async def say(self, inbox_id: str, *texts: str, alone: bool = False, consumer: str = CODER, **fields: Any) -> None:
        """Messages that join those before them, or that are turns of their own."""
        for text in texts:
            item = NewItem(kind=ItemKind.MESSAGE, content=text, no_coalesce=alone, **fields)
            await DurableInbox(self.stores, inbox_id).enqueue(item, consumer=consumer)

    async def inbox(self, inbox_id: str) -> Inbox:
        return await self.stores.inboxes.load(inbox_id)

    async def until_empty(self, *inbox_ids: str) -> None:
        async def look() -> bool:
            return all([not (await self.inbox(inbox_id)).items for inbox_id in inbox_ids])

        await eventually(look)

    async def until_so(self, condition: Callable[[], bool]) -> None:
        async def look() -> bool:
            return condition()

        await eventually(look)

    async def take_away(self, inbox_id: str, *, lease_ms: int = 60_000) -> str:
        """As if the lease had run out and somebody else was quicker; answers the lease of that one."""
        thief = os.urandom(8).hex()
        inbox = await self.inbox(inbox_id)
        steady = max(self.stores.clock.steady(), 0 if inbox.lease is None else inbox.lease.until)
        taker = BatchClaimant(lease_id=thief, holder="thief", lease_ms=lease_ms, steady=steady)
        await self.stores.inboxes.write(conversations_rules.take(inbox, taker))
        return thief

    async def events(self, *types: str) -> list[Event]:
        events = await self.stores.events.read(0, 10_000)
        return [event for event in events if event.type in types or not types]

    async def confirmed(self, inbox_id: str) -> list[str]:
        """The ids of all items that were ever confirmed, in order."""
        events = await self.events("inbox.batch_confirmed")
        mine = [event.payload["item_ids"] for event in events if event.payload["inbox_id"] == inbox_id]
        return [item_id for ids in mine if isinstance(ids, list) for item_id in ids]

    async def held(self) -> list[str]:
        """The conversations that some pump has."""
        requests = await self.stores.locks.find(LockQuery(namespace=NAMESPACE))
        return sorted(resource for request in requests if request.is_granted for resource in request.resources)

    @asynccontextmanager
    async def house(
        self,
        consume: Consume,
        *,
        consumer: str = CODER,
        stores: Stores | None = None,
        probe: ConversationProbe | None = None,
        **changes: Any,
    ) -> AsyncIterator["Running"]:
        running = Running(stores or self.stores, {consumer: consume}, probe or self.probe, changes)
        try:
            yield running
        finally:
            await running.end()


class Running:
    """A house that is open."""

    def __init__(
        self, stores: Stores, consumers: dict[str, Consume], probe: ConversationProbe, changes: dict[str, Any]
    ) -> None:
        self.house = ConversationScheduler(stores, consumers, replace(OPTIONS, **changes), probe=probe)
        self.stop = asyncio.Event()
        self.job = asyncio.create_task(self.house.run(self.stop))

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(60):
            await asyncio.gather(self.job, return_exceptions=self.job.cancelling() > 0)
