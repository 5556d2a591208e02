"""What keeps a task from its locks: who holds them, and who waited earlier."""

from ade.core.locks.of_tasks import request_id
from ade.core.locks.records import DEFAULT_NAMESPACE, LockRequest, conflict, place_in_line
from ade.core.locks.wishes import Wish
from ade.core.records import Task
from ade.insight.reasons import Reason, listed
from ade.ports import LockQuery, Stores


async def locks_in_the_way(stores: Stores, task: Task) -> Reason | None:
    """None when nobody has, or waited earlier for, what the task wants; or when it was let in already."""
    own_id = request_id(task)
    [own] = await stores.locks.look(DEFAULT_NAMESPACE, [own_id])
    if own is not None and own.is_granted:
        return None
    holders: dict[str, list[str]] = {}
    ahead: dict[str, int] = {}
    for wish in task.locks:
        standing = await stores.locks.find(LockQuery(namespace=DEFAULT_NAMESPACE, resource=wish.resource))
        against = [one for one in standing if one.id != own_id and _is_against(one, wish, stores.clock.steady())]
        held_by = [_named(one) for one in against if one.is_granted]
        if held_by:
            holders[wish.resource] = held_by
        before = [one for one in against if one.is_waiting and _is_before(one, own)]
        if before:
            ahead[wish.resource] = len(before)
    if not holders and not ahead:
        return None
    return Reason(code="locked", sentence=_sentence(task, holders, ahead), facts={"holders": holders, "ahead": ahead})


def _sentence(task: Task, holders: dict[str, list[str]], ahead: dict[str, int]) -> str:
    modes = {wish.resource: wish.mode for wish in task.locks}
    parts = []
    for resource in sorted(holders.keys() | ahead.keys()):
        what = f"the lock on {resource} ({modes[resource]})"
        who = f", held by {listed(holders[resource])}" if resource in holders else ""
        line = f", with {ahead[resource]} before it in line" if resource in ahead else ""
        parts.append(what + who + line)
    return f"it waits for {'; '.join(parts)}"


def _named(request: LockRequest) -> str:
    return f"{request.owner} ({request.purpose})" if request.purpose else request.owner


def _is_against(other: LockRequest, wish: Wish, steady: int) -> bool:
    mode = other.mode_of(wish.resource)
    return mode is not None and conflict(mode, wish.mode) and other.lease_until > steady


def _is_before(other: LockRequest, own: LockRequest | None) -> bool:
    return own is None or place_in_line(other) < place_in_line(own)
