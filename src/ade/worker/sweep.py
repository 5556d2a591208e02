"""Maintenance functions: settle reported and lost runs, expire and prune records, and archive finished tasks.

Each function can run anywhere, at any time, and concurrently with itself: guarded writes decide.
"""

import asyncio
import hashlib
import os
import random
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from ade.approvals.rollback import prepare_rollbacks
from ade.errors import PayloadTooLarge, StoreError
from ade.failures import FailureKind, ReportedKind, TaskError
from ade.logs import Log
from ade.stores.ports import DONE, STOP, WORK, Stores, TaskQuery
from ade.tasks.changes import Change
from ade.tasks.decisions import lose_lease, miss_deadline, release, settle
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task, Worker
from ade.tasks.outcomes import NOT_STARTED, Failed, Outcome, Released, Succeeded
from ade.tasks.payloads import Payloads
from ade.tasks.service import cancel_lock_waits, requeue_granted, settle_broken
from ade.worker.failures import unwritable

if TYPE_CHECKING:
    from gzip import GzipFile


# Runs of workers in other languages, which report how a run ended and leave the consequences to ADE.
# They report JSON: `{"result": ...}`, `{"error": {...}, "retry_after_ms": ...}` or `{"released": "why"}`.


HandedIn = tuple[Task, bytes]  # a running task, and its reported outcome
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
    """A reported outcome. Exactly one of the first three fields is set."""

    result: Raw | UnsetType = UNSET
    error: _ReportedError | UnsetType = UNSET
    released: str | UnsetType = UNSET
    retry_after_ms: Annotated[int, Meta(ge=0)] | None = None


_said = msgspec.json.Decoder(_ReportedOutcome)


async def settle_reported(
    stores: Stores, payloads: Payloads, ended: Sequence[HandedIn], randomness: Callable[[], float] = random.random
) -> list[Change]:
    """Commit the consequences of each outcome, fenced by its run; returns the written changes.

    Each is committed separately, so that one that the store cannot accept does not block the others.
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
    """Parse a reported outcome. An invalid one becomes a failure that is not retried."""
    try:
        msgspec.json.decode(content)  # all of it: the result is otherwise not parsed
        said = _said.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return unwritable(f"the worker reported {error}")
    given = [part for part in (said.result, said.error, said.released) if part is not UNSET]
    if len(given) != 1:
        return unwritable("the worker must report either a result, an error, or why it released the task")
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
ORPHAN_AGE_MS = 3_600_000  # a payload is written shortly before its record


async def settle_due(stores: Stores, limit: int = LIMIT, payloads: Payloads | None = None) -> int:
    """Settle everything due: reported outcomes, lost leases, missed deadlines, and broken dependencies. Returns the
    count.
    """
    due = await stores.sweeps.due(limit)
    settled = await finish_reported(stores, payloads or Payloads(stores.blobs), due.handed_in)
    settled += await stall_lost(stores, due.expired, payloads)
    settled += await fail_overdue(stores, due.overdue, payloads)
    if due.broken or settled:  # tasks that failed just now can break others
        settled += await settle_broken(stores, limit)
    return settled


async def finish_reported(stores: Stores, payloads: Payloads, ended: Sequence[HandedIn]) -> int:
    """Settle runs whose workers only report how they ended."""
    written = await settle_reported(stores, payloads, ended)
    _wake(stores, written)
    return len(written)


async def stall_lost(stores: Stores, tasks: Sequence[Task], payloads: Payloads | None = None) -> int:
    """Return tasks of lost workers to the queue, or fail them. A worker that renews meanwhile keeps its task."""
    now = stores.clock.now()
    changes = [lose_lease(task, now=now) for task in tasks]
    await prepare_rollbacks(stores, payloads or Payloads(stores.blobs), changes)
    written = await _commit(stores, changes)
    for change in written:
        task = change.before
        log.warning(
            "task.worker_lost", task_id=task.id, attempt=task.attempt, worker=task.worker_id, status=change.after.status
        )
    await cancel_lock_waits(stores, (change.before for change in written))
    if written:
        stores.wakeups.notify(STOP)  # if the worker is alive after all, notify it
    return len(written)


async def return_unstarted(stores: Stores, worker: Worker, run_ids: Collection[str]) -> int:
    """Return the tasks of these runs to the queue: the worker has claimed them, and they have not started. Returns
    their number.
    """
    tasks = [task for task in await _running_tasks(stores, worker.id) if task.run_id in run_ids]
    now = stores.clock.now()
    written = await _commit(stores, [release(task, Released(NOT_STARTED, has_begun=False), now=now) for task in tasks])
    for change in written:
        log.info("task.returned", task_id=change.task_id, worker=worker.id, reason=NOT_STARTED)
    if worker.agent is not None and written:
        await stores.agents.release(worker.agent, [change.before.run_id or "" for change in written])
    return len(written)


async def take_over(
    stores: Stores, worker: Worker, has_started: Callable[[str], bool], payloads: Payloads | None = None
) -> int:
    """Return the tasks of a dead worker to the queue now instead of when its leases expire. Returns their number.

    Runs that had started count as an attempt, like those whose lease expired; the others do not.
    """
    tasks = await _running_tasks(stores, worker.id)
    started = [task for task in tasks if has_started(task.run_id or "")]
    lost = await stall_lost(stores, started, payloads)
    if worker.agent is not None and started:
        await stores.agents.release(worker.agent, [task.run_id or "" for task in started])
    ids = {task.run_id or "" for task in tasks}.difference(task.run_id or "" for task in started)
    return lost + (await return_unstarted(stores, worker, ids) if ids else 0)


async def _running_tasks(stores: Stores, worker_id: str) -> list[Task]:
    found, after = list[Task](), None
    while True:
        query = TaskQuery(statuses=frozenset({Status.RUNNING}), worker_id=worker_id, limit=1_000, after=after)
        page = await stores.tasks.find(query)
        found += page.tasks
        if (after := page.next) is None:
            return found


async def fail_overdue(stores: Stores, tasks: Sequence[Task], payloads: Payloads | None = None) -> int:
    """Fail tasks whose deadline passed before they ran, or ran again."""
    now = stores.clock.now()
    changes = [miss_deadline(task, now=now) for task in tasks]
    await prepare_rollbacks(stores, payloads or Payloads(stores.blobs), changes)
    written = await _commit(stores, changes)
    await cancel_lock_waits(stores, (change.before for change in written))
    return len(written)


async def serve_locks(stores: Stores, limit: int = LIMIT) -> int:
    """Remove expired lock holders and waiters, and requeue tasks whose locks were granted. Returns the count."""
    return await stores.locks.bury(limit) + await requeue_granted(stores, limit)


async def sweep_reviews_job(stores: Stores, payloads: Payloads) -> int:
    """Apply review timeouts to tasks that wait for approval. Returns how many changed."""
    waiting = TaskQuery(statuses=frozenset({Status.SUBMITTED, Status.REVIEWING, Status.APPROVED}), limit=1)
    if not (await stores.tasks.find(waiting)).tasks:
        return 0  # most stores have none, and need not load the rules
    from ade.approvals.service import sweep_reviews

    return await sweep_reviews(stores, payloads)


async def forget_silent_workers(stores: Stores) -> int:
    """Remove workers that have been lost for long."""
    return len(await stores.workers.forget_silent())


async def expire_results(stores: Stores, limit: int = 1_000) -> int:
    """Delete results that have outlived their result_ttl."""
    return await stores.sweeps.expire_results(limit)


async def trim_events(stores: Stores, *, retention_s: float, limit: int = 5_000) -> int:
    """Delete old events of deleted tasks that every reader has passed."""
    return await stores.events.trim(stores.clock.now() - round(retention_s * 1000), limit)


async def prune_effects(stores: Stores, *, retention_s: float, limit: int = 1_000) -> int:
    """Delete side effects that were completed long ago."""
    return await stores.effects.prune_effects(stores.clock.now() - round(retention_s * 1000), limit)


async def expire_documents(stores: Stores, limit: int = 1_000) -> int:
    """Delete expired sessions, tokens, and other documents, and unused rate limits."""
    return await stores.documents.expire_documents(limit)


async def forget_inboxes(stores: Stores, *, retention_s: float, limit: int = 1_000) -> int:
    """Delete inboxes that have been empty and unused for long."""
    return await stores.inboxes.forget_empty(stores.clock.now() - round(retention_s * 1000), limit)


async def remove_orphans(stores: Stores, limit: int = 1_000) -> int:
    """Delete large payloads whose tasks were never stored or are gone."""
    removed = await stores.sweeps.remove_orphans(ORPHAN_AGE_MS, limit)
    if removed:
        log.info("blobs.orphans_removed", count=removed)
    return removed


async def checkpoint(stores: Stores, *, only_keys: bool = False) -> int:
    """Run the store's checkpoint, which limits the size of its files, and repairs or reports replaced keys."""
    await stores.maintenance.checkpoint(only_keys=only_keys)
    return 0


async def _commit(stores: Stores, changes: Sequence[Change]) -> list[Change]:
    """Commit the decisions that are still valid, send wake-ups, and return them."""
    if not changes:
        return []
    answers = await stores.tasks.commit_each(changes)
    written = [change for change, answer in zip(changes, answers, strict=True) if answer is None]
    _wake(stores, written)
    return written


def _wake(stores: Stores, written: Sequence[Change]) -> None:
    if any(change.after.is_final for change in written):
        stores.wakeups.notify(DONE)
    if any(change.after.status is Status.STALLED or change.before.status is Status.RUNNING for change in written):
        stores.wakeups.notify(WORK)


# Retention: finished tasks are kept for a while, then archived if a directory is set, and only then pruned.


_PORTION = 250  # tasks per portion: their records can take a quarter of a MB each
_WRITE_AT = 1 << 20  # bytes; large payloads are loaded one by one, never all together


async def archive_and_prune(
    stores: Stores,
    payloads: Payloads,
    *,
    retention_s: float,
    dead_letter_retention_s: float,
    governed_retention_s: float,
    archive_dir: Path | None,
    batch: int,
) -> int:
    """Delete up to `batch` tasks that ended long enough ago, one portion at a time. Returns the count."""
    now = stores.clock.now()
    moment, letters = now - round(retention_s * 1000), now - round(dead_letter_retention_s * 1000)
    governed = now - round(governed_retention_s * 1000)
    pruned, kept = 0, set[str]()  # a task others depend on stays, and the next portion comes after it
    while (left := batch - pruned - len(kept)) > 0:
        listed = await stores.sweeps.finished_before(
            moment, len(kept) + min(left, _PORTION), dead_letters=letters, governed=governed
        )
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
    """Write one durable file of compressed JSON lines. The same tasks produce the same file: a repeat adds nothing."""
    import gzip  # many users keep no archive

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
    """Return the task with its large payloads inline: their blobs are deleted with it."""
    return structs.replace(
        task,
        args=await _loaded(payloads, task.args),
        result=None if task.result is None else await _loaded(payloads, task.result),
    )


async def _loaded(payloads: Payloads, raw: Raw) -> Raw:
    try:
        return await payloads.load(raw)
    except StoreError:
        return raw  # the blob is lost; only the reference remains


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
