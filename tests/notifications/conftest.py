"""People with channels, payments that they approve, and receivers that remember what they were sent."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from ade import Task
from ade.approvals import repository as approvals_repository
from ade.approvals import service as approvals_service
from ade.testing import TestClock
from tests.domain import (
    Decision,
    DeliveryResponse,
    Payloads,
    Stores,
    TaskQuery,
    User,
    VoteRequest,
    add_user,
    admit,
    fresh_id,
    read_rulebook,
)
from tests.notifications.domain import (
    Channel,
    ChannelKind,
    DeliveryDecision,
    Gate,
    Message,
    NotificationDelivery,
    PreferenceChanges,
    Preferences,
    SendArguments,
    add_channel,
    change_preferences,
    deliver,
    dispatch,
    enqueue_guarded,
    follow,
    text_of,
)

GUARD = {"do": "demand", "name": "pay", "policy": "one", "reason": "money leaves"}
ONE = {"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}], "expires_after": "2d"}


class Receiver:
    """Stands for all channels: remembers each message and responds in turn; the last response again and again."""

    def __init__(self, *responses: DeliveryResponse | Exception) -> None:
        self.responses = list(responses or (DeliveryResponse(status=200),))
        self.messages: list[tuple[str, str]] = []  # (channel, text)

    async def send(self, channel: Channel, message: Message, delivery: NotificationDelivery) -> DeliveryResponse:
        self.messages.append((channel.id, text_of(message)))
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, Exception):
            raise response
        return response


class Office:
    """Rita, rob, and rosa review what ada, and the program bot of mallory, want to pay."""

    def __init__(self, stores: Stores, payloads: Payloads, clock: TestClock) -> None:
        self.stores, self.payloads, self.clock = stores, payloads, clock
        self.receiver = Receiver()
        self.owner: dict[str, str] = {}  # of each channel

    async def open(self) -> None:
        for name in ("rita", "rob", "rosa"):
            await add_user(self.stores, User(id=name, roles=frozenset({"reviewer"})))
        await add_user(self.stores, User(id="ada", display_name="Ada Lovelace", roles=frozenset({"reviewer"})))
        await add_user(self.stores, User(id="mallory", roles=frozenset({"reviewer"})))
        await add_user(self.stores, User(id="root", roles=frozenset({"admin"})))
        await add_user(self.stores, User(id="bot", is_human=False, owner="mallory", roles=frozenset({"agent"})))
        await self.rules(ONE)

    async def rules(self, *policies: object, **more: object) -> None:
        document: dict[str, object] = {"policy": list(policies), "guard": [GUARD], **more}
        await approvals_repository.apply(self.stores, read_rulebook(document), actor="root")

    async def channel(self, account: str, kind: ChannelKind = ChannelKind.EMAIL, target: str = "") -> Channel:
        made = await add_channel(self.stores, account, kind, target or f"{account}@example.org", actor=account)
        self.owner[made.id] = account
        return made

    async def channels(self, *accounts: str) -> None:
        """Channels whose own confirmations have been sent already."""
        for account in accounts:
            await self.channel(account)
        await self.run()
        self.receiver.messages.clear()

    async def prefer(self, account: str, changes: PreferenceChanges) -> Preferences:
        """Preferences whose own confirmation has been sent already."""
        after = await change_preferences(self.stores, account, changes, actor=account)
        await self.run()
        self.receiver.messages.clear()
        return after

    async def pay(self, author: str = "ada", **fields: Any) -> Task:
        now = self.stores.clock.now()
        task = Task(id=fresh_id(now), name="pay", author_id=author, **fields)
        [stored] = await enqueue_guarded(self.stores, self.payloads, [admit(task, now=now)])
        return stored

    async def gate(self, task: Task) -> Gate:
        [found] = await self.stores.tasks.get([task.id])
        assert found is not None
        assert found.review is not None
        assert found.review.gate is not None
        return found.review.gate

    async def vote(self, task: Task, voter: str, decision: Decision = Decision.APPROVE, reason: str = "") -> None:
        gate = await self.gate(task)
        request = VoteRequest(voter=voter, decision=decision, approval=gate.id, digest=gate.digest, reason=reason)
        await approvals_service.vote(self.stores, task.id, request)

    async def tasks(self) -> list[Task]:
        """The delivery tasks, oldest first."""
        found = await self.stores.tasks.find(TaskQuery(queue="webhooks", oldest_first=True, limit=1_000))
        return list(found.tasks)

    async def collect(self) -> None:
        """The maintenance job runs until nothing is left to do."""
        while await follow(self.stores) + await dispatch(self.stores, self.payloads):
            pass

    async def deliver(self, task: Task, **options: Any) -> DeliveryDecision:
        order = msgspec.json.decode(task.args, type=SendArguments)
        return await deliver(self.stores, self.receiver, order.account, order.delivery, randomness=0.5, **options)

    async def run(self, **options: Any) -> list[DeliveryDecision]:
        """Everything that can be sent now is sent, once."""
        await self.collect()
        decisions = [await self.deliver(task, **options) for task in await self.tasks()]
        self.clock.advance(1)
        return decisions

    def told(self, account: str) -> Sequence[str]:
        """The texts that a person was sent."""
        return [text for channel, text in self.receiver.messages if self.owner[channel] == account]

    def recipients(self) -> list[str]:
        return sorted(self.owner[channel] for channel, _ in self.receiver.messages)


@pytest.fixture
async def office(stores: Stores, clock: TestClock) -> Office:
    made = Office(stores, Payloads(stores.blobs), clock)
    await made.open()
    return made
