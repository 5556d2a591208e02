"""What every operation is given, and how it says what it takes and answers.

An operation is an async function in the module of its section, named like its route (`Route.operation`):

    async def cancel_task(office: Office, asked: Asked, task_id: str, body: CancelTask) -> Task:

After `office` and `asked` come the parameters of the path, as text, in their order; then `query`, a Struct of what may
stand behind the question mark, and `body`, a Struct of what is sent, if the route has them. Both are forms
(`ade.core.web.forms`): they refuse unknown fields, and moments in them are datetimes. The answer is a record, whose
form on the wire is that of `ade.core.web.wire`, a Page of them, a Tagged one, Content, or None for 204. Of a route with
a tag the ETag is the field `version` of the record, or that of Tagged. Whatever is wrong is raised as an AdeError (or
RequestRefused), before anything is changed. Secrets of a record are hidden by `hiding.hide`.

Who may call it at all is decided before, by the table of routes. `asked.access is Access.OWN` means that the caller
may do this to his own alone: `check_own` answers for the rest as if it did not exist.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ade.core.records import Definition, Task
from ade.core.web.access import Access
from ade.core.web.answers import Content, Page, Tagged
from ade.ports import Stores

if TYPE_CHECKING:  # commands that look at one task load none of these
    from ade.core.accounts.callers import Caller
    from ade.core.accounts.permissions import Permission
    from ade.core.approvals.rulebook import Rulebook
    from ade.events.audit import AuditPlace
    from ade.events.feed.feed import EventFeed
    from ade.governance.locks.keeper import LockKeeper
    from ade.governance.runtime import Runtime
    from ade.insight.metrics import Metrics
    from ade.queue.defaults import TaskDefaults
    from ade.queue.payloads import Payloads
    from ade.queue.plans import Plan
    from ade.queue.waiting import FinishWatch
    from ade.settings import Settings

__all__ = ["Asked", "Content", "Office", "Page", "Tagged"]


class Office(Struct, frozen=True, kw_only=True):
    """Where operations are carried out: the store, and what goes with it on this event loop."""

    stores: Stores
    payloads: "Payloads"
    settings: "Settings"
    defaults: "TaskDefaults"
    keep: Callable[[Sequence[Task]], Awaitable[list[Task]]]  # store admitted tasks, as the guard says
    rules: "Callable[[], Awaitable[tuple[Rulebook, Runtime]]]"  # those in force
    names: Callable[[Collection[str]], Awaitable[Mapping[str, Definition]]]  # what workers have told of them
    watch: "Callable[[], FinishWatch]"  # who waits for the end of tasks
    locks: "Callable[[], LockKeeper]"
    audit: "AuditPlace | None" = None  # None: what is in memory leaves nothing to audit
    feed: "EventFeed | None" = None  # of a server: live events for many
    metrics: "Metrics | None" = None  # of a server
    busy: set[str] = field(default_factory=set)  # what is done once at a time
    plans: "dict[tuple[str, str | None], tuple[Definition, Plan]]" = field(default_factory=dict)  # by name and author


class Asked(Struct, frozen=True, kw_only=True):
    """Who asks, and how."""

    actor: str  # for the event log: the id of the account, or `cli:name` on a local store
    author: str | None = None  # in whose name new tasks and votes are: the id of the account
    caller: "Caller | None" = None  # None: on a local store whoever can open the file may do all
    access: Access = Access.ALLOWED
    key: str | None = None  # the Idempotency-Key, made the account's own: tasks take it for theirs
    if_match: str | None = None
    if_none_match: str | None = None
    tag_required: bool = False  # 428 without If-Match
    wait_s: float = 0.0  # from ?wait= or Prefer
    address: str = ""  # of the client
    user_agent: str = ""
    accept: str = ""  # the media types that are liked
    trace: str | None = None  # where the request stands in a trace (W3C traceparent), for the tasks that it makes
    operation: str = ""  # which one, and at which address: for the log
    path: str = ""

    def require(self, permission: "Permission") -> None:
        """Raise NotPermitted unless the caller has it; for what the table of routes cannot tell."""
        if self.caller is not None:
            self.caller.require(permission)

    def check_version(self, current: int | None) -> None:
        """Raise 412 or 428 unless this version is the one that is meant (If-Match, If-None-Match)."""
        if self.if_match is not None or self.if_none_match is not None or self.tag_required:
            from ade.core.web.etags import check_write

            check_write(
                current, if_match=self.if_match, if_none_match=self.if_none_match, is_required=self.tag_required
            )
