"""The duties done on a timer. Each is a function that may run anywhere, any time, twice at once: guards decide."""

import asyncio
import hashlib
import os
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from ade.approvals.rollback import load_and_prepare_rollbacks
from ade.errors import PayloadTooLarge, StoreError
from ade.failures import FailureKind, ReportedKind, TaskError
from ade.logs import Log
from ade.stores.ports import DONE, STOP, WORK, Stores, TaskQuery
from ade.tasks.changes import Change
from ade.tasks.decisions import lose_lease, miss_deadline, settle
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task
from ade.tasks.outcomes import Failed, Outcome, Released, Succeeded
from ade.tasks.payloads import Payloads
from ade.tasks.service import cancel_lock_waits, requeue_granted, settle_broken
from ade.worker.failures import unwritable

if TYPE_CHECKING:
    from gzip import GzipFile


# Runs of workers in other languages, which say how a run ended and leave it to us what follows.
#
# They speak JSON: `{"result": ...}`, `{"error": {...}, "retry_after_ms": ...}` or `{"released": "why"}`.


HandedIn = tuple[Task, bytes]  # a running task, and the outcome as it was handed in
_LONGEST_TYPE, _LONGEST_MESSAGE, _LARGEST_DETAILS = 200, 2_000, 8_000
log = Log("ade.sweep")


class _ReportedError(Struct, frozen=True, forbid_unknown_fields=True):
    """`kind` is one that a run can come to."""

    type: str
    message: str
    kind: ReportedKind = "raised"
    retryable: bool = True
    details: dict[str, object] | None = None


class _ReportedOutcome(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of the first three is there."""

    result: Raw | UnsetType = UNSET
    error: _ReportedError | UnsetType = UNSET
    released: str | UnsetType = UNSET
    retry_after_ms: Annotated[int, Meta(ge=0)] | None = None


_said = msgspec.json.Decoder(_ReportedOutcome)


async def settle_reported(
    stores: Stores, payloads: Payloads, ended: Sequence[HandedIn], randomness: Callable[[], float] = random.random
) -> list[Change]:
    """Write what follows from each outcome, fenced by its run; answer what was written.

    Each is committed by itself, so that one the store cannot take keeps no other back.
    """
    answers = await asyncio.gather(
        *(_settle(stores, payloads, task, content, randomness()) for task, content in ended), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if isinstance(answer, Change)]


async def _settle(stores: Stores, payloads: Payloads, task: Task, content: bytes, randomness: float) -> Change | None:
    outcome = read_outcome(content)
    try:
        if isinstance(outcome, Succeeded):
            outcome = Succeeded(await payloads.spill(task.id, "result", outcome.result))
        return await _commit_handed_in(
            stores, payloads, settle(task, outcome, now=stores.clock.now(), randomness=randomness)
        )
    except PayloadTooLarge as error:
        failed = settle(task, unwritable(error.detail), now=stores.clock.now(), randomness=randomness)
        return await _commit_handed_in(stores, payloads, failed)


async def _commit_handed_in(stores: Stores, payloads: Payloads, change: Change) -> Change | None:
    await load_and_prepare_rollbacks(stores, payloads, [change])
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
    if isinstance(said.error, _ReportedError):
        return Failed(_task_error(said.error), said.retry_after_ms)
    if isinstance(said.released, str):
        return Released(said.released[:_LONGEST_MESSAGE])
    assert isinstance(said.result, Raw)
    return Succeeded(said.result.copy())


def _task_error(error: _ReportedError) -> TaskError:
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


LIMIT = 200
ORPHAN_AGE_MS = 3_600_000  # a payload is written a moment before its record


async def settle_due(stores: Stores, limit: int = LIMIT, payloads: Payloads | None = None) -> int:
    """Whatever waits for a decision: outcomes handed in, lost leases, missed deadlines, broken dependencies.

    Answers how many.
    """
    due = await stores.sweeps.due(limit)
    settled = await finish_reported(stores, payloads or Payloads(stores.blobs), due.handed_in)
    settled += await stall_lost(stores, due.expired, payloads)
    settled += await fail_overdue(stores, due.overdue, payloads)
    if due.broken or settled:  # what failed just now may break others
        settled += await settle_broken(stores, limit)
    return settled


async def finish_reported(stores: Stores, payloads: Payloads, ended: Sequence[HandedIn]) -> int:
    """Decide on runs whose workers only say how they ended."""
    written = await settle_reported(stores, payloads, ended)
    _wake(stores, written)
    return len(written)


async def stall_lost(stores: Stores, tasks: Sequence[Task], payloads: Payloads | None = None) -> int:
    """Give tasks whose worker went silent to others, or bury them. A worker that renews meanwhile keeps its task."""
    now = stores.clock.now()
    changes = [lose_lease(task, now=now) for task in tasks]
    await load_and_prepare_rollbacks(stores, payloads or Payloads(stores.blobs), changes)
    written = await _commit(stores, changes)
    for change in written:
        task = change.before
        log.warning(
            "task.worker_lost", task_id=task.id, attempt=task.attempt, worker=task.worker_id, status=change.after.status
        )
    await cancel_lock_waits(stores, (change.before for change in written))
    if written:
        stores.wakeups.ring(STOP)  # should the worker live after all, let it hear so
    return len(written)


async def fail_overdue(stores: Stores, tasks: Sequence[Task], payloads: Payloads | None = None) -> int:
    """Fail what nobody needs any more because its deadline passed before it ran, or before it ran again."""
    now = stores.clock.now()
    changes = [miss_deadline(task, now=now) for task in tasks]
    await load_and_prepare_rollbacks(stores, payloads or Payloads(stores.blobs), changes)
    written = await _commit(stores, changes)
    await cancel_lock_waits(stores, (change.before for change in written))
    return len(written)


async def serve_locks(stores: Stores, limit: int = LIMIT) -> int:
    """Remove holders and waiters whose time is over, and recall the tasks that were let in. Answers how many."""
    return await stores.locks.bury(limit) + await requeue_granted(stores, limit)


async def sweep_reviews_job(stores: Stores, payloads: Payloads) -> int:
    """What time does to tasks that wait for people. Answers how many went on."""
    waiting = TaskQuery(statuses=frozenset({Status.SUBMITTED, Status.REVIEWING, Status.APPROVED}), limit=1)
    if not (await stores.tasks.find(waiting)).tasks:
        return 0  # most stores have none, and need not know the rules
    from ade.approvals.service import sweep_reviews

    return await sweep_reviews(stores, payloads)


async def forget_silent_workers(stores: Stores) -> int:
    """Take workers that are long gone off the list."""
    return len(await stores.workers.forget_silent())


async def expire_results(stores: Stores, limit: int = 1_000) -> int:
    """Forget results that outlived their result_ttl."""
    return await stores.sweeps.expire_results(limit)


async def trim_events(stores: Stores, *, retention_s: float, limit: int = 5_000) -> int:
    """Remove old events that every reader has passed, of tasks that are gone."""
    return await stores.events.trim(stores.clock.now() - round(retention_s * 1000), limit)


async def prune_effects(stores: Stores, *, retention_s: float, limit: int = 1_000) -> int:
    """Forget side effects that were done long ago."""
    return await stores.effects.prune_effects(stores.clock.now() - round(retention_s * 1000), limit)


async def expire_documents(stores: Stores, limit: int = 1_000) -> int:
    """Remove sessions, tokens and other documents whose time is over, and rates nobody needs any more."""
    return await stores.documents.expire_documents(limit)


async def forget_inboxes(stores: Stores, *, retention_s: float, limit: int = 1_000) -> int:
    """Forget inboxes that have been empty and untouched for long."""
    return await stores.inboxes.forget_empty(stores.clock.now() - round(retention_s * 1000), limit)


async def remove_orphans(stores: Stores, limit: int = 1_000) -> int:
    """Remove large payloads whose tasks never came to be or are gone."""
    removed = await stores.sweeps.remove_orphans(ORPHAN_AGE_MS, limit)
    if removed:
        log.info("blobs.orphans_removed", count=removed)
    return removed


async def checkpoint(stores: Stores) -> int:
    """Keep the store's files within their bounds."""
    await stores.maintenance.checkpoint()
    return 0


async def _commit(stores: Stores, changes: Sequence[Change]) -> list[Change]:
    """Write those decisions that still hold; answer them, and wake whom they concern."""
    if not changes:
        return []
    answers = await stores.tasks.commit_each(changes)
    written = [change for change, answer in zip(changes, answers, strict=True) if answer is None]
    _wake(stores, written)
    return written


def _wake(stores: Stores, written: Sequence[Change]) -> None:
    if any(change.after.is_final for change in written):
        stores.wakeups.ring(DONE)
    if any(change.after.status is Status.STALLED or change.before.status is Status.RUNNING for change in written):
        stores.wakeups.ring(WORK)


# Finished tasks are kept for a while, then archived where a folder is set, and only then pruned.


_PORTION = 250  # tasks at once: their records may hold a quarter of a MB each
_WRITE_AT = 1 << 20  # bytes; large payloads are in memory one after the other, never all at once


async def archive_and_prune(
    stores: Stores,
    payloads: Payloads,
    *,
    retention_s: float,
    dead_letter_retention_s: float,
    archive_dir: Path | None,
    batch: int,
) -> int:
    """Remove up to `batch` tasks that ended long enough ago, a portion at a time. Answers how many."""
    now = stores.clock.now()
    moment, letters = now - round(retention_s * 1000), now - round(dead_letter_retention_s * 1000)
    pruned, kept = 0, set[str]()  # others may wait for a task: then it stays, and the next portion lies behind it
    while (left := batch - pruned - len(kept)) > 0:
        listed = await stores.sweeps.finished_before(moment, len(kept) + min(left, _PORTION), dead_letters=letters)
        tasks = [task for task in listed if task.id not in kept]
        if not tasks:
            break
        if archive_dir is not None:
            await write_archive(archive_dir, tasks, payloads)
        gone = await stores.sweeps.prune([task.id for task in tasks])
        pruned += gone
        if gone < len(tasks):
            kept.update(task.id for task in tasks)
    return pruned


async def write_archive(folder: Path, tasks: Sequence[Task], payloads: Payloads) -> Path:
    """One durable file of compressed JSON lines. The same tasks make the same file, so a repeat adds nothing."""
    import gzip  # many keep no archive

    first = datetime.fromtimestamp((tasks[0].finished_at or 0) / 1000, UTC)
    digest = hashlib.sha256(" ".join(task.id for task in tasks).encode()).hexdigest()[:16]
    target = folder / f"tasks-{first:%Y%m%dT%H%M%S}-{digest}.jsonl.gz"
    half_written = target.with_suffix(".part")
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    with half_written.open("wb") as file:
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
        lines = bytearray()
        for task in tasks:
            lines += msgspec.json.encode(await _whole(payloads, task)) + b"\n"
            if len(lines) >= _WRITE_AT:
                await asyncio.to_thread(packed.write, lines)
                lines = bytearray()
        await asyncio.to_thread(_end, packed, file, lines)
    half_written.replace(target)
    await asyncio.to_thread(_sync_folder, folder)
    return target


def _end(packed: "GzipFile", file: BufferedWriter, lines: bytearray) -> None:
    packed.write(lines)
    packed.close()
    file.flush()
    os.fsync(file.fileno())


async def _whole(payloads: Payloads, task: Task) -> Task:
    """The task with its large payloads in place: their blobs are removed with it."""
    return structs.replace(
        task,
        args=await _loaded(payloads, task.args),
        result=None if task.result is None else await _loaded(payloads, task.result),
    )


async def _loaded(payloads: Payloads, raw: Raw) -> Raw:
    try:
        return await payloads.load(raw)
    except StoreError:
        return raw  # the blob is lost; the reference is what is left of it


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
