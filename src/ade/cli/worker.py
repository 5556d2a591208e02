"""`ade worker`: run the tasks of an app."""

import sys
from typing import Any

import click

from ade.cli.parsing import DURATION
from ade.cli.serving import serve_app, serve_server, supervise_app
from ade.cli.session import Session
from ade.cli.shared import command, pass_session


def worker_options(function: Any) -> Any:
    """Options that say how a worker works; each stands for the setting of its name."""
    for option in (
        click.option("--max-tasks", type=int, help="With --agent: tasks it may have at once in all its workers."),
        click.option(
            "--capability",
            "capabilities",
            multiple=True,
            metavar="WORD",
            help="It can do this: tasks may need it; may be repeated, or use commas.",
        ),
        click.option("--agents", metavar="TYPE,...", help="Agent types to run; * is all whose program is installed."),
        click.option("--agent", metavar="ID", help="Work for this agent, within its capacity."),
        click.option("--cpu-processes", type=int, help="CPU-bound functions at once; 0 is one per core."),
        click.option("--threads", type=int, help="Plain functions at once."),
        click.option("--grace", type=DURATION, help="How long a stopping worker waits for what is running."),
        click.option("--concurrency", type=int, help="Tasks that one process runs at once."),
        click.option("--queues", metavar="QUEUE,...", help="Only these queues; all otherwise."),
    ):
        function = option(function)
    return function


def keep_worker_options(session: Session, given: dict[str, Any]) -> None:
    """As settings, where the rules between them are checked."""
    names = {"grace": "grace_s"}
    given["capabilities"] = ",".join(given["capabilities"]) or None
    session.flags["agents.types"] = given.pop("agents")
    session.flags.update({f"worker.{names.get(name, name)}": value for name, value in given.items()})


@command("worker")
@worker_options
@click.option("--processes", type=int, help="Worker processes to start; one that dies is started again.")
@pass_session
def worker(session: Session, /, **given: Any) -> int:
    """Run the tasks of an app until told to stop.

    SIGTERM or Ctrl-C lets it finish what is running, for the time of grace, and hand back the rest; a second one makes
    it hurry. What it does is logged to stderr. With --url or --profile it works for that server and needs no store.
    """
    keep_worker_options(session, given)
    if session.settings.worker.processes > 1:
        return supervise_app(session, [sys.executable, "-m", "ade.cli", "worker"])
    return serve_app(session) if session.server is None else serve_server(session, session.server)
