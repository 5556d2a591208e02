"""`ade up`: everything an app needs in one process."""

import sys
from typing import TYPE_CHECKING, Any

from ade.app.ade import Ade
from ade.app.opening import Opened
from ade.cli.serve import address_view, http_options, keep_http_options, tell_address
from ade.cli.serving import serve_over_http
from ade.cli.session import Session
from ade.cli.shared import command, pass_session
from ade.cli.worker import keep_worker_options, worker_options
from ade.core.urls import without_password
from ade.settings import Settings

if TYPE_CHECKING:
    from ade.app.serving import Served


@command("up")
@worker_options
@http_options
@pass_session
def up(session: Session, /, **given: Any) -> int:
    """Start everything an app needs in one process: a worker, the duties on a timer, and the HTTP interface.

    Ctrl-C or SIGTERM ends it cleanly. With the demo app (`--app ade.demo:ade`) a new store gets a few tasks to begin
    with. The first start shows a link to sign in with, once.
    """
    keep_http_options(session, given)
    keep_worker_options(session, given)

    async def greet(app: Ade, opened: Opened, served: "Served") -> None:
        seeded = await _seed_demo(app, opened)
        _say_hello(session, app, seeded, served)

    return serve_over_http(session, greet, has_tasks=True)


async def _seed_demo(app: Ade, opened: Opened) -> int:
    """The demo brings its first tasks along, into a store that has never seen any."""
    demo = sys.modules.get("ade.demo")
    if demo is None or app is not demo.ade or await opened.stores.queues.tallies():
        return 0
    count: int = await demo.seed()
    return count


def _say_hello(session: Session, app: Ade, seeded: int, served: "Served") -> None:
    settings, names = session.settings, sorted(app.registry.names())
    store = without_password(settings.store.url)
    if session.out.as_json:
        facts = {"store": store, "app": session.app_spec, "tasks": names, "seeded": seeded}
        session.out.record({"up": True, **facts, "concurrency": settings.worker.concurrency, **address_view(served)})
        return
    out = session.out
    out.note(f"ADE is up. Records are in {store}; everything accepted is kept there.")
    out.note(f"  tasks      {', '.join(names)}")
    if app.schedules:
        schedules = ", ".join(f"{schedule.name} ({schedule.cron})" for schedule in app.schedules)
        out.note(f"  schedules  {schedules}")
    out.note(f"  runs       up to {settings.worker.concurrency} tasks at once")
    tell_address(session, served)
    if seeded:
        out.note(f"  to begin   {seeded} demo tasks were enqueued, because the store was empty")
    elsewhere = "" if settings.store.url == Settings().store.url else f" --store {store}"
    out.note("In another terminal, in this folder:")
    out.note(f"  ade enqueue {_easiest(app)}{elsewhere}   gives it work; --help tells how to pass arguments")
    out.note(f"  ade tasks{elsewhere}   lists what there is, and `ade top{elsewhere}` watches it")
    out.note("Ctrl-C ends it.")


def _easiest(app: Ade) -> str:
    """The name of a task that can be enqueued without arguments, if there is one."""
    plain = [handler.name for handler in app.registry if not handler.signature.parameters.required]
    return min(plain or app.registry.names())
