"""How the task of a run ended, in words for whoever asked for it."""

from ade.core.agent_runs.events import Spent
from ade.core.agent_runs.names import type_of
from ade.core.agent_runs.results import AgentProgress, AgentResult, progress_in
from ade.core.agent_runs.telling import Usage, header, notification, summary_of
from ade.core.lifecycle import Status
from ade.core.records import Task

EXPIRED = "(the result was kept for its time and is gone)"


def notification_of(task: Task, result: AgentResult | None) -> str:
    """What a conversation gets to read about a task that has ended; `result` is what it left, if it completed."""
    is_completed = task.status is Status.COMPLETED
    progress = progress_in(task.progress)
    return notification(
        task.id,
        is_completed=is_completed,
        summary=summary_of(task.description or type_of(task.name), is_completed=is_completed),
        result=report_of(task, result) if is_completed else error_of(task),
        usage=_usage(task, result, progress),
        output_file=_output_file(result, progress),
    )


def report_of(task: Task, result: AgentResult | None) -> str:
    """Who worked, and what came of it."""
    if result is None:
        return f"{header(type_of(task.name))}\n\n{EXPIRED}"
    return f"{header(result.subagent_type, result.agent_id, result.conversation_id)}\n\n{result.report}"


def error_of(task: Task) -> str:
    """Why it did not complete."""
    if task.status is Status.FAILED:
        return task.error.message if task.error is not None else "it failed, and nobody knows why"
    if task.status is Status.CANCELLED and task.reason:
        return task.reason  # such as "Aborted by user"
    return f"{task.status}: {task.reason}" if task.reason else str(task.status)


def tokens_of(progress: AgentProgress) -> int | None:
    """Of this attempt and all before it."""
    return _sum(progress.tokens, progress.earlier.tokens)


def spent_by(progress: AgentProgress) -> Spent:
    """What all attempts have cost, as far as it was told."""
    costs = [cost for cost in (progress.cost_usd, progress.earlier.cost_usd) if cost is not None]
    return Spent(
        tokens=tokens_of(progress),
        cost_usd=sum(costs) if costs else None,
        turns=_sum(progress.turns, progress.earlier.turns),
    )


def duration_of(task: Task, result: AgentResult | None = None) -> int | None:
    """How long it ran, in ms; None before it is over, or if it never began."""
    if result is not None:
        return result.duration_ms
    if task.started_at is None or task.finished_at is None:
        return None
    return max(task.finished_at - task.started_at, 0)


def _usage(task: Task, result: AgentResult | None, progress: AgentProgress | None) -> Usage:
    duration_ms = duration_of(task, result)
    if result is not None:
        return Usage(total_tokens=result.tokens, tool_uses=result.tool_calls, duration_ms=duration_ms)
    if progress is not None:
        return Usage(total_tokens=tokens_of(progress), tool_uses=progress.tool_call_count, duration_ms=duration_ms)
    return Usage(duration_ms=duration_ms)


def _output_file(result: AgentResult | None, progress: AgentProgress | None) -> str | None:
    known = result or progress
    return None if known is None else known.output_file


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
