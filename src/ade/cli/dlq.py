"""`ade dlq`: dead letters, grouped by what went wrong."""

import click

from ade.cli.confirming import confirm
from ade.cli.exit_codes import ExitCode
from ade.cli.ids import find_ids
from ade.cli.listing import SPARE, TASK_HEAD, task_rows
from ade.cli.output import Row
from ade.cli.parsing import JSON_OBJECT
from ade.cli.progress import progress
from ade.cli.retry import replay_by_id
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import distance
from ade.cli.views import task_view, view
from ade.core.errors import AdeError
from ade.core.records import Task
from ade.ports import Stores, TaskQuery
from ade.queue import deadletters
from ade.queue.deadletters import Tried


class UnknownFingerprint(AdeError):
    """No dead letter has this fingerprint. `ade dlq list` shows those there are."""

    code = "unknown_fingerprint"
    exit_code = ExitCode.NOT_FOUND


@group("dlq", bare="list")
def dlq() -> None:
    """Dead letters: failed tasks nobody has dealt with yet, grouped by what went wrong. `ade dlq` alone lists them."""


@dlq.command("list")
@click.option("--name", help="Only of this task name.")
@click.option("--queue", help="Only of this queue.")
@pass_session
def list_groups(session: Session, name: str | None, queue: str | None) -> None:
    """List the groups: dead letters that failed in the same way share a fingerprint."""
    session.look(_list(session, TaskQuery(name=name, queue=queue)))


async def _list(session: Session, query: TaskQuery) -> None:
    async with session.stores() as stores:
        groups = await deadletters.groups(stores, query)
        now = stores.clock.now()
    out = session.out
    if out.as_json:
        out.document({"groups": [view(each) for each in groups]})
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


@dlq.command("show")
@click.argument("fingerprint")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most so many.")
@pass_session
def show_group(session: Session, fingerprint: str, limit: int) -> None:
    """List the dead letters of one group, newest first."""
    session.look(_show(session, fingerprint, limit))


async def _show(session: Session, fingerprint: str, limit: int) -> None:
    found: list[Task] = []
    async with session.stores() as stores:
        async for task in deadletters.dead_letters(stores, same_as=fingerprint):
            found.append(task)
            if len(found) == limit:
                break
        now = stores.clock.now()
    if not found:
        raise _unknown(fingerprint)
    if session.out.as_json:
        session.out.document({"tasks": [task_view(task) for task in found]})
        return
    session.out.table(TASK_HEAD, task_rows(found, now=now), SPARE)


def _unknown(fingerprint: str) -> UnknownFingerprint:
    return UnknownFingerprint(
        f"no dead letter has the fingerprint {fingerprint[:60]!r}; `ade dlq list` shows those there are"
    )


def _chosen(task_ids: tuple[str, ...], fingerprint: str | None, name: str | None, everything: bool) -> TaskQuery | None:
    """The query of a bulk action, or None when tasks are named by id."""
    if bool(task_ids) + bool(fingerprint or name) + everything != 1:
        raise click.UsageError("Say which: ids, or --fingerprint and --name, or --all.")
    return None if task_ids else TaskQuery(name=name)


@dlq.command("replay")
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@click.option("--fingerprint", help="All of this group.")
@click.option("--name", help="All of this task name.")
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, oldest first.")
@click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="Run one task with these arguments.")
@click.option("--edit", is_flag=True, help="Change the arguments of one task in your editor first.")
@click.option("--yes", is_flag=True, help="Do not ask before replaying many.")
@pass_session
def replay(
    session: Session,
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
    query = _chosen(task_ids, fingerprint, name, everything)
    if query is None:
        session.run(replay_by_id(session, task_ids, arguments, edit))
        return
    if arguments is not None or edit:
        raise click.UsageError("New arguments are for one task: name its id with --args or --edit.")
    session.run(_replay(session, query, fingerprint, limit, yes))


async def _replay(session: Session, query: TaskQuery, fingerprint: str | None, limit: int | None, yes: bool) -> None:
    async with session.stores() as stores:
        if count := await _agreed(session, stores, query, fingerprint, limit, "replayed", yes):
            with progress(session, "Replaying", count) as bar:
                tried = await deadletters.replay_all(
                    stores, query, same_as=fingerprint, limit=limit, actor=session.actor, on_progress=bar.advance
                )
            _tell(session, tried, "Replayed")


@dlq.command("discard")
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@click.option("--fingerprint", help="All of this group.")
@click.option("--name", help="All of this task name.")
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@click.option("--reason", required=True, help="Kept on record.")
@click.option("--yes", is_flag=True, help="Do not ask before discarding many.")
@pass_session
def discard(
    session: Session,
    task_ids: tuple[str, ...],
    fingerprint: str | None,
    name: str | None,
    everything: bool,
    reason: str,
    yes: bool,
) -> None:
    """Take dead letters off the list; they stay on record with the reason."""
    query = _chosen(task_ids, fingerprint, name, everything)
    if query is None:
        session.run(_discard_by_id(session, task_ids, reason))
    else:
        session.run(_discard(session, query, fingerprint, reason, yes))


async def _discard_by_id(session: Session, texts: tuple[str, ...], reason: str) -> None:
    from ade.queue import tasks as use_cases

    async with session.stores() as stores:
        for task_id in await find_ids(stores, texts):
            task = await use_cases.discard(stores, task_id, reason, actor=session.actor)
            if session.out.as_json:
                session.out.record(task_view(task))
            else:
                session.out.line(f"{task.id}  discarded  {task.name}")


async def _discard(session: Session, query: TaskQuery, fingerprint: str | None, reason: str, yes: bool) -> None:
    async with session.stores() as stores:
        if count := await _agreed(session, stores, query, fingerprint, None, "discarded", yes):
            with progress(session, "Discarding", count) as bar:
                tried = await deadletters.discard_all(
                    stores, reason, query, same_as=fingerprint, actor=session.actor, on_progress=bar.advance
                )
            _tell(session, tried, "Discarded")


async def _agreed(
    session: Session,
    stores: Stores,
    query: TaskQuery,
    fingerprint: str | None,
    limit: int | None,
    what: str,
    yes: bool,
) -> int:
    """Count first, then ask. Answers how many; 0 when there is nothing to do."""
    count = 0
    with progress(session, "Counting") as bar:
        async for _ in deadletters.dead_letters(stores, query, same_as=fingerprint):
            count += 1
            bar.move(count, 0)
            if count == limit:
                break
    if count:
        confirm(session, f"{count} dead letter{'s' * (count != 1)} would be {what}.", yes=yes)
    elif fingerprint is not None:
        raise _unknown(fingerprint)
    else:
        _tell(session, Tried(changed=(), moved_on=()), "Nothing was")
    return count


def _tell(session: Session, tried: Tried, done: str) -> None:
    if session.out.as_json:
        session.out.document(tried)
    elif not tried.changed and not tried.moved_on:
        session.out.note("No dead letter fits.")
    else:
        moved = f"; {len(tried.moved_on)} had moved on by themselves" if tried.moved_on else ""
        session.out.line(f"{done} {len(tried.changed)} dead letter{'s' * (len(tried.changed) != 1)}{moved}.")
