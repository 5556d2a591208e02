"""What is told about an agent's run, word for word: its transcript, the Task tool's answers, and the notification."""

from msgspec import Struct

from ade.agents.protocols.base import UsageReported, clipped
from ade.agents.runs.model import AgentProgress, AgentResult, progress_in
from ade.tasks.identifiers import type_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

MAX_OUTPUT_TEXT = 30_000  # characters of a report that are given to another agent
LONGEST_DESCRIPTION = 500
_ROOM_FOR_MARK = 100
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

STILL_RUNNING = "Task is still running..."
NO_OUTPUT_YET = "(no output yet)"
INTERRUPTED = "Interrupted by user"
ABORTED = "Aborted by user"
_NOTIFIED = "You will be notified when it ends: a <task-notification> message brings the result. No need to ask."
_ASK = "Ask TaskOutput with this task ID for its result."


class RunUsage(Struct, frozen=True, kw_only=True):
    """What a run has taken. None: nobody knows."""

    total_tokens: int | None = None
    tool_uses: int | None = None
    duration_ms: int | None = None


UNKNOWN_USAGE = RunUsage()


def header(subagent_type: str, agent_id: str | None = None, conversation_id: str | None = None) -> str:
    """Who worked, in one line; what is not known is left out."""
    facts = {"subagent_type": subagent_type, "agent_id": agent_id, "conversation_id": conversation_id}
    return " ".join(f"{name}={_one_line(value)}" for name, value in facts.items() if value)


def transcript_start(description: str, subagent_type: str) -> str:
    return f"[Task started: {_one_line(description)}]\n[subagent_type: {_one_line(subagent_type)}]\n\n"


def transcript_success(head: str, report: str) -> str:
    return f"{head}\n\n{report}\n\n[Task completed]\n"


def transcript_failure(message: str) -> str:
    return f"[error] {message}\n\n[Task failed]\n"


def foreground_result(head: str, report: str, output_file: str | None) -> str:
    """The Task tool's answer where it waited for the end."""
    return _with_output_file(capped(f"{head}\n\n{report}"), output_file)


def foreground_error(message: str, output_file: str | None = None) -> str:
    """The Task tool's answer where it did not work, or was not even begun."""
    return _with_output_file(f"Error: {capped(message)}", output_file)


def background_started(
    task_id: str, *, agent_id: str | None = None, output_file: str | None = None, is_notified: bool = True
) -> str:
    """The Task tool's answer where it does not wait for the end."""
    lines = [f"Task running in background with task ID: {task_id}"]
    lines += [f"Agent ID: {_one_line(agent_id)}"] if agent_id else []
    lines += [f"Output file: {_one_line(output_file)}"] if output_file else []
    return "\n".join([*lines, "", _NOTIFIED if is_notified else _ASK])


def notification(
    task_id: str,
    *,
    is_completed: bool,
    summary: str,
    result: str,
    usage: RunUsage = UNKNOWN_USAGE,
    output_file: str | None = None,
) -> str:
    """What a conversation gets to read when a task it began has ended. There are two ends; a cancelled one failed."""
    lines = [
        "<task-notification>",
        f"<task-id>{task_id}</task-id>",
        f"<status>{_ended(is_completed)}</status>",
        f"<summary>{_escaped(summary)}</summary>",
        f"<result>{_escaped(capped(result))}</result>",
        *_usage_lines(usage),
        "</task-notification>",
    ]
    if output_file:
        lines.append(f"Full transcript available at: {_one_line(output_file)}")
    return "\n".join(lines)


def summary_of(description: str, *, is_completed: bool) -> str:
    return f'Agent "{clipped(description, LONGEST_DESCRIPTION)}" {_ended(is_completed)}'


def output_text(output: str, error: str | None = None) -> str:
    """What TaskOutput answers about a task: what it wrote, and after that why it failed."""
    parts = [output] if output else []
    parts += [f"[error] {error}"] if error else []
    return capped("\n".join(parts)) or NO_OUTPUT_YET


def unknown_task(task_id: str) -> str:
    return f"No background process found with ID: {task_id}"


def capped(text: str) -> str:
    """At most as much as an agent is told; a mark stands for what was cut out of the middle."""
    return text if len(text) <= MAX_OUTPUT_TEXT else clipped(text, MAX_OUTPUT_TEXT - _ROOM_FOR_MARK)


def _ended(is_completed: bool) -> str:
    return "completed" if is_completed else "failed"


def _usage_lines(usage: RunUsage) -> list[str]:
    known = [f"{name}: {value}" for name in RunUsage.__struct_fields__ if (value := getattr(usage, name)) is not None]
    return ["<usage>" + "\n".join(known) + "</usage>"] if known else []


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _with_output_file(text: str, output_file: str | None) -> str:
    return f"{text}\nOutput file: {_one_line(output_file)}" if output_file else text


def _one_line(text: str) -> str:
    """What stands within a line cannot begin another one."""
    return " ".join(text.splitlines())


# How the task of a run ended, in words for whoever asked for it.


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


def spent_by(progress: AgentProgress) -> UsageReported:
    """What all attempts have cost, as far as it was told."""
    costs = [cost for cost in (progress.cost_usd, progress.earlier.cost_usd) if cost is not None]
    return UsageReported(
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


def _usage(task: Task, result: AgentResult | None, progress: AgentProgress | None) -> RunUsage:
    duration_ms = duration_of(task, result)
    if result is not None:
        return RunUsage(total_tokens=result.tokens, tool_uses=result.tool_calls, duration_ms=duration_ms)
    if progress is not None:
        return RunUsage(total_tokens=tokens_of(progress), tool_uses=progress.tool_call_count, duration_ms=duration_ms)
    return RunUsage(duration_ms=duration_ms)


def _output_file(result: AgentResult | None, progress: AgentProgress | None) -> str | None:
    known = result or progress
    return None if known is None else known.output_file


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
