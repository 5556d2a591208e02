"""Options that choose tasks, the same for every command that takes a filter."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypedDict, TypeVar

import click

from ade.cli.times import moment_ms
from ade.core.lifecycle import Status
from ade.core.web.forms.tasks import TaskFilter

F = TypeVar("F", bound=Callable[..., Any])


class Filter(TypedDict):
    """What the options below give to a command."""

    status: tuple[str, ...]
    queue: str | None
    name: str | None
    tag: str | None
    resource: str | None
    text: str | None
    since: str | None


def filter_options(function: F) -> F:
    """Add the options to a command; they come in as keyword arguments of Filter."""
    for option in (
        click.option("--since", metavar="TIME", help="Created since then: 30m, 2h, 7d, or a date and time."),
        click.option("--text", help="Part of the name, description, error message or id."),
        click.option("--resource", metavar="NAME", help="That change or lock this."),
        click.option("--tag", help="With this tag."),
        click.option("--name", help="With this task name."),
        click.option("--queue", help="In this queue."),
        click.option(
            "--status",
            multiple=True,
            type=click.Choice([str(status) for status in Status]),
            help="In this status; may be repeated.",
        ),
    ):
        function = option(function)
    return function


def is_empty(given: Filter) -> bool:
    return not any(given.values())


def chosen(given: Filter, *, now: int) -> TaskFilter:
    """The same as operations take it. Raises InvalidFilter."""
    since = given["since"]
    return TaskFilter(
        status=[Status(status) for status in given["status"]],
        queue=given["queue"],
        name=given["name"],
        tag=given["tag"],
        resource=given["resource"],
        text=given["text"],
        created_from=None if since is None else datetime.fromtimestamp(moment_ms(since, now=now) / 1000, UTC),
    )
