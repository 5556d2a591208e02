"""`ade workers`: list the workers and their state."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ade.cli.command import command
from ade.cli.output import Cell, Row, all_of
from ade.cli.parameters import distance, now_ms
from ade.tasks.reasons import short_span
from ade.worker.views import WorkersLiveness, WorkerView

if TYPE_CHECKING:
    from ade.cli.session import Session


WORKER_HEAD = ("worker", "state", "running", "places", "queues", "capabilities", "started", "version")
_STYLES = {
    WorkersLiveness.WORKING: "green",
    WorkersLiveness.DRAINING: "yellow",
    WorkersLiveness.STUCK: "bold red",
    WorkersLiveness.SILENT: "bold red",
}


@command("workers", reads=True)
async def workers(session: "Session") -> None:
    """List workers and how they are doing: working, draining, stuck or silent."""
    async with session.api() as api:
        seen = await all_of(api, api.list_workers)
    if session.out.as_json:
        session.out.items(seen)
        return
    session.out.table(WORKER_HEAD, worker_rows(seen, now=now_ms()))
    if all(each.only_delivers for each in seen):
        session.out.note("No workers. `ade worker --app module:attribute` starts one.")


def worker_rows(seen: Sequence[WorkerView], *, now: int) -> list[Row]:
    """Return the table rows of these workers."""
    return [
        (
            each.worker.id,
            _state(each),
            str(each.worker.running),
            str(each.worker.concurrency),
            ", ".join(each.worker.queues) or "all",
            ", ".join(each.worker.capabilities),
            distance(each.worker.started_at, now=now),
            each.worker.version,
        )
        for each in seen
    ]


def _state(seen: WorkerView) -> Cell:
    if seen.only_delivers and seen.liveness is WorkersLiveness.WORKING:
        return Cell("delivers webhooks", "dim")  # a server, not a worker
    since = {WorkersLiveness.SILENT: seen.silent_ms, WorkersLiveness.STUCK: seen.stuck_ms}.get(seen.liveness)
    text = str(seen.liveness) if since is None else f"{seen.liveness} for {short_span(since)}"
    return Cell(text, _STYLES[seen.liveness])
