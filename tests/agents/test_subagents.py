"""The registry of subagents: nothing but what their tasks say."""

import msgspec
import pytest
from msgspec import Raw

from ade import Status, Task
from ade.agents.protocols.base import ToolCalled, UsageReported
from ade.agents.views import SubagentStatus, get_subagent, list_subagents, subagent_of
from ade.errors import UnknownTask
from ade.tasks import service as tasks_service
from tests.domain import AgentProgress, AgentResult
from tests.tasks.factories import new_task
from tests.tasks.queue_driver import QueueDriver

CODER = "agent:coder"
PROGRESS = AgentProgress(
    subagent_type="coder",
    agent_id="agent-1",
    model="sonnet",
    url="https://example.org/agent-1",
    tokens=30,
    earlier=UsageReported(tokens=100, cost_usd=0.5),
    tool_calls=(ToolCalled(id="1", name="Bash", arguments="ls"),),
    tool_call_count=4,
    said="Let me look.",
    output_file="/t/1.log",
)


async def begin(queue: QueueDriver, **fields: object) -> Task:
    """A run that goes on and has told something."""
    await queue.enqueue(CODER, {"prompt": "x"}, description="Fix it", **fields)
    run = await queue.claim(CODER)
    await queue.stores.tasks.report_progress(run.id, run.run_id or "", Raw(msgspec.json.encode(PROGRESS)))
    return run


async def test_a_run_that_goes_on(queue: QueueDriver) -> None:
    run = await begin(queue)
    queue.clock.advance(2)

    seen = await get_subagent(queue.stores, run.id)

    assert (seen.type, seen.description, seen.status) == ("Coder", "Fix it", SubagentStatus.RUNNING)
    assert (seen.tool_calls, seen.tokens, seen.cost_usd, seen.duration_ms) == (4, 130, 0.5, 2000)
    assert (seen.model, seen.url, seen.agent_id) == ("sonnet", "https://example.org/agent-1", "agent-1")
    assert seen.recent_tool_calls[0].name == "Bash"
    assert seen.said == "Let me look."
    assert seen.started_at == run.started_at


async def test_a_run_that_is_done(queue: QueueDriver) -> None:
    run = await begin(queue)
    await queue.complete(
        run, AgentResult(report="ok", subagent_type="coder", tokens=99, tool_calls=5, duration_ms=1234)
    )

    seen = await get_subagent(queue.stores, run.id)

    assert (seen.status, seen.tokens, seen.tool_calls, seen.duration_ms) == ("completed", 99, 5, 1234)
    assert seen.error is None


async def test_runs_that_did_not_complete_tell_why(queue: QueueDriver) -> None:
    failed, cancelled = await begin(queue), await begin(queue)
    await queue.fail(failed, "no luck")
    await tasks_service.cancel(queue.stores, cancelled.id)

    assert [(await get_subagent(queue.stores, each.id)).error for each in (failed, cancelled)] == [
        "no luck",
        "cancelled",
    ]
    assert (await get_subagent(queue.stores, cancelled.id)).tokens == 130


async def test_the_newest_come_first_and_may_be_chosen(queue: QueueDriver) -> None:
    first = await begin(queue)
    await queue.complete(first, AgentResult(report="ok", subagent_type="coder"))
    queue.clock.advance(1)
    second = await begin(queue)
    queue.clock.advance(1)
    third = await queue.enqueue("agent:tester", {"prompt": "x"})
    await queue.enqueue("send")

    async def listed(**chosen: object) -> list[str]:
        return [each.id for each in await list_subagents(queue.stores, **chosen)]  # type: ignore[arg-type]

    assert await listed() == [third.id, second.id, first.id]
    assert await listed(limit=2) == [third.id, second.id]
    assert await listed(status=SubagentStatus.COMPLETED) == [first.id]
    assert await listed(status=SubagentStatus.RUNNING) == [second.id]
    assert await listed(status=SubagentStatus.PENDING) == [third.id]
    assert await listed(status=SubagentStatus.ERROR) == []


async def test_those_of_one_parent(queue: QueueDriver) -> None:
    parent = await queue.enqueue("plan")
    await queue.enqueue("send", parent_id=parent.id)
    child = await queue.enqueue(CODER, {"prompt": "x"}, parent_id=parent.id)
    await queue.enqueue(CODER, {"prompt": "y"})

    [seen] = await list_subagents(queue.stores, parent_id=parent.id)

    assert (seen.id, seen.parent_id) == (child.id, parent.id)


async def test_a_task_that_runs_no_agent_is_none(queue: QueueDriver) -> None:
    task = await queue.enqueue("send")

    with pytest.raises(UnknownTask, match="does not run an agent, but send"):
        await get_subagent(queue.stores, task.id)


@pytest.mark.parametrize("status", Status)
def test_every_status_of_a_task_is_one_of_four(status: Status) -> None:
    seen = subagent_of(new_task(name=CODER, status=status), now=0)

    assert seen.status in SubagentStatus
    assert (seen.error is not None) == (seen.status is SubagentStatus.ERROR)
