"""`ade locks`: inspect, acquire, and release resource locks, and draw the wait-for graph."""

import asyncio
import math
import os
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from ade.accounts.model import InvalidAccount
from ade.cli.command import group
from ade.cli.output import Row, all_of
from ade.cli.parameters import DURATION, PRIORITY, distance, now_ms
from ade.locks.knots import resource_text
from ade.locks.model import DEFAULT_NAMESPACE, read, write
from ade.locks.views import LockGraph, LockStanding, LockView
from ade.tasks.reasons import short_span
from ade.worker.watchdog import watch_parent_exit

if TYPE_CHECKING:
    from ade.cli.session import Session


# The wait-for graph, as text and as an SVG picture.


_SIZE, _NODE, _MARGIN = 640, 26, 110
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2328;text-anchor:middle;"
    "paint-order:stroke;stroke:#fff;stroke-width:4px}circle{fill:#fff;stroke:#1f2328}"
    ".ring{stroke:#cf222e;stroke-width:2}.hard,.soft{stroke:#57606a;fill:none}.soft{stroke-dasharray:5 4}"
    ".hard.ring,.soft.ring{stroke:#cf222e}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3;stroke:#0d1117}circle{fill:#0d1117;stroke:#e6edf3}}"
)


def graph_lines(graph: LockGraph) -> list[str]:
    """Return one line per edge, then one per cycle."""
    lines = []
    for edge in sorted(graph.edges, key=lambda edge: (edge.scope, not edge.is_hard, edge.blocking_scope)):
        waiter, blocker = graph.requests[edge.waiter], graph.requests[edge.blocker]
        how = "waits for" if edge.is_hard else "stands behind"
        mode = waiter.mode_of(edge.resource)
        lines.append(f"{waiter.owner} --{how}--> {blocker.owner}   {resource_text(waiter, edge.resource)} ({mode})")
    for ring in graph.rings:
        owners = [graph.requests[edge.waiter].owner for edge in ring]
        lines.append(f"ring: {' -> '.join([*owners, owners[0]])}")
    return lines


def graph_svg(graph: LockGraph) -> str:
    """Draw agents on a circle; a dashed arrow means waiting only because of queue order. Cycles are red."""
    scopes = sorted({edge.scope for edge in graph.edges} | {edge.blocking_scope for edge in graph.edges})
    names = {one.scope: one.owner for one in graph.requests.values()}
    places = dict(zip(scopes, _circle(len(scopes)), strict=True))
    in_ring = {(edge.scope, edge.blocking_scope) for ring in graph.rings for edge in ring}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" role="img" aria-label="Who waits">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#57606a"/></marker></defs>',
    ]
    for edge in graph.edges:
        kind = ("hard" if edge.is_hard else "soft") + (" ring" if (edge.scope, edge.blocking_scope) in in_ring else "")
        label = resource_text(graph.requests[edge.waiter], edge.resource)
        parts.append(_arrow(places[edge.scope], places[edge.blocking_scope], kind, label))
    for scope, (x, y) in places.items():
        kind = "ring" if any(scope in pair for pair in in_ring) else "agent"
        parts.append(f'<circle class="{kind}" cx="{x:.0f}" cy="{y:.0f}" r="{_NODE}"/>')
        parts.append(f'<text x="{x:.0f}" y="{y + _NODE + 16:.0f}">{escape(names.get(scope, scope))}</text>')
    if not scopes:
        parts.append(f'<text x="{_SIZE / 2:.0f}" y="{_SIZE / 2:.0f}">Nobody waits.</text>')
    return "\n".join([*parts, "</svg>", ""])


def _circle(count: int) -> Iterable[tuple[float, float]]:
    middle, radius = _SIZE / 2, _SIZE / 2 - _MARGIN
    for number in range(count):
        angle = 2 * math.pi * number / count - math.pi / 2
        yield middle + radius * math.cos(angle), middle + radius * math.sin(angle)


def _arrow(start: tuple[float, float], end: tuple[float, float], kind: str, label: str) -> str:
    """Draw from rim to rim, slightly bent so that opposite arrows do not overlap."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    bend_x, bend_y = (x1 + x2) / 2 - dy * 24, (y1 + y2) / 2 + dx * 24
    path = (
        f"M{x1 + dx * _NODE:.0f} {y1 + dy * _NODE:.0f}Q{bend_x:.0f} {bend_y:.0f}"
        f" {x2 - dx * _NODE:.0f} {y2 - dy * _NODE:.0f}"
    )
    text = f'<text x="{bend_x:.0f}" y="{bend_y:.0f}">{escape(label)}</text>'
    return f'<path class="{kind}" d="{path}" marker-end="url(#tip)"/>{text}'


LOCK_HEAD = ("resource", "mode", "owner", "since", "lease", "token", "waiting", "purpose")
STANDING_HEAD = ("place", "owner", "mode", "priority", "since", "lease", "token", "beats", "request", "purpose")


@group("locks", bare="list")
def locks() -> None:
    """Locks on shared resources: list, show, release by force, draw who waits. `ade locks` alone lists them."""


@locks.command("list", reads=True)
@click.option("--namespace", help="Only this namespace.")
@click.option("--owner", help="Only what this owner holds or waits for.")
@click.option("--type", "kind", help="Only resources of this type: the part of the name before the colon.")
async def list_locks(session: "Session", namespace: str | None, owner: str | None, kind: str | None) -> None:
    """List the resources that are locked, who holds them and how many wait."""
    async with session.api() as api:
        seen = await all_of(api, api.list_locks, namespace=namespace, owner=owner, kind=kind)
    if session.out.as_json:
        session.out.items(seen)
        return
    now = now_ms()
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


def _lease(one: LockStanding) -> str:
    return short_span(one.expires_in_ms) if one.expires_in_ms > 0 else "over"


@locks.command("show", reads=True)
@click.argument("resource")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Its namespace.")
async def show(session: "Session", resource: str, namespace: str) -> None:
    """Show who holds a resource, and the line of those who wait for it."""
    async with session.api() as api:
        seen = (await api.list_locks(namespace=namespace, resource=resource)).items
    if session.out.as_json:
        free = LockView(namespace=namespace, resource=resource, holders=[], waiters=[])
        session.out.document(seen[0] if seen else free)
        return
    if not seen:
        session.out.note(f"No one holds {resource} or waits for it.")
        return
    [lock], now = seen, now_ms()
    rows = [_standing_row("holds", one, now) for one in lock.holders]
    rows += [_standing_row(str(place), one, now) for place, one in enumerate(lock.waiters, 1)]
    session.out.table(STANDING_HEAD, rows, spare=("beats", "token", "priority"))
    for sentence in lock.deadlock:
        session.out.line(f"deadlock: {sentence}")


def _standing_row(place: str, one: LockStanding, now: int) -> Row:
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
@click.option("--read", "shared", multiple=True, metavar="RESOURCE", help="Acquire a shared lock on this resource.")
@click.option(
    "--write", "exclusive", multiple=True, metavar="RESOURCE", help="Acquire an exclusive lock on this resource."
)
@click.option("--owner", help="The owner; by default this machine and process.")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Their namespace.")
@click.option(
    "--priority", type=PRIORITY, default="normal", show_default=True, help="urgent, high, normal, low, or 0 to 9."
)
@click.option("--ttl", type=DURATION, help="The lease, renewed while held; `lock.default_ttl_s` by default.")
@click.option("--wait", type=DURATION, help="Maximum time to wait; forever by default.")
@click.option("--purpose", help="The purpose, visible to others.")
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
async def acquire(
    session: "Session", /, command: tuple[str, ...], shared: tuple[str, ...], exclusive: tuple[str, ...], **options: Any
) -> int:
    """Run a command while holding locks, all or none; it is stopped if they are lost.

    The command finds the fencing token in ADE_LOCK_TOKEN, and those of several resources as JSON in ADE_LOCK_TOKENS.
    The exit code is that of the command.
    """
    wanted = [*(read(name) for name in shared), *(write(name) for name in exclusive)]
    if not wanted:
        raise click.UsageError("name what to lock: --write repo:app, --read database:main.")

    if session.server is None:
        async with session.open_app() as app:
            lock = app.lock(*wanted, **options)
            with suppress(InvalidAccount):  # a login name that no account can have
                lock = lock.on_behalf_of(session.account)
            return await run_with_lock(lock, command)
    from ade.locks.http_client import HttpLock

    owner = options.pop("owner") or f"{socket.gethostname()}-{os.getpid()}"
    async with session.api() as api:
        return await run_with_lock(HttpLock(api, wanted, owner=owner, **options), command)


@locks.command("release")
@click.argument("request_id", metavar="REQUEST")
@click.option("--force", is_flag=True, required=True, help="Required: the holder is not asked.")
@click.option("--reason", required=True, help="The reason; stored in the event log.")
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Its namespace.")
async def release(session: "Session", request_id: str, force: bool, reason: str, namespace: str) -> None:
    """Release a lock, or a place in the wait queue, by force. The holder is notified immediately."""
    async with session.api() as api:
        taken = await api.force_release_lock(id=request_id, namespace=namespace, reason=reason)
    if session.out.as_json:
        session.out.document(taken)
    else:
        session.out.line(f"{', '.join(taken.resources)}: taken away from {taken.owner}")


@locks.command("graph", reads=True)
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Its namespace.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Draw it as SVG into this file.")
async def graph(session: "Session", namespace: str, svg: Path | None) -> None:
    """Show who waits for whom, and deadlocks among them; as text or as a picture.

    Holders and waiters in the namespace are shown with their waits in other namespaces.
    """
    async with session.api() as api:
        seen = await api.get_lock_graph(namespace=namespace)
    if svg is not None:
        _draw(session, seen, svg)
    if session.out.as_json:
        session.out.document(seen)
    elif svg is None:
        for line in graph_lines(seen):
            session.out.line(line)
        if not seen.edges:
            session.out.note("Nobody waits.")


def _draw(session: "Session", seen: LockGraph, svg: Path) -> None:
    try:
        svg.write_text(graph_svg(seen), encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{svg} cannot be written: {error.strerror}. Choose another file.") from None
    session.out.note(f"Written to {svg}.")


# A command that runs under a lock: in its own process group, which is terminated when the lock is lost.


_GRACE_S = 5.0


class HeldLockHandle(Protocol):
    """A lock of the local store, or of a server."""

    @property
    def id(self) -> str: ...

    @property
    def resources(self) -> tuple[str, ...]: ...

    def token(self, resource: str | None = None) -> int: ...


async def run_with_lock(lock: AbstractAsyncContextManager[HeldLockHandle], command: Sequence[str]) -> int:
    """Return the exit code of the command. Raises LockLost if the command was terminated because the lock was lost."""
    async with lock as held:
        process = await _start(command, _environment(held))
        try:
            return _as_shells_do(await process.wait())
        finally:
            await _end(process)


async def _start(command: Sequence[str], environment: Mapping[str, str]) -> "asyncio.subprocess.Process":
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
    except FileNotFoundError:
        raise click.UsageError(f"there is no program {command[0]!r}; write the command after `--`.") from None
    except OSError as error:
        raise click.UsageError(f"{command[0]!r} cannot be started: {error.strerror}.") from None


def _end_with_parent() -> None:
    """Kill the command if this process is killed: the lock is then no longer renewed."""
    watch_parent_exit(signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Terminate the whole process group: child processes of the command no longer hold the lock either."""
    _signal(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(_GRACE_S):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _environment(held: HeldLockHandle) -> dict[str, str]:
    tokens = {resource: held.token(resource) for resource in held.resources}
    known = {"ADE_LOCK_ID": held.id, "ADE_LOCK_TOKENS": msgspec.json.encode(tokens).decode()}
    if len(tokens) == 1:
        known["ADE_LOCK_TOKEN"] = str(next(iter(tokens.values())))
    return {**os.environ, **known}


def _as_shells_do(code: int) -> int:
    return code if code >= 0 else 128 - code
