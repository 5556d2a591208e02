"""A store with a webhook, and a network that answers what a story says."""

from collections.abc import Sequence

import pytest

from ade import Task
from ade.webhooks.dispatch import WebhookMessage
from ade.webhooks.service import create
from tests.domain import DeliveryResponse, NetworkPolicy, Payloads, Stores, TaskQuery, Webhook, enqueue, fresh_id

URL = "https://hooks.example.org/s3cret-path"
OK, BROKEN, GONE = (
    DeliveryResponse(status=204),
    DeliveryResponse(status=500, excerpt=b"no luck"),
    DeliveryResponse(status=410),
)


@pytest.fixture
def payloads(stores: Stores) -> Payloads:
    return Payloads(stores.blobs)


@pytest.fixture
async def webhook(stores: Stores) -> Webhook:
    """Wants all that happens to tasks."""
    return await create(stores, URL, ["task.*"], actor="root")


class Network:
    """Keeps what was sent to it, and answers in turn; the last answer again and again."""

    def __init__(self, *answers: DeliveryResponse | Exception) -> None:
        self.answers = list(answers or (OK,))
        self.sent: list[WebhookMessage] = []

    async def send(self, message: WebhookMessage, reach: NetworkPolicy) -> DeliveryResponse:
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
