"""The options of a task are declared once: Python, HTTP, files and the command line know the same ones."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec
import pytest
from msgspec import structs

from ade import Backoff, read, write
from ade.approvals.commands.drafts import new as draft_new
from ade.tasks.commands.enqueue import enqueue
from ade.tasks.enqueue import make_plan, template_of
from ade.tasks.options import (
    DEFINITION_OPTIONS,
    JSON_OPTIONS,
    OPTIONS,
    BatchTask,
    DeclaredOptions,
    NewDefinition,
    NewTask,
    TaskOptions,
    definition_of,
    new_definition_of,
    new_task_of,
)
from tests.domain import Definition, TaskSettings

SOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
LATER = SOON + timedelta(hours=1)
TASK_ID = "0199a000-0000-7000-8000-000000000000"

# Every option once: as Python callers write it, and as JSON. The type checker compares the first with `Options`.
PYTHON: TaskOptions = {
    "queue": "mail",
    "priority": 2,
    "delay": timedelta(seconds=90),
    "run_at": SOON,
    "deadline": LATER,
    "key": "letter-7",
    "after": [TASK_ID],
    "after_failure": "run",
    "tags": ("a", "b"),
    "description": "a letter",
    "max_attempts": 4,
    "timeout": timedelta(seconds=9),
    "backoff": Backoff(base_ms=5, cap_ms=50),
    "result_ttl": 60,
    "concurrency_key": "ada",
    "locks": ["smtp:main", read("db:people")],
    "needs": ["smtp"],
    "parent": TASK_ID,
    "author": "ada",
    "author_name": "Ada Lovelace",
    "team": "post",
    "ticket": "T-1",
    "trace": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "approval": "two",
    "resources": ["db:people"],
    "rollback": "manual",
    "start": "by_hand",
    "window": (SOON, LATER),
}
JSON: Mapping[str, Any] = {
    **{name: value for name, value in PYTHON.items() if name not in ("author", "author_name", "window")},
    "delay": 90,
    "run_at": "2030-01-31T12:00:00Z",
    "deadline": "2030-01-31T13:00:00Z",
    "timeout": 9,
    "backoff": {"base_ms": 5, "cap_ms": 50},
    "locks": ["smtp:main", {"resource": "db:people", "mode": "shared"}],
    "approval": ["two"],
}
WINDOW = {"not_before": "2030-01-31T12:00:00Z", "not_after": "2030-01-31T13:00:00Z"}
TEMPLATE = template_of(Definition(name="send"), TaskSettings())

DECLARED: DeclaredOptions = {
    "name": "send",
    "queue": "mail",
    "priority": 2,
    "timeout": timedelta(seconds=9),
    "max_attempts": 4,
    "backoff": Backoff(base_ms=5, cap_ms=50),
    "result_ttl": None,
    "concurrency": 3,
    "rate": "100/m",
    "concurrency_key": lambda to: str(to),
    "concurrency_per_key": 2,
    "needs": ["smtp"],
    "resources": ["smtp:main"],
    "tags": ["mail"],
    "cpu": False,
    "version": "2.1",
}
OF_FUNCTIONS = {"name", "concurrency_key", "cpu"}  # what only code can say, and what a definition is called by


def form_of(**said: Any) -> NewTask:
    return msgspec.json.decode(msgspec.json.encode({"name": "send", **said}), type=NewTask)


def planned(options: Mapping[str, Any]) -> Any:
    given: Any = options
    return make_plan(TEMPLATE, given)


def test_every_interface_knows_the_same_options() -> None:
    assert set(TaskOptions.__annotations__) == set(OPTIONS) == set(PYTHON)
    assert set(JSON) == set(JSON_OPTIONS)
    assert set(DeclaredOptions.__annotations__) - OF_FUNCTIONS == set(DEFINITION_OPTIONS)
    assert set(DECLARED) == set(DeclaredOptions.__annotations__)


@pytest.mark.parametrize("name", sorted(JSON))
def test_an_option_means_the_same_in_python_and_in_json(name: str) -> None:
    ours, theirs = planned({name: PYTHON[name]}), planned(form_of(**{name: JSON[name]}).options())  # type: ignore[literal-required] # any of them

    assert ours == theirs
    assert ours != planned({})


def test_a_window_is_two_times_in_json() -> None:
    ours, theirs = planned({"window": PYTHON["window"]}), planned(form_of(**WINDOW).options())

    assert ours == theirs
    assert ours != planned({})


@pytest.mark.parametrize("name", sorted({*JSON, "window"} - {"delay"}))
def test_a_stored_task_can_be_asked_for_again(name: str) -> None:
    made = planned({name: PYTHON[name]}).template  # type: ignore[literal-required] # any of them
    again = planned(new_task_of(made).options()).template

    assert again == made


@pytest.mark.parametrize("command", [enqueue, draft_new])
def test_the_command_line_has_a_flag_for_each_option_with_a_help_text(command: click.Command) -> None:
    flags = {param.name: param for param in command.params}
    with_flag = {name for name, option in JSON_OPTIONS.items() if option.help} - (
        {"delay"} if command is draft_new else set()
    )

    assert with_flag <= flags.keys()
    assert (JSON_OPTIONS.keys() - with_flag) & flags.keys() == set()
    assert flags["tags"].opts == ["--tag", "--tags"]
    kinds = {name: flags[name].type for name in ("priority", "max_attempts", "timeout", "run_at", "after_failure")}
    assert [kind.name for kind in kinds.values()] == ["priority", "integer", "duration", "time", "choice"]
    rollback = flags["rollback"].type
    assert isinstance(rollback, click.Choice)
    assert list(rollback.choices) == ["automatic", "manual", "none"]


def test_the_help_names_every_field_of_a_line() -> None:
    [listed] = re.findall(r"any of ([\w,\s]+)\.", enqueue.help or "")

    assert set(re.findall(r"\w+", listed)) == set(BatchTask.__struct_fields__) - {"name", "args", "ref", "run"}


@pytest.mark.parametrize("name", sorted(DEFINITION_OPTIONS))
def test_a_definition_means_the_same_in_python_and_in_json(name: str) -> None:
    given = {name: DECLARED[name]}  # type: ignore[literal-required] # any of them
    ours = definition_of("send", given, None)
    wire = msgspec.json.decode(msgspec.json.encode(new_definition_of(ours)), type=NewDefinition)

    assert definition_of("send", wire.options(), None) == ours
    assert ours != definition_of("send", {}, None)


def test_locks_that_are_to_be_written_may_be_bare_names() -> None:
    assert planned({"locks": ["a"]}) == planned({"locks": [write("a")]})
    assert structs.asdict(form_of()).keys() >= JSON.keys()
