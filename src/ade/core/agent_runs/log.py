"""What the event log tells of agents' runs beside what it tells of their tasks: who ran, and what it took."""

from ade.core.agent_runs.results import AgentProgress, AgentResult
from ade.core.events import Event
from ade.core.failure import TaskError

AGENT_RUN_BEGAN, AGENT_RUN_ENDED = "agent_run.began", "agent_run.ended"
_WHO = ("session_id", "agent_id", "conversation_id", "model")
_TAKEN = ("tokens", "cost_usd", "turns")


def began(progress: AgentProgress, *, task_id: str, run_id: str, at: int, actor: str) -> Event:
    payload = {"task_id": task_id, "run_id": run_id, "subagent_type": progress.subagent_type, **_known(progress, _WHO)}
    return Event(type=AGENT_RUN_BEGAN, at=at, actor=actor, payload=payload)


def ended(
    progress: AgentProgress,
    outcome: AgentResult | TaskError | None,
    *,
    task_id: str,
    run_id: str,
    at: int,
    actor: str,
) -> Event:
    """`outcome` is None for a run that was cut short: cancelled, timed out, held for people or handed back."""
    payload: dict[str, object] = {"task_id": task_id, "run_id": run_id, "subagent_type": progress.subagent_type}
    payload |= _known(progress, _WHO) | _known(progress.earlier, _TAKEN)
    payload["tool_calls"] = progress.tool_call_count
    payload["ended"] = "cut short" if outcome is None else "failed" if isinstance(outcome, TaskError) else "succeeded"
    if isinstance(outcome, TaskError):
        payload["error"] = f"{outcome.type}: {outcome.message}"[:500]
    return Event(type=AGENT_RUN_ENDED, at=at, actor=actor, payload=payload)


def _known(record: object, names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name in names if (value := getattr(record, name)) is not None}
