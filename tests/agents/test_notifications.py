"""Whoever asked for a run is told of its end, once, whichever way it ended and whoever died on the way."""

import msgspec
import pytest
from msgspec import structs

from ade import Retry, Status, Task
from ade.agents.conversations.model import ItemKind, NewItem, StoredItem
from ade.agents.notifications import notify, notify_task
from ade.approvals import submission
from ade.errors import InvalidInbox, InvalidTask
from ade.failures import FailureKind, TaskError
from ade.tasks import service as tasks_service
from ade.tasks.identifiers import NOTIFY
from ade.testing import TestClock
from tests.domain import AgentProgress, AgentResult, DurableInbox, Failed, Payloads, Stores, enqueue, settle, settle_due
from tests.tasks.queue_driver import QueueDriver

CODER = "agent:coder"
RESULT = AgentResult(
    report="All <tests> pass.",
    subagent_type="coder",
    agent_id="agent-1",
    conversation_id="conv-9",
    tokens=1200,
    tool_calls=3,
    duration_ms=4500,
    output_file="/transcripts/1.log",
)


class Parent:
    """A conversation that has asked for a run."""

    def __init__(self, queue: QueueDriver, run: Task) -> None:
        self.queue = queue
        self.run = run
        self.inbox = DurableInbox(queue.stores, "main")

    async def told(self) -> list[StoredItem]:
        """What lies in its inbox once a worker has done what it can."""
        for each in await self.open_notifications():
            await notify(self.queue.stores, self.queue.payloads, each.id, "main")
            await self.queue.complete(each)
        return list(await self.inbox.peek())

    async def open_notifications(self) -> list[Task]:
        found = []
        while claimed := await self.claimed():
            found.append(claimed)
        return found

    async def claimed(self) -> Task | None:
        try:
            return await self.queue.claim(NOTIFY)
        except ValueError:  # nothing is to be claimed
            return None


@pytest.fixture
async def parent(queue: QueueDriver) -> Parent:
    return Parent(queue, await ask(queue))


async def ask(queue: QueueDriver, **fields: object) -> Task:
    run = queue.task(CODER, {"prompt": "fix it"}, description="Fix the login test", **fields)
    run = structs.replace(run, created_at=queue.clock.now())
    stored, _ = await enqueue(queue.stores, queue.payloads, [run, notify_task(run, "main")])
    return stored


async def test_a_completed_run_is_told_with_its_report(parent: Parent, queue: QueueDriver) -> None:
    assert await parent.open_notifications() == []  # not before the end

    await queue.complete(await queue.claim(CODER), RESULT)
    [item] = await parent.told()

    assert item.kind is ItemKind.TASK_NOTIFICATION
    assert item.text == (
        "<task-notification>\n"
        f"<task-id>{parent.run.id}</task-id>\n"
        "<status>completed</status>\n"
        '<summary>Agent "Fix the login test" completed</summary>\n'
        "<result>subagent_type=coder agent_id=agent-1 conversation_id=conv-9\n\nAll &lt;tests&gt; pass.</result>\n"
        "<usage>total_tokens: 1200\ntool_uses: 3\nduration_ms: 4500</usage>\n"
        "</task-notification>\n"
        "Full transcript available at: /transcripts/1.log"
    )


async def test_a_large_report_is_cut_for_the_conversation(parent: Parent, queue: QueueDriver) -> None:
    run = await queue.claim(CODER)
    result = await Payloads(queue.stores.blobs, 100).spill(
        run.id, "1.1.result", msgspec.Raw(msgspec.json.encode(structs.replace(RESULT, report="&" * 100_000)))
    )
    await queue.complete(run, result)
    [item] = await parent.told()

    assert item.text is not None
    assert "characters cut" in item.text
    assert len(item.text) < 160_000


async def test_a_failed_run_is_told_with_its_error_and_what_it_has_taken(parent: Parent, queue: QueueDriver) -> None:
    run = await queue.claim(CODER)
    progress = AgentProgress(subagent_type="coder", tokens=70, tool_call_count=2, output_file="/transcripts/2.log")
    await queue.stores.tasks.report_progress(run.id, run.run_id or "", msgspec.Raw(msgspec.json.encode(progress)))
    await queue.fail(run, "the budget is used up")
    [item] = await parent.told()

    assert item.text is not None
    assert "<status>failed</status>" in item.text
    assert "<result>the budget is used up</result>" in item.text
    assert "total_tokens: 70\ntool_uses: 2" in item.text
    assert item.text.endswith("Full transcript available at: /transcripts/2.log")


async def test_cancelled_while_it_waited(parent: Parent, queue: QueueDriver) -> None:
    await tasks_service.cancel(queue.stores, parent.run.id, "not needed any more")
    [item] = await parent.told()

    assert "<status>failed</status>" in (item.text or "")
    assert "<result>not needed any more</result>" in (item.text or "")


async def test_cancelled_while_it_ran(parent: Parent, queue: QueueDriver) -> None:
    await queue.claim(CODER)
    await tasks_service.cancel(queue.stores, parent.run.id)
    [item] = await parent.told()

    assert "<result>cancelled</result>" in (item.text or "")


async def test_cancelled_with_its_parent(queue: QueueDriver) -> None:
    above = await queue.enqueue("plan")
    parent = Parent(queue, await ask(queue, parent_id=above.id, author_id="anna"))
    await tasks_service.cancel(queue.stores, above.id)
    [item] = await parent.told()

    assert "<result>its parent was cancelled</result>" in (item.text or "")
    assert item.author == "anna"  # who pays for what the conversation makes of it


async def test_its_deadline_passed(queue: QueueDriver, clock: TestClock) -> None:
    parent = Parent(queue, await ask(queue, deadline=clock.now() + 1000))
    clock.advance(2)
    await settle_due(queue.stores)
    [item] = await parent.told()

    assert "its deadline passed" in (item.text or "")


async def test_every_worker_died_over_it(queue: QueueDriver, clock: TestClock) -> None:
    parent = Parent(queue, await ask(queue, max_attempts=2))
    for _ in range(2):
        await queue.claim(CODER)
        clock.advance(3600)
        await settle_due(queue.stores)
    [item] = await parent.told()

    assert "went silent during attempt 2 of 2" in (item.text or "")


async def test_what_it_waited_for_did_not_complete(queue: QueueDriver) -> None:
    before = await queue.enqueue("prepare")
    parent = Parent(queue, await ask(queue, depends_on=(before.id,)))
    await tasks_service.cancel(queue.stores, before.id)
    [item] = await parent.told()

    assert "dependency failed" in (item.text or "")


async def test_a_run_that_is_tried_again_is_told_of_once_at_its_end(parent: Parent, queue: QueueDriver) -> None:
    run = await queue.claim(CODER)
    error = TaskError(kind=FailureKind.RAISED, type="AgentOutputCut", message="cut")
    await queue.stores.tasks.commit(settle(run, Failed(error), now=queue.clock.now(), randomness=0.5))
    assert await parent.told() == []

    queue.clock.advance(60)
    await queue.complete(await queue.claim(CODER), RESULT)

    assert len(await parent.told()) == 1


async def test_a_notification_whose_worker_dies_is_put_in_once(parent: Parent, queue: QueueDriver) -> None:
    await queue.complete(await queue.claim(CODER), RESULT)
    [first] = await parent.open_notifications()
    await notify(queue.stores, queue.payloads, first.id, "main")  # and dies before it can say so
    queue.clock.advance(3600)
    await settle_due(queue.stores)

    assert len(await parent.told()) == 1
    assert (await queue.get(first)).status is Status.COMPLETED


async def test_of_two_requests_with_one_key_one_end_is_told(queue: QueueDriver) -> None:
    first, second = await ask(queue, idempotency_key="k"), await ask(queue, idempotency_key="k")
    assert first.id == second.id

    await queue.complete(await queue.claim(CODER), RESULT)
    [item] = await Parent(queue, first).told()

    assert first.id in (item.text or "")


async def test_a_full_inbox_lets_the_notification_wait(parent: Parent, queue: QueueDriver) -> None:
    for number in range(300):
        await parent.inbox.enqueue(NewItem(kind=ItemKind.APPROVAL_RESULT, text=str(number)))
    await queue.complete(await queue.claim(CODER), RESULT)
    [waiting] = await parent.open_notifications()

    with pytest.raises(Retry):
        await notify(queue.stores, queue.payloads, waiting.id, "main")
    await parent.inbox.consume_items(1)
    await notify(queue.stores, queue.payloads, waiting.id, "main")

    assert (await parent.inbox.peek())[-1].kind is ItemKind.TASK_NOTIFICATION


async def test_a_run_that_was_replayed_meanwhile_is_told_of_at_its_next_end(parent: Parent, queue: QueueDriver) -> None:
    await queue.fail(await queue.claim(CODER))
    [early] = await parent.open_notifications()
    await submission.replay(queue.stores, queue.payloads, parent.run.id)

    await notify(queue.stores, queue.payloads, early.id, "main")
    await notify(queue.stores, queue.payloads, early.id, "main")
    assert await parent.told() == []

    await queue.complete(await queue.claim(CODER), RESULT)
    [item] = await parent.told()
    assert "<status>completed</status>" in (item.text or "")


async def test_a_run_that_is_gone_is_not_told_of(parent: Parent, queue: QueueDriver) -> None:
    await queue.complete(await queue.claim(CODER), RESULT)
    [waiting] = await parent.open_notifications()
    await queue.stores.sweeps.prune([parent.run.id])

    await notify(queue.stores, queue.payloads, waiting.id, "main")

    assert await parent.inbox.peek() == ()


async def test_nobody_else_enqueues_notifications(queue: QueueDriver) -> None:
    with pytest.raises(InvalidTask):
        await queue.enqueue(NOTIFY, {"inbox": "main"})


async def test_an_inbox_that_cannot_be_is_refused_before_anything_is_stored(queue: QueueDriver, stores: Stores) -> None:
    with pytest.raises(InvalidInbox):
        notify_task(queue.task(CODER), "two words")


@pytest.mark.parametrize("author", ["a" * 250, "ann\nbob", "ann\u00a0bob"])
async def test_an_author_that_fits_no_item_costs_nobody_the_notification(queue: QueueDriver, author: str) -> None:
    parent = Parent(queue, await ask(queue, author_id=author))
    await queue.complete(await queue.claim(CODER), RESULT)

    [item] = await parent.told()

    assert item.author is None
