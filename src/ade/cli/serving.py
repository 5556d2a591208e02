"""Programs that go on: a worker in this process, or several under a supervisor."""

import gc
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ade.app.ade import Ade
from ade.app.opening import Opened
from ade.app.working import add_agents
from ade.cli.exit_codes import ExitCode
from ade.cli.loading import BadApp
from ade.cli.session import Session
from ade.core.errors import NeedsStore
from ade.core.webhooks.names import QUEUE as WEBHOOKS
from ade.logs import configure
from ade.worker.entry import serve
from ade.worker.shutdown import Handover, StopSignals

if TYPE_CHECKING:
    from ade.app.serving import Served
    from ade.cli.servers import Server

_OPTIONS = {"agents.types": "agents", "worker.capabilities": "capability"}  # that are not called like their setting
Greeting = Callable[[Ade, Opened, "Served"], Awaitable[None]]


def serve_app(session: Session) -> ExitCode:
    """Work until told to stop; tell what had to be handed back."""
    app = _app_with_tasks(session)

    async def work(signals: StopSignals) -> Handover:
        async with app:
            return await app.work(signals.stop, signals.hurry)

    return _served(session, work)


def serve_server(session: Session, server: "Server") -> ExitCode:
    """The same behind HTTP: work for a server, without a store."""
    from ade.app.remote_worker.working import work_over_http

    if session.settings.agents.types:
        raise NeedsStore("agents run in workers on the store itself, not behind HTTP; do without --agents, or --url")
    app = _app_alone(session)

    async def work(signals: StopSignals) -> Handover:
        return await work_over_http(
            app, server.url, signals.stop, signals.hurry, token=server.token, allow_plain=server.allow_plain
        )

    return _served(session, work)


def serve_over_http(session: Session, greet: Greeting, *, has_tasks: bool) -> ExitCode:
    """The same, and answer over HTTP meanwhile. Without tasks of an app it does what belongs to ADE itself alone."""
    from ade.app.open_files import allow_many_files
    from ade.app.serving import open_socket, serve_http, spare_collections

    allow_many_files()
    app = _app_with_tasks(session) if has_tasks else _app_of_ade_itself(session)
    listening = open_socket(session.settings.http)  # before the store is made: an address in use is told at once

    async def work(signals: StopSignals) -> Handover:
        async with app, serve_http(app, listening, signals.hurry) as served:
            spare_collections()
            await greet(app, await app.open(), served)
            return await app.work(signals.stop, signals.hurry, queues=None if has_tasks else [WEBHOOKS])

    return _served(session, work)


def _app_of_ade_itself(session: Session) -> Ade:
    """Without tasks and without agents: those are for workers elsewhere, whose queues it must not touch."""
    settings = session.settings
    return Ade(
        settings=structs.replace(settings, agents=structs.replace(settings.agents, types=(), profiles={}, folders=()))
    )


def _served(session: Session, work: Callable[[StopSignals], Coroutine[Any, Any, Handover]]) -> ExitCode:
    configure(session.settings.log.format, session.settings.log.level)
    gc.enable()
    handover = serve(work)
    _tell(session, handover)
    return ExitCode.PROBLEM if handover.left_behind else ExitCode.OK


def _app_with_tasks(session: Session) -> Ade:
    """The app and its agents; agents alone need no app. Raises BadApp."""
    app = session.any_app
    add_agents(app)
    return app if app.registry.names() else _app_alone(session)


def _app_alone(session: Session) -> Ade:
    """Raises BadApp if none was named, or it has no tasks."""
    app = session.app
    if app.registry.names():
        return app
    raise BadApp(f"app {session.app_spec!r} has no tasks; is the module imported that defines them?")


def _tell(session: Session, handover: Handover) -> None:
    out = session.out
    if out.as_json:
        out.record({"stopped": True, "handed_back": handover.handed_back, "left_behind": handover.left_behind})
        return
    if handover.handed_back:
        out.note(f"Handed back {len(handover.handed_back)} unfinished tasks: {', '.join(handover.handed_back)}")
    if handover.left_behind:
        out.note(
            f"The store could not be told about {len(handover.left_behind)} tasks; others take them over when their"
            f" leases run out: {', '.join(handover.left_behind)}"
        )


def supervise_app(session: Session, command: Sequence[str]) -> ExitCode:
    """Several processes of the same command, each with one worker. A wrong app is told of once, here."""
    from ade.worker.processes import supervise

    count = session.settings.worker.processes
    look = _app_with_tasks if session.server is None else _app_alone
    look(session)  # now, so that a mistake is not repeated by every process
    configure(session.settings.log.format, session.settings.log.level)
    arguments = [*command, *_as_arguments(session), "--processes", "1"]
    return ExitCode.PROBLEM if supervise(arguments, count) else ExitCode.OK


def _as_arguments(session: Session) -> list[str]:
    choices = session.choices
    named = {"--app": session.app_spec, "--store": choices.store, "--config": choices.config}
    named |= {"--url": choices.url, "--profile": choices.profile}
    for name, value in session.flags.items():
        option = _OPTIONS.get(name) or name.removeprefix("worker.").removesuffix("_s").replace("_", "-")
        named[f"--{option}"] = None if value is None or option == "processes" else str(value)
    pairs = [text for option, value in named.items() if value is not None for text in (option, value)]
    return [*pairs, *(["--json"] if choices.json else []), *(["--quiet"] if choices.quiet else [])]
