"""`ade stats`: the state of everything, once."""

from ade.cli.output import Output
from ade.cli.queues import QUEUE_HEAD, queue_rows
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.views import overview_view
from ade.cli.workers import WORKER_HEAD, worker_rows
from ade.core.lifecycle import Status
from ade.insight.overview import Overview


@command("stats")
@pass_session
def stats(session: Session) -> None:
    """Show depths, ages, throughput and workers once."""
    session.look(_stats(session))


async def _stats(session: Session) -> None:
    async with session.api() as api:
        seen = await api.get_stats()
    if session.out.as_json:
        session.out.document(overview_view(seen))
        return
    print_overview(session.out, seen)


def print_overview(out: Output, seen: Overview) -> None:
    out.facts([("tasks", totals(seen)), ("last minute", rates(seen)), ("dead letters", dead_letters(seen))])
    for head, rows in ((QUEUE_HEAD, queue_rows(seen.queues)), (WORKER_HEAD, worker_rows(seen.workers, now=seen.at))):
        if rows:
            out.line()
            out.table(head, rows)


def totals(seen: Overview) -> str:
    counts = [(status, seen.total(status)) for status in Status]
    return ", ".join(f"{count} {status}" for status, count in counts if count) or "none"


def rates(seen: Overview) -> str:
    """From the newest events: per second or, where little happens, per minute."""
    rate = seen.throughput
    named = {
        "created": rate.created_per_s,
        "completed": rate.completed_per_s,
        "failed": rate.failed_per_s,
        "retried": rate.retried_per_s,
    }
    return ", ".join(f"{_rate(value)} {name}" for name, value in named.items())


def _rate(per_second: float) -> str:
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{per_second * 60:.0f}/min"


def dead_letters(seen: Overview) -> str:
    more = "+" if seen.dead_letters >= seen.dead_letters_limit else ""
    return f"{seen.dead_letters}{more}"
