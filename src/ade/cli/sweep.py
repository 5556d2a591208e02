"""`ade sweep`: the duties on a timer, without a worker."""

import asyncio
import contextlib
import gc
import os
import socket
from collections.abc import Sequence

import click

from ade.app.auditing import audit_duties
from ade.app.working import sweep_options
from ade.cli.exit_codes import ExitCode
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.core.urls import without_password
from ade.logs import configure
from ade.ports import SweepStore
from ade.worker.duties import Duty, standard_duties
from ade.worker.entry import serve
from ade.worker.loops import keep_up, try_duty
from ade.worker.shutdown import StopSignals


@command("sweep")
@click.option("--once", is_flag=True, help="Do every duty once and end.")
@pass_session
def sweep(session: Session, once: bool) -> ExitCode:
    """Do the duties on a timer without running any task, until Ctrl-C or SIGTERM.

    Lost leases, deadlines, broken dependencies, schedules, expired results, retention, event log, audit copy. Every
    worker does them too; this is for machines without one. With --once the exit code is 1 when a duty failed.
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


async def _sweep(session: Session, signals: StopSignals, once: bool) -> dict[str, int | None]:
    async with session.open_app() as app:
        opened = await app.open()
        settings = session.settings
        async with audit_duties(settings.store.url, opened.stores, settings.events.audit_url) as auditing:
            standard = standard_duties(opened.stores, opened.payloads, app.defaults, sweep_options(settings))
            return await _do(session, opened.stores.sweeps, [*standard, *auditing], signals, once)


async def _do(
    session: Session, sweeps: SweepStore, duties: Sequence[Duty], signals: StopSignals, once: bool
) -> dict[str, int | None]:
    holder = f"{socket.gethostname()}-{os.getpid()}-sweep"
    if once:
        return {duty.name: await try_duty(sweeps, duty, holder) for duty in duties}
    session.out.note(f"Sweeping {without_password(session.settings.store.url)}. Ctrl-C ends it.")
    sweeping = asyncio.create_task(keep_up(sweeps, duties, holder))
    stopping = asyncio.create_task(signals.stop.wait())
    await asyncio.wait({sweeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
    for job in (sweeping, stopping):
        job.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sweeping
    return {}
