"""The seam for locks: books of who holds what and who waits for it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from ade.core.locks.deadlocks import Cure
from ade.core.locks.limits import LockLimits
from ade.core.locks.records import LockRequest


class LockQuery(Struct, frozen=True, kw_only=True):
    """Which lock requests to list. A resource is named together with its namespace.

    `kind` is the part of a name before its first colon: those who hold or wait for such a resource. At most `limit`
    are found; where there are more, which ones these are depends on the store.
    """

    namespace: str | None = None
    owner: str | None = None
    resource: str | None = None
    kind: str | None = None
    limit: int = 1_000


class LockNews(Struct, frozen=True):
    """What became of requests that somebody may be waiting for."""

    settled: tuple[LockRequest, ...] = ()  # let in, or told to give way
    gone: tuple[str, ...] = ()  # ids of those that are in the book no more


class LockStore(Protocol):
    """Books of locks, one for each namespace. Every verb is one write, with the events that tell of it.

    Whoever is found dead on the way is removed and those behind it are let in; then LOCK is rung.
    """

    async def acquire(
        self, request: LockRequest, *, wait_ms: int | None, first_seq: int = 0, limits: LockLimits
    ) -> LockRequest | None:
        """Granted, or in line for so long (None: for ever); None when it would have to wait and must not (0).

        The same request again changes nothing, but has the whole lease if it is granted. Raises TooManyLocks,
        LockRateLimited.
        """

    async def poll(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """Waiters live and ask how they stand; None for those that are gone."""

    async def look(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """How these stand, without changing anything: for many that wait and were told that something happened."""

    async def renew(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """Set the leases of grants anew; None for those that are gone."""

    def renew_blocking(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """The same as renew, for a thread that goes on while an event loop is blocked."""

    def acquire_blocking(self, request: LockRequest, *, wait_ms: int | None, limits: LockLimits) -> LockRequest | None:
        """The same as acquire, by a thread that runs no event loop."""

    def release_blocking(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """The same as release, by a thread that runs no event loop."""

    async def release(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """Let go of grants, or leave the line; None for those that are gone already."""

    async def upgrade(
        self, namespace: str, grant_id: str, resource: str, *, upgrade_id: str, wait_ms: int | None
    ) -> LockRequest | None:
        """From a share to the whole. Raises LockLost, UpgradeDeadlock."""

    async def downgrade(self, namespace: str, grant_id: str, resource: str) -> LockRequest:
        """From the whole to a share. Raises LockLost."""

    async def take_away(self, namespace: str, request_id: str, *, reason: str, by: str) -> LockRequest | None:
        """End a grant or a wait by force; None when it is gone."""

    async def cure(self, namespace: str, cure: Cure, cycle: tuple[str, ...]) -> LockRequest | None:
        """Open a ring: somebody's wait fails, or somebody goes first; None when things have changed meanwhile."""

    async def find(self, query: LockQuery) -> list[LockRequest]:
        """What stands in the books, dead ones that nobody has met yet included."""

    def follow(self, tell: Callable[[LockNews | None], None]) -> Callable[[], None]:
        """Call back on the running loop when requests were let in, gave way or are gone, until what this answers is
        called: with these requests, or with None where it is only known that something has happened.

        News may be lost, as hints may.
        """

    async def called(self, limit: int) -> list[LockRequest]:
        """Unattended requests that were let in or gave way: somebody must fetch whom they are for."""

    async def bury(self, limit: int) -> int:
        """The sweep: remove whose time is over, wherever nobody else looks; how many these were."""
