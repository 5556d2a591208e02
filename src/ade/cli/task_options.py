"""The options that tell more about a new task: shared by `ade enqueue` and `ade draft`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ade.cli.identity import as_option
from ade.cli.ids import find_ids
from ade.cli.parsing import DURATION, JSON_OBJECT, MOMENT
from ade.core.records import AfterFailure
from ade.ports import Stores

if TYPE_CHECKING:  # `--help` comes without them
    from ade.app.options import Options

F = TypeVar("F", bound=Callable[..., Any])
_ROLLBACKS, _STARTS = ("automatic", "manual", "none"), ("at_once", "by_hand")

_WHAT = (
    click.option("--args", "arguments", type=JSON_OBJECT, metavar="JSON", help="The arguments as one JSON object."),
    click.option("--queue", help="Another queue than the task's own."),
    click.option("--priority", type=int, help="0 goes first, 9 last; 5 is usual."),
)
_WHEN = (
    click.option("--delay", type=DURATION, help="Not before so long from now (30s, 5m)."),
    click.option("--at", "run_at", type=MOMENT, metavar="TIME", help="Not before this date and time."),
    click.option("--deadline", type=DURATION, help="Of no use if it has not begun so long from now."),
)
_HOW = (
    click.option("--key", help="Idempotency key: of all tasks with the same key, name and queue one is stored."),
    click.option("--after", multiple=True, metavar="ID", help="Wait for this task; may be repeated."),
    click.option(
        "--after-failure",
        type=click.Choice([str(way) for way in AfterFailure]),
        help="If such a task does not complete.",
    ),
    click.option(
        "--tag", "--tags", "tags", multiple=True, help="A word to find it by; may be repeated, or use commas."
    ),
    click.option(
        "--needs",
        multiple=True,
        metavar="WORD",
        help="Only a worker that can do this; may be repeated, or use commas.",
    ),
    click.option("--description", help="A sentence for people."),
    click.option("--timeout", type=DURATION, help="The longest its first run may take."),
    click.option("--max-attempts", type=int, help="How often it is run at most."),
    click.option("--lock", "locks", multiple=True, metavar="NAME", help="Run with this locked; may be repeated."),
    click.option(
        "--read-lock", "read_locks", multiple=True, metavar="NAME", help="Share this lock with other readers."
    ),
)
_APPROVAL = (
    click.option("--approval", multiple=True, metavar="POLICY", help="People must approve it under this policy first."),
    click.option("--resource", "resources", multiple=True, metavar="NAME", help="It changes this; may be repeated."),
    click.option("--rollback", type=click.Choice(_ROLLBACKS), help="How it is undone if it fails."),
    click.option("--start", type=click.Choice(_STARTS), help="What is next once it is approved."),
    click.option("--window", type=MOMENT, nargs=2, metavar="FROM TO", help="It may start between these two times."),
    as_option,
    click.option("--allow-unknown", is_flag=True, help="Take a name that no app and no worker has defined."),
)


def task_options(command: F) -> F:
    """Those of a task that is to run."""
    return _with(command, (*_WHAT, *_WHEN, *_HOW, *_APPROVAL))


def draft_options(command: F) -> F:
    """Those of a draft: a delay would begin before anybody has looked at it."""
    return _with(command, (*_WHAT, *_WHEN[1:], *_HOW, *_APPROVAL))


def _with(command: F, options: tuple[Callable[[F], F], ...]) -> F:
    for option in reversed(options):
        command = option(command)
    return command


async def chosen_options(stores: Stores, said: "Options", author: str) -> "Options":
    """With whole ids, and with whose task it is."""
    options: Options = {**said, "author": author}
    if "after" in options:
        options["after"] = await find_ids(stores, [str(task_id) for task_id in options["after"]])
    return options


def said_options(given: dict[str, Any]) -> "Options":
    """Only what was said; `()` means that a repeatable option was not given."""
    said = {name: value for name, value in given.items() if value is not None and value != ()}
    for words in said.keys() & {"tags", "needs"}:
        said[words] = tuple(word.strip() for each in said[words] for word in each.split(",") if word.strip())
    if read_locks := said.pop("read_locks", ()):
        from ade.core.locks.wishes import read

        said["locks"] = (*said.get("locks", ()), *(read(name) for name in read_locks))
    options: Options = said  # type: ignore[assignment] # each option above is named after the key it sets
    return options
