"""Dead letters: failed tasks that are neither replayed nor discarded, grouped by fingerprint and changed in bulk."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from msgspec import Raw, Struct, structs

from ade.errors import InvalidTask
from ade.stores.ports import Stores, TaskQuery
from ade.tasks.bulk import BulkReport, ReplayOne, change_matching, discard_some, replay_some
from ade.tasks.decisions import UnknownFingerprint, fingerprint, pattern
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

_PAGE, _BUDGET = 200, 1_000  # tasks that one call of the store returns, and examines
_EXAMPLES = 5
_NO_ARGS = Raw(b"{}")


class DeadLetterGroup(Struct, frozen=True, kw_only=True):
    """Dead letters that failed in the same way."""

    fingerprint: str
    name: str
    error_type: str
    pattern: str  # the message with everything that varies taken out
    count: int
    first_at: int
    last_at: int
    newest: tuple[str, ...]  # ids of a few, newest first


async def groups(stores: Stores, query: TaskQuery | None = None, *, most: int | None = None) -> list[DeadLetterGroup]:
    """Group dead letters by fingerprint, largest group first. `most` limits the scan to the newest ones."""
    found: dict[str, list[Task]] = {}
    async for task in dead_letters(stores, query, most=most):
        bare = structs.replace(task, args=_NO_ARGS, preview=None, review=None, progress=None)  # to bound memory
        found.setdefault(fingerprint_of(task), []).append(bare)
    made = [_group(key, tasks) for key, tasks in found.items()]
    return sorted(made, key=lambda group: (-group.count, group.fingerprint))


async def dead_letters(
    stores: Stores, query: TaskQuery | None = None, *, most: int | None = None
) -> AsyncIterator[Task]:
    """Yield the dead letters that match the query, newest first. `most` limits how many tasks are examined; such a
    search takes turns with others."""
    examined, wanted = 0, structs.replace(_dead(query), limit=_PAGE, budget=None if most is None else _BUDGET)
    while True:
        page = await stores.tasks.find(wanted)
        for task in page.tasks:
            yield task
        examined += max(page.examined, len(page.tasks))
        if page.next is None or (most is not None and examined >= most):
            return
        wanted = structs.replace(wanted, after=page.next)


def _dead(query: TaskQuery | None) -> TaskQuery:
    return structs.replace(query or TaskQuery(), statuses=frozenset({Status.FAILED}), discarded=False)


async def replay_all(
    stores: Stores,
    query: TaskQuery | None = None,
    *,
    replay_one: ReplayOne,
    same_as: str | None = None,
    limit: int | None = None,
    actor: str | None = None,
) -> tuple[BulkReport, int | None]:
    """Replay all matching dead letters, each with fresh attempts. Those that would be refused alone are refused here
    too, and do not count for the limit. Also returns the position from which the next call continues; None at the end.
    """

    async def some(tasks: Sequence[Task]) -> BulkReport:
        return await replay_some(stores, tasks, replay_one, actor=actor)

    return await _change_all(stores, query, same_as, limit, some)


async def discard_all(
    stores: Stores,
    reason: str,
    query: TaskQuery | None = None,
    *,
    same_as: str | None = None,
    limit: int | None = None,
    actor: str | None = None,
) -> tuple[BulkReport, int | None]:
    """Discard all matching dead letters and record the reason. Returns the same as `replay_all`."""
    if not reason.strip():
        raise InvalidTask("give a reason for discarding the tasks; it is stored with them")

    async def some(tasks: Sequence[Task]) -> BulkReport:
        return await discard_some(stores, tasks, reason, actor=actor)

    return await _change_all(stores, query, same_as, limit, some)


async def _change_all(
    stores: Stores,
    query: TaskQuery | None,
    same_as: str | None,
    limit: int | None,
    some: Callable[[Sequence[Task]], Awaitable[BulkReport]],
) -> tuple[BulkReport, int | None]:
    """Change the oldest first: a task comes after its dependencies, and finds them running again."""
    wanted = structs.replace(_dead(query), oldest_first=True)
    fits = None if same_as is None else lambda task: fingerprint_of(task) == same_as
    return await change_matching(stores, wanted, some, limit=limit, fits=fits)


def unknown_fingerprint(asked: str) -> UnknownFingerprint:
    """Build the error for a fingerprint that no dead letter has."""
    detail = f"no dead letter has the fingerprint {asked[:60]!r}"
    return UnknownFingerprint(detail, advice=UnknownFingerprint.usual_advice)


def fingerprint_of(task: Task) -> str:
    """Return the fingerprint of a failed task; "unknown" without an error."""
    return fingerprint(task.name, task.error) if task.error is not None else "unknown"


def _group(key: str, tasks: Sequence[Task]) -> DeadLetterGroup:
    ended = [task.finished_at or task.updated_at for task in tasks]
    newest = sorted(tasks, key=lambda task: task.finished_at or task.updated_at, reverse=True)
    error = newest[0].error
    return DeadLetterGroup(
        fingerprint=key,
        name=newest[0].name,
        error_type=error.type if error is not None else "unknown",
        pattern=pattern(error.message) if error is not None else "",
        count=len(tasks),
        first_at=min(ended),
        last_at=max(ended),
        newest=tuple(task.id for task in newest[:_EXAMPLES]),
    )
