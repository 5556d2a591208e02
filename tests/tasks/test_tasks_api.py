"""Tasks over the operations: what the API, the client and the command line share."""

from typing import Literal

import pytest

from ade import Status
from ade.errors import DependencyCycle, InvalidTask, UnknownDependency, UnknownName, UnknownTask
from ade.tasks.api import create, lifecycle, tasks
from ade.tasks.api.requests import Cancel, GetTask, ListTasks
from ade.tasks.options import BatchTask, NewTask, NewTasks
from tests.domain import Role
from tests.server.operations import LOCAL, Operations


async def test_a_task_is_made_found_and_cancelled(ops: Operations) -> None:
    made = await create.create_task(ops.services, LOCAL, NewTask(name="greet", args={"name": "Ada"}, tags=["a"]))
    assert (made.status, made.author_id, made.arguments()) == (Status.PENDING, "tester", {"name": "Ada"})

    found = await tasks.list_tasks(ops.services, LOCAL, ListTasks(tag="a"))
    assert [task.id for task in found.items] == [made.id]

    cancelled = await lifecycle.cancel_task(ops.services, LOCAL, made.id, Cancel(reason="no need"))
    assert (cancelled.status, cancelled.reason) == (Status.CANCELLED, "no need")
    assert await tasks.get_task(ops.services, LOCAL, made.id, GetTask()) == cancelled


async def test_a_list_goes_on_where_its_page_ended(ops: Operations) -> None:
    ids = [(await create.create_task(ops.services, LOCAL, NewTask(name="greet"))).id for _ in range(5)]
    first = await tasks.list_tasks(ops.services, LOCAL, ListTasks(order="oldest", limit=3))
    second = await tasks.list_tasks(ops.services, LOCAL, ListTasks(order="oldest", limit=3, cursor=first.next))
    assert [task.id for page in (first, second) for task in page.items] == ids
    assert second.next is None


@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_a_page_of_large_tasks_has_fewer(
    ops: Operations, monkeypatch: pytest.MonkeyPatch, order: Literal["oldest", "newest"]
) -> None:
    """Five hundred with all that they may have in them would be more than a server has memory for."""
    monkeypatch.setattr(tasks, "LARGEST_PAGE", 10_000)
    sizes = [3_000, 10, 3_000, 3_000, 20_000, 10, 10, 3_000, 3_000, 3_000, 3_000]
    ids = [
        (await create.create_task(ops.services, LOCAL, NewTask(name="greet", args={"text": "x" * size}))).id
        for size in sizes
    ]
    seen, cursor = list[str](), None
    while True:
        found = await tasks.list_tasks(ops.services, LOCAL, ListTasks(order=order, limit=8, cursor=cursor))
        assert len(found.items) == 1 or sum(len(task.args) for task in found.items) <= 10_000
        seen += [task.id for task in found.items]
        if (cursor := found.next) is None:
            break
    assert seen == (ids if order == "oldest" else ids[::-1])


async def test_an_unknown_name_stores_nothing(ops: Operations) -> None:
    with pytest.raises(UnknownName):
        await create.create_task(ops.services, LOCAL, NewTask(name="gret"))
    assert (await tasks.list_tasks(ops.services, LOCAL, ListTasks())).items == []


async def test_an_agent_cannot_tell_a_foreign_task_from_none(ops: Operations) -> None:
    agent, other = await ops.account("agent-a", Role.AGENT), await ops.account("agent-b", Role.AGENT)
    made = await create.create_task(ops.services, ops.request(agent, "create_task"), NewTask(name="greet"))
    with pytest.raises(UnknownTask) as refused:
        await lifecycle.cancel_task(ops.services, ops.request(other, "cancel_task"), made.id, Cancel())
    absent = "019" + made.id[3:-1] + ("0" if made.id[-1] != "0" else "1")
    with pytest.raises(UnknownTask) as missing:
        await lifecycle.cancel_task(ops.services, ops.request(other, "cancel_task"), absent, Cancel())
    assert refused.value.detail.replace(made.id, absent) == missing.value.detail
    cancelled = await lifecycle.cancel_task(ops.services, ops.request(agent, "cancel_task"), made.id, Cancel())
    assert cancelled.status is Status.CANCELLED


async def test_many_are_made_in_one_go_and_wait_for_each_other(ops: Operations) -> None:
    batch = NewTasks(
        tasks=[
            BatchTask(name="greet", ref="last", after=["first", "second"]),
            BatchTask(name="greet", ref="first"),
            BatchTask(name="greet", ref="second", after=["first"], draft=True),
        ]
    )
    made = (await create.create_tasks(ops.services, LOCAL, batch)).items
    last, first, second = made
    assert (last.depends_on, first.depends_on, second.depends_on) == ((first.id, second.id), (), (first.id,))
    assert [task.status for task in made] == [Status.PENDING, Status.PENDING, Status.DRAFT]
    stored = await ops.services.stores.tasks.get([task.id for task in made])
    assert [task and task.waiting_on for task in stored] == [2, 0, 1]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ([BatchTask(name="greet"), BatchTask(name="gret")], UnknownName),
        ([BatchTask(name="greet"), BatchTask(name="greet", priority=99)], InvalidTask),
        ([BatchTask(name="greet", ref="a"), BatchTask(name="greet", ref="a")], InvalidTask),
        ([BatchTask(name="greet", ref="a"), BatchTask(name="greet", after=["b"])], InvalidTask),
        (
            [BatchTask(name="greet", ref="a", after=["b"]), BatchTask(name="greet", ref="b", after=["a"])],
            DependencyCycle,
        ),
        ([BatchTask(name="greet", after=["0199a000-0000-7000-8000-000000000000"])], UnknownDependency),
    ],
)
async def test_one_mistake_in_many_stores_nothing(
    ops: Operations, wrong: list[BatchTask], error: type[Exception]
) -> None:
    with pytest.raises(error) as refused:
        await create.create_tasks(ops.services, LOCAL, NewTasks(tasks=wrong))
    if error is not UnknownDependency:
        assert "tasks[" in str(refused.value)
    assert (await tasks.list_tasks(ops.services, LOCAL, ListTasks())).items == []


async def test_a_repeated_request_for_many_makes_them_once(ops: Operations) -> None:
    user = await ops.account("ann")
    batch = NewTasks(tasks=[BatchTask(name="greet", ref="a"), BatchTask(name="greet", after=["a"])])
    first = await create.create_tasks(ops.services, ops.request(user, "create_tasks", key="k1"), batch)
    again = await create.create_tasks(ops.services, ops.request(user, "create_tasks", key="k1"), batch)
    ids = [task.id for task in first.items]
    assert ([task.id for task in again.items], first.earlier, again.earlier) == (ids, [], ids)
    assert len((await tasks.list_tasks(ops.services, LOCAL, ListTasks())).items) == 2


async def test_tasks_are_found_by_what_they_change_or_lock(ops: Operations) -> None:
    for form in (NewTask(name="greet", resources=["db:main"]), NewTask(name="greet", locks=["db:main"])):
        await create.create_task(ops.services, LOCAL, form)
    await create.create_task(ops.services, LOCAL, NewTask(name="greet", resources=["db:other"]))
    found = await tasks.list_tasks(ops.services, LOCAL, ListTasks(resource="db:main"))
    assert len(found.items) == 2


async def test_large_arguments_are_shown_whole_if_asked(ops: Operations) -> None:
    text = "x" * 300_000
    made = await create.create_task(ops.services, LOCAL, NewTask(name="greet", args={"name": text}))
    assert "$blob" in (await tasks.get_task(ops.services, LOCAL, made.id, GetTask())).arguments()
    assert (await tasks.get_task(ops.services, LOCAL, made.id, GetTask(whole=True))).arguments() == {"name": text}
