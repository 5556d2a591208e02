"""Fixed texts about agent runs: transcript, Task tool results, and the notification to a conversation."""

from msgspec import Struct

from ade.agents.protocols.base import UsageReported, clipped
from ade.agents.runs.model import AgentProgress, AgentResult, current_usage, progress_in, together
from ade.tasks.identifiers import type_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

MAX_OUTPUT_TEXT = 30_000  # characters of a report that another agent receives
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
    """The usage of a run. None: unknown."""

    total_tokens: int | None = None
    tool_uses: int | None = None
    duration_ms: int | None = None


UNKNOWN_USAGE = RunUsage()


def header(subagent_type: str, agent_id: str | None = None, conversation_id: str | None = None) -> str:
    """Return one line that identifies the agent; unknown IDs are omitted."""
    facts = {"subagent_type": subagent_type, "agent_id": agent_id, "conversation_id": conversation_id}
    return " ".join(f"{name}={one_line(value)}" for name, value in facts.items() if value)


def foreground_result(head: str, report: str, output_file: str | None) -> str:
    """Return the Task tool's result after it waited for the end."""
    return _with_output_file(capped(f"{head}\n\n{report}"), output_file)


def foreground_error(message: str, output_file: str | None = None) -> str:
    """Return the Task tool's result for a run that failed or did not start."""
    return _with_output_file(f"Error: {capped(message)}", output_file)


def background_started(
    task_id: str, *, agent_id: str | None = None, output_file: str | None = None, is_notified: bool = True
) -> str:
    """Return the Task tool's result for a run in the background."""
    lines = [f"Task running in background with task ID: {task_id}"]
    lines += [f"Agent ID: {one_line(agent_id)}"] if agent_id else []
    lines += [f"Output file: {one_line(output_file)}"] if output_file else []
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
    """Return the notification about an ended task: completed or failed; a cancelled task counts as failed."""
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
        lines.append(f"Full transcript available at: {one_line(output_file)}")
    return "\n".join(lines)


def summary_of(description: str, *, is_completed: bool) -> str:
    """Return one line with the description and the outcome."""
    return f'Agent "{clipped(description, LONGEST_DESCRIPTION)}" {_ended(is_completed)}'


def output_text(output: str, error: str | None = None) -> str:
    """Return the TaskOutput result for a task: its output, then its error."""
    parts = [output] if output else []
    parts += [f"[error] {error}"] if error else []
    return capped("\n".join(parts)) or NO_OUTPUT_YET


def unknown_task(task_id: str) -> str:
    """Return the message for an unknown task ID."""
    return f"No background process found with ID: {task_id}"


def capped(text: str) -> str:
    """Cut text to the limit for agents; a marker replaces the middle."""
    return text if len(text) <= MAX_OUTPUT_TEXT else clipped(text, MAX_OUTPUT_TEXT - _ROOM_FOR_MARK)


def _ended(is_completed: bool) -> str:
    return "completed" if is_completed else "failed"


def _usage_lines(usage: RunUsage) -> list[str]:
    known = [f"{name}: {value}" for name in RunUsage.__struct_fields__ if (value := getattr(usage, name)) is not None]
    return ["<usage>" + "\n".join(known) + "</usage>"] if known else []


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _with_output_file(text: str, output_file: str | None) -> str:
    return f"{text}\nOutput file: {one_line(output_file)}" if output_file else text


def one_line(text: str) -> str:
    """Collapse line breaks, so that a value cannot start a line of its own."""
    return " ".join(text.splitlines())


# Texts about the task of a run, for its caller.


EXPIRED = "(the result was kept for its time and is gone)"


def notification_of(task: Task, result: AgentResult | None) -> str:
    """Return the notification about an ended task; `result` is its result, if it completed."""
    is_completed = task.status is Status.COMPLETED
    progress = progress_in(task.progress)
    return notification(
        task.id,
        is_completed=is_completed,
        summary=summary_of(task.description or type_of(task.name), is_completed=is_completed),
        result=report_of(task, result) if is_completed else error_of(task),
        usage=usage_of(result, progress, duration_of(task, result)),
        output_file=_output_file(result, progress),
    )


def report_of(task: Task, result: AgentResult | None) -> str:
    """Return the header and the report."""
    if result is None:
        return f"{header(type_of(task.name))}\n\n{EXPIRED}"
    return f"{header(result.subagent_type, result.agent_id, result.conversation_id)}\n\n{result.report}"


def error_of(task: Task) -> str:
    """Return why the task did not complete."""
    if task.status is Status.FAILED:
        return task.error.message if task.error is not None else "it failed for an unknown reason"
    if task.status is Status.CANCELLED and task.reason:
        return task.reason  # such as "Aborted by user"
    return f"{task.status}: {task.reason}" if task.reason else str(task.status)


def spent_by(progress: AgentProgress) -> UsageReported:
    """Return the reported cost of this attempt and all earlier ones."""
    return together(current_usage(progress), progress.earlier)


def duration_of(task: Task, result: AgentResult | None = None) -> int | None:
    """Return the run time in ms; None before the end, or if it never started."""
    if result is not None:
        return result.duration_ms
    if task.started_at is None or task.finished_at is None:
        return None
    return max(task.finished_at - task.started_at, 0)


def usage_of(result: AgentResult | None, progress: AgentProgress | None, duration_ms: int | None) -> RunUsage:
    """Return the usage of a run, from its result or else from its last progress."""
    if result is not None:
        return RunUsage(total_tokens=result.tokens, tool_uses=result.tool_calls, duration_ms=duration_ms)
    if progress is None:
        return RunUsage(duration_ms=duration_ms)
    tokens = spent_by(progress).tokens
    return RunUsage(total_tokens=tokens, tool_uses=progress.tool_call_count, duration_ms=duration_ms)


def _output_file(result: AgentResult | None, progress: AgentProgress | None) -> str | None:
    known = result or progress
    return None if known is None else known.output_file
