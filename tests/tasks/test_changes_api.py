"""One task is edited, submitted, started, run again, undone; and nobody overtakes somebody else's write."""

import asyncio

import pytest
from msgspec import Raw

from ade import Status, Task
from ade.errors import IllegalTransition, InvalidTask, ResultExpired, UnknownName, UnknownTask
from ade.server.etags import tag_of_version
from ade.server.request_types import Nothing
from ade.tasks.api import create, lifecycle, tasks
from ade.tasks.api.requests import Cancel, EditTask, ListLines, ListNames, RetryTask
from ade.tasks.decisions import succeed
from tests.domain import ClaimRequest, Event, NewTask, OutputLine, Page, RequestContext, RequestRefused, Role, Succeeded
from tests.server.operations import LOCAL, Operations
from tests.tasks.finished_tasks import approved, failed


async def draft(ops: Operations, request: RequestContext = LOCAL) -> Task:
    return await create.create_task(ops.services, request, NewTask(name="greet", draft=True))


def match(task: Task) -> str:
    return str(tag_of_version(task.version))


async def test_a_draft_is_edited_and_submitted(ops: Operations) -> None:
    ann = await ops.account("ann")
    made = await draft(ops, ops.request(ann, "create_task"))
    request = ops.request(ann, "edit_task", if_match=match(made), tag_required=True)
    body = EditTask(args={"name": "Ada"}, description="says hello", priority=2, tags=["x"], resources=["db:main"])

    edited = await lifecycle.edit_task(ops.services, request, made.id, body)

    assert (edited.arguments(), edited.description, edited.priority) == ({"name": "Ada"}, "says hello", 2)
    assert (edited.tags, edited.resources) == (("x",), ("db:main",))
    submitted = await lifecycle.submit_task(ops.services, ops.request(ann, "submit_task"), made.id, Nothing())
    assert submitted.status is Status.REVIEWING
    with pytest.raises(IllegalTransition):
        await lifecycle.edit_task(ops.services, LOCAL, made.id, EditTask(priority=1))


async def test_an_edit_names_the_version_it_means(ops: Operations) -> None:
    ann = await ops.account("ann")
    made = await draft(ops)
    with pytest.raises(RequestRefused) as unsaid:
        await lifecycle.edit_task(
            ops.services, ops.request(ann, "edit_task", tag_required=True), made.id, EditTask(priority=1)
        )
    request = ops.request(ann, "edit_task", if_match=match(made), tag_required=True)
    answers = await asyncio.gather(
        *(lifecycle.edit_task(ops.services, request, made.id, EditTask(priority=each)) for each in (1, 2)),
        return_exceptions=True,
    )
    assert unsaid.value.problem.status == 428
    [refused] = [answer for answer in answers if isinstance(answer, RequestRefused)]
    [written] = [answer for answer in answers if isinstance(answer, Task)]
    assert refused.problem.status == 412
    assert (await ops.services.stores.tasks.get([made.id])) == [written]


async def test_an_edit_that_says_nothing_is_refused(ops: Operations) -> None:
    made = await draft(ops)
    with pytest.raises(InvalidTask):
        await lifecycle.edit_task(ops.services, LOCAL, made.id, EditTask())
    with pytest.raises(InvalidTask):
        await lifecycle.edit_task(ops.services, LOCAL, made.id, EditTask(priority=77))
    assert await ops.services.stores.tasks.get([made.id]) == [made]


async def test_a_failed_task_runs_again_perhaps_with_other_arguments(ops: Operations) -> None:
    made = await failed(ops)
    with pytest.raises(RequestRefused):
        await lifecycle.retry_task(ops.services, RequestContext(actor="x", if_match='"1"'), made.id, RetryTask())
    again = await lifecycle.retry_task(ops.services, LOCAL, made.id, RetryTask(args={"name": "Bob"}))
    assert (again.status, again.generation, again.arguments()) == (Status.PENDING, 2, {"name": "Bob"})
    with pytest.raises(IllegalTransition):
        await lifecycle.retry_task(ops.services, LOCAL, made.id, RetryTask(args={"name": "Eve"}))


@pytest.mark.parametrize("operation", ["retry_task", "edit_task", "submit_task", "apply_task", "roll_back_task"])
async def test_a_foreign_task_is_none_at_all(ops: Operations, operation: str) -> None:
    agent, other = await ops.account("agent-a", Role.AGENT), await ops.account("agent-b", Role.AGENT)
    made = await draft(ops, ops.request(agent, "create_task"))
    body = {"retry_task": RetryTask(), "edit_task": EditTask(priority=1)}.get(operation, Nothing())
    for task_id in (made.id, "no id", "../etc"):
        with pytest.raises(UnknownTask):
            await getattr(lifecycle, operation)(ops.services, ops.request(other, operation), task_id, body)
    assert await ops.services.stores.tasks.get([made.id]) == [made]


async def test_an_approved_task_that_waits_for_a_hand_is_started(ops: Operations) -> None:
    ann = await ops.account("ann")
    request = ops.request(ann, "create_task")
    made = await create.create_task(ops.services, request, NewTask(name="greet", draft=True, start="by_hand"))
    submitted = await lifecycle.submit_task(ops.services, ops.request(ann, "submit_task"), made.id, Nothing())
    assert (submitted.status, (await approved(ops, submitted)).status) == (Status.REVIEWING, Status.APPROVED)
    stale = ops.request(ann, "apply_task", if_match=match(made))
    with pytest.raises(RequestRefused):
        await lifecycle.apply_task(ops.services, stale, made.id, Nothing())
    started = await lifecycle.apply_task(ops.services, ops.request(ann, "apply_task"), made.id, Nothing())
    assert started.status is Status.PENDING


async def test_what_nobody_can_undo_is_not_rolled_back(ops: Operations) -> None:
    ann = await ops.account("ann")
    made = await failed(ops)
    with pytest.raises(UnknownName):
        await lifecycle.roll_back_task(ops.services, ops.request(ann, "roll_back_task"), made.id, Nothing())


async def test_the_result_is_answered_whole(ops: Operations) -> None:
    stores, text = ops.services.stores, '"' + "x" * 200_000 + '"'
    made = await create.create_task(ops.services, LOCAL, NewTask(name="greet"))
    assert (await tasks.get_task_result(ops.services, LOCAL, made.id)).result is None
    [run] = await stores.tasks.claim(ClaimRequest(worker_id="w", run_ids=["r1"], names=frozenset({"greet"})))
    result = await ops.services.payloads.spill(run.id, "1.1.result", Raw(text.encode()))
    await stores.tasks.commit(succeed(run, Succeeded(result), now=ops.clock.now()))

    answer = await tasks.get_task_result(ops.services, LOCAL, made.id)

    assert (answer.status, bytes(answer.result or b"")) == (Status.COMPLETED, text.encode())


async def test_a_result_that_was_kept_for_a_time_is_gone_afterwards(ops: Operations) -> None:
    stores = ops.services.stores
    made = await create.create_task(ops.services, LOCAL, NewTask(name="greet", result_ttl=10))
    [run] = await stores.tasks.claim(ClaimRequest(worker_id="w", run_ids=["r1"], names=frozenset({"greet"})))
    await stores.tasks.commit(succeed(run, Succeeded(Raw(b"1")), now=ops.clock.now()))
    ops.clock.advance(11)
    await stores.sweeps.expire_results(10)
    with pytest.raises(ResultExpired):
        await tasks.get_task_result(ops.services, LOCAL, made.id)


async def test_a_page_of_long_lines_ends_early(ops: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LARGEST_PAGE", 1_000)
    made = await create.create_task(ops.services, LOCAL, NewTask(name="greet"))
    sizes = [400, 400, 400, 2_000, 10, 10]
    lines = [OutputLine(task_id=made.id, run_id="r", attempt=1, at=1, text="x" * size) for size in sizes]
    await ops.services.stores.outputs.append(lines)
    pages, cursor = list[list[int]](), None
    while True:
        found = await tasks.get_task_output(ops.services, LOCAL, made.id, ListLines(limit=6, cursor=cursor))
        pages.append([len(each.text) for each in found.items])
        if (cursor := found.next) is None:
            break
    assert pages == [[400, 400], [400], [2_000], [10, 10]]


async def test_output_and_events_are_read_page_by_page(ops: Operations) -> None:
    made = await create.create_task(ops.services, LOCAL, NewTask(name="greet"))
    line = {"task_id": made.id, "run_id": "r", "attempt": 1, "at": 1}
    await ops.services.stores.outputs.append([OutputLine(**line, text=str(each)) for each in range(5)])  # type: ignore[arg-type]
    first = await tasks.get_task_output(ops.services, LOCAL, made.id, ListLines(limit=3))
    rest = await tasks.get_task_output(ops.services, LOCAL, made.id, ListLines(limit=3, cursor=first.next))
    assert [each.text for page in (first, rest) for each in page.items] == list("01234")
    assert rest.next is None
    later = ListLines(after=first.items[-1].seq)
    assert [each.text for each in (await tasks.get_task_output(ops.services, LOCAL, made.id, later)).items] == [
        "3",
        "4",
    ]
    await lifecycle.cancel_task(ops.services, LOCAL, made.id, Cancel())
    events: Page[Event] = await tasks.list_task_events(ops.services, LOCAL, made.id, ListLines())
    assert [each.type for each in events.items] == ["task.created", "task.cancelled"]
    with pytest.raises(UnknownTask):
        await tasks.list_task_events(ops.services, LOCAL, "no id", ListLines())


async def test_why_it_waits_and_which_names_there_are(ops: Operations) -> None:
    made = await create.create_task(ops.services, LOCAL, NewTask(name="greet", delay=60))
    explained = await tasks.explain_task(ops.services, LOCAL, made.id)
    assert "delayed" in explained.codes
    known = await tasks.list_definitions(ops.services, LOCAL, ListNames())
    assert [each.name for each in known.items] == ["greet"]
