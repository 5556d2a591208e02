"""The options that tell more about a new task: shared by `ade enqueue` and `ade draft`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ade.cli.identity import acting, as_option
from ade.cli.ids import find_ids
from ade.cli.naming import unknown_name
from ade.cli.parsing import DURATION, JSON_OBJECT, MOMENT
from ade.cli.session import Session
from ade.core.errors import UnknownName
from ade.core.records import AfterFailure, Task

if TYPE_CHECKING:  # `--help` comes without them
    from ade.app.ade import Ade
    from ade.client.client import Client
    from ade.queue.options import Options

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


async def chosen_options(api: "Client", said: "Options") -> "Options":
    """With whole ids."""
    if "after" not in said:
        return said
    return {**said, "after": await find_ids(api, [str(task_id) for task_id in said["after"]])}


async def make_task(
    session: Session,
    app: "Ade | None",
    api: "Client",
    name: str,
    arguments: dict[str, Any],
    options: "Options",
    *,
    draft: bool,
    allow_unknown: bool,
) -> Task:
    """The stored task, as the app makes it or else the server. Raises UnknownName with what may have been meant."""
    try:
        if app is None:
            fields = form_fields(options)
            return await api.create_task(name=name, args=arguments, draft=draft, allow_unknown=allow_unknown, **fields)
        make = app.draft if draft else app.enqueue
        options = {**options, "author": acting(session)}
        return await api.get_task((await make(name, arguments, allow_unknown=allow_unknown, **options)).id)
    except UnknownName:
        raise await unknown_name(session, api, name) from None


def form_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the form of a new task names and takes them."""
    fields: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in options.items()
    }
    if "window" in fields:
        fields["not_before"], fields["not_after"] = fields.pop("window")
    if "after_failure" in fields:
        fields["after_failure"] = AfterFailure(fields["after_failure"])
    if isinstance(fields.get("approval"), str):
        fields["approval"] = [fields["approval"]]
    return fields


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
