"""Options that choose tasks, the same for every command that takes a filter."""

from collections.abc import AsyncIterator, Callable
from typing import Any, TypedDict, TypeVar

import click
from msgspec import structs

from ade.cli.times import moment_ms
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.ports import Stores, TaskQuery

F = TypeVar("F", bound=Callable[..., Any])
_PAGE = 500


class Filter(TypedDict):
    """What the options below give to a command."""

    status: tuple[str, ...]
    queue: str | None
    name: str | None
    tag: str | None
    text: str | None
    since: str | None


def filter_options(function: F) -> F:
    """Add the options to a command; they come in as keyword arguments of Filter."""
    for option in (
        click.option("--since", metavar="TIME", help="Created since then: 30m, 2h, 7d, or a date and time."),
        click.option("--text", help="Part of the name, description, error message or id."),
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


def query_of(given: Filter, *, now: int) -> TaskQuery:
    """Raises InvalidFilter."""
    since = given["since"]
    return TaskQuery(
        statuses=frozenset(Status(status) for status in given["status"]),
        queue=given["queue"],
        name=given["name"],
        tag=given["tag"],
        text=given["text"],
        created_from=None if since is None else moment_ms(since, now=now),
    )


async def all_found(stores: Stores, query: TaskQuery) -> AsyncIterator[Task]:
    """Every task that fits, page by page."""
    wanted = structs.replace(query, limit=_PAGE)
    while True:
        page = await stores.tasks.find(wanted)
        for task in page.tasks:
            yield task
        if page.next is None:
            return
        wanted = structs.replace(wanted, after=page.next)
