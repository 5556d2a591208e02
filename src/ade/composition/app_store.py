"""The store of an app, opened on first use from any thread or event loop, and the services on top of it."""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import structs

from ade.accounts.model import normal_id
from ade.approvals.guard import GuardOccasion
from ade.approvals.repository import RulebookCache, written_in_run
from ade.approvals.review_requests import inheriting
from ade.approvals.rulebook import Rulebook, passes
from ade.approvals.run_gates import check_on_stale_rules
from ade.approvals.submission import store_held
from ade.common.calls import Portal
from ade.composition.audit import audit_place
from ade.composition.stores import lock_limits, payloads_of
from ade.locks.client import StoreLockClient
from ade.locks.holder import LockHolder
from ade.server.context import Services
from ade.settings import USER_VARIABLE, Settings
from ade.settings.runtime import TASK_TIMEOUT, RuntimeSettings, RuntimeSettingsCache
from ade.stores.ports import Stores
from ade.tasks.definitions import DefinitionCache
from ade.tasks.enqueue import check_cycles, store, store_blocking
from ade.tasks.model import Task
from ade.tasks.service import CompletionWatcher
from ade.worker.instrumentation import current_run

if TYPE_CHECKING:
    from ade.agents.background import BackgroundTasks
    from ade.app.ade import Ade
    from ade.events.feed import EventFeed
    from ade.events.metrics import Metrics


class LoopServices:
    """Caches and clients of one event loop that uses the store."""

    def __init__(self, stores: Stores, settings: Settings) -> None:
        self.watch = CompletionWatcher(stores, lambda: self.locks.client.task_waits)
        self.names = DefinitionCache(stores)
        self._stores = stores
        self._settings = settings
        self._locks: LockHolder[StoreLockClient] | None = None
        self.agents: BackgroundTasks | None = None  # running on this loop; created with the first Task tool
        self.rules = RulebookCache(stores)
        self.runtime = RuntimeSettingsCache(stores)

    @property
    def locks(self) -> LockHolder[StoreLockClient]:
        """The lock client, created on first use. For code on this loop."""
        if self._locks is None:
            limits, finds_rings = lock_limits(self._settings), self._settings.locks.deadlock_detection
            self._locks = LockHolder(StoreLockClient(self._stores, limits=limits, finds_rings=finds_rings))
        return self._locks

    def fresh_rules(self) -> tuple[Rulebook, RuntimeSettings] | None:
        """Return the cached rules and settings for new tasks, for any thread; None if they must be read."""
        rulebook, runtime = self.rules.fresh(), self.runtime.fresh()
        return None if rulebook is None or runtime is None else (rulebook, runtime)

    async def close(self) -> None:
        """Stop background agents and release locks. For code on this loop."""
        if self.agents is not None:
            await self.agents.close()
        if self._locks is not None:
            await self._locks.close()


class OpenStore:
    """An open store with its payloads and the services of each event loop."""

    def __init__(self, stores: Stores, settings: Settings, author: str | None = None) -> None:
        self.stores = stores
        self.author = author  # of tasks that name none
        self._settings = settings
        self.payloads = payloads_of(stores, settings)
        self._sides: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopServices] = WeakKeyDictionary()
        self._rules_side: LoopServices | None = None  # of the loop that read the rules last, for threads
        self.blocking_locks: LockHolder[StoreLockClient] | None = None  # on the portal loop, for threads without a loop

    async def store(self, tasks: Sequence[Task]) -> list[Task]:
        """Store admitted tasks; the guard can hold them for approval. The store wakes a worker. Raises Denied."""
        side, is_stale = self.side, False
        self._rules_side = side
        rules = side.fresh_rules()
        if rules is None:
            (rulebook, is_stale), (runtime, _) = await asyncio.gather(side.rules.latest(), side.runtime.latest())
        else:
            rulebook, runtime = rules
        tasks, run = self._authored(tasks), current_run.get()
        if TASK_TIMEOUT in runtime.values:
            tasks = runtime.limited(tasks)
        for task in tasks:
            if not passes(task, rulebook):
                if is_stale:
                    check_on_stale_rules(task, rulebook, GuardOccasion.ENQUEUE, GuardOccasion.RUN)
                    continue
                if run is not None:
                    tasks = await written_in_run(self.stores, run.task_id, tasks)
                return await store_held(self.stores, self.payloads, tasks, rulebook)
        return await store(self.stores, self.payloads, tasks)

    async def keep(self, tasks: Sequence[Task]) -> list[Task]:
        """The same as `store`, after a check for dependency cycles."""
        check_cycles(tasks)
        return await self.store(tasks)

    async def current_rules(self) -> tuple[Rulebook, RuntimeSettings]:
        """Return the current rules and settings. Threads can store tasks directly while these are fresh."""
        side = self._rules_side = self.side
        return side.fresh_rules() or await asyncio.gather(side.rules.current(), side.runtime.current())

    def store_blocking(self, tasks: Sequence[Task], portal: Portal) -> list[Task]:
        """The same as `store` for a thread without an event loop: directly if possible, else through the portal."""
        rules = None if self._rules_side is None else self._rules_side.fresh_rules()
        if rules is None:
            return portal.run(self.store(tasks))
        rulebook, runtime = rules
        tasks = self._authored(tasks)
        if TASK_TIMEOUT in runtime.values:
            tasks = runtime.limited(tasks)
        for task in tasks:
            if not passes(task, rulebook):
                return portal.run(self.store(tasks))
        stored = store_blocking(self.stores, self.payloads, tasks)
        return portal.run(self.store(tasks)) if stored is None else stored

    def _authored(self, tasks: Sequence[Task]) -> Sequence[Task]:
        """Name the author: in a handler, that of the run's task, or else that of this app."""
        run = current_run.get()
        if run is not None:
            tasks = [
                task if task.parent_id == run.task_id else inheriting(task, run.author, run.writers) for task in tasks
            ]
        if self.author is None:
            return tasks
        return [structs.replace(task, author_id=self.author) if task.author_id is None else task for task in tasks]

    @property
    def side(self) -> LoopServices:
        """The services of the running event loop."""
        loop = asyncio.get_running_loop()
        side = self._sides.get(loop)
        if side is None:
            side = self._sides[loop] = LoopServices(self.stores, self._settings)
        return side


def default_author(settings: Settings, named: str | None = None) -> str | None:
    """Return the account that writes the tasks of this process: the named one, ADE_USER, or the setting task.author.

    Raises InvalidAccount.
    """
    name = named or os.environ.get(USER_VARIABLE) or settings.task.author
    return normal_id(name) if name else None


class StoreOpener:
    """Opens a store once: the first caller opens it and the others wait. After a failure, the next caller retries."""

    def __init__(self, open_store: Callable[[], Awaitable[OpenStore]]) -> None:
        self._open_store = open_store
        self._lock = threading.Lock()
        self._pending: Future[OpenStore] | None = None
        self.opened: OpenStore | None = None
        os.register_at_fork(after_in_child=partial(_forget_parents_store, weakref.ref(self)))

    async def open(self) -> OpenStore:
        while self.opened is None:
            with self._lock:
                pending, first = self._pending, self._pending is None
                if pending is None:
                    pending = self._pending = Future()
            if first:
                return await self._open_for_all(pending)
            try:
                return await asyncio.shield(asyncio.wrap_future(pending))
            except asyncio.CancelledError:
                if not pending.cancelled():
                    raise  # this caller was cancelled, not the one that opens the store
        return self.opened

    async def _open_for_all(self, pending: "Future[OpenStore]") -> OpenStore:
        try:
            opened = await self._open_store()
        except asyncio.CancelledError:
            self._pending = None
            pending.cancel()
            raise
        except BaseException as error:
            self._pending = None
            pending.set_exception(error)
            raise
        self.opened = opened
        pending.set_result(opened)
        return opened

    async def close(self) -> None:
        """Close the store if it is open. The next use of the app opens it again."""
        with self._lock:
            opened, self.opened, self._pending = self.opened, None, None
        if opened is not None:
            await opened.side.close()
            await opened.stores.close()


_parents: list[OpenStore | None] = []  # never closed in a forked child: that could break connections of the parent


def _forget_parents_store(reference: "weakref.ref[StoreOpener]") -> None:
    """A store cannot be used across a fork, so the child opens its own."""
    opening = reference()
    if opening is not None:
        _parents.append(opening.opened)
        opening.opened = opening._pending = None


def services_of_app(
    app: "Ade", opened: OpenStore, feed: "EventFeed | None" = None, metrics: "Metrics | None" = None
) -> Services:
    """Return the services of operations on the store of an app. For code on the running event loop."""
    return _services(opened, app.settings, feed, metrics)


def services_on_store(stores: "Stores", settings: "Settings") -> Services:
    """The same as `services_of_app` for an open store without an app."""
    return _services(OpenStore(stores, settings, default_author(settings)), settings)


def _services(
    opened: OpenStore, settings: "Settings", feed: "EventFeed | None" = None, metrics: "Metrics | None" = None
) -> Services:
    is_volatile = settings.store.url == "memory://" and settings.events.audit_url is None
    return Services(
        stores=opened.stores,
        payloads=opened.payloads,
        settings=settings,
        defaults=settings.task,
        keep=opened.keep,
        rules=opened.current_rules,
        names=lambda names: opened.side.names.including(names),
        watch=lambda: opened.side.watch,
        locks=lambda: opened.side.locks.client,
        audit=None if is_volatile else audit_place(settings),
        feed=feed,
        metrics=metrics,
    )
