"""Long-running commands: `ade worker`, `ade serve`, and `ade up`."""

import gc
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from ade.app.ade import Ade
from ade.cli.app_loader import BadApp
from ade.cli.command import command
from ade.cli.exit_codes import ExitCode
from ade.cli.identity import ServerTarget
from ade.cli.parameters import DURATION
from ade.common.text import without_password
from ade.composition.app_store import OpenStore
from ade.composition.server import allow_many_files
from ade.composition.stores import upgrade_if_allowed
from ade.composition.worker import add_agents
from ade.errors import NeedsStore, StoreMissing
from ade.logs import Log, configure
from ade.server.addresses import is_loopback
from ade.settings import Settings
from ade.settings.sections import HttpSettings
from ade.tasks.identifiers import QUEUE as WEBHOOKS
from ade.worker.supervisor import Handover, StopSignals, is_restarted
from ade.worker.supervisor import serve as supervisor_serve

if TYPE_CHECKING:  # loaded by the code that starts the server
    from ade.cli.session import Session
    from ade.composition.server import RunningServer


_OPTIONS = {
    "agents.types": "agents",
    "worker.capabilities": "capability",
}  # options whose name differs from their setting
Greeting = Callable[[Ade, OpenStore, "RunningServer"], Awaitable[None]]
log = Log("ade.store")


def serve_app(session: "Session") -> ExitCode:
    """Run a worker until it is stopped, and report the tasks that it returned to the queue."""
    app = _app_with_tasks(session)
    if is_restarted() and not session.has_store():
        raise StoreMissing("the store was removed, and no process creates a store again that existed before")

    async def work(signals: StopSignals) -> Handover:
        await _upgrade(session.settings)
        async with app:
            return await app.work(signals.stop, signals.hurry)

    return _served(session, work)


def serve_server(session: "Session", server: ServerTarget) -> ExitCode:
    """Run a worker that connects to a server over HTTP and needs no store."""
    from ade.composition.remote_worker import work_over_http

    if session.settings.agents.types:
        raise NeedsStore("agents run in workers on the store itself, not behind HTTP; omit --agents, or omit --url")
    app = _app_alone(session)

    async def work(signals: StopSignals) -> Handover:
        return await work_over_http(
            app, server.url, signals.stop, signals.hurry, token=server.token, allow_plain=server.allow_plain
        )

    return _served(session, work)


def serve_over_http(session: "Session", greet: Greeting, *, has_tasks: bool) -> ExitCode:
    """Run a worker and an HTTP server. Without the tasks of an app it runs only the internal tasks of ADE."""
    from ade.composition.server import open_socket, serve_http, spare_collections

    allow_many_files()
    app = _app_with_tasks(session) if has_tasks else _app_of_ade_itself(session)
    # Before the store is created, so that an address in use is reported immediately.
    listening = open_socket(session.settings.http)

    async def work(signals: StopSignals) -> Handover:
        await _upgrade(session.settings)
        async with app, serve_http(app, listening, signals.hurry) as served:
            spare_collections()
            await greet(app, await app.open(), served)
            return await app.work(signals.stop, signals.hurry, queues=None if has_tasks else [WEBHOOKS])

    return _served(session, work)


async def _upgrade(settings: Settings) -> None:
    done = await upgrade_if_allowed(settings)
    if done is not None and done.copy is not None:
        log.info("store.upgraded", schema=done.after, before=done.before, copy=done.copy)


def _app_of_ade_itself(session: "Session") -> Ade:
    """Return an app without tasks and agents. Those belong to other workers, whose queues it must not claim from."""
    settings = session.settings
    return Ade(
        settings=structs.replace(settings, agents=structs.replace(settings.agents, types=(), profiles={}, folders=()))
    )


def _served(session: "Session", work: Callable[[StopSignals], Coroutine[Any, Any, Handover]]) -> ExitCode:
    configure(session.settings.log.format, session.settings.log.level)
    gc.enable()
    handover = supervisor_serve(work)
    _print_handover(session, handover)
    return ExitCode.PROBLEM if handover.left_behind else ExitCode.OK


def _app_with_tasks(session: "Session") -> Ade:
    """Return the app with its agents; agents without tasks need no app. Raises BadApp."""
    app = session.any_app
    add_agents(app)
    return app if app.registry.names() else _app_alone(session)


def _app_alone(session: "Session") -> Ade:
    """Return the app. Raises BadApp if none was named, or if it has no tasks."""
    app = session.app
    if app.registry.names():
        return app
    raise BadApp(f"app {session.app_spec!r} has no tasks; is the module that defines them imported?")


def _print_handover(session: "Session", handover: Handover) -> None:
    out = session.out
    if out.as_json:
        out.record({"stopped": True, "handed_back": handover.handed_back, "left_behind": handover.left_behind})
        return
    if handover.handed_back:
        out.note(f"Released {len(handover.handed_back)} unfinished tasks: {', '.join(handover.handed_back)}")
    if handover.left_behind:
        out.note(
            f"{len(handover.left_behind)} tasks could not be released; other workers take them over when their"
            f" leases run out: {', '.join(handover.left_behind)}"
        )


def supervise_app(session: "Session", command: Sequence[str]) -> ExitCode:
    """Run several processes of the same command, each with one worker. An invalid app is reported once, here."""
    from ade.worker.supervisor import supervise

    count = session.settings.worker.processes
    look = _app_with_tasks if session.server is None else _app_alone
    look(session)  # first, so that not every process reports the same mistake
    configure(session.settings.log.format, session.settings.log.level)
    arguments = [*command, *_as_arguments(session), "--processes", "1"]
    return ExitCode.PROBLEM if supervise(arguments, count) else ExitCode.OK


def _as_arguments(session: "Session") -> list[str]:
    options = session.options
    named = {"--app": session.app_spec, "--store": options.store, "--config": options.config}
    named |= {"--url": options.url, "--profile": options.profile}
    for name, value in session.flags.items():
        option = _OPTIONS.get(name) or name.removeprefix("worker.").removesuffix("_s").replace("_", "-")
        named[f"--{option}"] = None if value is None or option == "processes" else str(value)
    pairs = [text for option, value in named.items() if value is not None for text in (option, value)]
    return [*pairs, *(["--json"] if options.json else []), *(["--quiet"] if options.quiet else [])]


def http_options(function: Any) -> Any:
    """Add the options for the listen address. Each sets the setting with its name."""
    for option in (
        click.option("--port", type=int, help="The port to listen on; 0 for any free port. Default: 8411."),
        click.option("--host", help="The address to listen on; 127.0.0.1 is reachable from this machine only."),
    ):
        function = option(function)
    return function


def store_http_options(session: "Session", given: dict[str, Any]) -> None:
    """Store the HTTP options as settings. Raises UsageError with --url or --profile."""
    if session.options.url or session.options.profile:
        raise click.UsageError(
            "--url and --profile name a server to talk to; --host and --port say where this one listens."
        )
    session.flags.update({f"http.{name}": given.pop(name) for name in ("host", "port")})


@command("serve")
@http_options
def serve(session: "Session", /, **given: Any) -> int:
    """Serve the HTTP API until stopped, and run the maintenance jobs. Tasks are run by workers elsewhere.

    The interface is at /api/v1, its description at /api/v1/openapi.json. Callers authenticate with a token (`ade tokens
    create`) or by signing in; the first start prints a one-time login link.
    """
    store_http_options(session, given)

    async def greet(_app: Ade, _opened: OpenStore, served: "RunningServer") -> None:
        store = without_password(session.settings.store.url)
        if session.out.as_json:
            session.out.record({"serving": True, "store": store, **address_view(served)})
            return
        session.out.note(f"ADE answers. Records are in {store}.")
        print_address(session, served)
        session.out.note("Ctrl-C stops it.")

    return serve_over_http(session, greet, has_tasks=False)


def address_view(served: "RunningServer") -> dict[str, Any]:
    """Return the address as JSON fields, for programs that started the server."""
    return {"url": served.url, **({} if served.login_url is None else {"login_url": served.login_url})}


def cautions(http: HttpSettings) -> list[str]:
    """Return warnings about who else can access the server."""
    found = []
    if http.auth == "off":
        found.append("  open       anyone who can reach it has access, as `local` (http.auth = off)")
    if not is_loopback(http.host):
        found.append("  plain      tokens and passwords can be read on their way here; put a proxy with TLS before it")
    return found


def print_address(session: "Session", served: "RunningServer") -> None:
    """Print the address, warnings, and the sign-in link."""
    out = session.out
    out.note(f"  HTTP       {served.url}/api/v1, described at {served.url}/api/v1/openapi.json")
    for line in cautions(session.settings.http):
        out.note(line)
    if served.login_url is not None:
        out.note(f"  sign in    {served.login_url}")
        out.note("             (as admin; the link works once, within ten minutes;")
        out.note("             `ade users login-link admin --as admin` makes another)")


def worker_options(function: Any) -> Any:
    """Add the worker options. Each sets the setting with its name."""
    for option in (
        click.option("--max-tasks", type=int, help="With --agent: maximum concurrent tasks across all its workers."),
        click.option(
            "--capability",
            "capabilities",
            multiple=True,
            metavar="WORD",
            help="A capability that tasks can require; repeatable, or comma-separated.",
        ),
        click.option("--agents", metavar="TYPE,...", help="Agent types to run; * is all whose program is installed."),
        click.option("--agent", metavar="ID", help="Work for this agent, within its capacity."),
        click.option("--cpu-processes", type=int, help="Concurrent CPU-bound functions; 0 for one per core."),
        click.option("--threads", type=int, help="Concurrent plain functions."),
        click.option("--grace", type=DURATION, help="How long a stopping worker waits for running tasks."),
        click.option("--concurrency", type=int, help="Concurrent tasks per process."),
        click.option("--queues", metavar="QUEUE,...", help="Only these queues; all by default."),
    ):
        function = option(function)
    return function


def store_worker_options(session: "Session", given: dict[str, Any]) -> None:
    """Store the worker options as settings, which are validated together."""
    names = {"grace": "grace_s"}
    given["capabilities"] = ",".join(given["capabilities"]) or None
    session.flags["agents.types"] = given.pop("agents")
    session.flags.update({f"worker.{names.get(name, name)}": value for name, value in given.items()})


@command("worker")
@worker_options
@click.option("--processes", type=int, help="Worker processes to start; a process that dies is restarted.")
def worker(session: "Session", /, **given: Any) -> int:
    """Run the tasks of an app until stopped.

    SIGTERM or Ctrl-C lets it finish running tasks within the grace period, and release the rest; a second one
    ends the grace period. The log goes to stderr. With --url or --profile it works for that server and needs no store.
    """
    store_worker_options(session, given)
    if session.settings.worker.processes > 1:
        return supervise_app(session, [sys.executable, "-m", "ade.cli", "worker"])
    return serve_app(session) if session.server is None else serve_server(session, session.server)


@command("up")
@worker_options
@http_options
def up(session: "Session", /, **given: Any) -> int:
    """Start everything an app needs in one process: a worker, the maintenance jobs, and the HTTP API.

    Ctrl-C or SIGTERM ends it cleanly. With the demo app (`--app ade.demo:ade`) a new store gets a few tasks to start
    with. The first start prints a one-time login link.
    """
    store_http_options(session, given)
    store_worker_options(session, given)

    async def greet(app: Ade, opened: OpenStore, served: "RunningServer") -> None:
        seeded = await _seed_demo(app, opened)
        _say_hello(session, app, seeded, served)

    return serve_over_http(session, greet, has_tasks=True)


async def _seed_demo(app: Ade, opened: OpenStore) -> int:
    """Enqueue the first tasks of the demo app in an empty store. Returns their number."""
    demo = sys.modules.get("ade.demo")
    if demo is None or app is not demo.ade or await opened.stores.queues.tallies():
        return 0
    count: int = await demo.seed()
    return count


def _say_hello(session: "Session", app: Ade, seeded: int, served: "RunningServer") -> None:
    settings, names = session.settings, sorted(app.registry.names())
    store = without_password(settings.store.url)
    if session.out.as_json:
        facts = {"store": store, "app": session.app_spec, "tasks": names, "seeded": seeded}
        session.out.record({"up": True, **facts, "concurrency": settings.worker.concurrency, **address_view(served)})
        return
    out = session.out
    out.note(f"ADE is up. Records are in {store}; everything accepted is stored there.")
    out.note(f"  tasks      {', '.join(names)}")
    if app.schedules:
        schedules = ", ".join(f"{schedule.name} ({schedule.cron})" for schedule in app.schedules)
        out.note(f"  schedules  {schedules}")
    out.note(f"  runs       up to {settings.worker.concurrency} tasks at once")
    print_address(session, served)
    if seeded:
        out.note(f"  to begin   {seeded} demo tasks were enqueued, because the store was empty")
    elsewhere = "" if settings.store.url == Settings().store.url else f" --store {store}"
    out.note("In another terminal, in this folder:")
    out.note(f"  ade enqueue {_easiest(app)}{elsewhere}   enqueues a task; --help shows how to pass arguments")
    out.note(f"  ade tasks{elsewhere}   lists tasks, and `ade top{elsewhere}` watches it")
    out.note("Ctrl-C stops it.")


def _easiest(app: Ade) -> str:
    """Return the name of a task that can be enqueued without arguments, if there is one."""
    plain = [handler.name for handler in app.registry if not handler.signature.parameters.required]
    return min(plain or app.registry.names())
