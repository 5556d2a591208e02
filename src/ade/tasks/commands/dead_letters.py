"""`ade retry` and `ade dlq`: replay failed tasks, and list, replay, or discard dead letters."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ade.cli.command import command, group
from ade.cli.ids import find_ids
from ade.cli.interaction import ProgressBar, confirm, progress
from ade.cli.output import Row, all_of, first_page
from ade.cli.parameters import JSON_OBJECT, distance, now_ms
from ade.common.calls import Call
from ade.server.request_types import MOST_TOGETHER
from ade.tasks.bulk import BulkReport, combined
from ade.tasks.commands.options import edited_arguments
from ade.tasks.commands.tasks import SPARE, TASK_HEAD, task_rows
from ade.tasks.dead_letters import unknown_fingerprint

if TYPE_CHECKING:
    from ade.cli.session import Session
    from ade.client.client import Client


@command("retry")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="Replace its arguments.")
@click.option("--edit", is_flag=True, help="Change the arguments in your editor first.")
async def retry(session: "Session", task_ids: tuple[str, ...], arguments: dict[str, object] | None, edit: bool) -> None:
    """Run failed tasks again: each gets a new generation with fresh attempts. `ade dlq replay` does it in bulk."""
    await replay_by_id(session, task_ids, arguments, edit)


async def replay_by_id(
    session: "Session", texts: tuple[str, ...], arguments: dict[str, object] | None, edit: bool
) -> None:
    """Replay tasks by full or shortened ID. New arguments are allowed for a single task only."""
    if (arguments is not None or edit) and len(texts) != 1:
        raise click.UsageError("New arguments are for one task: name one id with --args or --edit.")
    async with session.api() as api:
        for task_id in await find_ids(api, texts):
            args = await edited_arguments(session, api, task_id, arguments, edit=edit)
            task = await api.retry_task(task_id, args=args)
            if session.out.as_json:
                session.out.record(task)
            else:
                session.out.line(f"{task.id}  {task.status}  {task.name}  generation {task.generation}")


@group("dlq", bare="list")
def dlq() -> None:
    """Dead letters: failed tasks that were not handled yet, grouped by what went wrong. `ade dlq` alone lists them."""


@dlq.command("list", reads=True)
@click.option("--name", help="Only of this task name.")
@click.option("--queue", help="Only of this queue.")
async def list_groups(session: "Session", name: str | None, queue: str | None) -> None:
    """List groups of dead letters: those that failed in the same way share a fingerprint."""
    async with session.api() as api:
        groups = await all_of(api, api.list_dead_letter_groups, name=name, queue=queue)
    out, now = session.out, now_ms()
    if out.as_json:
        out.items(groups)
        return
    rows: list[Row] = [
        (
            each.fingerprint,
            str(each.count),
            each.name,
            distance(each.last_at, now=now),
            each.newest[0],
            f"{each.error_type}: {each.pattern}",
        )
        for each in groups
    ]
    out.table(("fingerprint", "count", "name", "last", "newest", "error"), rows, ("last",))
    out.note(
        "`ade dlq show FINGERPRINT` lists a group, `ade dlq replay --fingerprint FINGERPRINT` runs it again."
        if groups
        else "No dead letters."
    )


@dlq.command("show", reads=True)
@click.argument("fingerprint")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most this many.")
async def show_group(session: "Session", fingerprint: str, limit: int) -> None:
    """List the dead letters of one group, newest first."""
    async with session.api() as api:
        page = await first_page(api.list_dead_letters, fingerprint=fingerprint, limit=limit)
    if not page.items:
        raise unknown_fingerprint(fingerprint)
    if session.out.as_json:
        session.out.document(page)
        return
    session.out.table(TASK_HEAD, task_rows(page.items, now=now_ms()), SPARE)


class _DeadLetterSelection(NamedTuple):
    """Conditions that select dead letters; all of them must match."""

    fingerprint: str | None
    name: str | None
    limit: int | None = None

    async def how_many(self, api: "Client") -> int:
        """Return how many match, up to the limit."""
        groups = await all_of(api, api.list_dead_letter_groups, name=self.name)
        found = sum(group.count for group in groups if self.fingerprint in (None, group.fingerprint))
        return found if self.limit is None else min(found, self.limit)

    def conditions(self) -> dict[str, Any]:
        is_all = self.fingerprint is None and self.name is None
        return {"fingerprint": self.fingerprint, "name": self.name, "everything": is_all}


def _check_chosen(task_ids: tuple[str, ...], fingerprint: str | None, name: str | None, everything: bool) -> None:
    if bool(task_ids) + bool(fingerprint or name) + everything != 1:
        raise click.UsageError("Name tasks by id, with --fingerprint and --name, or with --all.")


@dlq.command("replay")
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@click.option("--fingerprint", help="All of this group.")
@click.option("--name", help="All of this task name.")
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many, oldest first.")
@click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="Run one task with these arguments.")
@click.option("--edit", is_flag=True, help="Change the arguments of one task in your editor first.")
@click.option("--yes", is_flag=True, help="Do not ask before replaying many.")
async def replay(
    session: "Session",
    task_ids: tuple[str, ...],
    fingerprint: str | None,
    name: str | None,
    everything: bool,
    limit: int | None,
    arguments: dict[str, object] | None,
    edit: bool,
    yes: bool,
) -> None:
    """Run dead letters again with fresh attempts."""
    _check_chosen(task_ids, fingerprint, name, everything)
    if task_ids:
        await replay_by_id(session, task_ids, arguments, edit)
        return
    if arguments is not None or edit:
        raise click.UsageError("New arguments are for one task: name its id with --args or --edit.")
    which = _DeadLetterSelection(fingerprint, name, limit)
    async with session.api() as api:
        if count := await _agreed(session, api, which, "replayed", yes):
            with progress(session, "Replaying", count) as bar:
                tried = await _until_all(partial(api.replay_dead_letters, **which.conditions()), count, bar)
            _print_reached(session, tried, "Replayed")


@dlq.command("discard")
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@click.option("--fingerprint", help="All of this group.")
@click.option("--name", help="All of this task name.")
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@click.option("--reason", required=True, help="The reason; stored with the task.")
@click.option("--yes", is_flag=True, help="Do not ask before discarding many.")
async def discard(
    session: "Session",
    task_ids: tuple[str, ...],
    fingerprint: str | None,
    name: str | None,
    everything: bool,
    reason: str,
    yes: bool,
) -> None:
    """Discard dead letters; they stay stored with the reason."""
    _check_chosen(task_ids, fingerprint, name, everything)
    if task_ids:
        await _discard_by_id(session, task_ids, reason)
        return
    which = _DeadLetterSelection(fingerprint, name)
    async with session.api() as api:
        if count := await _agreed(session, api, which, "discarded", yes):
            with progress(session, "Discarding", count) as bar:
                discard_some = partial(api.discard_dead_letters, **which.conditions(), reason=reason)
                tried = await _until_all(discard_some, count, bar)
            _print_reached(session, tried, "Discarded")


async def _discard_by_id(session: "Session", texts: tuple[str, ...], reason: str) -> None:
    async with session.api() as api:
        for task_id in await find_ids(api, texts):
            task = await api.discard_dead_letter(task_id, reason=reason)
            if session.out.as_json:
                session.out.record(task)
            else:
                session.out.line(f"{task.id}  discarded  {task.name}")


async def _agreed(session: "Session", api: "Client", which: _DeadLetterSelection, what: str, yes: bool) -> int:
    """Count the matches and ask for confirmation. Returns the count, 0 if there is nothing to do."""
    count = await which.how_many(api)
    if count:
        confirm(session, f"{count} dead letter{'s' * (count != 1)} would be {what}.", yes=yes)
    elif which.fingerprint is not None:
        raise unknown_fingerprint(which.fingerprint)
    else:
        _print_reached(session, BulkReport(changed=()), "Nothing was")
    return count


async def _until_all(some: Callable[..., Call[BulkReport]], count: int, bar: ProgressBar) -> BulkReport:
    """Repeat the bulk call until it has covered as many tasks as were counted."""
    reports: list[BulkReport] = []
    cursor, is_more = None, True
    while is_more and (left := count - sum(report.reached for report in reports)) > 0:
        done = await some(limit=min(left, MOST_TOGETHER), cursor=cursor)
        reports.append(done)
        bar.advance(done.reached)
        cursor = done.next
        is_more = cursor is not None
    return combined(reports)


def _print_reached(session: "Session", tried: BulkReport, done: str) -> None:
    if session.out.as_json:
        session.out.document(tried)
    elif not tried.reached and not tried.refused:
        session.out.note("No dead letter matches.")
    else:
        moved = f"; {len(tried.moved_on)} had changed in the meantime" if tried.moved_on else ""
        session.out.line(f"{done} {len(tried.changed)} dead letter{'s' * (len(tried.changed) != 1)}{moved}.")
        for each in tried.refused:
            session.out.line(f"Refused {each.count} ({each.code}): {each.reason}")
