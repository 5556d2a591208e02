"""Names are everybody's: what one account says of them must not weigh on others, nor change what they rely on."""

import asyncio
from typing import Any

import pytest

from ade.errors import InvalidTask, NotPermitted, UnknownName
from ade.tasks.admission import is_own_step
from ade.tasks.api import tasks
from ade.tasks.api.create import create_task
from ade.tasks.api.requests import ListNames
from ade.tasks.identifiers import DELIVER, NOTIFY
from ade.worker.api import workers
from ade.worker.api.requests import RegisterWorker
from tests.domain import Definition, NewDefinition, NewTask, Role, User
from tests.server.operations import LOCAL, Operations

OWN_STEPS = ["greet:preview", "greet:rollback", NOTIFY, DELIVER]


async def register(ops: Operations, user: User, *definitions: NewDefinition, name: str = "one") -> None:
    request = ops.request(user, "register_worker")
    await workers.register_worker(ops.services, request, name, RegisterWorker(definitions=list(definitions)))


async def definition_of(ops: Operations, name: str) -> Definition | None:
    return next((each for each in await ops.services.stores.workers.definitions() if each.name == name), None)


def wide(size: int) -> dict[str, Any]:
    return {"title": "x" * size}


@pytest.mark.parametrize("step", OWN_STEPS)
async def test_steps_of_ades_own_are_not_defined_by_others(ops: Operations, step: str) -> None:
    assert is_own_step(step)
    with pytest.raises(InvalidTask, match="internal task"):
        await register(ops, await ops.account("bob", Role.WORKER), NewDefinition(name=step))
    assert await definition_of(ops, step) is None


async def test_a_name_in_use_is_taken_as_it_is(ops: Operations) -> None:
    bob, eve = await ops.account("bob", Role.WORKER), await ops.account("eve", Role.WORKER)
    of_bob = NewDefinition(name="deploy", schema={"properties": {"to": {"type": "string"}}}, rate="10/m")
    await register(ops, bob, of_bob)
    await register(ops, eve, of_bob, NewDefinition(name="greet"))
    for other in (
        NewDefinition(name="deploy"),
        NewDefinition(name="deploy", queue="mine", schema=of_bob.schema, rate="10/m"),
        NewDefinition(name="greet", queue="mine"),  # of a worker on the store
    ):
        with pytest.raises(NotPermitted, match="alive and not yours"):
            await register(ops, eve, NewDefinition(name="fine"), other, name="two")
    assert await definition_of(ops, "fine") is None
    assert (await definition_of(ops, "greet")) == Definition(name="greet")

    await workers.deregister_worker(ops.services, ops.request(eve, "deregister_worker"), "one")
    await register(ops, bob, NewDefinition(name="deploy", queue="new"), name="two")  # his own
    ops.clock.advance(61)  # all are silent
    await register(ops, eve, NewDefinition(name="deploy", queue="mine"), NewDefinition(name="greet", queue="mine"))
    found = await definition_of(ops, "deploy"), await definition_of(ops, "greet")
    assert [each and each.queue for each in found] == ["mine", "mine"]


async def test_of_two_who_define_a_name_otherwise_at_once_one_is_refused(ops: Operations) -> None:
    people = [await ops.account(name, Role.WORKER) for name in ("bob", "eve", "cyd")]
    for number in range(5):
        tried = await asyncio.gather(
            *(register(ops, user, NewDefinition(name=f"n{number}", queue=user.id)) for user in people),
            return_exceptions=True,
        )
        refused = [each for each in tried if each is not None]
        assert [type(each) for each in refused] == [NotPermitted, NotPermitted]
        made = await definition_of(ops, f"n{number}")
        assert made is not None
        assert made.queue == people[tried.index(None)].id


async def test_of_two_who_define_a_name_alike_at_once_none_is_refused(ops: Operations) -> None:
    people = [await ops.account(name, Role.WORKER) for name in ("bob", "eve", "cyd")]
    alike = [NewDefinition(name="one", queue="q"), NewDefinition(name="two", schema=wide(9))]
    await asyncio.gather(*(register(ops, user, *alike, name=name) for user in people for name in ("a", "b", "c")))
    assert await definition_of(ops, "two") is not None


async def test_who_may_not_define_a_name_keeps_it_from_nobody(ops: Operations) -> None:
    bob, eve = await ops.account("bob", Role.WORKER), await ops.account("eve", Role.WORKER)
    await register(ops, bob, NewDefinition(name="deploy"))
    ops.clock.advance(40)  # he still lives, and it is reserved no more
    with pytest.raises(NotPermitted):
        await register(ops, eve, NewDefinition(name="deploy", queue="mine"))
    await register(ops, bob, NewDefinition(name="deploy", queue="new"))


async def test_definitions_of_one_worker_have_a_limit(ops: Operations) -> None:
    bob = await ops.account("bob", Role.WORKER)
    with pytest.raises(InvalidTask, match="32,000"):
        await register(ops, bob, NewDefinition(name="n0", schema=wide(32_000)))
    with pytest.raises(InvalidTask, match="256,000"):
        await register(ops, bob, *(NewDefinition(name=f"n{n}", schema=wide(31_900)) for n in range(9)))
    assert await definition_of(ops, "n0") is None
    await register(ops, bob, *(NewDefinition(name=f"n{n}", schema=wide(31_900)) for n in range(8)))


async def test_definitions_of_one_account_have_a_limit(ops: Operations) -> None:
    bob, eve = await ops.account("bob", Role.WORKER), await ops.account("eve", Role.WORKER)
    for begin in range(0, workers.MOST_NAMES, 500):
        await register(ops, bob, *(NewDefinition(name=f"n{begin + n}") for n in range(500)))
        await workers.deregister_worker(ops.services, ops.request(bob, "deregister_worker"), "one")
    with pytest.raises(InvalidTask, match="1,001 names"):
        await register(ops, bob, NewDefinition(name="another"))
    await register(ops, bob, NewDefinition(name="n1", queue="new"), NewDefinition(name="greet"))
    await register(ops, eve, NewDefinition(name="another"))


async def test_schemas_of_one_account_have_a_limit(ops: Operations) -> None:
    bob = await ops.account("bob", Role.WORKER)
    for begin in range(0, 28, 7):
        definitions = [NewDefinition(name=f"n{begin + n}", schema=wide(31_900)) for n in range(7)]
        await register(ops, bob, *definitions)
        await register(ops, bob, *definitions)  # costs nothing
    many = [NewDefinition(name=f"m{n}", schema=wide(31_900)) for n in range(7)]
    with pytest.raises(InvalidTask, match="1,000,000"):
        await register(ops, bob, *many)
    await register(ops, bob, *(NewDefinition(name=f"n{n}") for n in range(7)))
    await register(ops, bob, *many)

    seen, cursor = list[str](), None
    while True:
        page = await tasks.list_definitions(ops.services, LOCAL, ListNames(limit=500, cursor=cursor))
        assert sum(len(str(each.schema)) for each in page.items) < 600_000
        seen += [each.name for each in page.items]
        if (cursor := page.next) is None:
            break
    assert seen == sorted(["greet", *(f"n{n}" for n in range(28)), *(f"m{n}" for n in range(7))])


async def test_a_new_name_is_found_at_once(ops: Operations) -> None:
    bob = await ops.account("bob", Role.WORKER)
    with pytest.raises(UnknownName):
        await create_task(ops.services, LOCAL, NewTask(name="fresh"))
    await register(ops, bob, NewDefinition(name="fresh", max_attempts=7))
    assert (await create_task(ops.services, LOCAL, NewTask(name="fresh"))).max_attempts == 7


async def test_definitions_are_decoded_once(ops: Operations) -> None:
    await register(ops, await ops.account("bob", Role.WORKER), NewDefinition(name="other", schema=wide(9)))
    first, again = await definition_of(ops, "greet"), await definition_of(ops, "greet")
    assert first is again
    await ops.services.stores.workers.register(
        (await ops.services.stores.workers.list_workers())[-1], [Definition(name="greet", queue="new")], 60_000
    )
    changed = await definition_of(ops, "greet")
    assert changed is not None
    assert changed.queue == "new"
