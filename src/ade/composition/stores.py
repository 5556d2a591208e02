"""Opens stores by URL: in full, for reading only, and for the renewal of leases by a watchdog."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import Struct

from ade.agents.model import Agent
from ade.common.gcra import read_rate
from ade.common.text import without_password
from ade.errors import InvalidUrl, StoreMissing, StoreReadOnly
from ade.locks.model import LockLimits
from ade.server.context import Services
from ade.settings import Settings
from ade.settings.sections import TaskSettings
from ade.stores.ports import Clock, Renewal, Stores, UpgradedStore
from ade.stores.sqlite.files import audit_file, check_may_create, place_of
from ade.tasks.model import Worker
from ade.tasks.payloads import Payloads

_REDIS = ("redis://", "rediss://", "redis+sentinel://", "redis+cluster://")


def store_exists(url: str) -> bool:
    """Return whether a store exists at a URL. Always True for stores that are not files."""
    if url == "memory://" or not url.startswith("sqlite:"):
        return True
    file = file_of(url)
    return exists(file) and not (file is not None and _is_blank(file))


def file_of(url: str) -> Path | None:
    """Return the file of a SQLite URL; None for a store in memory."""
    place = place_of(url)
    return None if place is None else place.path


def exists(file: Path | None) -> bool:
    """Return False only if the file is missing. If it is inaccessible, opening it raises the proper error."""
    try:
        return file is None or bool(file.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _is_blank(file: Path) -> bool:
    """Return whether the file is empty and has no write-ahead log, so that it is not a store yet."""
    try:
        return file.is_file() and file.stat().st_size == 0 and not file.with_name(f"{file.name}-wal").exists()
    except OSError:
        return False


def _missing(url: str) -> StoreMissing:
    """Return the error for a store that does not exist. Raises it if files next to it show that there was one."""
    place = place_of(url)
    if place is not None:
        check_may_create(place, audit_file(url))
    return StoreMissing(f"there is no store at {file_of(url)}", advice=StoreMissing.usual_advice)


async def open_stores(
    url: str,
    settings: Settings | None = None,
    clock: Clock | None = None,
    *,
    must_exist: bool = False,
    store_id: str = "",
) -> Stores:
    """Open the store at a URL. Raises InvalidUrl.

    With `must_exist`, raises StoreMissing instead of creating it; with `store_id`, also StoreReplaced if it is another.
    """
    if (must_exist or store_id) and not store_exists(url):
        raise _missing(url)
    settings = settings or Settings()
    open_it, _ = _backend(url)
    if url.startswith(_REDIS):
        return await open_it(url, settings.redis, clock, limits=settings.limits)
    return await open_it(url, settings.store, clock, limits=settings.limits, store_id=store_id)


def _backend(url: str) -> tuple[Callable[..., Awaitable[Stores]], Callable[..., Awaitable[UpgradedStore]]]:
    """Return the functions that open and upgrade a store. Imports only the backend in use. Raises InvalidUrl."""
    if url.startswith(_REDIS):
        from ade.stores.redis.store import open_redis, upgrade_redis

        return open_redis, upgrade_redis
    if url == "memory://" or url.startswith("sqlite:"):
        from ade.stores.sqlite.store import open_sqlite, upgrade_sqlite

        return open_sqlite, upgrade_sqlite
    raise InvalidUrl(
        f"store URL {without_password(url)!r} is not supported: use sqlite:///path/to/file.db, memory://, redis://host:port,"
        " rediss://, redis+sentinel:// or redis+cluster://"
    )


async def upgrade_store(url: str, settings: Settings, copy_to: Path | None = None) -> UpgradedStore:
    """Upgrade a store to the schema of this release, after a copy of it was made. Raises StoreMissing, StoreTooNew."""
    if not store_exists(url):
        raise _missing(url)
    _, upgrade = _backend(url)
    return await upgrade(url, settings.redis if url.startswith(_REDIS) else settings.store, copy_to)


async def upgrade_if_allowed(settings: Settings) -> UpgradedStore | None:
    """Upgrade an existing store if the setting store.upgrade allows it, before a process works on it. None if not."""
    url = settings.store.url
    return await upgrade_store(url, settings) if settings.store.upgrade and store_exists(url) else None


def lock_limits(settings: Settings) -> LockLimits:
    """Return the lock limits of the settings."""
    locks = settings.locks
    acquires, per_ms = read_rate(locks.acquire_rate) or (None, None)
    return LockLimits(
        waiters_per_resource=locks.waiters_per_resource,
        requests_per_owner=locks.requests_per_owner,
        acquires=acquires,
        acquires_per_ms=per_ms,
    )


def open_read_only(url: str, settings: Settings) -> Stores | None:
    """Open a store that is fast to load and readable without an event loop; None if that is not possible."""
    if not url.startswith("sqlite:") or not store_exists(url):
        return None
    from ade.stores.sqlite.read_only_store import open_read_only_store as open_file

    blob_dir = settings.store.blob_dir
    return open_file(url, None if blob_dir is None else Path(blob_dir))


def read_only_services(stores: Stores, settings: Settings) -> Services:
    """Assemble services whose methods that write or wait raise StoreReadOnly. They need no event loop."""
    return Services(
        stores=stores,
        payloads=payloads_of(stores, settings),
        settings=settings,
        defaults=TaskSettings(),
        keep=_refuse,
        rules=_refuse,
        names=_refuse,
        watch=_refuse,
        locks=_refuse,
    )


def _refuse(*_: object) -> NoReturn:
    raise StoreReadOnly("this store was opened read-only; open it for writing to change it or to wait")


def payloads_of(stores: Stores, settings: Settings) -> Payloads:
    """Return the payloads of a store, with the limits of the settings."""
    store = settings.store
    return Payloads(stores.blobs, store.inline_limit_kb << 10, store.payload_limit_mb << 20)


# Lease renewal by the watchdog process of a worker, which opens its own store, and only when needed.


RENEWER = f"{__name__}:renewer"


class StoreLocation(Struct, frozen=True):
    """The store URL and settings to open a store with."""

    url: str
    settings: Settings
    store_id: str = ""


class WatchdogStoreSpec(Struct, frozen=True):
    """The data that a worker passes to its watchdog process."""

    worker: Worker
    lease_ms: int
    store: str
    agent: Agent | None = None


def renewer(about: str) -> "StoreRenewer":
    """Open the store for the watchdog of a worker."""
    spec = msgspec.json.decode(about, type=WatchdogStoreSpec)
    location = msgspec.json.decode(spec.store, type=StoreLocation)
    from ade.logs import configure  # logging takes 3 ms, which commands that only read do not need

    configure(location.settings.log.format, location.settings.log.level)  # its lines appear among those of the worker
    return StoreRenewer(spec, location)


class StoreRenewer:
    """What a watchdog does on the store instead of its worker."""

    def __init__(self, spec: WatchdogStoreSpec, location: StoreLocation) -> None:
        self._spec = spec
        self._location = location
        self._stores = asyncio.run(self._open())

    async def _open(self) -> Stores:
        """Open the worker's own store: never another one, and never a new one."""
        location = self._location
        return await open_stores(location.url, location.settings, must_exist=True, store_id=location.store_id)

    def renew(self, runs: Mapping[str, str], claiming: Sequence[str] = ()) -> Renewal:
        """Renew the leases of runs (run ID -> task ID), and those of a claim in progress."""
        spec, stores = self._spec, self._stores
        renewal = stores.workers.renew(spec.worker, runs, lease_ms=spec.lease_ms, claiming=claiming)
        if spec.agent is not None:
            stores.agents.renew(spec.agent, [*runs, *claiming], lease_ms=spec.lease_ms)
        return renewal

    def give_back(self, runs: Mapping[str, str], claiming: Sequence[str]) -> int:
        """Return tasks to the queue that the worker cannot start: held ones, and those of a claim in progress."""

        async def give_back() -> int:
            from ade.worker.sweep import return_unstarted

            stores = await self._open()  # for this event loop
            try:
                return await return_unstarted(stores, self._spec.worker, {*runs, *claiming})
            finally:
                await stores.close()

        return asyncio.run(give_back())
