"""The event log over the operations, page by page, with the filters of the stream."""

import pytest

from ade.errors import InvalidFilter
from ade.events import api as events_api
from ade.events.api import ListEvents
from ade.tasks.api import create
from ade.tasks.service import cancel
from tests.domain import Event, NewTask, RequestContext, RequestRefused, Role
from tests.server.operations import LOCAL, Operations


async def happened(ops: Operations, count: int, event_type: str = "alert") -> None:
    """So many events that tell of no task."""
    told = [Event(type=event_type, at=ops.clock.now(), payload={"number": number}) for number in range(count)]
    await ops.services.stores.documents.write([], told)


async def pages(ops: Operations, **fields: object) -> list[list[Event]]:
    """All pages of a list, one after the other."""
    found, cursor = [], None
    while True:
        page = await events_api.list_events(ops.services, LOCAL, ListEvents(**fields, cursor=cursor))  # type: ignore[arg-type]
        found.append(list(page.items))
        if page.next is None:
            return found
        cursor = page.next


async def test_the_newest_are_told_or_those_behind_a_place(ops: Operations) -> None:
    await happened(ops, 7)
    log = await ops.services.stores.events.read(0, 100)

    newest = await events_api.list_events(ops.services, LOCAL, ListEvents(limit=3))
    assert (newest.items, newest.next) == (log[-3:], None)
    assert await pages(ops, after=0, limit=3) == [log[:3], log[3:6], log[6:]]
    assert await pages(ops, after=log[4].seq) == [log[5:]]
    assert await pages(ops, after=log[-1].seq) == [[]]


async def test_they_are_filtered_as_a_stream_is(ops: Operations) -> None:
    made = [await create.create_task(ops.services, LOCAL, NewTask(name="greet", queue=q)) for q in ("a", "b")]
    await cancel(ops.services.stores, made[0].id)
    await happened(ops, 2)

    async def types(**fields: object) -> list[str]:
        newest = await events_api.list_events(ops.services, LOCAL, ListEvents(**fields))  # type: ignore[arg-type]
        [behind] = await pages(ops, after=0, **fields)
        assert newest.items == behind
        return [event.type for event in behind]

    assert await types(type=("task.*",)) == ["task.created", "task.created", "task.cancelled"]
    assert await types(type=("task.cancelled,alert",)) == ["task.cancelled", "alert", "alert"]
    assert await types(task=(made[0].id,)) == ["task.created", "task.cancelled"]
    assert await types(queue=("b",), type=("task.*",)) == ["task.created"]
    assert await types(name=("nobody",)) == []


async def test_a_filter_that_nothing_fits_is_answered_in_portions(ops: Operations) -> None:
    await happened(ops, 6_000)
    await happened(ops, 1, "at.last")

    first = await events_api.list_events(ops.services, LOCAL, ListEvents(type=("at.last",), after=0))
    assert (first.items, first.next is None) == ([], False)
    second = await events_api.list_events(
        ops.services, LOCAL, ListEvents(type=("at.last",), after=0, cursor=first.next, limit=10)
    )
    assert ([event.type for event in second.items], second.next) == (["at.last"], None)
    with pytest.raises(RequestRefused):
        await events_api.list_events(ops.services, LOCAL, ListEvents(after=0, cursor=first.next))  # of another filter


@pytest.mark.parametrize(
    "query",
    [
        ListEvents(type=("Task",)),
        ListEvents(task=("1",)),
        ListEvents(queue=("",)),
        ListEvents(name=("a\nb",)),
        ListEvents(inbox=("\x00",)),
        ListEvents(lock=("a{b",)),
        ListEvents(type=tuple(f"a{n}" for n in range(101))),
    ],
)
async def test_what_is_no_filter_is_refused(ops: Operations, query: ListEvents) -> None:
    with pytest.raises(InvalidFilter):
        await events_api.list_events(ops.services, LOCAL, query)


async def test_whoever_may_look_sees_all_of_them(ops: Operations) -> None:
    await happened(ops, 1)
    for role in (Role.VIEWER, Role.REVIEWER):
        request = ops.request(await ops.account(f"a-{role}", role), "list_events")
        assert "alert" in [
            event.type for event in (await events_api.list_events(ops.services, request, ListEvents())).items
        ]


async def test_how_people_get_in_is_told_to_who_operates_alone(ops: Operations) -> None:
    """Else every reader would see what lists of tokens and sessions hide."""
    hidden = ("session.opened", "token.created", "login_link.used", "access.refused")
    await happened(ops, 60, "user.changed")
    for kind in hidden:
        await happened(ops, 15, kind)

    async def types(request: RequestContext, **fields: object) -> set[str]:
        form = ListEvents(limit=50, **fields)  # type: ignore[arg-type]
        return {event.type for event in (await events_api.list_events(ops.services, request, form)).items}

    viewer = ops.request(await ops.account("vera", Role.VIEWER), "list_events")
    operator = ops.request(await ops.account("olga", Role.OPERATOR), "list_events")
    newest = await events_api.list_events(ops.services, viewer, ListEvents(limit=40))
    assert [event.type for event in newest.items] == ["user.changed"] * 38 + ["user.added"] * 2
    assert await types(viewer, after=0) == {"user.changed"}
    assert await types(viewer, type=("session.*", "token.created")) == set()
    for request in (operator, LOCAL):
        assert await types(request, type=("session.*", "token.*", "login_link.*", "access.*"), after=0) >= {hidden[0]}
        assert await types(request) >= set(hidden[1:])
