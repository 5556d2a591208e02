"""The command line as a whole: help, shared options, errors that say what to do, exit codes."""

import click
import pytest

from ade import VERSION
from ade import errors as ade_errors
from ade.cli.exit_codes import MEANS, ExitCode, exit_code_of
from ade.cli.program import COMMANDS
from ade.cli.program import ade as program
from ade.settings import SettingsError
from tests.cli.conftest import Call, work


def every_command() -> list[click.Context]:
    """All commands that do something, each in the context it runs in."""

    def below(command: click.Command, context: click.Context) -> list[click.Context]:
        if not isinstance(command, click.Group):
            return [context]
        found = []
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += below(child, click.Context(child, info_name=name, parent=context))
        return found

    return below(program, click.Context(program, info_name="ade"))


EVERY_COMMAND = every_command()


def test_help_lists_every_command_with_what_it_is_for(ade: Call) -> None:
    answer = ade("--help")

    assert answer.code == 0
    for name, place in COMMANDS.items():
        assert any(line.split() == [name, *place.about.split()] for line in answer.lines), name


@pytest.mark.parametrize("context", EVERY_COMMAND, ids=lambda context: context.command_path)
def test_every_command_has_help_and_takes_the_shared_options(context: click.Context) -> None:
    command = context.command
    options = {name for parameter in command.params for name in parameter.opts}

    assert (command.help or "").strip().endswith((".", "once"))
    assert {"--json", "--quiet", "--store", "--app", "--config"} <= options
    undocumented = [
        parameter.name
        for parameter in command.params
        if isinstance(parameter, click.Option) and not (parameter.help or "").endswith(".")
    ]
    assert undocumented == []


def test_shared_options_may_stand_before_or_behind_the_command(ade: Call) -> None:
    before = ade("--json", "--store", "sqlite:///a.db", "config", "show")
    behind = ade("config", "show", "--store", "sqlite:///a.db", "--json")
    nearest = ade("--store", "sqlite:///b.db", "config", "show", "--store", "sqlite:///a.db", "--json")

    assert before.out == behind.out == nearest.out
    assert before.json["store.url"] == "sqlite:///a.db"


def test_the_version_is_told(ade: Call) -> None:
    assert ade("--version").out == f"ade {VERSION}\n"


def test_nothing_at_all_shows_the_help(ade: Call) -> None:
    answer = ade()

    assert answer.code == 2
    assert "Usage: ade" in answer.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["taks"], "There is no command 'taks'. Did you mean `tasks`?"),
        (["qqq"], "There is no command 'qqq'. `ade --help` shows what it takes."),
        (["tasks", "--limt", "3"], "No such option '--limt'"),
        (["tasks", "--limit", "0"], "Invalid value for '--limit'"),
        (["tasks", "--status", "bogus"], "'bogus' is not one of 'draft'"),
        (["queues", "stop"], "No such command 'stop'"),
        (["show"], "Missing argument 'ID'"),
        (["tasks", "--config", "none.toml"], "'none.toml' does not exist"),
    ],
)
def test_a_slip_on_the_command_line_is_told_with_the_way_to_help(ade: Call, arguments: list[str], says: str) -> None:
    answer = ade(*arguments)

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error[usage]: ")
    assert says in answer.err
    assert "--help` " in answer.err


def test_with_json_errors_are_json_too(ade: Call) -> None:
    answer = ade("tasks", "--status", "bogus", "--json")

    assert answer.error["code"] == "usage"


@pytest.mark.parametrize("group", ["queues", "dlq", "schedules"])
def test_the_name_of_a_group_alone_lists(shop: Call, group: str) -> None:
    shop("enqueue", "send", "address=nowhere")
    shop("schedules", "add", "nightly", "0 3 * * *", "send", "--args", '{"address": "here"}')
    work()

    assert shop(group).lines[0].split() == shop(group, "list").lines[0].split()  # ages make columns wider
    assert shop(group, "--json").json == shop(group, "list", "--json").json


def test_a_time_that_is_none_is_told(shop: Call) -> None:
    answer = shop("tasks", "--since", "yesterday", "--json")

    assert (answer.code, answer.error["code"]) == (2, "invalid_filter")


def test_a_fault_of_ade_itself_shows_no_traceback_unless_asked(ade: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("ade.cli.session.open_stores", broken)
    answer = ade("tasks")
    assert (answer.code, answer.out) == (70, "")
    assert answer.err.startswith("error[internal]: KeyError: 'surprise' (test_command_line.py, line ")
    assert "Traceback" not in answer.err

    monkeypatch.setenv("ADE_DEBUG", "1")
    assert "Traceback (most recent call last)" in ade("tasks").err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ade_errors.AdeError, ExitCode.PROBLEM),
        (ade_errors.TaskFailed, ExitCode.PROBLEM),
        (ade_errors.AuditBroken, ExitCode.PROBLEM),
        (SettingsError, ExitCode.USAGE),
        (ade_errors.InvalidSchedule, ExitCode.USAGE),
        (ade_errors.UnknownTask, ExitCode.NOT_FOUND),
        (ade_errors.StaleLease, ExitCode.CONFLICT),
        (ade_errors.DiskFull, ExitCode.REFUSED),
        (ade_errors.StoreTooNew, ExitCode.STORE),
        (ade_errors.WaitTimeout, ExitCode.TIMED_OUT),
    ],
)
def test_kinds_of_errors_have_their_exit_codes(error: type[ade_errors.AdeError], code: ExitCode) -> None:
    assert exit_code_of(error) is code


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANS) == set(ExitCode)
