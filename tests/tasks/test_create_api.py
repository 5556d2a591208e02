"""What new tasks may name over HTTP: parents and keys of others are not to be had."""

import pytest

from ade import Task
from ade.errors import IdempotencyConflict, InvalidTask
from ade.server.idempotency import own_task_key
from ade.tasks.api import create, tasks
from ade.tasks.api.requests import ListTasks
from ade.tasks.options import BatchTask, NewDefinition, NewTask, NewTasks
from ade.worker.api import runs, workers
from ade.worker.api.requests import Claim, CompleteRun, RegisterWorker
from tests.domain import RequestContext, Role
from tests.server.operations import LOCAL, Operations

ABSENT = "019a0000-0000-7000-8000-000000000000"


async def make(ops: Operations, request: RequestContext, **more: object) -> Task:
    return await create.create_task(ops.services, request, NewTask(name="greet", **more))  # type: ignore[arg-type]


async def test_nobody_names_anothers_task_as_the_parent(ops: Operations) -> None:
    bob, eve = await ops.account("bob", Role.AGENT), await ops.account("eve", Role.AGENT)
    by_bob, by_eve = ops.request(bob, "create_task"), ops.request(eve, "create_task")
    of_bob = await make(ops, by_bob)
    told = set()
    for foreign in (of_bob.id, ABSENT):
        with pytest.raises(InvalidTask) as refused:
            await make(ops, by_eve, parent=foreign)
        told.add(refused.value.detail.replace(foreign, "ID"))
    assert len(told) == 1  # neither can be told from the other
    batch = NewTasks(tasks=[BatchTask(name="greet"), BatchTask(name="greet", parent=of_bob.id)])
    with pytest.raises(InvalidTask, match="parent"):
        await create.create_tasks(ops.services, ops.request(eve, "create_tasks"), batch)
    assert len((await tasks.list_tasks(ops.services, LOCAL, ListTasks())).items) == 1

    olga = ops.request(await ops.account("olga"), "create_task")
    for request in (by_bob, olga, LOCAL):
        assert (await make(ops, request, parent=of_bob.id)).parent_id == of_bob.id
    with pytest.raises(InvalidTask):
        await make(ops, olga, parent=ABSENT)


async def test_a_worker_names_what_it_runs(ops: Operations) -> None:
    hand = await ops.account("hand", Role.WORKER)
    by_hand = ops.request(hand, "create_task")
    parent = await make(ops, LOCAL)
    with pytest.raises(InvalidTask):
        await make(ops, by_hand, parent=parent.id)
    form = RegisterWorker(definitions=[NewDefinition(name="greet")])
    await workers.register_worker(ops.services, ops.request(hand, "register_worker"), "one", form)
    [run] = (await runs.claim_tasks(ops.services, ops.request(hand, "claim_tasks"), Claim(worker="one"))).runs
    child = await make(ops, by_hand, parent=parent.id, run=run.run_id, key="k")
    assert (child.parent_id, child.idempotency_key) == (parent.id, "k")  # as the next run, elsewhere, would have it
    assert (await make(ops, LOCAL, parent=parent.id, key="k")).id == child.id
    for others in ("schedule/nightly/1", "turn:chat:1", "account:bob:k", "http:0"):  # not those of anybody else
        child = await make(ops, by_hand, parent=parent.id, run=run.run_id, key=others)
        assert child.idempotency_key == f"account:hand:{others}"
    body = CompleteRun(task_id=parent.id)
    await runs.complete_run(ops.services, ops.request(hand, "complete_run"), run.run_id, body)
    with pytest.raises(InvalidTask):
        await make(ops, by_hand, parent=parent.id, run=run.run_id)


async def test_keys_of_accounts_are_their_own(ops: Operations) -> None:
    bob, eve = await ops.account("bob", Role.AGENT), await ops.account("eve", Role.AGENT)
    by_bob, by_eve = ops.request(bob, "create_task"), ops.request(eve, "create_task")
    squatted = await make(ops, by_eve, key="nightly", args={"evil": True})
    made = await make(ops, by_bob, key="nightly")
    assert (made.author_id, made.idempotency_key) == ("bob", "account:bob:nightly")
    assert (await make(ops, by_bob, key="nightly")).id == made.id
    assert (await make(ops, by_eve, key="account:bob:nightly")).id not in (made.id, squatted.id)
    with pytest.raises(IdempotencyConflict, match=made.id):
        await make(ops, by_bob, key="nightly", args={"other": 1})

    shared = await make(ops, LOCAL, key="nightly")
    assert shared.idempotency_key == "nightly"
    olga = ops.request(await ops.account("olga"), "create_task")
    assert (await make(ops, olga, key="nightly")).id == shared.id  # who may operate uses those of the store


async def test_a_key_is_checked_as_before(ops: Operations) -> None:
    request = ops.request(await ops.account("bob", Role.AGENT), "create_task")
    for wrong in ("", "x" * 501, "a\nb", "\n" * 499):
        with pytest.raises(InvalidTask, match="idempotency_key"):
            await make(ops, request, key=wrong)
    longest = await make(ops, request, key="x" * 500)
    assert longest.idempotency_key == own_task_key("bob", "x" * 500)
    assert (await make(ops, request, key="x" * 500)).id == longest.id
    assert (await make(ops, request, key="x" * 499)).id != longest.id
