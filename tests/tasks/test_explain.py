"""Why is it not running? For every cause one truthful answer with a stable code."""

from typing import Any

import pytest

from ade import Status
from ade.agents import registry
from ade.errors import UnknownTask
from ade.failures import FailureKind, TaskError
from ade.tasks import service as tasks_service
from ade.tasks.reasons import span
from ade.tasks.service import settle_broken
from tests.domain import AfterFailure, AgentStatus, Definition, Failed, Queue, Stores, Worker, explain, settle
from tests.tasks.queue_driver import QueueDriver

LEASE_MS = 30_000


async def start_worker(queue: QueueDriver, *definitions: Definition, worker_id: str = "w1", **fields: Any) -> Worker:
    known: dict[str, Any] = {"names": ("send",), "concurrency": 10, "progress_at": queue.clock.now()}
    worker = Worker(id=worker_id, hostname="h", pid=1, started_at=0, version="0", **(known | fields))
    await queue.stores.workers.register(worker, definitions, LEASE_MS)
    return worker


async def test_nothing_in_the_way(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue)
    task = await queue.enqueue()

    answer = await explain(stores, task.id)
    assert answer.codes == ["ready"]
    assert answer.sentence == "It is pending: nothing blocks it; a worker will claim it at any moment"


async def test_no_worker_at_all(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()
    assert (await explain(stores, task.id)).codes == ["no_worker"]


async def test_a_silent_worker_is_no_worker(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue)
    task = await queue.enqueue()
    queue.clock.advance(31)
    assert (await explain(stores, task.id)).codes == ["no_worker"]


async def test_no_worker_for_this_name_or_this_queue(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue, queues=("mail",))
    unknown, elsewhere, served = (
        await queue.enqueue("print"),
        await queue.enqueue(queue="night"),
        await queue.enqueue(queue="mail"),
    )

    assert "has a task named 'print'" in (await explain(stores, unknown.id)).sentence
    assert "looks at the queue 'night'" in (await explain(stores, elsewhere.id)).sentence
    assert (await explain(stores, served.id)).codes == ["ready"]


async def test_workers_that_drain_or_hang_take_nothing(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue, worker_id="leaving", draining=True)
    await start_worker(queue, worker_id="hanging", progress_at=queue.clock.now() - 60_000)
    task = await queue.enqueue()

    answer = await explain(stores, task.id)
    assert answer.codes == ["no_worker"]
    assert answer.reasons[0].facts == {"workers": {"hanging": "stuck", "leaving": "draining"}}


async def test_all_places_taken(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue, running=10)
    task = await queue.enqueue()
    assert (await explain(stores, task.id)).codes == ["workers_busy"]


async def test_all_workers_work_for_agents_that_begin_nothing(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue, agent="coder")
    await start_worker(queue, worker_id="w2", agent="writer")
    for name in ("coder", "writer", "other"):
        await registry.register(stores, name, 1)
    task = await queue.enqueue()
    assert (await explain(stores, task.id)).codes == ["ready"]

    await stores.agents.take("coder", ["a run"], lease_ms=LEASE_MS)
    await registry.set_status(stores, "writer", AgentStatus.DRAINING)

    answer = await explain(stores, task.id)
    assert answer.codes == ["agent_capacity"]
    assert answer.reasons[0].facts == {"agents": {"coder": "1 of 1 units in use", "writer": "draining"}}
    await start_worker(queue, worker_id="w3")
    assert (await explain(stores, task.id)).codes == ["ready"], "a worker without an agent may take it"


async def test_nobody_has_what_it_needs(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue, worker_id="plain")
    await start_worker(queue, worker_id="other", names=("print",), capabilities=("gpu", "net"))
    task = await queue.enqueue(needs=("gpu", "net"))

    answer = await explain(stores, task.id)
    assert answer.codes == ["capabilities"]
    assert "it needs gpu, net, and none of the 1 running worker for it has gpu, net" in answer.sentence
    assert answer.reasons[0].facts["missing"] == ["gpu", "net"]

    await start_worker(queue, worker_id="strong", capabilities=("gpu",))
    assert "none of the 2 running workers for it has net" in (await explain(stores, task.id)).sentence
    await start_worker(queue, worker_id="linked", capabilities=("net",))
    answer = await explain(stores, task.id)
    assert "none of the 3 running workers for it has all of it; linked has all but gpu" in answer.sentence
    await start_worker(queue, worker_id="both", capabilities=("gpu", "more", "net"))
    assert (await explain(stores, task.id)).codes == ["ready"]


async def test_who_could_take_it_for_its_needs_is_busy_or_drains(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue, worker_id="plain")
    await start_worker(queue, worker_id="strong", capabilities=("gpu",), running=10)
    task = await queue.enqueue(needs=("gpu",))
    assert (await explain(stores, task.id)).codes == ["workers_busy"]

    await start_worker(queue, worker_id="strong", capabilities=("gpu",), draining=True)
    assert (await explain(stores, task.id)).codes == ["no_worker"]


async def test_delayed(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue)
    task = await queue.enqueue(run_after=queue.clock.now() + 90_000)

    answer = await explain(stores, task.id)
    assert answer.codes == ["delayed"]
    assert "until 2030-01-01T00:01:30.000Z, 1 min 30 s from now" in answer.sentence


async def test_a_retry_says_what_went_wrong(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue)
    task = await queue.enqueue()
    error = TaskError(kind=FailureKind.RAISED, type="OSError", message="no route")
    outcome = Failed(error)
    await stores.tasks.commit(settle(await queue.claim(), outcome, now=queue.clock.now(), randomness=0.5))

    answer = await explain(stores, task.id)
    assert answer.codes == ["delayed"]
    assert "attempt 1 of 3 failed (OSError: no route), so it is delayed" in answer.sentence


async def test_a_paused_queue(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue)
    task = await queue.enqueue(queue="mail")
    await stores.queues.configure(Queue(name="mail", paused=True))

    answer = await explain(stores, task.id)
    assert answer.codes == ["queue_paused"]
    assert answer.reasons[0].advice == "`ade queues resume mail` resumes it"


async def test_waits_for_others(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue)
    done, open_one = await queue.enqueue(priority=0), await queue.enqueue()
    task = await queue.enqueue(depends_on=(done.id, open_one.id))
    await queue.complete(await queue.claim())

    answer = await explain(stores, task.id)
    assert answer.codes == ["waits_for"]
    assert answer.reasons[0].facts == {"tasks": {open_one.id: "pending"}}


async def test_what_is_met_is_not_waited_for(queue: QueueDriver, stores: Stores) -> None:
    """A failure that is tolerated, and a completed task that was pruned meanwhile."""
    await start_worker(queue)
    failed, pruned, open_one = await queue.enqueue(), await queue.enqueue(), await queue.enqueue("print")
    tolerant = await queue.enqueue(depends_on=(failed.id, open_one.id), after_failure=AfterFailure.RUN)
    task = await queue.enqueue(depends_on=(pruned.id, open_one.id))
    await queue.fail(await queue.claim())
    await queue.complete(await queue.claim())
    await stores.sweeps.prune([pruned.id])

    for waiting in (tolerant, task):
        answer = await explain(stores, waiting.id)
        assert answer.reasons[0].facts == {"tasks": {open_one.id: "pending"}}
        assert answer.sentence == f"It is pending: it waits for {open_one.id} (pending)"


async def test_a_worker_may_be_at_a_limit_that_only_it_knows(queue: QueueDriver, stores: Stores) -> None:
    """Two threads of a hundred places: the store sees 98 free ones, which are of no use to a plain function."""
    await start_worker(queue, running=2, concurrency=100)
    task = await queue.enqueue()

    answer = await explain(stores, task.id)
    assert answer.codes == ["workers_may_be_busy"]
    assert "the 1 worker for it may be at a limit of threads or processes (2 tasks running in 100 places)" in (
        answer.sentence
    )
    await start_worker(queue, worker_id="idle")
    assert (await explain(stores, task.id)).codes == ["ready"]


async def test_who_goes_first_is_told_only_where_somebody_claims(queue: QueueDriver, stores: Stores) -> None:
    _, task = await queue.enqueue(), await queue.enqueue()
    assert (await explain(stores, task.id)).codes == ["no_worker"]

    await start_worker(queue)
    answer = await explain(stores, task.id)
    assert answer.sentence == "It is pending: 1 task of the queue 'default' goes first, by priority and age"
    await queue.enqueue("print", priority=0)  # nobody runs it, so it may hold up nobody
    assert "up to 2 tasks of the queue 'default' go first" in (await explain(stores, task.id)).sentence


async def test_behind_others(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue)
    for _ in range(3):
        await queue.enqueue()
    await queue.enqueue(priority=9)
    task = await queue.enqueue()

    answer = await explain(stores, task.id)
    assert answer.codes == ["behind"]
    assert answer.reasons[0].facts["ahead"] == 3


async def test_the_limit_of_the_name_is_reached_by_whom(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue, Definition(name="send", concurrency=1))
    running, task = await queue.enqueue(), await queue.enqueue()
    await queue.claim()

    answer = await explain(stores, task.id)
    assert answer.codes == ["concurrency_limit"]
    assert answer.reasons[0].facts == {"limit": 1, "running": 1, "by": [running.id]}


async def test_the_limit_of_a_key_is_reached_by_whom(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue, Definition(name="send", concurrency_per_key=1))
    running, task = await queue.enqueue(concurrency_key="ada"), await queue.enqueue(concurrency_key="ada")
    other = await queue.enqueue(concurrency_key="bob")
    await queue.claim()

    answer = await explain(stores, task.id)
    assert "concurrency_key" in answer.codes
    [reason] = [each for each in answer.reasons if each.code == "concurrency_key"]
    assert reason.facts == {"limit": 1, "key": "ada", "by": [running.id]}
    assert "concurrency_key" not in (await explain(stores, other.id)).codes


async def test_the_rate_limit_says_when_it_goes_on(queue: QueueDriver, stores: Stores) -> None:
    await start_worker(queue, Definition(name="send", rate_count=1, rate_period_ms=60_000))
    _, task = await queue.enqueue(), await queue.enqueue()
    await queue.claim()

    answer = await explain(stores, task.id)
    assert answer.codes == ["rate_limit"]
    assert answer.reasons[0].facts["next_at"] == queue.clock.now() + 60_000
    assert "start at most once in 1 min" in answer.sentence


async def test_several_causes_are_all_named_in_the_order_they_must_be_lifted(
    queue: QueueDriver, stores: Stores
) -> None:
    other = await queue.enqueue()
    task = await queue.enqueue(depends_on=(other.id,), run_after=queue.clock.now() + 1_000)
    await stores.queues.configure(Queue(name="default", paused=True))

    assert (await explain(stores, task.id)).codes == ["waits_for", "delayed", "queue_paused", "no_worker"]


async def test_running(queue: QueueDriver, stores: Stores) -> None:
    await queue.enqueue()
    task = await queue.claim()
    queue.clock.advance(10)

    answer = await explain(stores, task.id)
    assert answer.codes == ["running_on"]
    assert answer.sentence == "Attempt 1 of 3 has been running on w1 for 10 s"
    queue.clock.advance(25)
    assert (await explain(stores, task.id)).codes == ["running_on", "lease_lost"]


async def test_final_tasks_tell_how_they_ended(queue: QueueDriver, stores: Stores) -> None:
    await queue.enqueue()
    completed = await queue.claim()
    await queue.complete(completed)
    cancelled = await queue.enqueue()
    await tasks_service.cancel(stores, cancelled.id, "not needed")
    hopeless = await queue.dead_letter("no such user")
    used_up = await queue.dead_letter("no luck", max_attempts=1)
    chained = await queue.enqueue(depends_on=(hopeless.id,))
    await settle_broken(stores)

    async def told(task_id: str) -> tuple[list[str], str]:
        answer = await explain(stores, task_id)
        return answer.codes, answer.sentence

    assert await told(completed.id) == (["final"], "It completed at 2030-01-01T00:00:00.000Z")
    assert (await told(cancelled.id))[1].endswith(": not needed")
    codes, sentence = await told(hopeless.id)
    assert (codes, "another attempt could not help" in sentence) == (["final"], True)
    codes, sentence = await told(used_up.id)
    assert codes == ["attempts_used_up"]
    assert "its only attempt is used up" in sentence
    assert (await explain(stores, used_up.id)).reasons[0].advice == f"`ade retry {used_up.id}` runs it again"
    assert "dependency failed" in (await told(chained.id))[1]

    await tasks_service.discard(stores, used_up.id, "obsolete")
    assert "it was discarded: obsolete" in (await told(used_up.id))[1]


async def test_a_draft_waits_for_its_author(queue: QueueDriver, stores: Stores) -> None:
    draft = await queue.enqueue(status=Status.DRAFT)
    review = await queue.enqueue(status=Status.REVIEWING)
    assert (await explain(stores, draft.id)).codes == ["draft"]
    assert (await explain(stores, review.id)).codes == ["waits_for_approval"]


async def test_a_passed_deadline(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue(deadline=queue.clock.now() + 1_000)
    queue.clock.advance(2)
    assert "deadline_passed" in (await explain(stores, task.id)).codes


async def test_an_unknown_task(queue: QueueDriver, stores: Stores) -> None:
    with pytest.raises(UnknownTask):
        await explain(stores, queue.task().id)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(5, "0.005 s"), (59_000, "59 s"), (61_000, "1 min 1 s"), (3_600_000, "1 h"), (90_061_000, "1 d 1 h"), (-5, "0 s")],
)
def test_spans_are_short(ms: int, text: str) -> None:
    assert span(ms) == text
