"""`ade archive`: what the sweeps do in their own time, now."""

import os
from pathlib import Path

import click
from msgspec import structs

from ade.cli.confirming import confirm
from ade.cli.parsing import DURATION
from ade.cli.progress import progress
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.core.lifecycle import FINAL, Status
from ade.core.records import Task
from ade.ports import Stores, TaskQuery
from ade.worker.retention import archive_and_prune

_PAGE = 1_000


@command("archive")
@click.option("--dry-run", is_flag=True, help="Only tell how many tasks would go.")
@click.option("--older-than", type=DURATION, help="Finished longer ago than this; sweep.retention_s otherwise.")
@click.option("--to", "folder", type=click.Path(file_okay=False), help="Archive folder; sweep.archive_dir otherwise.")
@click.option("--yes", is_flag=True, help="Do not ask before deleting what is archived nowhere.")
@pass_session
def archive(session: Session, dry_run: bool, older_than: float | None, folder: str | None, yes: bool) -> None:
    """Write finished tasks that were kept long enough to the archive folder and prune them.

    Without an archive folder they are deleted for good, after a question. Dead letters that nobody dealt with stay for
    sweep.dead_letter_retention_s in any case.
    """
    sweep = session.settings.sweep
    session.run(
        _archive(
            session,
            dry_run=dry_run,
            retention_s=sweep.retention_s if older_than is None else older_than,
            folder=folder or sweep.archive_dir,
            yes=yes,
        )
    )


async def _archive(session: Session, *, dry_run: bool, retention_s: float, folder: str | None, yes: bool) -> None:
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
    """Before the work: an archive that cannot be written is a mistake, not a fault."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"The archive folder {folder} cannot be made: {error.strerror}.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise click.UsageError(f"The archive folder {folder} cannot be written; check its owner and mode.")


async def _count(session: Session, stores: Stores, retention_s: float) -> int:
    """Tasks that ended before a moment were created before it."""
    now = stores.clock.now()
    moment = now - round(retention_s * 1000)
    letters = min(moment, now - round(session.settings.sweep.dead_letter_retention_s * 1000))
    query, count = TaskQuery(statuses=FINAL, created_before=moment, limit=_PAGE), 0
    with progress(session, "Counting") as bar:
        while True:
            page = await stores.tasks.find(query)
            count += sum(_is_old(task, moment, letters) for task in page.tasks)
            bar.move(count, 0)
            if page.next is None:
                return count
            query = structs.replace(query, after=page.next)


def _is_old(task: Task, moment: int, letters: int) -> bool:
    is_dead_letter = task.status is Status.FAILED and not task.discarded
    return task.finished_at is not None and task.finished_at < (letters if is_dead_letter else moment)


async def _prune(session: Session, stores: Stores, total: int, retention_s: float, folder: str | None) -> int:
    place = None if folder is None else Path(folder)
    payloads, batch = session.payloads(stores), session.settings.sweep.prune_batch
    letters_s = max(retention_s, session.settings.sweep.dead_letter_retention_s)
    pruned = 0
    with progress(session, "Archiving" if place else "Pruning", total) as bar:
        while count := await archive_and_prune(
            stores,
            payloads,
            retention_s=retention_s,
            dead_letter_retention_s=letters_s,
            archive_dir=place,
            batch=batch,
        ):
            pruned += count
            bar.advance(count)
    return pruned
