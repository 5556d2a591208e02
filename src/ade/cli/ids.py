"""Abbreviated task IDs: any unique prefix or suffix identifies a task."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ade.cli.exit_codes import ExitCode
from ade.errors import AdeError, UnknownTask
from ade.tasks.identifiers import is_task_id

if TYPE_CHECKING:
    from ade.client.client import Client


LEAST = 6  # characters; an ID starts with a timestamp and ends with random digits
_MOST_SHOWN = 5


class AmbiguousId(AdeError):
    """Several tasks have an id like this. Give more of it."""

    code = "ambiguous_id"
    exit_code = ExitCode.USAGE


async def find_id(api: "Client", text: str) -> str:
    """Return the full ID; a full ID is returned unchanged. Raises UnknownTask and AmbiguousId."""
    wanted = text.strip().lower().lstrip("…")
    if is_task_id(wanted):
        return wanted
    if len(wanted) < LEAST or not set(wanted) <= set("0123456789abcdef-"):
        raise UnknownTask(
            f"{text[:60]!r} is not a task id: give a whole one, or at least {LEAST} characters of its beginning or end"
        )
    found = await _ids_like(api, wanted)
    if not found:
        raise UnknownTask(
            f"no task has an id that begins or ends with {text[:60]!r}; `ade tasks` lists the stored tasks"
        )
    if len(found) > 1:
        shown = ", ".join(found[:_MOST_SHOWN]) + (" and more" if len(found) > _MOST_SHOWN else "")
        raise AmbiguousId(f"{text!r} matches {shown}; give more of the id")
    return found[0]


async def find_ids(api: "Client", texts: Sequence[str]) -> list[str]:
    """Return the full IDs without duplicates. Raises UnknownTask and AmbiguousId."""
    return list(dict.fromkeys([await find_id(api, text) for text in texts]))


async def _ids_like(api: "Client", wanted: str) -> list[str]:
    """Return enough matches to detect ambiguity."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await api.list_tasks(text=wanted, limit=100, cursor=cursor)
        found += [task.id for task in page.items if task.id.startswith(wanted) or task.id.endswith(wanted)]
        cursor = page.next
        if cursor is None or len(found) > _MOST_SHOWN:
            return found
