"""The `ade` program: the table of commands, the entry point, and shell completion.

The module of a command is loaded only when the command is used.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click import Context, HelpFormatter
from click.shell_completion import get_completion_class

from ade import VERSION
from ade.cli.command import AdeGroup, command

if TYPE_CHECKING:
    from ade.cli.exit_codes import ExitCode
    from ade.cli.session import Session


class CommandEntry(NamedTuple):
    """Where a command is defined, as `module:attribute`, and its line in `ade --help`."""

    target: str
    about: str


SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "Run": {
        "up": CommandEntry("ade.cli.serve:up", "Start everything an app needs in one process: worker, sweeps, HTTP."),
        "serve": CommandEntry("ade.cli.serve:serve", "Serve the HTTP API without running the tasks of an app."),
        "worker": CommandEntry("ade.cli.serve:worker", "Run the tasks of an app until stopped."),
        "sweep": CommandEntry(
            "ade.worker.commands.maintenance:sweep", "Run the maintenance jobs without running any task."
        ),
    },
    "Tasks": {
        "run": CommandEntry("ade.agents.commands.run:run", "Run an agent on a prompt, and watch it."),
        "enqueue": CommandEntry("ade.tasks.commands.enqueue:enqueue", "Enqueue a task, or all tasks of a file."),
        "draft": CommandEntry(
            "ade.approvals.commands.drafts:draft", "Create a task that must be approved before it runs."
        ),
        "submit": CommandEntry("ade.approvals.commands.drafts:submit", "Submit a draft for approval."),
        "tasks": CommandEntry("ade.tasks.commands.tasks:tasks", "List tasks, newest first."),
        "show": CommandEntry("ade.tasks.commands.tasks:show", "Show one task: record, attempts, timeline, outcome."),
        "logs": CommandEntry("ade.tasks.commands.lifecycle:logs", "Print the lines a task has written."),
        "wait": CommandEntry("ade.tasks.commands.wait:wait", "Wait until tasks are final and print their results."),
        "explain": CommandEntry("ade.tasks.commands.tasks:explain", "Explain why a task is not running."),
        "cancel": CommandEntry("ade.tasks.commands.lifecycle:cancel", "Stop tasks, by id or by filter."),
        "reschedule": CommandEntry(
            "ade.tasks.commands.lifecycle:reschedule", "Change the priority or start time of pending tasks."
        ),
        "retry": CommandEntry("ade.tasks.commands.dead_letters:retry", "Run failed tasks again with fresh attempts."),
        "dlq": CommandEntry(
            "ade.tasks.commands.dead_letters:dlq", "Dead letters: failed tasks that were not handled yet."
        ),
    },
    "Operate": {
        "queues": CommandEntry("ade.tasks.commands.queues:queues", "List, pause, resume and limit queues."),
        "schedules": CommandEntry(
            "ade.tasks.commands.schedules:schedules", "Tasks that are enqueued on a cron schedule."
        ),
        "locks": CommandEntry("ade.locks.commands:locks", "Who holds and waits for shared resources."),
        "agents": CommandEntry("ade.agents.commands.agents:agents", "Agents and their capacity."),
        "subagents": CommandEntry(
            "ade.agents.commands.agents:subagents", "Agent runs: their parent tasks, progress, and cost."
        ),
        "webhooks": CommandEntry("ade.webhooks.commands:webhooks", "Webhooks: send events to other programs."),
        "hook": CommandEntry("ade.agents.commands.hook:hook", "For hooks of agents: check whether a tool is allowed."),
        "inbox": CommandEntry("ade.agents.commands.inbox:inbox", "Inboxes of conversations."),
        "workers": CommandEntry("ade.worker.commands.workers:workers", "List workers and how they are doing."),
        "events": CommandEntry("ade.events.commands:events", "Read the event log."),
        "stats": CommandEntry("ade.tasks.commands.queues:stats", "Show depths, ages, throughput and workers once."),
        "top": CommandEntry("ade.tasks.commands.queues:top", "Watch depths, throughput and running tasks live."),
    },
    "People": {
        "approvals": CommandEntry(
            "ade.approvals.commands.approvals:approvals", "Tasks that wait for approval: show, approve, reject, start."
        ),
        "notify": CommandEntry(
            "ade.notifications.commands:notify", "Notifications: channels, quiet hours, tests, log."
        ),
        "users": CommandEntry("ade.accounts.commands:users", "Accounts of people and programs, and their permissions."),
        "tokens": CommandEntry("ade.accounts.commands:tokens", "Access tokens of accounts."),
        "whoami": CommandEntry("ade.accounts.commands:whoami", "The account that you act as, and its permissions."),
        "delegations": CommandEntry("ade.approvals.commands.approvals:delegations", "Delegations of reviews."),
        "policies": CommandEntry(
            "ade.approvals.commands.policies:policies", "The rulebook: guard rules, and who must approve what."
        ),
    },
    "Look after": {
        "doctor": CommandEntry("ade.cli.doctor:doctor", "Check settings, store, workers and every invariant."),
        "config": CommandEntry("ade.cli.config:config", "Show the settings in force and where they come from."),
        "features": CommandEntry("ade.cli.config:features", "Switch features on and off at run time."),
        "backup": CommandEntry(
            "ade.worker.commands.maintenance:backup", "Copy the store to a new file while it is in use."
        ),
        "upgrade": CommandEntry(
            "ade.worker.commands.maintenance:upgrade", "Upgrade the store to this version, after a copy was made."
        ),
        "archive": CommandEntry("ade.worker.commands.maintenance:archive", "Archive and prune finished tasks now."),
        "audit": CommandEntry(
            "ade.events.commands:audit", "Verify and export the tamper-evident copy of the event log."
        ),
        "completion": CommandEntry("ade.cli.program:completion", "Print the completion script for a shell."),
    },
}

COMMANDS: dict[str, CommandEntry] = {name: place for section in SECTIONS.values() for name, place in section.items()}


class LazyGroup(AdeGroup):
    """A group that knows its commands by name and loads only the one that is used."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            raise click.UsageError(_no_such_command(args[0]), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, place.about) for name, place in commands.items()], col_max=14)


def _no_such_command(name: str) -> str:
    from difflib import get_close_matches

    nearest = get_close_matches(name, COMMANDS, n=1)
    return f"There is no command {name!r}.{f' Did you mean `{nearest[0]}`?' if nearest else ''}"


@click.group("ade", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="ade", message="%(prog)s %(version)s")
def ade() -> None:
    """ADE: a durable work queue for AI agents.

    `ade up --app ade.demo:ade` starts a demo; `ade enqueue --help` shows how to enqueue work.
    """


def run(arguments: Sequence[str] | None = None) -> "int | ExitCode":
    """Run a command line and return its exit code. A traceback is shown only if ADE_DEBUG is set."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _check_words(given)
        code = _invoke(given)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        from ade.cli.error_report import report

        return report(error, as_json="--json" in given)
    return code


def _check_words(arguments: Sequence[str]) -> None:
    """Reject arguments that are not valid UTF-8, because all stored text is UTF-8."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{word[:60]!r} is not valid UTF-8.") from None


def _invoke(arguments: list[str]) -> int:
    """Do what Click's `main` does, without its handling of Ctrl-C and broken pipes."""
    if "_ADE_COMPLETE" in os.environ:  # the shell requests completions
        ade.main(arguments, prog_name="ade")
    try:
        with ade.make_context("ade", [*arguments]) as context:  # Click empties the list that it is given
            answer: Any = ade.invoke(context)
    except click.exceptions.Exit as asked:  # raised by --help and --version
        return asked.exit_code
    return answer if isinstance(answer, int) else 0


_SHELLS = ("bash", "zsh", "fish")
_HOW = {
    "bash": 'eval "$(ade completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(ade completion zsh)" in ~/.zshrc',
    "fish": "ade completion fish > ~/.config/fish/completions/ade.fish",
}


@command("completion")
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
def completion(session: "Session", shell: str | None) -> None:
    """Print the completion script for a shell; by default for the shell you use.

    \b
      eval "$(ade completion bash)"                               in ~/.bashrc
      eval "$(ade completion zsh)"                                in ~/.zshrc
      ade completion fish > ~/.config/fish/completions/ade.fish   once
    """
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(chosen) if chosen in _SHELLS else None
    if kind is None:
        raise click.UsageError(f"Name the shell: {', '.join(_SHELLS)}.")
    script = kind(ade, {}, "ade", "_ADE_COMPLETE").source()
    if session.out.as_json:
        session.out.document({"shell": chosen, "script": script, "use": _HOW[chosen]})
    else:
        session.out.line(script)
