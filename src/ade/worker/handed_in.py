"""Runs of workers in other languages, which say how a run ended and leave it to us what follows.

They speak JSON: `{"result": ...}`, `{"error": {...}, "retry_after_ms": ...}` or `{"released": "why"}`.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from ade.core.change import Change
from ade.core.errors import PayloadTooLarge
from ade.core.failure import FailureKind, ReportedKind, TaskError
from ade.core.outcome import Failed, Outcome, Released, Succeeded
from ade.core.records import Task
from ade.core.task import settle
from ade.logs import Log
from ade.ports import Stores
from ade.queue.payloads import Payloads
from ade.worker.failures import unwritable
from ade.worker.undoing import prepare_rollbacks

HandedIn = tuple[Task, bytes]  # a running task, and the outcome as it was handed in
_LONGEST_TYPE, _LONGEST_MESSAGE, _LARGEST_DETAILS = 200, 2_000, 8_000
log = Log("ade.sweep")


class _Error(Struct, frozen=True, forbid_unknown_fields=True):
    """`kind` is one that a run can come to."""

    type: str
    message: str
    kind: ReportedKind = "raised"
    retryable: bool = True
    details: dict[str, object] | None = None


class _Said(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of the first three is there."""

    result: Raw | UnsetType = UNSET
    error: _Error | UnsetType = UNSET
    released: str | UnsetType = UNSET
    retry_after_ms: Annotated[int, Meta(ge=0)] | None = None


_said = msgspec.json.Decoder(_Said)


async def settle_handed_in(
    stores: Stores, payloads: Payloads, ended: Sequence[HandedIn], dice: Callable[[], float] = random.random
) -> list[Change]:
    """Write what follows from each outcome, fenced by its run; answer what was written.

    Each is committed by itself, so that one the store cannot take keeps no other back.
    """
    answers = await asyncio.gather(
        *(_settle(stores, payloads, task, content, dice()) for task, content in ended), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if isinstance(answer, Change)]


async def _settle(stores: Stores, payloads: Payloads, task: Task, content: bytes, dice: float) -> Change | None:
    outcome = read_outcome(content)
    try:
        if isinstance(outcome, Succeeded):
            outcome = Succeeded(await payloads.spill(task.id, "result", outcome.result))
        return await _commit(stores, payloads, settle(task, outcome, now=stores.clock.now(), dice=dice))
    except PayloadTooLarge as error:
        failed = settle(task, unwritable(error.detail), now=stores.clock.now(), dice=dice)
        return await _commit(stores, payloads, failed)


async def _commit(stores: Stores, payloads: Payloads, change: Change) -> Change | None:
    await prepare_rollbacks(stores, payloads, [change])
    [refusal] = await stores.tasks.commit_each([change])
    known: dict[str, Any] = {
        "task_id": change.task_id,
        "attempt": change.before.attempt,
        "worker": change.before.worker_id,
    }
    if refusal is not None:
        log.warning("task.result_thrown_away", **known, verb=change.verb, reason=str(refusal))
        return None
    log.info("task.handed_in", **known, verb=change.verb, status=change.after.status)
    return change


def read_outcome(content: bytes) -> Outcome:
    """The outcome that was handed in. One that cannot be read is a failure that no other attempt would mend."""
    try:
        msgspec.json.decode(content)  # all of it: a result is not looked into otherwise
        said = _said.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return unwritable(f"the worker handed in {error}")
    given = [part for part in (said.result, said.error, said.released) if part is not UNSET]
    if len(given) != 1:
        return unwritable("the worker must hand in either a result, an error, or why it released the task")
    if isinstance(said.error, _Error):
        return Failed(_task_error(said.error), said.retry_after_ms)
    if isinstance(said.released, str):
        return Released(said.released[:_LONGEST_MESSAGE])
    assert isinstance(said.result, Raw)
    return Succeeded(said.result.copy())


def _task_error(error: _Error) -> TaskError:
    details = error.details
    if details is not None and len(msgspec.json.encode(details)) > _LARGEST_DETAILS:
        details = None
    return TaskError(
        kind=FailureKind(error.kind),
        type=error.type[:_LONGEST_TYPE],
        message=error.message[:_LONGEST_MESSAGE],
        retryable=error.retryable,
        details=details,
    )
