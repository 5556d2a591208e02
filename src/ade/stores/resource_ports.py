"""The seam for locks: books of who holds what and who waits for it."""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct

from ade.agents.model import Agent, AgentStatus, AgentUse
from ade.errors import StaleWrite
from ade.events.model import Event
from ade.locks.deadlocks import Resolution
from ade.locks.model import LockLimits, LockRequest

if TYPE_CHECKING:  # not free to load, and of use to few
    from ade.agents.conversations.inbox import Inbox, InboxChange, InboxSummary


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


class LockUpdates(Struct, frozen=True):
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

    async def cure(self, namespace: str, cure: Resolution, cycle: tuple[str, ...]) -> LockRequest | None:
        """Open a ring: somebody's wait fails, or somebody goes first; None when things have changed meanwhile."""

    async def find(self, query: LockQuery) -> list[LockRequest]:
        """What stands in the books, dead ones that nobody has met yet included."""

    def follow(self, tell: Callable[[LockUpdates | None], None]) -> Callable[[], None]:
        """Call back on the running loop when requests were let in, gave way or are gone, until what this answers is
        called: with these requests, or with None where it is only known that something has happened.

        News may be lost, as hints may.
        """

    async def called(self, limit: int) -> list[LockRequest]:
        """Unattended requests that were let in or gave way: somebody must fetch whom they are for."""

    async def bury(self, limit: int) -> int:
        """The sweep: remove whose time is over, wherever nobody else looks; how many these were."""


# The seam for agents: who they are, and who holds the units of their capacity.


class AgentStore(Protocol):
    """Every verb is one write. Whoever could not get a unit is told by AGENT when there may be one again.

    A holder is a run; it has one unit, for as long as its lease. Leases that ran out count for nothing.
    """

    async def register(self, agent: Agent, *, keep: Collection[str] = (), event: Event | None = None) -> Agent:
        """Make an agent known, or describe it anew; it is then heard of. Answers how it stands now.

        Of a known one only the fields of DESCRIPTION change, without those in `keep`. The event is entered if one did.
        """

    async def set_status(self, agent_id: str, status: AgentStatus, event: Event | None = None) -> Agent | None:
        """Let it begin new tasks, or no more; None when it is not known. The event is entered if that is news."""

    async def take(
        self, agent_id: str, holders: Sequence[str], *, lease_ms: int, over: Sequence[str] = ()
    ) -> list[str]:
        """Units for as many of these as may have one, in their order; those that have one keep it. None if unknown.

        First the units of those who are `over` are given back.
        """

    def renew(self, agent: Agent, holders: Sequence[str], *, lease_ms: int) -> Agent:
        """Set the leases of these anew, and keep the agent seen. Answers how it stands now.

        A holder whose lease ran out gets one again, whatever the limit: it is at work. An agent that is not known any
        more is entered as it was given.

        Blocking, on a connection of its own: called from the worker's lease thread, never from an event loop.
        """

    async def release(self, agent_id: str, holders: Sequence[str]) -> None:
        """Give units back; those that are gone already are no error."""

    async def list_agents(self) -> list[AgentUse]:
        """All agents by name, with the leases that are live."""

    async def remove(self, agent_id: str, event: Event | None = None) -> bool:
        """Forget an agent and its units; False when it is not known. One that is at work is soon known again."""


# The part of the seam that keeps the inboxes of conversations.


class InboxStore(Protocol):
    """What may be done with an inbox is decided by the core (`core/inbox`); here it is read and written.

    Leases of batches are judged by `Clock.steady()`.
    """

    async def load(self, inbox_id: str, *, outline: bool = False) -> "Inbox":
        """An inbox with all its items, in one read; an empty one of version 0 if it was never used.

        An outline leaves out the content of the items, so that items that cannot be read can be removed. Raises
        InvalidInbox when there can be none of this id, and StoreCorrupt when it cannot be read.
        """

    async def write(self, change: "InboxChange[Any]", write_id: str | None = None) -> None:
        """Write a decided change and the events of its notices as one, and ring INBOX.

        Raises StaleWrite unless the inbox has the version of `change.before`. A change that changes and tells nothing
        is not written. `write_id` is random: a write of the same id, whose answer was lost, may be
        repeated and happens once; without it only the store itself repeats.
        """

    async def ready(self, consumers: frozenset[str], limit: int) -> list[str]:
        """Ids of inboxes that are bound to one of these, have items, and of which no batch is out under a live lease.

        Those whose oldest item has waited longest come first.
        """

    async def list_inboxes(self, after: str, limit: int) -> "list[InboxSummary]":
        """By id, in order of their code points, those after `after`."""

    async def forget_empty(self, before_ms: int, limit: int) -> int:
        """Forget inboxes that are empty and were not written since, their memory and keys too; answer how many.

        On a cluster `limit` is that of each partition.
        """


# Documents: small records of people, rules and settings, kept whole under a kind and an id.


if TYPE_CHECKING:
    MaybeRaw = Raw | None
else:
    MaybeRaw = Raw


class Document(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`body` is JSON. `version` grows by 1 with every write under this kind and id.

    The first version is 1, or above all versions of its kind that were removed: none ever comes again.
    """

    kind: str
    id: str
    body: Raw
    version: int
    expires_at: int | None = None  # from then on it is not there, and may be removed


class DocumentWrite(Struct, frozen=True, kw_only=True):
    """What shall be under a kind and an id. Without a body: nothing.

    `seen` is the version that was read, 0 for none: somebody else's write in between is refused. None overwrites
    whatever is there.
    """

    kind: str
    id: str
    body: MaybeRaw = None
    seen: int | None = 0
    expires_at: int | None = None
    is_quiet: bool = False  # nobody follows it: RULES is not rung for it


def stale(write: DocumentWrite) -> StaleWrite:
    """What to raise when a document is not as it was seen."""
    return StaleWrite(f"the {write.kind} {write.id!r} has changed since it was read; read it again and decide again")


# The part of the seam that keeps documents: users, tokens, sessions, delegations, the rulebook, settings.


class DocumentStore(Protocol):
    async def fetch(self, kind: str, ids: Sequence[str]) -> list[Document | None]:
        """Documents in the order asked; None for those that do not exist or have expired."""

    async def list_documents(self, kind: str) -> list[Document]:
        """All of a kind that have not expired, by id."""

    async def write(self, writes: Sequence[DocumentWrite], events: Sequence[Event] = ()) -> None:
        """Carry out all of these or none, in their order, enter the events that tell of it in the same write, and ring
        RULES unless all are quiet. The events are about no task: a task's id belongs into their payload.

        Raises StaleWrite when a document is not as it was seen, and then nothing is written. Without writes only the
        events are entered.
        """

    async def take_rate(self, key: str, count: int, period_ms: int, *, times: int = 1) -> int:
        """Use up `times` of `count` starts in `period_ms` (GCRA, as for names and locks). 0 if so many were left; else
        in how many milliseconds they will be, and nothing was used up."""

    async def expire_documents(self, limit: int) -> int:
        """Remove documents that have expired, and rates nobody needs any more. Answers how many, `limit` at most."""
