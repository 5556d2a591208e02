"""Turns of an agent when something is in the way: crashes, sessions and tasks that are gone, people who take days."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from ade import Status, Task
from ade.agents.conversations.agent_consumer import DiscardBatch, after_turn
from ade.agents.conversations.consumer_loop import ENDED, RESTING
from ade.agents.conversations.model import ItemBatch, ItemKind, NewItem
from ade.agents.conversations.rules import RestartLimits
from ade.approvals.submission import replay
from ade.errors import NotConfirmed
from ade.events.model import ALERT
from ade.failures import Backoff, FailureKind, TaskError
from tests.agents.conversations.coding_agent import TALK, Coder, tasks_of, turns
from tests.agents.conversations.consumers import Points, Waterworks
from tests.domain import AgentProgress, DurableInbox, Inbox, enqueue
from tests.waiting import eventually
from tests.worker.harness import Gate, Workshop, soon

THREE_IN_A_ROW = RestartLimits(window_ms=600_000, most_in_a_row=3, pause=Backoff(base_ms=0, cap_ms=0))


async def test_a_failed_turn_is_not_told_again_by_whoever_takes_over(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "one", "two")
    coder.broken, inner, crashes = True, turns(shop), 1

    async def crash_once(batch: ItemBatch, inbox: Inbox) -> dict[str, Any]:
        nonlocal crashes
        try:
            return await inner(batch, inbox)
        except DiscardBatch:
            if not crashes:
                raise
            crashes -= 1
            await works.say(TALK, "three")
            coder.broken = False
            raise RuntimeError("all is lost before the batch is given up") from None

    async with shop.worker(), works.house(crash_once):
        await works.until_empty(TALK)

    assert coder.prompts == ["one\ntwo", "three"]


async def test_a_task_that_was_lost_before_it_was_confirmed_is_enqueued_again(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "one")
    losses = 1

    async def lossy(tasks: Sequence[Task]) -> list[Task]:
        nonlocal losses
        if losses:
            losses -= 1
            raise NotConfirmed("the primary died with it")
        return await enqueue(shop.stores, shop.payloads, tasks)

    async with shop.worker(), works.house(turns(shop, lossy)):
        await works.until_empty(TALK)

    assert coder.prompts == ["one"]
    assert await works.events("inbox.cleared") == []


async def test_a_conversation_that_was_forgotten_begins_anew(works: Waterworks, shop: Workshop, coder: Coder) -> None:
    async with shop.worker(), works.house(turns(shop)):
        for _ in range(2):
            await works.say(TALK, "hello")
            await works.until_empty(TALK)
            assert await works.stores.inboxes.forget_empty(works.stores.clock.now() + 10_000, 100) == 1

    assert coder.calls == [{"prompt": "hello"}, {"prompt": "hello"}]


async def test_a_session_that_is_gone_is_not_asked_for_again(works: Waterworks, shop: Workshop, coder: Coder) -> None:
    coder.is_forgetful = True

    async with shop.worker(), works.house(turns(shop)):
        for text in ("one", "two", "three"):
            await works.say(TALK, text)
            await works.until_empty(TALK)

    assert [call.get("session_id") for call in coder.calls] == [None, "session-1", None]


async def test_turns_that_fail_in_a_row_make_the_conversation_rest(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "one", "two", "three", "four", alone=True)
    coder.broken, points = True, Points(works.probe, RESTING)

    async with shop.worker(), works.house(turns(shop), restarts=THREE_IN_A_ROW):
        await points.until(RESTING, TALK, 1)

    assert coder.prompts == ["one", "two", "three"]
    [alert] = await works.events(ALERT)
    assert (alert.payload["what"], alert.payload["in_a_row"]) == ("conversation_rests", 3)
    assert (await works.inbox(TALK)).returns == 3


async def test_another_consumer_does_not_go_on_in_a_strange_session(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    critic = Coder()
    shop.handle(critic.run, name="agent:critic")

    async with shop.worker():
        async with works.house(turns(shop)):
            await works.say(TALK, "write it")
            await works.until_empty(TALK)
        async with works.house(turns(shop, profile_type="critic"), consumer="agent:critic"):
            await works.say(TALK, "read it", consumer="agent:critic")
            await works.until_empty(TALK)

    assert (coder.prompts, critic.calls) == (["write it"], [{"prompt": "read it"}])


async def test_a_session_that_counts_its_tokens_takes_them_along(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "one", "two", alone=True)
    coder.session_tokens = 700

    async with shop.worker(), works.house(turns(shop)):
        await works.until_empty(TALK)

    assert [call.get("session_tokens") for call in coder.calls] == [None, 700]


async def test_whoever_says_something_is_the_author_of_the_turn(works: Waterworks, shop: Workshop) -> None:
    await works.say(TALK, "so it is")
    await works.say(TALK, "do it", "now", author="bert")
    await works.say(TALK, " ", alone=True)

    async with shop.worker(), works.house(turns(shop)):
        await works.until_empty(TALK)

    told = [(task.author_id, task.description) for task in await tasks_of(shop)]
    assert told == [("bert", "so it is"), (None, "conversation talk")]


async def test_a_turn_that_is_replayed_does_not_run_beside_the_next(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "first")
    other = shop.handle(Coder.look_busy)
    coder.broken = True

    async with shop.worker(), works.house(turns(shop)):
        await works.until_empty(TALK)
        coder.broken, coder.gate = False, Gate()
        [dead] = await tasks_of(shop)
        await works.say(TALK, "second")
        await soon(coder.gate.reached)
        await replay(shop.stores, shop.payloads, dead.id)
        await shop.final(await shop.enqueue(other))  # so a worker has looked for more
        assert coder.prompts == ["first", "second"]
        coder.gate.open()
        await works.until_so(lambda: len(coder.calls) == 3)

    assert coder.prompts == ["first", "second", "first"]


async def test_a_turn_that_waits_for_people_takes_no_place(works: Waterworks, shop: Workshop, coder: Coder) -> None:
    async def held(tasks: Sequence[Task]) -> list[Task]:
        later = works.stores.clock.now() + 3_600_000
        tasks = [
            structs.replace(task, run_after=later) if task.arguments()["prompt"] == "slow" else task for task in tasks
        ]
        return await enqueue(shop.stores, shop.payloads, tasks)

    await works.say("a", "slow")
    async with shop.worker(), works.house(turns(shop, held), most_pumps=1, grace_s=0.0, poll_s=0.05):
        await eventually(lambda: tasks_of(shop))
        await works.say("b", "hello")
        await works.until_empty("b")

    assert coder.prompts == ["hello"]


async def test_an_answer_for_somebody_else_is_left_to_him_and_told_of(
    works: Waterworks, shop: Workshop, coder: Coder
) -> None:
    await works.say(TALK, "before")
    inbox, points = DurableInbox(works.stores, TALK), Points(works.probe, ENDED)
    await inbox.enqueue(NewItem(kind=ItemKind.APPROVAL_RESULT, text="yes"))
    await works.say(TALK, "after")

    async with shop.worker(), works.house(turns(shop), poll_s=0.05, blocked_s=0.1):
        await points.until(ENDED, TALK, 3)  # it is looked at from time to time, and no more
        [blocked] = await works.events("inbox.blocked")
        assert (blocked.payload["reason"], blocked.payload["queue_len"]) == ("pending_approvals", 2)
        assert [item.kind for item in await inbox.peek()] == ["approval_result", "message"]
        await inbox.consume_items(1)
        await works.until_empty(TALK)

    assert coder.prompts == ["before", "after"]


FAILED = TaskError(kind=FailureKind.RAISED, type="AgentReported", message="no such session")
REFUSED = TaskError(kind=FailureKind.UNRECOVERABLE, type="AgentBudgetExceeded", message="no money")


@pytest.mark.parametrize(
    ("status", "error", "said", "after"),
    [
        (Status.FAILED, FAILED, None, {}),
        (Status.FAILED, FAILED, {}, {}),
        (Status.FAILED, FAILED, {"session_id": "t"}, {"session_id": "t"}),
        (Status.FAILED, REFUSED, {}, {"session_id": "s", "session_tokens": 5}),
        (Status.CANCELLED, None, None, {"session_id": "s", "session_tokens": 5}),
        (Status.CANCELLED, None, {"session_id": "t", "session_tokens": 6}, {"session_id": "t", "session_tokens": 6}),
    ],
)
def test_what_is_remembered_of_a_session_after_a_turn_that_did_not_complete(
    status: Status, error: TaskError | None, said: dict[str, Any] | None, after: dict[str, Any]
) -> None:
    memory = {"session_id": "s", "session_tokens": 5, "other": 1}
    task = Task(id="", name="agent:coder", status=status, error=error)
    progress = None if said is None else AgentProgress(subagent_type="coder", **said)

    assert after_turn(memory, memory, task, progress) == {"other": 1, **after}
