"""Ports of a store for locks, agents, inboxes, and documents, and their request and result types."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct

from ade.agents.model import Agent, AgentStatus, AgentUse
from ade.errors import StaleWrite
from ade.events.model import Event
from ade.locks.model import LockLimits, LockRequest

if TYPE_CHECKING:  # slow to import, and few processes need them
    from ade.agents.conversations.inbox import Inbox, InboxChange, InboxSummary
    from ade.locks.deadlocks import Resolution


class LockQuery(Struct, frozen=True, kw_only=True):
    """Filters of a list of lock requests. A resource needs its namespace.

    `kind` is the part of a resource name before its first colon. At most `limit` requests are returned; if there are
    more, the store chooses which.
    """

    namespace: str | None = None
    owner: str | None = None
    resource: str | None = None
    kind: str | None = None
    limit: int = 1_000


class LockUpdates(Struct, frozen=True):
    """Changes to lock requests that a waiter might wait for."""

    settled: tuple[LockRequest, ...] = ()  # granted, or chosen as a deadlock victim
    gone: tuple[str, ...] = ()  # IDs of removed requests


class LockStore(Protocol):
    """Lock tables, one for each namespace. Every operation is one write that includes its events.

    An operation also removes the expired requests it finds and grants the lock to the next waiters. Then it sends a
    LOCK wake-up.
    """

    async def acquire(
        self, request: LockRequest, *, wait_ms: int | None, first_seq: int = 0, limits: LockLimits
    ) -> LockRequest | None:
        """Grant the request, or add it to the wait queue for `wait_ms` (None: indefinitely).

        Returns None if it would have to wait and `wait_ms` is 0. Repeating a request changes nothing, except that a
        granted one gets a full lease. Raises TooManyLocks, LockRateLimited.
        """

    async def poll(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """Return the state of waiting requests and keep them alive; None for those that are gone."""

    async def look(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """Return the state of requests without changing anything: for many waiters after a wake-up."""

    async def renew(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """Renew the leases of granted requests; None for those that are gone."""

    def renew_blocking(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """The same as renew, for a thread that keeps running while an event loop is blocked."""

    def acquire_blocking(self, request: LockRequest, *, wait_ms: int | None, limits: LockLimits) -> LockRequest | None:
        """The same as acquire, for a thread without an event loop."""

    def release_blocking(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """The same as release, for a thread without an event loop."""

    async def release(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """Release granted requests, or leave the wait queue; None for those that are already gone."""

    async def upgrade(
        self, namespace: str, grant_id: str, resource: str, *, upgrade_id: str, wait_ms: int | None
    ) -> LockRequest | None:
        """Upgrade a shared lock to an exclusive one. Raises LockLost, UpgradeDeadlock."""

    async def downgrade(self, namespace: str, grant_id: str, resource: str) -> LockRequest:
        """Downgrade an exclusive lock to a shared one. Raises LockLost."""

    async def take_away(self, namespace: str, request_id: str, *, reason: str, by: str) -> LockRequest | None:
        """Force the end of a grant or a wait, and send a LOST wake-up to its holder; None if it is gone."""

    async def cure(self, namespace: str, cure: "Resolution", cycle: tuple[str, ...]) -> LockRequest | None:
        """Resolve a deadlock: abort the victim, let a waiter go first, or take locks back from an unclaimed task.

        None if the cycle has changed meanwhile.
        """

    async def find(self, query: LockQuery) -> list[LockRequest]:
        """Return matching requests, including expired ones that are not yet removed."""

    def follow(self, tell: Callable[[LockUpdates | None], None]) -> Callable[[], None]:
        """Call back on the running loop when requests are granted, aborted, or removed. Returns a function to stop.

        The callback gets these requests, or None if the store only knows that something changed. Like wake-ups,
        updates can be lost.
        """

    async def called(self, limit: int) -> list[LockRequest]:
        """Return granted or aborted requests that no process waits for: their task must be resumed."""

    async def bury(self, limit: int) -> int:
        """Remove expired requests that no other operation finds (used by the sweep). Returns how many."""


class AgentStore(Protocol):
    """Agents and the leases on units of their capacity. Every operation is one write.

    An AGENT wake-up is sent when units might be available again. A holder is a run: it holds one unit until its lease
    expires. Expired leases do not count.
    """

    async def register(self, agent: Agent, *, keep: Collection[str] = (), event: Event | None = None) -> Agent:
        """Register an agent, or update its description, and mark it as seen. Returns the stored agent.

        For a known agent, only the fields of DESCRIPTION change, except those in `keep`. The event is written only if
        a field changed.
        """

    async def set_status(self, agent_id: str, status: AgentStatus, event: Event | None = None) -> Agent | None:
        """Set whether an agent can start new tasks; None if unknown. The event is written only on a change."""

    async def take(
        self, agent_id: str, holders: Sequence[str], *, lease_ms: int, over: Sequence[str] = ()
    ) -> list[str]:
        """Acquire units for as many of these runs as the capacity allows, in order; current holders keep theirs.

        The units of the runs in `over` are released first. An unknown agent has no units.
        """

    def renew(self, agent: Agent, holders: Sequence[str], *, lease_ms: int) -> Agent:
        """Renew the leases of these runs, and mark the agent as seen. Returns the stored agent.

        A holder whose lease has expired gets a new one regardless of the limit, because it is running. An agent that
        was removed is registered again as given.

        Blocking, on a separate connection: called from the lease thread of the worker, never from an event loop.
        """

    async def release(self, agent_id: str, holders: Sequence[str]) -> None:
        """Release units. Units that are already released are ignored."""

    async def list_agents(self) -> list[AgentUse]:
        """Return all agents by name, with their live leases."""

    async def remove(self, agent_id: str, event: Event | None = None) -> bool:
        """Remove an agent and its units; False if unknown. A running agent registers again at its next renewal."""


class InboxStore(Protocol):
    """Reads and writes the inboxes of conversations; `ade.agents.conversations.inbox` decides on changes.

    Batch leases use `Clock.steady()`.
    """

    async def load(self, inbox_id: str, *, outline: bool = False) -> "Inbox":
        """Return an inbox with all its items, in one read; an empty one of version 0 if it was never used.

        An outline omits the content of the items, so that unreadable items can be removed. Raises InvalidInbox if the
        ID is invalid, and StoreCorrupt if the inbox is unreadable.
        """

    async def write(self, change: "InboxChange[Any]", write_id: str | None = None) -> None:
        """Write a decided change and the events of its notices atomically, and send an INBOX wake-up.

        Raises StaleWrite unless the inbox has the version of `change.before`. A change without effect and notices is
        not written. `write_id` is a random idempotency key: a caller can retry a write whose response was lost.
        Without it, only the store itself retries.
        """

    async def ready(self, consumers: frozenset[str], limit: int) -> list[str]:
        """Return the IDs of inboxes of these consumers that have items and no batch under a live lease.

        Inboxes whose oldest item has waited longest come first.
        """

    async def list_inboxes(self, after: str, limit: int) -> "list[InboxSummary]":
        """Return the inboxes after the ID `after`, ordered by ID (by code point)."""

    async def forget_empty(self, before_ms: int, limit: int) -> int:
        """Delete empty inboxes not written since, with their memory and idempotency keys. Returns how many.

        On a cluster, `limit` applies to each partition.
        """


if TYPE_CHECKING:
    MaybeRaw = Raw | None
else:
    MaybeRaw = Raw


class Document(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A small record, identified by kind and ID. `body` is JSON. `version` grows by 1 with every write.

    The first version is 1, or above all removed versions of its kind, so that no version is ever reused.
    """

    kind: str
    id: str
    body: Raw
    version: int
    expires_at: int | None = None  # from then on it counts as missing, and can be deleted


class DocumentWrite(Struct, frozen=True, kw_only=True):
    """A write of one document. Without a body, it removes the document.

    `seen` is the version that was read, 0 for no document: a concurrent write in between causes a rejection. None
    overwrites any version.
    """

    kind: str
    id: str
    body: MaybeRaw = None
    seen: int | None = 0
    expires_at: int | None = None
    is_quiet: bool = False  # without subscribers: no RULES wake-up is sent


def stale(write: DocumentWrite) -> StaleWrite:
    """Return the error for a document that has changed since it was read."""
    return StaleWrite(f"the {write.kind} {write.id!r} has changed since it was read; read it again and decide again")


class DocumentStore(Protocol):
    """Documents (users, tokens, sessions, delegations, rulebook, settings) and rate limits by key."""

    async def fetch(self, kind: str, ids: Sequence[str]) -> list[Document | None]:
        """Return documents in the given order; None for those that do not exist or have expired."""

    async def list_documents(self, kind: str) -> list[Document]:
        """Return all unexpired documents of a kind, by ID."""

    async def write(self, writes: Sequence[DocumentWrite], events: Sequence[Event] = ()) -> None:
        """Write all of these in order, or none, together with the events; send a RULES wake-up unless all are quiet.

        The events do not belong to a task: put a task ID into the payload. Raises StaleWrite if a document has changed
        since it was seen, and then nothing is written. Without writes, only the events are written.
        """

    async def take_rate(self, key: str, count: int, period_ms: int, *, times: int = 1) -> int:
        """Consume `times` of `count` calls per `period_ms` (GCRA, as for names and locks).

        Returns 0 on success. Otherwise nothing is consumed, and it returns the milliseconds to wait.
        """

    async def expire_documents(self, limit: int) -> int:
        """Delete expired documents and unused rate limit state. Returns how many, at most `limit`."""
