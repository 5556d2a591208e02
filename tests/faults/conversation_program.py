"""One process of pumps: `python -m tests.faults.conversation_program <its part as JSON>`.

Its consumer writes each batch into a file that all processes append to, as one line, before it returns; or it feeds an
agent, and kills itself on the way. SIGTERM ends it in good order.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from ade.agents.conversations.agent_consumer import AgentConsumer, Consume
from ade.agents.conversations.consumer_loop import ConversationOptions
from ade.agents.conversations.model import ItemBatch
from ade.agents.conversations.rules import RestartLimits
from ade.agents.conversations.scheduler import ConversationScheduler
from ade.settings import Settings
from ade.tasks.model import Task
from tests.domain import Inbox, Payloads, RedisSettings, Stores, StoreSettings, enqueue, open_stores

CONSUMER = "agent:scribe"
SETTINGS = Settings(store=StoreSettings(ballast_mb=0), redis=RedisSettings(allow_volatile=True))
# A killed process is missed after three seconds; and to be killed five times in a row is no fault of a conversation.
OPTIONS = ConversationOptions(
    lease_s=3.0,
    idle_s=5.0,
    grace_s=5.0,
    most_pumps=40,
    starts_per_s=500.0,
    poll_s=0.25,
    refused_s=0.5,
    restarts=RestartLimits(window_ms=1_000),
)


REMEMBERED, ENQUEUED, ENDED = "remembered", "enqueued", "ended"


class Part(msgspec.Struct, kw_only=True):
    url: str
    journal: str = ""
    feeds: bool = False  # agents, instead of writing a journal
    dies_when: str | None = None  # its first turn was remembered, enqueued, or has ended


class Line(msgspec.Struct):
    """A batch as it was consumed."""

    inbox_id: str
    seqs: list[int]
    turn: int  # as its memory counts
    pid: int


def scribe(journal: str) -> Consume:
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def write_down(batch: ItemBatch, inbox: Inbox) -> dict[str, Any]:
        turn = inbox.memory.get("turn_number", 0) + 1
        line = Line(inbox.id, [item.seq for item in batch.items], turn, os.getpid())
        await asyncio.sleep(0)
        os.write(file, msgspec.json.encode(line) + b"\n")
        return {"turn_number": turn}

    return write_down


def feeder(stores: Stores, dies_when: str | None) -> Consume:
    def die_if(moment: str) -> None:
        if moment == dies_when:
            os.kill(os.getpid(), signal.SIGKILL)

    async def put_in(tasks: Sequence[Task]) -> list[Task]:
        die_if(REMEMBERED)
        stored = await enqueue(stores, Payloads(stores.blobs), tasks)
        die_if(ENQUEUED)
        return stored

    feed = AgentConsumer(stores, put_in, "scribe")

    async def turn(batch: ItemBatch, inbox: Inbox) -> dict[str, Any]:
        memory = await feed(batch, inbox)
        die_if(ENDED)
        return memory

    return turn


async def main(part: Part) -> None:
    stores = await open_stores(part.url, SETTINGS)
    consume = feeder(stores, part.dies_when) if part.feeds else scribe(part.journal)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("started", flush=True)
    await ConversationScheduler(stores, {CONSUMER: consume}, OPTIONS).run(stop)
    await stores.close()
    print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Part)))
