"""`ade archive`, `ade sweep`, `ade backup`, and `ade upgrade`: maintenance without a worker."""

import asyncio
import contextlib
import gc
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import structs

from ade.cli.command import command
from ade.cli.exit_codes import ExitCode
from ade.cli.interaction import confirm, progress
from ade.cli.parameters import DURATION
from ade.common.text import without_password
from ade.composition.stores import payloads_of, upgrade_store
from ade.composition.worker import audit_jobs
from ade.logs import configure
from ade.stores.ports import Stores, SweepStore, TaskQuery
from ade.tasks.lifecycle import FINAL
from ade.tasks.model import is_past_retention
from ade.worker.maintenance import MaintenanceJob, run_jobs, standard_jobs, try_job
from ade.worker.supervisor import StopSignals, serve
from ade.worker.sweep import archive_and_prune

if TYPE_CHECKING:
    from ade.cli.session import Session


_PAGE = 1_000


@command("archive")
@click.option("--dry-run", is_flag=True, help="Only show how many tasks would be removed.")
@click.option("--older-than", type=DURATION, help="Finished longer ago than this; sweep.retention_s by default.")
@click.option("--to", "folder", type=click.Path(file_okay=False), help="Archive folder; sweep.archive_dir by default.")
@click.option("--yes", is_flag=True, help="Do not ask before deleting tasks that are not archived.")
async def archive(session: "Session", dry_run: bool, older_than: float | None, folder: str | None, yes: bool) -> None:
    """Archive finished tasks past their retention, and prune them.

    Without an archive folder, they are deleted after confirmation. Unhandled dead letters stay for
    sweep.dead_letter_retention_s in any case, and tasks that needed approval for sweep.governed_retention_s.
    """
    sweep = session.settings.sweep
    retention_s = sweep.retention_s if older_than is None else older_than
    folder = folder or sweep.archive_dir
    async with session.stores() as stores:
        if folder is not None and not dry_run:
            _make(Path(folder))
        total = await _count(session, stores, retention_s)
        if folder is None and total and not dry_run:
            what = f"{_tasks(total)} would be deleted for good: there is no archive folder (--to)."
            confirm(session, what, yes=yes)
        pruned = 0 if dry_run else await _prune(session, stores, total, retention_s, folder)
    if session.out.as_json:
        session.out.document({"found": total, "pruned": pruned, "archive": folder})
    elif dry_run:
        session.out.line(f"{_tasks(total)} would be {'archived to ' + folder + ' and ' if folder else ''}pruned.")
    else:
        session.out.line(f"Pruned {_tasks(pruned)}{f', archived to {folder}' if folder and pruned else ''}.")


def _tasks(count: int) -> str:
    return f"{count} task{'s' * (count != 1)}"


def _make(folder: Path) -> None:
    """Create the archive directory first, so that an unwritable one is reported as a usage error."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"The archive folder {folder} cannot be made: {error.strerror}.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise click.UsageError(f"The archive folder {folder} cannot be written; check its owner and mode.")


async def _count(session: "Session", stores: Stores, retention_s: float) -> int:
    """Count the tasks to prune. Tasks that ended before a time were also created before it."""
    now, sweep = stores.clock.now(), session.settings.sweep
    moment = now - round(retention_s * 1000)
    letters = now - round(sweep.dead_letter_retention_s * 1000)
    governed = now - round(sweep.governed_retention_s * 1000)
    query, count = TaskQuery(statuses=FINAL, created_before=moment, limit=_PAGE), 0
    with progress(session, "Counting") as bar:
        while True:
            page = await stores.tasks.find(query)
            count += sum(is_past_retention(task, moment, letters, governed) for task in page.tasks)
            bar.move(count, 0)
            if page.next is None:
                return count
            query = structs.replace(query, after=page.next)


async def _prune(session: "Session", stores: Stores, total: int, retention_s: float, folder: str | None) -> int:
    place = None if folder is None else Path(folder)
    payloads, batch = payloads_of(stores, session.settings), session.settings.sweep.prune_batch
    pruned = 0
    with progress(session, "Archiving" if place else "Pruning", total) as bar:
        while count := await archive_and_prune(
            stores,
            payloads,
            retention_s=retention_s,
            dead_letter_retention_s=session.settings.sweep.dead_letter_retention_s,
            governed_retention_s=session.settings.sweep.governed_retention_s,
            archive_dir=place,
            batch=batch,
        ):
            pruned += count
            bar.advance(count)
    return pruned


# `ade sweep`: the maintenance jobs, without a worker.


@command("sweep")
@click.option("--once", is_flag=True, help="Run every job once and exit.")
def sweep(session: "Session", once: bool) -> ExitCode:
    """Run the maintenance jobs without running any task, until Ctrl-C or SIGTERM.

    Lost leases, deadlines, broken dependencies, schedules, expired results, retention, event log, audit copy. Every
    worker does them too; this is for machines without one. With --once, the exit code is 1 if a job failed.
    """
    configure(session.settings.log.format, session.settings.log.level)
    gc.enable()
    done = serve(lambda signals: _sweep(session, signals, once))
    failed = [name for name, count in done.items() if count is None]
    if session.out.as_json:
        counts = {name: count for name, count in done.items() if count is not None}
        session.out.document({"done": counts, "failed": failed})
    elif once:
        session.out.facts([(name, "failed" if count is None else str(count)) for name, count in done.items()])
        if failed:
            session.out.note(f"Failed: {', '.join(failed)}; the log says why.")
    return ExitCode.PROBLEM if failed else ExitCode.OK


async def _sweep(session: "Session", signals: StopSignals, once: bool) -> dict[str, int | None]:
    async with session.open_app() as app:
        opened = await app.open()
        settings = session.settings
        events = settings.events
        async with audit_jobs(settings.store.url, opened.stores, events.audit_url, events) as auditing:
            standard = standard_jobs(opened.stores, opened.payloads, settings)
            return await _do(session, opened.stores.sweeps, [*standard, *auditing], signals, once)


async def _do(
    session: "Session", sweeps: SweepStore, jobs: Sequence[MaintenanceJob], signals: StopSignals, once: bool
) -> dict[str, int | None]:
    holder = f"{socket.gethostname()}-{os.getpid()}-sweep"
    if once:
        return {duty.name: await try_job(sweeps, duty, holder) for duty in jobs}
    session.out.note(f"Sweeping {without_password(session.settings.store.url)}. Ctrl-C stops it.")
    sweeping = asyncio.create_task(run_jobs(sweeps, jobs, holder))
    stopping = asyncio.create_task(signals.stop.wait())
    await asyncio.wait({sweeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for job in (sweeping, stopping):
        job.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sweeping
    return {}


# `ade backup`: a consistent copy while the store is in use.


@command("backup")
@click.argument("target", type=click.Path(dir_okay=False))
async def backup(session: "Session", target: str) -> None:
    """Copy the store to the new file TARGET while it is in use. The file appears when it is complete."""
    _check(target)
    async with session.stores() as stores:
        with progress(session, "Copying pages") as bar:
            async for done, total in stores.maintenance.backup(target):
                bar.move(done, total)
    _print_copy(session, Path(target))


def _print_copy(session: "Session", target: Path) -> None:
    size = target.stat().st_size
    if session.out.as_json:
        session.out.document({"target": str(target.absolute()), "bytes": size})
    else:
        session.out.line(f"{target}: {size:,} bytes. To use it, name it as the store: --store sqlite:///{target}")


@command("upgrade")
@click.option("--copy", "target", type=click.Path(dir_okay=False), help="New file for the copy.")
async def upgrade(session: "Session", target: str | None) -> None:
    """Upgrade the store to the version of this ADE. A copy of it is made first.

    By default, the copy is next to the database, or for Redis in the current directory.

    Stop the processes of older versions first, or restart them with this version afterwards: their workers stop with an
    error as soon as the store is upgraded. With `store.upgrade = true`, `up`, `worker`, and `serve` also upgrade a
    store when they start; no other command does.
    """
    session.check_local()
    if target is not None:
        _check(target)
    settings = session.settings
    done = await upgrade_store(settings.store.url, settings, None if target is None else Path(target))
    if session.out.as_json:
        session.out.document(done)
    elif done.copy is None:
        session.out.line(f"Nothing to do: the store has schema {done.after}, the newest.")
    else:
        session.out.line(f"Upgraded from schema {done.before} to {done.after}. The copy is {done.copy}.")


def _check(target: str) -> None:
    """Raise UsageError unless this can be the name of a new file."""
    try:
        exists = Path(target).exists()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise click.UsageError(f"{target[:60]!r} cannot be a file: {reason}.") from None
    if exists:
        raise click.UsageError(f"{target} exists already; name a new file for the backup.")
