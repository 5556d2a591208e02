"""Programs that go on: a worker in this process, or several under a supervisor."""

import gc
from collections.abc import Awaitable, Callable, Sequence

from ade.app.ade import Ade
from ade.app.opening import Opened
from ade.app.working import add_agents
from ade.cli.exit_codes import ExitCode
from ade.cli.loading import BadApp
from ade.cli.session import Session
from ade.logs import configure
from ade.worker.entry import serve
from ade.worker.shutdown import Handover, StopSignals

_OPTIONS = {"agents.types": "agents", "worker.capabilities": "capability"}  # that are not called like their setting
Greeting = Callable[[Ade, Opened], Awaitable[None]]


def serve_app(session: Session, greet: Greeting | None = None) -> ExitCode:
    """Work until told to stop; tell what had to be handed back."""
    app = _app_with_tasks(session)
    configure(session.settings.log.format, session.settings.log.level)
    gc.enable()

    async def work(signals: StopSignals) -> Handover:
        async with app:
            if greet is not None:
                await greet(app, await app.open())
            return await app.work(signals.stop, signals.hurry)

    handover = serve(work)
    _tell(session, handover)
    return ExitCode.PROBLEM if handover.left_behind else ExitCode.OK


def _app_with_tasks(session: Session) -> Ade:
    """The app and its agents; agents alone need no app. Raises BadApp."""
    app = session.any_app
    add_agents(app)
    if app.registry.names():
        return app
    session.app  # noqa: B018 # says so if none was named
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
    _app_with_tasks(session)  # now, so that a mistake is not repeated by every process
    configure(session.settings.log.format, session.settings.log.level)
    arguments = [*command, *_as_arguments(session), "--processes", "1"]
    return ExitCode.PROBLEM if supervise(arguments, count) else ExitCode.OK


def _as_arguments(session: Session) -> list[str]:
    choices = session.choices
    named = {"--app": session.app_spec, "--store": choices.store, "--config": choices.config}
    for name, value in session.flags.items():
        option = _OPTIONS.get(name) or name.removeprefix("worker.").removesuffix("_s").replace("_", "-")
        named[f"--{option}"] = None if value is None or option == "processes" else str(value)
    pairs = [text for option, value in named.items() if value is not None for text in (option, value)]
    return [*pairs, *(["--json"] if choices.json else []), *(["--quiet"] if choices.quiet else [])]
