"""Every event makes one task for each webhook that wants it, whoever dies in between."""

import pytest
from msgspec.structs import replace

from ade import Task
from ade.errors import InvalidWebhook, StoreUnavailable
from ade.tasks.identifiers import CURSOR
from ade.webhooks.dispatch import follow
from ade.webhooks.model import TaskSelection
from ade.webhooks.service import WebhookChanges, change, create, disable, enable, send_test
from tests.domain import ClaimRequest, EventLog, Payloads, Stores, Webhook, enqueue, fresh_id
from tests.webhooks.conftest import URL, happen, orders


class DiesBeforeItsCursor:
    """The real log, of a process that is killed before it can say how far it came."""

    def __init__(self, real: EventLog) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    async def advance(self, name: str, seq: int) -> None:
        raise StoreUnavailable("killed")


async def ordered(stores: Stores) -> list[tuple[str, int]]:
    """Which webhook is to be told of which event, by its place in the log."""
    places = {event.seq: place for place, event in enumerate(await stores.events.read(0, 1_000), 1)}
    return sorted(
        (args["webhook_id"], places[args["seq"]]) for args in (task.arguments() for task in await orders(stores))
    )


async def test_each_webhook_is_told_of_what_it_wants(stores: Stores, payloads: Payloads, webhook: Webhook) -> None:
    other = await create(stores, URL, ["webhook.*", "task.created"], actor="root")
    await happen(stores, payloads, "a", "b")

    assert await follow(stores, payloads) == 4
    assert await follow(stores, payloads) > 0  # the tasks that it has just made are events too
    assert await follow(stores, payloads) == 0

    assert sorted(await ordered(stores)) == sorted(
        [(webhook.id, 3), (webhook.id, 4)] + [(other.id, n) for n in (2, 3, 4)]
    )
    assert {order.source for order in await orders(stores)} == {"system"}


async def test_nobody_is_told_of_what_was_before(stores: Stores, payloads: Payloads) -> None:
    await happen(stores, payloads, *"abc")
    webhook = await create(stores, URL, ["*"], actor="root")
    await happen(stores, payloads, "d")

    while await follow(stores, payloads):
        pass

    assert await ordered(stores) == [(webhook.id, 4), (webhook.id, 5)]


async def test_pages_leave_out_nothing(stores: Stores, payloads: Payloads, webhook: Webhook) -> None:
    await happen(stores, payloads, *"abcdefg")
    pages = 0
    while await follow(stores, payloads, limit=3):
        pages += 1

    assert await ordered(stores) == [(webhook.id, seq) for seq in range(2, 9)]
    assert pages == 5  # seven events and the seven that tell of the tasks
    assert (await stores.events.cursors()).get(CURSOR, 0) == await stores.events.last_seq()


async def test_a_crash_before_the_cursor_delivers_nothing_twice(
    stores: Stores, payloads: Payloads, webhook: Webhook
) -> None:
    await happen(stores, payloads, "a", "b")
    dying = replace(stores, events=DiesBeforeItsCursor(stores.events))  # all else is the real one's

    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await follow(dying, payloads)
    assert (await stores.events.cursors()).get(CURSOR, 0) == 0
    while await follow(stores, payloads):
        pass

    assert await ordered(stores) == [(webhook.id, 2), (webhook.id, 3)]


async def test_sending_is_never_told_of_and_so_ends(stores: Stores, payloads: Payloads) -> None:
    await create(stores, URL, ["*"], actor="root")
    await happen(stores, payloads, "a")
    for _ in range(5):
        await follow(stores, payloads)
        request = ClaimRequest(worker_id="w", run_ids=[f"r{_}"], names=frozenset({"webhooks:deliver"}))
        await stores.tasks.claim(request)

    assert len(await orders(stores)) == 2  # that the webhook was made, and the task


async def test_who_is_silent_misses_what_happens_meanwhile(
    stores: Stores, payloads: Payloads, webhook: Webhook
) -> None:
    await disable(stores, webhook.id, "enough", actor="root")
    await happen(stores, payloads, "a")
    await enable(stores, webhook.id, actor="root")
    await happen(stores, payloads, "b")

    while await follow(stores, payloads):
        pass

    assert [seq for _, seq in await ordered(stores)] == [5]


async def test_without_webhooks_the_log_may_be_trimmed(stores: Stores, payloads: Payloads, webhook: Webhook) -> None:
    await happen(stores, payloads, "a")
    await follow(stores, payloads)
    await disable(stores, webhook.id, "enough", actor="root")
    await happen(stores, payloads, "b")

    assert await follow(stores, payloads) == 0
    assert (await stores.events.cursors()).get(CURSOR, 0) == await stores.events.last_seq()


async def test_a_store_that_never_had_a_webhook_has_no_cursor(stores: Stores, payloads: Payloads) -> None:
    await happen(stores, payloads, "a")

    assert await follow(stores, payloads) == 0
    assert CURSOR not in await stores.events.cursors()


async def test_what_a_webhook_wants_counts_when_its_page_is_read(
    stores: Stores, payloads: Payloads, webhook: Webhook
) -> None:
    await happen(stores, payloads, "a")
    await change(stores, webhook.id, WebhookChanges(events=("alert",)), actor="root")

    while await follow(stores, payloads):
        pass

    assert await ordered(stores) == []


async def test_a_test_is_told_to_the_webhook_it_is_for_and_to_those_that_want_such(
    stores: Stores, payloads: Payloads, webhook: Webhook
) -> None:
    curious = await create(stores, URL, ["webhook.*"], actor="root")
    await create(stores, URL, ["queue.*"], actor="root")
    await send_test(stores, webhook.id, actor="ada")
    at = await stores.events.last_seq()

    while await follow(stores, payloads):
        pass

    told = {task.arguments()["webhook_id"] for task in await orders(stores) if task.arguments()["seq"] == at}
    assert told == {webhook.id, curious.id}


async def test_a_disabled_webhook_cannot_be_tested(stores: Stores, webhook: Webhook) -> None:
    await disable(stores, webhook.id, "enough", actor="root")

    with pytest.raises(InvalidWebhook):
        await send_test(stores, webhook.id, actor="ada")


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (TaskSelection(names=("b", "c")), ["b", "c"]),
        (TaskSelection(queues=("mail",)), ["b"]),
        (TaskSelection(tags=("urgent", "x")), ["a", "b"]),
        (TaskSelection(authors=("ada",)), ["a", "c"]),
        (TaskSelection(authors=("ada",), tags=("urgent",)), ["a"]),
        (TaskSelection(), ["a", "b", "c"]),
    ],
)
async def test_a_webhook_is_told_of_the_tasks_it_selects_alone(
    stores: Stores, payloads: Payloads, selection: TaskSelection, expected: list[str]
) -> None:
    await create(stores, URL, ["task.created", "queue.*"], actor="root", tasks=selection)
    now = stores.clock.now()
    tasks = [
        Task(id=fresh_id(now), name="a", tags=("urgent",), author_id="ada"),
        Task(id=fresh_id(now), name="b", tags=("x", "y"), queue="mail"),
        Task(id=fresh_id(now), name="c", author_id="ada"),
    ]
    await enqueue(stores, payloads, tasks)
    while await follow(stores, payloads):
        pass

    events = {event.seq: event.payload["name"] for event in await stores.events.read(0, 1_000) if event.task_id}
    assert sorted(str(events[order.arguments()["seq"]]) for order in await orders(stores)) == expected


async def test_a_test_is_sent_whatever_tasks_a_webhook_selects(stores: Stores, payloads: Payloads) -> None:
    made = await create(stores, URL, ["task.*"], actor="root", tasks=TaskSelection(names=("none",)))
    await send_test(stores, made.id, actor="root")
    while await follow(stores, payloads):
        pass
    assert len(await orders(stores)) == 1


async def test_selected_tasks_can_be_changed(stores: Stores) -> None:
    made = await create(stores, URL, ["task.*"], actor="root", tasks=TaskSelection(names=("a",)))
    kept = await change(stores, made.id, WebhookChanges(description="new"), actor="root")
    after = await change(stores, made.id, WebhookChanges(tasks=TaskSelection()), actor="root")
    assert (kept.tasks.names, after.tasks) == (("a",), TaskSelection())
    with pytest.raises(InvalidWebhook, match="tags has up to 50 values"):
        await change(stores, made.id, WebhookChanges(tasks=TaskSelection(tags=("",))), actor="root")
