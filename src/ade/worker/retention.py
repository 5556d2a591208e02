"""Finished tasks are kept for a while, then archived where a folder is set, and only then pruned."""

import asyncio
import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, structs

from ade.core.errors import StoreError
from ade.core.records import Task
from ade.ports import Stores
from ade.queue.payloads import Payloads

if TYPE_CHECKING:
    from gzip import GzipFile

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
