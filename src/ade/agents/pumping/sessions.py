"""What a conversation remembers of its agent between turns, so that the next one goes on where the last one ended."""

from collections.abc import Mapping
from typing import Any

from ade.core.agent_runs.results import AgentProgress, AgentResult
from ade.core.failure import FailureKind, TaskError
from ade.core.inbox.items import DequeuedBatch
from ade.core.lifecycle import Status
from ade.core.records import Task

IDS = ("session_id", "agent_id", "conversation_id")
TOKENS = "session_tokens"  # what the session has taken so far, for programs that count whole sessions
Said = AgentResult | AgentProgress | None

# Failures that say nothing about the session: the program was not started, or somebody else did not let it go on.
_ELSEWHERE = frozenset(
    {
        FailureKind.WORKER_DIED,
        FailureKind.BAD_ARGUMENTS,
        FailureKind.UNKNOWN_NAME,
        FailureKind.RATE_LIMITED,
        FailureKind.DEPENDENCY_FAILED,
        FailureKind.DEADLINE_PASSED,
        FailureKind.DENIED,
    }
)
_ELSEWHERE_TYPES = frozenset(
    {"ProgramNotStarted", "AgentBudgetExceeded", "AgentQuotaExhausted", "AgentNotAuthenticated"}
)


def ids_of(batch: DequeuedBatch, memory: Mapping[str, Any]) -> dict[str, Any]:
    """Where the agent goes on: what the items name counts more than what was remembered.

    A session belongs to its agent and conversation, so items for another one begin anew.
    """
    agent_id, conversation_id = batch.items[0].scope
    named = {"agent_id": agent_id, "conversation_id": conversation_id}
    named = {name: value for name, value in named.items() if value is not None}
    known: dict[str, Any] = {name: memory[name] for name in IDS if isinstance(memory.get(name), str)}
    if any(known.get(name, value) != value for name, value in named.items()):
        known = {}
    if "session_id" in known and isinstance(memory.get(TOKENS), int):
        known[TOKENS] = memory[TOKENS]
    return known | named


def after_turn(memory: Mapping[str, Any], given: Mapping[str, Any], task: Task, said: Said) -> dict[str, Any]:
    """What to remember. `given` is what the turn began with, `said` what it told of itself.

    After a failure a session is forgotten that the run has not found, or every later turn would fail as this one did.
    """
    told = {name: value for name in IDS if (value := getattr(said, name, None)) is not None}
    if task.status is Status.FAILED and not _is_elsewhere(task.error):
        ids = told
    elif task.status is Status.COMPLETED or told:
        ids = {name: given[name] for name in IDS if name in given} | told
    else:
        return dict(memory)
    tokens = given.get(TOKENS) if said is None else said.session_tokens
    if "session_id" in ids and tokens is not None:
        ids = {**ids, TOKENS: tokens}
    return {name: value for name, value in memory.items() if name not in (*IDS, TOKENS)} | ids


def _is_elsewhere(error: TaskError | None) -> bool:
    return error is not None and (error.kind in _ELSEWHERE or error.type in _ELSEWHERE_TYPES)
