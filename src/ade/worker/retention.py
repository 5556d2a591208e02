"""Finished tasks are kept for a while, then archived where a folder is set, and only then pruned."""

import asyncio
import gzip
import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Raw, structs

from ade.core.errors import StoreError
from ade.core.records import Task
from ade.ports import Stores
from ade.queue.payloads import Payloads


async def archive_and_prune(
    stores: Stores,
    payloads: Payloads,
    *,
    retention_s: float,
    dead_letter_retention_s: float,
    archive_dir: Path | None,
    batch: int,
) -> int:
    """Remove up to `batch` tasks that ended long enough ago. Answers how many."""
    now = stores.clock.now()
    moment, letters = now - round(retention_s * 1000), now - round(dead_letter_retention_s * 1000)
    tasks = await stores.sweeps.finished_before(moment, batch, dead_letters=letters)
    if not tasks:
        return 0
    if archive_dir is not None:
        whole = [await _whole(payloads, task) for task in tasks]
        await asyncio.to_thread(write_archive, archive_dir, whole)
    return await stores.sweeps.prune([task.id for task in tasks])


def write_archive(folder: Path, tasks: Sequence[Task]) -> Path:
    """One durable file of compressed JSON lines. The same tasks make the same file, so a repeat adds nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    first = datetime.fromtimestamp((tasks[0].finished_at or 0) / 1000, UTC)
    digest = hashlib.sha256(" ".join(task.id for task in tasks).encode()).hexdigest()[:16]
    target = folder / f"tasks-{first:%Y%m%dT%H%M%S}-{digest}.jsonl.gz"
    half_written = target.with_suffix(".part")
    lines = b"".join(msgspec.json.encode(task) + b"\n" for task in tasks)
    with half_written.open("wb") as file:
        file.write(gzip.compress(lines, mtime=0))
        file.flush()
        os.fsync(file.fileno())
    half_written.replace(target)
    _sync_folder(folder)
    return target


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
