"""`ade locks`: who holds what, who waits, and what an operator may do about it."""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ade.cli.output import Row
from ade.cli.pages import all_of
from ade.cli.parsing import DURATION
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import distance, now_ms, short_span
from ade.core.locks.records import DEFAULT_NAMESPACE
from ade.insight.locks import LockGraph, LockView, Standing
from ade.insight.reasons import moment

if TYPE_CHECKING:
    from ade.core.locks.wishes import Wish

LOCK_HEAD = ("resource", "mode", "owner", "since", "lease", "token", "waiting", "purpose")
STANDING_HEAD = ("place", "owner", "mode", "priority", "since", "lease", "token", "beats", "request", "purpose")


@group("locks", bare="list")
def locks() -> None:
    """Locks on shared resources: list, show, release by force, draw who waits. `ade locks` alone lists them."""


@locks.command("list")
@click.option("--namespace", help="Only this namespace.")
@click.option("--owner", help="Only what this agent or program holds or waits for.")
@click.option("--type", "kind", help="Only resources of this type: the part of the name before the colon.")
@pass_session
def list_locks(session: Session, namespace: str | None, owner: str | None, kind: str | None) -> None:
    """List the resources that are locked, who holds them and how many wait."""
    session.look(_list(session, namespace, owner, kind))


async def _list(session: Session, namespace: str | None, owner: str | None, kind: str | None) -> None:
    async with session.api() as api:
        seen = await all_of(api, api.list_locks, namespace=namespace, owner=owner, kind=kind)
    now = now_ms()
    if session.out.as_json:
        session.out.document({"locks": [_document(lock) for lock in seen]})
        return
    session.out.table(LOCK_HEAD, [row for lock in seen for row in _rows(lock, now)], spare=("token", "lease"))
    if not seen:
        session.out.note("Nothing is locked.")


def _rows(lock: LockView, now: int) -> list[Row]:
    if not lock.holders:
        return [(lock.resource, "", "", "", "", "", str(len(lock.waiters)), "")]
    return [
        (
            lock.resource,
            str(one.mode),
            one.owner,
            distance(one.since, now=now),
            _lease(one),
            str(one.token or ""),
            str(len(lock.waiters) or ""),
            one.purpose or "",
        )
        for one in lock.holders
    ]


def _lease(one: Standing) -> str:
    return short_span(one.expires_in_ms) if one.expires_in_ms > 0 else "over"


@locks.command("show")
@click.argument("resource")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Its namespace.")
@pass_session
def show(session: Session, resource: str, namespace: str) -> None:
    """Show who holds a resource, and the line of those who wait for it."""
    session.look(_show(session, resource, namespace))


async def _show(session: Session, resource: str, namespace: str) -> None:
    async with session.api() as api:
        seen = (await api.list_locks(namespace=namespace, resource=resource)).items
    now = now_ms()
    if session.out.as_json:
        empty = LockView(namespace=namespace, resource=resource, holders=[], waiters=[])
        session.out.document(_document(seen[0] if seen else empty))
        return
    if not seen:
        session.out.note(f"Nobody holds {resource} or waits for it.")
        return
    [lock] = seen
    rows = [_standing_row("holds", one, now) for one in lock.holders]
    rows += [_standing_row(str(place), one, now) for place, one in enumerate(lock.waiters, 1)]
    session.out.table(STANDING_HEAD, rows, spare=("beats", "token", "priority"))


def _standing_row(place: str, one: Standing, now: int) -> Row:
    return (
        place,
        one.owner,
        str(one.mode),
        str(one.priority),
        distance(one.since, now=now),
        _lease(one),
        str(one.token or ""),
        str(one.heartbeats or ""),
        one.request_id,
        one.purpose or "",
    )


@locks.command("acquire", context_settings={"allow_interspersed_args": False})
@click.option("--read", "shared", multiple=True, metavar="RESOURCE", help="Share this one with other readers.")
@click.option("--write", "exclusive", multiple=True, metavar="RESOURCE", help="Have this one alone.")
@click.option("--owner", help="Who asks; otherwise this machine and process.")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Their namespace.")
@click.option("--priority", type=int, default=5, show_default=True, help="0 goes first, 9 last.")
@click.option("--ttl", type=DURATION, help="The lease, renewed meanwhile; otherwise `lock.default_ttl_s`.")
@click.option("--wait", type=DURATION, help="How long to wait at most; otherwise for ever.")
@click.option("--purpose", help="What for; others see it.")
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@pass_session
def acquire(
    session: Session, /, command: tuple[str, ...], shared: tuple[str, ...], exclusive: tuple[str, ...], **options: Any
) -> int:
    """Run a command while holding locks, all or none; it is ended when they are lost.

    The command finds the fencing token in ADE_LOCK_TOKEN, and those of several resources as JSON in ADE_LOCK_TOKENS.
    The exit code is that of the command.
    """
    from ade.core.locks.wishes import read, write

    wanted = [*(read(name) for name in shared), *(write(name) for name in exclusive)]
    if not wanted:
        raise click.UsageError("name what to lock: --write repo:app, --read database:main.")
    return session.run(_acquire(session, wanted, command, options))


async def _acquire(session: Session, wanted: "list[Wish]", command: tuple[str, ...], options: dict[str, Any]) -> int:
    from ade.cli.under import run_under

    if session.server is None:
        async with session.open_app() as app:
            return await run_under(app.lock(*wanted, **options), command)
    from ade.client.locking import LentLock

    owner = options.pop("owner") or f"{socket.gethostname()}-{os.getpid()}"
    async with session.api() as api:
        return await run_under(LentLock(api, wanted, owner=owner, **options), command)


@locks.command("release")
@click.argument("request_id", metavar="REQUEST")
@click.option("--force", is_flag=True, required=True, help="Needed: whoever holds it is not asked.")
@click.option("--reason", required=True, help="Why; kept in the event log.")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Its namespace.")
@pass_session
def release(session: Session, request_id: str, force: bool, reason: str, namespace: str) -> None:
    """Take a lock, or a place in line, away. The holder learns of it at its next heartbeat; its token is outdated."""
    session.run(_release(session, request_id, reason, namespace))


async def _release(session: Session, request_id: str, reason: str, namespace: str) -> None:
    async with session.api() as api:
        taken = await api.force_release_lock(id=request_id, namespace=namespace, reason=reason)
    if session.out.as_json:
        session.out.document({"request_id": taken.request_id, "owner": taken.owner, "resources": list(taken.resources)})
    else:
        session.out.line(f"{', '.join(taken.resources)}: taken away from {taken.owner}")


@locks.command("graph")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Its namespace.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw it into this file.")
@pass_session
def graph(session: Session, namespace: str, svg: Path | None) -> None:
    """Show who waits for whom, and rings among them; as text, or as a picture."""
    seen = session.look(_read_graph(session, namespace))
    if svg is not None:
        _draw(session, seen, svg)
    if session.out.as_json:
        session.out.document(_graph_document(seen))
    elif svg is None:
        from ade.cli.drawing import graph_lines

        for line in graph_lines(seen):
            session.out.line(line)
        if not seen.edges:
            session.out.note("Nobody waits.")


async def _read_graph(session: Session, namespace: str) -> LockGraph:
    async with session.api() as api:
        return await api.get_lock_graph(namespace=namespace)


def _draw(session: Session, seen: LockGraph, svg: Path) -> None:
    from ade.cli.drawing import graph_svg

    try:
        svg.write_text(graph_svg(seen), encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{svg} cannot be written: {error.strerror}. Choose another file.") from None
    session.out.note(f"Written to {svg}.")


def _graph_document(seen: LockGraph) -> dict[str, object]:
    edges = [
        {
            "waiter": seen.requests[edge.waiter].owner,
            "blocker": seen.requests[edge.blocker].owner,
            "resource": edge.resource,
            "holds": edge.is_hard,
        }
        for edge in seen.edges
    ]
    return {"edges": edges, "rings": [[seen.requests[edge.waiter].owner for edge in ring] for ring in seen.rings]}


def _document(lock: LockView) -> dict[str, object]:
    return {
        "namespace": lock.namespace,
        "resource": lock.resource,
        "holders": [_standing_document(one) for one in lock.holders],
        "waiters": [_standing_document(one) for one in lock.waiters],
    }


def _standing_document(one: Standing) -> dict[str, object]:
    known = {name: getattr(one, name) for name in one.__struct_fields__ if getattr(one, name) is not None}
    return {**known, "since": moment(one.since)}
