"""What may be done with locks. Each verb is carried out on a Book, which is then written as a whole."""

from msgspec import structs

from ade.core.errors import LockLost, UpgradeDeadlock
from ade.core.locks.asking import UNATTENDED_LEASE_MS, WAITER_LEASE_MS
from ade.core.locks.book import (
    ACQUIRED,
    DEADLOCK,
    DOWNGRADED,
    EXPIRED,
    LOST,
    QUEUED,
    RELEASED,
    Book,
)
from ade.core.locks.limits import Crowd, LockLimits, has_too_many, rate_after, too_many_wait
from ade.core.locks.records import FRONT, LockItem, LockRequest, LockState, rank_of
from ade.core.locks.wishes import LockMode


def acquire(
    book: Book,
    request: LockRequest,
    *,
    wait_ms: int | None,
    first_seq: int = 0,
    crowd: Crowd | None = None,
    limits: LockLimits | None = None,
) -> LockRequest | None:
    """Granted at once, or in line for at most `wait_ms`; None when it would have to wait and must not (0).

    The same request again tells how it stands and costs nothing; whoever asks for an unattended one has fetched it.
    `first_seq` is the age of a request that gave way in a deadlock: it takes up its old place.
    """
    known = book.get(request.id)
    if known is not None and not book.is_dead(known):
        return _fetched(book, known)
    crowd, limits = crowd or Crowd(), limits or LockLimits()
    full_at = rate_after(crowd, limits, request.owner, book.steady_ms)
    if crowd.of_owner >= limits.requests_per_owner:
        raise has_too_many(request.owner, crowd.of_owner)
    if full_at is not None:
        book.rates[request.owner] = full_at
    book.seq += 1
    seq = first_seq if 0 < first_seq < book.seq else book.seq
    asked = structs.replace(
        request,
        state=LockState.WAITING,
        seq=seq,
        rank=rank_of(seq, request.priority),
        asked_at=book.now_ms,
        lease_until=_waits_until(book, request),
        wait_until=None if wait_ms is None else book.steady_ms + wait_ms,
    )
    _look_after(book, asked)
    granted = book.grant(structs.replace(asked, unattended=False), ACQUIRED) if book.is_free_for(asked) else None
    book.settle()
    if granted is not None or wait_ms == 0:
        return granted
    if crowd.waiting >= limits.waiters_per_resource and not asked.unattended:
        raise too_many_wait(asked.resources, crowd.waiting)
    book.put(asked)
    book.tell(QUEUED, asked)
    return asked


def _fetched(book: Book, known: LockRequest) -> LockRequest:
    """Somebody is there for it now: the lease of a grant begins anew, and an unattended one in line lives on."""
    if known.is_granted:
        lease_until = max(known.lease_until, book.steady_ms + known.ttl_ms)
        fetched = structs.replace(known, unattended=False, lease_until=lease_until)
    elif not known.unattended:
        return known
    elif known.is_waiting:
        fetched = structs.replace(known, lease_until=_waits_until(book, known))
    else:
        fetched = structs.replace(known, unattended=False)
    if fetched != known:
        book.put(fetched)
    return fetched


def _waits_until(book: Book, request: LockRequest) -> int:
    return book.steady_ms + (UNATTENDED_LEASE_MS if request.unattended else WAITER_LEASE_MS)


def poll(book: Book, request_id: str) -> LockRequest | None:
    """A waiter says that it lives, and hears how it stands: also that it gave way. None when nothing is known of it."""
    request = _alive(book, request_id)
    if request is None:
        return None
    if request.is_waiting:
        book.put(structs.replace(request, lease_until=_waits_until(book, request)))
        _look_after(book, request)
    book.settle()
    return book.get(request_id)


def renew(book: Book, request_id: str, ttl_ms: int | None = None) -> LockRequest | None:
    """Set the lease of a grant anew; None when it is gone. A renewal never brings a lock back."""
    grant = _alive(book, request_id)
    book.settle()
    if grant is None or not grant.is_granted:
        return None
    ttl = grant.ttl_ms if ttl_ms is None else ttl_ms
    lease_until = max(grant.lease_until, book.steady_ms + ttl)
    renewed = structs.replace(grant, ttl_ms=ttl, lease_until=lease_until, heartbeats=grant.heartbeats + 1)
    book.put(renewed)
    return renewed


def release(book: Book, request_id: str) -> LockRequest | None:
    """Let go of a grant, or leave the line; None when that has happened already."""
    request = _alive(book, request_id)
    if request is not None:
        book.remove(request, RELEASED)
    book.settle()
    return request


def take_away(book: Book, request_id: str, *, reason: str, by: str) -> LockRequest | None:
    """An operator ends somebody's lock, or wait, by force."""
    request = _alive(book, request_id)
    if request is not None:
        book.remove(request, LOST, reason=reason, by=by)
    book.settle()
    return request


def upgrade(book: Book, grant_id: str, resource: str, *, upgrade_id: str, wait_ms: int | None) -> LockRequest | None:
    """The exclusive lock for one who has a share: at once if nobody else has one, else before everybody in line.

    Answers the grant when it is exclusive, or the upgrade that waits; None when it would have to wait and must not.
    """
    grant = _alive(book, grant_id)
    mode = None if grant is None else grant.mode_of(resource)
    if grant is None or not grant.is_granted or mode is None:
        raise LockLost(f"the lock on {resource} is not held any more")
    if mode is LockMode.EXCLUSIVE:
        return grant
    other = _first_upgrade(book, resource)
    if other is not None and other.upgrades == grant_id:
        return other
    if other is not None:
        raise UpgradeDeadlock(f"{other.owner} holds a share of {resource} too and waits for yours to end")
    book.seq += 1
    asked = structs.replace(
        grant,
        id=upgrade_id,
        items=(LockItem(resource, LockMode.EXCLUSIVE),),
        upgrades=grant_id,
        state=LockState.WAITING,
        seq=book.seq,
        rank=FRONT,
        asked_at=book.now_ms,
        granted_at=None,
        lease_until=book.steady_ms + WAITER_LEASE_MS,
        wait_until=None if wait_ms is None else book.steady_ms + wait_ms,
        heartbeats=0,
    )
    widened = book.grant(asked, ACQUIRED) if book.is_free_for(asked) else None
    book.settle()
    if widened is not None or wait_ms == 0:
        return widened
    book.put(asked)
    book.tell(QUEUED, asked)
    return asked


def downgrade(book: Book, grant_id: str, resource: str) -> LockRequest:
    """Keep a share of what was exclusive, at once. Its token is good for reading; a writer's will be higher."""
    grant = _alive(book, grant_id)
    if grant is None or not grant.is_granted or grant.mode_of(resource) is None:
        raise LockLost(f"the lock on {resource} is not held any more")
    items = tuple(
        LockItem(resource, LockMode.SHARED, item.token) if item.resource == resource else item for item in grant.items
    )
    shared = structs.replace(grant, items=items)
    book.put(shared)
    book.tell(DOWNGRADED, shared)
    book.free([resource])
    book.settle()
    return shared


def give_way(book: Book, request_id: str, *, cycle: tuple[str, ...]) -> LockRequest | None:
    """A waiter is chosen to end a deadlock: its wait fails, what it holds it releases itself."""
    request = _alive(book, request_id)
    if request is None or not request.is_waiting:
        return None
    lease_until = book.steady_ms + WAITER_LEASE_MS
    victim = structs.replace(request, state=LockState.VICTIM, lease_until=lease_until, wait_until=None)
    book.put(victim)
    book.tell(DEADLOCK, victim, cycle=list(cycle))
    book.free(request.resources)
    book.settle()
    return victim


def let_pass(book: Book, request_id: str, *, before: str) -> LockRequest | None:
    """A deadlock that comes only from the order of a line is ended by changing it."""
    request, other = _alive(book, request_id), _alive(book, before)
    if request is None or other is None or not request.is_waiting or not other.is_waiting:
        return None
    book.put(structs.replace(request, rank=min(request.rank, other.rank - 0.5)))
    book.free(request.resources)
    book.settle()
    return book.get(request_id)


def bury(book: Book, request_ids: list[str]) -> None:
    """The sweep: whose lease ran out is removed, wherever nobody else has looked."""
    for request_id in request_ids:
        _alive(book, request_id)
    book.settle()


def _alive(book: Book, request_id: str) -> LockRequest | None:
    request = book.get(request_id)
    if request is not None and book.is_dead(request):
        book.remove(request, EXPIRED)
        return None
    return request


def _first_upgrade(book: Book, resource: str) -> LockRequest | None:
    for waiter in book.line(resource):
        if waiter.rank > FRONT:
            return None
        if waiter.upgrades is not None:
            return waiter
    return None


def _look_after(book: Book, request: LockRequest) -> None:
    """Remove who has died among the holders of what the request wants, and let in those who come first."""
    for resource in request.resources:
        book.holders(resource)
    book.settle()
