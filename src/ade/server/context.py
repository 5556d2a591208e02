"""The arguments of every operation (services and request context), and helpers for pages, accounts, and ownership.

An operation is an async function in the `api` module of its feature, declared by the decorator `operation`
(`ade.server.operation`):

    @operation("POST /tasks/{task_id}/cancel", permission=Permission.ENQUEUE, others=Permission.OPERATE)
    async def cancel_task(services: Services, request: RequestContext, task_id: str, body: CancelTask) -> Task:

After the services and the request context come the path parameters, as strings, in their order. Then come `query`, a
Struct of the query string, and `body`, a Struct of the request body, if the route has them. Both reject unknown fields,
and times in them are datetimes. The response is a record in the form of `ade.server.wire_format`, a Page of records, a
VersionedRecord, RawContent, or None for 204. The ETag of a route is the field `version` of the record. An operation
raises an AdeError (or RequestRefused) before it changes anything.

The declaration decides who can call an operation. `request.access is RouteAccess.OWN` limits the caller to their own
objects: `check_own` reports any other object as not found.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct, field, structs

from ade.accounts.authorization import check_fresh_session
from ade.accounts.model import InvalidAccount, Permission, UnknownAccount, normal_id
from ade.approvals.errors import ReauthenticationNeeded
from ade.errors import AdeError, NotPermitted
from ade.events.filters import EventFilter, task_of
from ade.events.model import Event
from ade.server.operation import RouteAccess
from ade.server.pagination import Page, read_cursor, write_cursor
from ade.server.problems import HttpFault, RequestRefused
from ade.stores.ports import Stores
from ade.tasks.model import Definition, Task
from ade.tasks.read_access import ReadScope

if TYPE_CHECKING:  # a command that reads one task loads none of these
    from ade.accounts.model import Caller
    from ade.approvals.rulebook import Rulebook
    from ade.events.audit_copy import AuditLocation
    from ade.events.feed import EventFeed
    from ade.events.metrics import Metrics
    from ade.locks.client import StoreLockClient
    from ade.server.pagination import Position
    from ade.settings import Settings
    from ade.settings.runtime import RuntimeSettings
    from ade.settings.sections import TaskSettings
    from ade.tasks.enqueue import TaskPlan
    from ade.tasks.payloads import Payloads
    from ade.tasks.service import CompletionWatcher


_LATER_S = 10


class Services(Struct, frozen=True, kw_only=True):
    """The store and the services around it that operations use, for one event loop."""

    stores: Stores
    payloads: "Payloads"
    settings: "Settings"
    defaults: "TaskSettings"
    keep: Callable[[Sequence[Task]], Awaitable[list[Task]]]  # store admitted tasks, subject to the guard
    rules: "Callable[[], Awaitable[tuple[Rulebook, RuntimeSettings]]]"  # the rules in force
    names: Callable[[Collection[str]], Awaitable[Mapping[str, Definition]]]  # as workers registered them
    watch: "Callable[[], CompletionWatcher]"  # waits for tasks to finish
    locks: "Callable[[], StoreLockClient]"
    audit: "AuditLocation | None" = None  # None: a store in memory has no audit log
    feed: "EventFeed | None" = None  # only in a server: live events for all streams
    metrics: "Metrics | None" = None  # only in a server
    busy: set[str] = field(default_factory=set)  # the exclusive operations in progress
    plans: "dict[tuple[str, str | None, str | None], tuple[Definition, TaskPlan]]" = field(
        default_factory=dict
    )  # by name and author
    masks: dict[str, Any] = field(default_factory=dict)  # of `ade.server.masking`

    @contextmanager
    def exclusively(self, what: str) -> Iterator[None]:
        """Run one full scan of the store at a time: concurrent scans would block everything else.

        Raises RequestRefused (503) while the same scan is in progress.
        """
        if what in self.busy:
            raise RequestRefused(
                HttpFault.UNAVAILABLE, f"{what} is already in progress; try again later", retry_after=_LATER_S
            )
        self.busy.add(what)
        try:
            yield
        finally:
            self.busy.discard(what)


class RequestContext(Struct, frozen=True, kw_only=True):
    """The caller of an operation and the metadata of the request."""

    actor: str  # for the event log: the account ID, or `cli:name` on a local store
    author: str | None = None  # the author of new tasks and votes: the account ID
    caller: "Caller | None" = None  # None: on a local store, anyone who can open the file may do everything
    access: RouteAccess = RouteAccess.ALLOWED
    key: str | None = None  # the Idempotency-Key, scoped to the account, for new tasks
    if_match: str | None = None
    if_none_match: str | None = None
    tag_required: bool = False  # 428 without If-Match
    wait_s: float = 0.0  # from ?wait= or Prefer
    address: str = ""  # of the client
    login: str = ""  # on a local store: the login name of the person who runs the command, whatever account they name
    user_agent: str = ""
    accept: str = ""  # the Accept header
    trace: str | None = None  # the W3C traceparent of the request, for the tasks that it enqueues
    operation: str = ""  # and the path: for the log
    path: str = ""

    def require(self, permission: "Permission") -> None:
        """Raise NotPermitted unless the caller has this permission, for rules beyond those of the route."""
        if self.caller is not None:
            self.caller.require(permission)

    def check_version(self, current: int | None) -> None:
        """Raise 412 or 428 unless If-Match and If-None-Match allow this version."""
        if self.if_match is not None or self.if_none_match is not None or self.tag_required:
            from ade.server.etags import check_write

            check_write(
                current, if_match=self.if_match, if_none_match=self.if_none_match, is_required=self.tag_required
            )

    def expected_version(self, current: int) -> int | None:
        """Return the version that a write must find; None is any (`If-Match: *`). Raises 412 and 428."""
        self.check_version(current)
        return None if self.if_match is None or self.if_match.strip() == "*" else current


# Pages of lists.


T = TypeVar("T")
# Not part of the filter: the page size can change, and a relative time range has moved by the next request.
_APART = ("cursor", "limit", "created_from", "created_before")


def filters_of(query: Struct) -> dict[str, Any]:
    """Return the filters of a query, without the position and the page size."""
    from ade.server.wire_format import to_wire

    said: dict[str, Any] = msgspec.to_builtins(to_wire(query))
    return {name: value for name, value in said.items() if name not in _APART}


def position(of_list: str, query: Struct) -> "Position | None":
    """Return the position to continue from; None at the beginning. Raises RequestRefused (400)."""
    cursor: str | None = query.cursor  # type: ignore[attr-defined] # every query of a list has one
    if cursor is None:
        return None
    return read_cursor(of_list, filters_of(query), cursor)


def page(
    of_list: str, query: Struct, items: Sequence[T], following: "Position | None", *, is_partial: bool = False
) -> Page[T]:
    """Return a page. `following` is the position of the next page in the store; None at the end."""
    if following is None:
        return Page(items=items)
    return Page(items=items, next=next_cursor(of_list, query, following), is_partial=is_partial or None)


def next_cursor(of_list: str, query: Struct, following: "Position | None") -> str | None:
    """Return the cursor of a position in the store; None at the end."""
    return None if following is None else write_cursor(of_list, filters_of(query), following)


def cut(of_list: str, query: Struct, items: Sequence[T]) -> Page[T]:
    """Return a page of a list that is in memory; positions are numbers."""
    begin = position(of_list, query) or 0
    begin = begin if isinstance(begin, int) and begin >= 0 else 0
    end = begin + query.limit  # type: ignore[attr-defined] # every query of a list has one
    return page(of_list, query, items[begin:end], end if end < len(items) else None)


def acting(request: RequestContext) -> str:
    """Return the account ID of the caller. On a local store it might not exist. Raises InvalidAccount."""
    return normal_id(request.author or request.actor) if request.caller is None else request.caller.user.id


def writer(request: RequestContext) -> str:
    """Return the account that counts as an author of what the request writes, and so cannot approve it."""
    return request.author or request.actor


def voter(request: RequestContext) -> str:
    """Return the account that votes. Raises NotPermitted.

    The routes already exclude service accounts. This check also covers callers that do not come through a route.
    """
    if request.caller is not None and not request.caller.user.is_human:
        raise NotPermitted(f"{request.caller.user.id} is a service account, which cannot vote")
    request.require(Permission.VOTE)
    session = None if request.caller is None else request.caller.session
    if session is not None and session.proves_nothing:
        raise ReauthenticationNeeded(
            f"{session.link_by} created the login link that opened this session, so it does not prove who you are;"
            " enter your password before you vote"
        )
    return acting(request)


def require_fresh_session(services: Services, request: RequestContext) -> None:
    """Raise ReauthenticationNeeded unless the caller has recently given their password in a login session.

    On a local store there is no caller to check: anyone who can write to the file can change everything in it.
    """
    if request.caller is not None:
        within_ms = round(services.settings.http.fresh_session_s * 1000)
        check_fresh_session(request.caller, now=services.stores.clock.now(), within_ms=within_ms)


def account_id(text: str) -> str:
    """Return the account ID in a path. Raises UnknownAccount, also for an invalid name."""
    try:
        return normal_id(text)
    except InvalidAccount:
        raise UnknownAccount(f"no account {text[:100]!r} exists", advice=UnknownAccount.usual_advice) from None


def sign_in_method(request: RequestContext) -> str:
    """Return how a vote was cast (`cli` or `api`), for the record."""
    return "cli" if request.caller is None else "api"


def visible_filter(caller: "Caller | None", wanted: EventFilter) -> EventFilter:
    """Restrict an event filter to the events that this caller can read."""
    return wanted if can_read_access_events(caller) else structs.replace(wanted, hides_access=True)


def can_read_access_events(caller: "Caller | None") -> bool:
    """Return whether the caller can read events of sessions, tokens, and links, as operators can."""
    return caller is None or Permission.OPERATE in caller.permissions


async def check_own(services: Services, request: RequestContext, author: str | None, unknown: AdeError) -> None:
    """Raise `unknown` unless the author is the caller, or a service account that the caller owns.

    An object of another account is reported as not found, so that IDs reveal nothing.
    """
    if request.caller is not None:
        from ade.accounts.authentication import require_own  # loads the account code, which local commands do not need

        await require_own(
            services.stores,
            request.caller,
            author,
            unknown,
            operation=request.operation,
            about=request.path or unknown.detail,
        )


# Limited accounts: what they read of tasks. The rule is in `ade.tasks.read_access`.


def scope_of(caller: "Caller | None") -> ReadScope | None:
    """Return the tasks that the caller reads; None: all of them."""
    if caller is None or caller.reads_everything:
        return None
    user = caller.user
    works = Permission.WORK in user.permissions
    return ReadScope(account=user.id, works=works, queues=user.queues, names=user.names)


async def check_readable(services: Services, caller: "Caller | None", task: Task, unknown: AdeError) -> None:
    """Raise `unknown`, the error for a task that does not exist, unless the caller reads this one."""
    scope = scope_of(caller)
    if scope is not None and not await allows(services, scope, task):
        raise unknown


async def allows(services: Services, scope: ReadScope, task: Task) -> bool:
    """Whether a limited account reads the task. Its parent is read only if that decides."""
    if scope.allows(task):
        return True
    if task.parent_id is None or scope.is_author_alone:
        return False
    [parent] = await services.stores.tasks.get([task.parent_id])
    return scope.allows(task, parent)


async def readable_ids(services: Services, scope: ReadScope, task_ids: Iterable[str]) -> set[str]:
    """Return those of these tasks that exist and that a limited account reads."""
    asked = list(dict.fromkeys(task_ids))
    tasks = [task for task in await services.stores.tasks.get(asked) if task is not None] if asked else []
    above = [task.parent_id for task in tasks if task.parent_id is not None and not scope.allows(task)]
    found = await services.stores.tasks.get(list(dict.fromkeys(above))) if above else []
    parents = {parent.id: parent for parent in found if parent is not None}
    return {task.id for task in tasks if scope.allows(task, parents.get(task.parent_id or ""))}


def may_be_masked(services: Services, caller: "Caller | None") -> bool:
    """Whether payloads must be masked for this caller: `masked_for` of `ade.server.masking` does. Nothing is, for up to
    a second after no secrets were found."""
    if caller is None or Permission.READ_PAYLOADS in caller.permissions:
        return False
    clear_until: float = services.masks.get("clear_until", 0.0)
    return time.monotonic() >= clear_until


async def readable_events(services: Services, caller: "Caller | None", events: Sequence[Event]) -> Sequence[Event]:
    """Return the events that the caller reads: of its tasks, and of what it did itself to anything else."""
    scope = scope_of(caller)
    if scope is None:
        return events
    of_task = [task_of(event) for event in events]
    shown = await readable_ids(services, scope, (task_id for task_id in of_task if task_id is not None))
    return [
        event
        for event, task_id in zip(events, of_task, strict=True)
        if (event.actor == scope.account if task_id is None else task_id in shown)
    ]


def account_of(request: RequestContext) -> str:
    """Return the account that owns the workers and runs of this request. On a local store, the actor."""
    return (request.author or request.actor).replace(":", "-") if request.caller is None else request.caller.user.id
