"""A store with a webhook, and a network that answers what a story says."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ade.core.records import Task
from ade.core.webhooks.addresses import Reach
from ade.core.webhooks.judging import Answer
from ade.core.webhooks.records import Webhook
from ade.governance.webhooks.keeping import create
from ade.governance.webhooks.sending import Message
from ade.ports import Stores, TaskQuery
from ade.queue.enqueue import enqueue
from ade.queue.ids import fresh_id
from ade.queue.payloads import Payloads
from tests.conformance.backends import BACKENDS
from tests.conformance.clock import StoryClock

URL = "https://hooks.example.org/s3cret-path"
OK, BROKEN, GONE = Answer(status=204), Answer(status=500, excerpt=b"no luck"), Answer(status=410)


@pytest.fixture
def clock() -> StoryClock:
    return StoryClock()


@pytest.fixture(params=["memory", "sqlite", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path, clock: StoryClock) -> AsyncIterator[Stores]:
    opened = await BACKENDS[request.param].open(tmp_path, clock)
    yield opened
    broken = await opened.upkeep.check_invariants()
    await opened.close()
    assert broken == []


@pytest.fixture
def payloads(stores: Stores) -> Payloads:
    return Payloads(stores.blobs)


@pytest.fixture
async def webhook(stores: Stores) -> Webhook:
    """Wants all that happens to tasks."""
    return await create(stores, URL, ["task.*"], actor="root")


class Network:
    """Keeps what was sent to it, and answers in turn; the last answer again and again."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers or (OK,))
        self.sent: list[Message] = []

    async def send(self, message: Message, reach: Reach) -> Answer:
        self.sent.append(message)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def happen(stores: Stores, payloads: Payloads, *names: str) -> list[Task]:
    """Tasks come in; each is told of by one event."""
    now = stores.clock.now()
    return await enqueue(stores, payloads, [Task(id=fresh_id(now), name=name) for name in names])


async def orders(stores: Stores) -> list[Task]:
    """The tasks that shall send something, the oldest first."""
    found = await stores.tasks.find(TaskQuery(queue="webhooks", oldest_first=True, limit=1_000))
    return found.tasks


async def told(stores: Stores) -> Sequence[str]:
    """The types of all events about webhooks."""
    return [event.type for event in await stores.events.read(0, 1_000) if event.type.startswith("webhook.")]
