"""Open approvals and recent tasks of each author, counted in documents that are written before a gate is opened.

A task that waits for approval is entered before it is stored, under the version of the documents that were read, so
concurrent requests see each other. A task that was entered, and whose gate was then not written, counts for a minute.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, structs

from ade.accounts.model import Directory
from ade.approvals.errors import TooManyApprovals
from ade.approvals.model import MAX_POLICY_MS
from ade.approvals.review_requests import account_of, review_of
from ade.common.patterns import folded
from ade.settings.runtime import RuntimeSettings
from ade.stores.ports import Stores
from ade.stores.repository import Repository, StoredRecord
from ade.stores.resource_ports import DocumentWrite
from ade.tasks.lifecycle import Status
from ade.tasks.model import Task

_MOST_TASKS = 256  # remembered for each author and resource; far fewer make a risk high
_MOST_RESOURCES = 32  # of one task, the most critical
_BEING_STORED_MS = 60_000
_WAITING = frozenset({Status.SUBMITTED, Status.REVIEWING})
_ROOM = 32  # entries that can be added before those that are no longer open are looked for

R = TypeVar("R", bound=Struct)


class RecentTask(Struct, frozen=True, array_like=True):
    """When a task was submitted for approval, and how many changes its preview listed."""

    at: int
    changes: int = 0


class ResourceUse(Struct, frozen=True, kw_only=True):
    """The recent tasks of one author on one resource."""

    tasks: dict[str, RecentTask] = {}
    until: int = 0


class OpenApprovals(Struct, frozen=True, kw_only=True):
    """The tasks of one author that wait for approval, and when each was entered. Some of them may be decided."""

    tasks: dict[str, int] = {}
    open: int = 0  # when they were last looked at
    until: int = 0


_USES = Repository("resource_use", ResourceUse, lambda use: use.until)
_OPEN = Repository("open_approvals", OpenApprovals, lambda found: found.until)


class RecentUse(Struct, frozen=True):
    """How much one author did to one resource within the window."""

    tasks: int = 0
    changes: int = 0


class ApprovalUsage:
    """The counts for some tasks, as read; `write` stores what was entered, all or nothing."""

    def __init__(self, stores: Stores, runtime: RuntimeSettings, directory: Directory, window_ms: int) -> None:
        self._stores = stores
        self._runtime = runtime
        self._directory = directory
        self._window_ms = window_ms
        self._uses: dict[str, StoredRecord[ResourceUse]] = {}
        self._open: dict[str, StoredRecord[OpenApprovals]] = {}
        self._changed: dict[tuple[str, str], DocumentWrite] = {}

    async def recent(self, task: Task, resources: Sequence[str]) -> Mapping[str, RecentUse]:
        """Return what other tasks of the same author did to these resources within the window."""
        since, own = self._stores.clock.now() - self._window_ms, _key(task)
        uses = await self._uses_of(task, resources)
        found: dict[str, RecentUse] = {}
        for resource, (_, stored) in uses.items():
            others = [each for key, each in stored.record.tasks.items() if key != own and each.at > since]
            found[resource] = RecentUse(len(others), sum(each.changes for each in others))
        return found

    async def enter(self, task: Task, resources: Sequence[str], changes: int) -> None:
        """Count this task, once, among those that changed these resources."""
        now = self._stores.clock.now()
        for use_id, stored in (await self._uses_of(task, resources)).values():
            tasks = {key: each for key, each in stored.record.tasks.items() if each.at > now - self._window_ms}
            tasks[_key(task)] = RecentTask(now, changes)
            newest = dict(sorted(tasks.items(), key=lambda item: item[1].at)[-_MOST_TASKS:])
            record = ResourceUse(tasks=newest, until=now + self._window_ms)
            self._uses[use_id] = structs.replace(stored, record=record)
            self._put(_USES, use_id, self._uses[use_id])

    async def _uses_of(self, task: Task, resources: Sequence[str]) -> dict[str, tuple[str, StoredRecord[ResourceUse]]]:
        person = _person_behind(account_of(task.author_id or ""), self._directory)
        ids = {each: _digest(person, folded(each)) for each in resources[:_MOST_RESOURCES]}
        await self._load(_USES, self._uses, ids.values(), ResourceUse())
        return {resource: (use_id, self._uses[use_id]) for resource, use_id in ids.items()}

    async def open_approval(self, *tasks: Task) -> None:
        """Count these tasks among the open approvals of their authors. Raises TooManyApprovals.

        A task that is open already is not counted again.
        """
        for author in dict.fromkeys(account_of(task.author_id or "") for task in tasks):
            new = [task.id for task in tasks if account_of(task.author_id or "") == author]
            await self._open_for(author, new)

    async def _open_for(self, author: str, new: Sequence[str]) -> None:
        now, open_id = self._stores.clock.now(), _digest(author)
        await self._load(_OPEN, self._open, [open_id], OpenApprovals())
        stored = self._open[open_id]
        before, count = stored.record.tasks, stored.record.open
        added = [task_id for task_id in new if task_id not in before]
        limit = self._limit(author)
        if added and len(before) + len(added) > min(limit, 2 * count + _ROOM):
            before = await self._still_open(before, now)
            count = len(before)
            if count + len(added) > limit:
                raise TooManyApprovals(
                    f"{author or 'the author without a name'} has {count} approvals open, and the limit is {limit};"
                    " nothing was stored"
                )
        tasks = before | dict.fromkeys(added, now)
        record = OpenApprovals(tasks=tasks, open=count, until=now + MAX_POLICY_MS)
        self._open[open_id] = structs.replace(stored, record=record)
        self._put(_OPEN, open_id, self._open[open_id])

    def _limit(self, author: str) -> int:
        account = self._directory.get(author)
        is_agent = account is not None and not account.is_human
        return round(self._runtime.get(f"approval.max_open_per_{'agent' if is_agent else 'author'}"))

    async def _still_open(self, tasks: Mapping[str, int], now: int) -> dict[str, int]:
        found = await self._stores.tasks.get(list(tasks))
        return {
            task_id: at
            for (task_id, at), task in zip(tasks.items(), found, strict=True)
            if _is_open(task) or (at > now - _BEING_STORED_MS and not _was_decided(task, at))
        }

    async def _load(
        self, repository: Repository[R], known: dict[str, StoredRecord[R]], ids: Iterable[str], empty: R
    ) -> None:
        missing = [each for each in dict.fromkeys(ids) if each not in known]
        if missing:
            found = await repository.each(self._stores, missing)
            known.update({each: stored or StoredRecord(empty, 0) for each, stored in zip(missing, found, strict=True)})

    def _put(self, repository: Repository[R], record_id: str, stored: StoredRecord[R]) -> None:
        write = repository.put(record_id, stored.record, seen=stored.version)
        self._changed[repository.kind, record_id] = structs.replace(write, is_quiet=True)

    async def write(self) -> None:
        """Store what was entered. Raises StaleWrite if another request was faster; then everything is read again."""
        if self._changed:
            await self._stores.documents.write(list(self._changed.values()))


def _is_open(task: Task | None) -> bool:
    if task is None:
        return False
    gate = review_of(task).gate
    return task.status in _WAITING or (not task.is_final and gate is not None and gate.is_undecided)


def _was_decided(task: Task | None, since: int) -> bool:
    """Whether the approval for which a task was entered was decided; otherwise its gate is still being written."""
    gate = None if task is None else review_of(task).gate
    return gate is not None and gate.decided_at is not None and gate.decided_at >= since


def _person_behind(account: str, directory: Directory) -> str:
    """Return who answers for an account: the programs of one person count together."""
    seen = {account}
    while (known := directory.get(account)) is not None and known.owner and known.owner not in seen:
        account = known.owner
        seen.add(account)
    return directory.who(account)


def _key(task: Task) -> str:
    """The same for a request that is repeated under its idempotency key; another one for each replay."""
    key = task.id if task.idempotency_key is None else _digest(task.queue, task.name, task.idempotency_key)
    return key if task.generation <= 1 else f"{key}.{task.generation}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]
