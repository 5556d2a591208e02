"""Tasks, dead letters, and the verbs of workers that live behind HTTP."""

from ade.core.accounts.permissions import Permission
from ade.core.web.rates import Traffic
from ade.core.web.routing import Route, Tag, change, read

_ENQUEUE, _OPERATE, _WORK = Permission.ENQUEUE, Permission.OPERATE, Permission.WORK
_TASK, _RUN = "/tasks/{task_id}", "/runs/{run_id}"

TASKS: tuple[Route, ...] = (
    change("POST /tasks", "create_task", "Enqueue a task, or write a draft of one.", _ENQUEUE, tag=Tag.ANSWERED),
    change("POST /tasks/bulk", "create_tasks", "Enqueue many tasks, all or none.", _ENQUEUE),
    read("/tasks", "list_tasks", "List tasks by a filter, page by page."),
    read(_TASK, "get_task", "One task; with ?wait= as soon as it is final.", tag=Tag.ANSWERED),
    change(f"PATCH {_TASK}", "edit_task", "Edit a draft.", _ENQUEUE, others=_OPERATE, tag=Tag.REQUIRED),
    change(f"POST {_TASK}/submit", "submit_task", "Put a draft before people.", _ENQUEUE, others=_OPERATE),
    change(f"POST {_TASK}/cancel", "cancel_task", "Stop a task.", _ENQUEUE, others=_OPERATE, tag=Tag.HEEDED),
    change(f"POST {_TASK}/retry", "retry_task", "Run a failed task again.", _ENQUEUE, others=_OPERATE, tag=Tag.HEEDED),
    change(f"POST {_TASK}/apply", "apply_task", "Start an approved task.", _ENQUEUE, others=_OPERATE, tag=Tag.HEEDED),
    change(f"POST {_TASK}/rollback", "roll_back_task", "Undo a completed task.", _ENQUEUE, others=_OPERATE),
    read(f"{_TASK}/result", "get_task_result", "The whole result, also a large one.", tag=Tag.ANSWERED),
    read(
        f"{_TASK}/output",
        "get_task_output",
        "The lines it has written, at once or as a stream.",
        traffic=Traffic.STREAM,
        is_stream=True,
    ),
    read(f"{_TASK}/events", "list_task_events", "What has happened to it."),
    read(f"{_TASK}/explain", "explain_task", "Why it is not running."),
    read(
        "/bulk-actions/preview",
        "preview_bulk_action",
        "How many tasks an action would reach.",
        _OPERATE,
        method="POST",
    ),
    change("POST /bulk-actions", "run_bulk_action", "Cancel, retry or discard all that a filter finds.", _OPERATE),
    read("/definitions", "list_definitions", "Names that workers run, with the schema of their arguments."),
)

DEAD_LETTERS: tuple[Route, ...] = (
    read("/dlq", "list_dead_letters", "Failed tasks nobody has dealt with yet."),
    read("/dlq/groups", "list_dead_letter_groups", "Dead letters that are the same mistake."),
    change("POST /dlq/replay", "replay_dead_letters", "Replay a group of dead letters.", _OPERATE),
    change("POST /dlq/discard", "discard_dead_letters", "Discard a group of dead letters.", _OPERATE),
    change("POST /dlq/{task_id}/replay", "replay_dead_letter", "Replay one, edited if need be.", _OPERATE),
    change("POST /dlq/{task_id}/discard", "discard_dead_letter", "Discard one.", _OPERATE),
)


def _verb(name: str, operation: str, summary: str, path: str = _RUN) -> Route:
    """Fenced by the run's id, so that a key would add nothing."""
    return change(f"POST {path}/{name}", operation, summary, _WORK, traffic=Traffic.WORK, takes_key=False)


WORK: tuple[Route, ...] = (
    _verb("claim", "claim_tasks", "Take tasks that are due; may wait for some.", "/runs"),
    _verb("heartbeat", "renew_runs", "Keep the leases of runs, and learn which were lost.", "/runs"),
    _verb("complete", "complete_run", "Hand in a result."),
    _verb("fail", "fail_run", "Report a failure."),
    _verb("hold", "hold_run", "Let the task wait for people."),
    _verb("release", "release_run", "Hand a task back unfinished."),
    _verb("progress", "report_progress", "Keep the newest progress."),
    _verb("output", "append_output", "Keep lines that the run has written."),
)
