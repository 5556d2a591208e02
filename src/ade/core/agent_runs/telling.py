"""What is told about an agent's run, word for word: its transcript, the Task tool's answers, and the notification."""

from msgspec import Struct

from ade.core.agent_runs.lines import clipped

LONGEST_TOLD = 30_000  # characters of a report that are given to another agent
LONGEST_DESCRIPTION = 500
_ROOM_FOR_MARK = 100
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})

STILL_RUNNING = "Task is still running..."
NO_OUTPUT_YET = "(no output yet)"
INTERRUPTED = "Interrupted by user"
ABORTED = "Aborted by user"
_NOTIFIED = "You will be notified when it ends: a <task-notification> message brings the result. No need to ask."
_ASK = "Ask TaskOutput with this task ID for its result."


class Usage(Struct, frozen=True, kw_only=True):
    """What a run has taken. None: nobody knows."""

    total_tokens: int | None = None
    tool_uses: int | None = None
    duration_ms: int | None = None


UNKNOWN_USAGE = Usage()


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
    usage: Usage = UNKNOWN_USAGE,
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


def output_told(output: str, error: str | None = None) -> str:
    """What TaskOutput answers about a task: what it wrote, and after that why it failed."""
    parts = [output] if output else []
    parts += [f"[error] {error}"] if error else []
    return capped("\n".join(parts)) or NO_OUTPUT_YET


def unknown_task(task_id: str) -> str:
    return f"No background process found with ID: {task_id}"


def capped(text: str) -> str:
    """At most as much as an agent is told; a mark stands for what was cut out of the middle."""
    return text if len(text) <= LONGEST_TOLD else clipped(text, LONGEST_TOLD - _ROOM_FOR_MARK)


def _ended(is_completed: bool) -> str:
    return "completed" if is_completed else "failed"


def _usage_lines(usage: Usage) -> list[str]:
    known = [f"{name}: {value}" for name in Usage.__struct_fields__ if (value := getattr(usage, name)) is not None]
    return ["<usage>" + "\n".join(known) + "</usage>"] if known else []


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _with_output_file(text: str, output_file: str | None) -> str:
    return f"{text}\nOutput file: {_one_line(output_file)}" if output_file else text


def _one_line(text: str) -> str:
    """What stands within a line cannot begin another one."""
    return " ".join(text.splitlines())
