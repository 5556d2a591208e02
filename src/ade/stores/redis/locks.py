"""Lock store on Redis: a namespace is in one partition, and each verb is one call of lua/lock.lua.

The script implements the same lock rules as the Python code.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from ade.errors import AdeError, LockLost, UpgradeDeadlock
from ade.locks.deadlocks import DeadlockVictimChoice, GrantReturn, Resolution
from ade.locks.model import DEFAULT_NAMESPACE, LockLimits, LockRequest, asks_too_often, has_too_many, too_many_wait
from ade.stores.ports import LOCK, LOST
from ade.stores.redis.client.client import RedisClient
from ade.stores.redis.client.sync_client import NotAnswered
from ade.stores.redis.clock import new_token
from ade.stores.redis.inserts import run_to_its_end
from ade.stores.redis.partitions import partition_of_key
from ade.stores.redis.wakeups import RedisWakeups
from ade.stores.resource_ports import LockQuery, LockUpdates

_decode = msgspec.msgpack.Decoder(LockRequest).decode
Answer = TypeVar("Answer")
Run = Callable[[str, int, dict[str, Any]], Coroutine[Any, Any, Any]]
_count = msgspec.msgpack.Decoder(int).decode
_news = msgspec.msgpack.Decoder(LockUpdates).decode


class RedisLocks:
    """Lock requests and wait queues. With `run`, the calling thread runs the verbs without an event loop."""

    def __init__(self, link: RedisClient, wakeups: RedisWakeups, run: Run | None = None) -> None:
        self._link = link
        self._run = run or link.run
        direct = link.direct if run is None else None
        self._direct = None if direct is None else RedisLocks(link, wakeups, direct.run)
        self._wakeups = wakeups

    async def acquire(
        self, request: LockRequest, *, wait_ms: int | None, first_seq: int = 0, limits: LockLimits
    ) -> LockRequest | None:
        refused, answers = await self._do(
            "acquire",
            request.namespace,
            wanted=request,
            wait_ms=_or_false(wait_ms),
            first_seq=first_seq,
            most_waiting=limits.waiters_per_resource,
            most_of_owner=limits.requests_per_owner,
            acquires=_or_false(limits.acquires),
            acquires_per_ms=_or_false(limits.acquires_per_ms),
        )
        match refused:
            case [b"rate", retry_after_ms]:
                raise asks_too_often(request.owner, retry_after_ms)
            case [b"of_owner", count]:
                raise has_too_many(request.owner, count)
            case [b"waiting", count]:
                raise too_many_wait(request.resources, count)
        return _only(answers)

    async def poll(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        return await self._of_each("poll", namespace, request_ids)

    async def look(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        if not request_ids:
            return []
        partition = self._partition(namespace)
        key = f"{self._link.names[partition].prefix}lock:request:{namespace}"
        [found] = await self._link.ask(partition, ("HMGET", key, *request_ids))
        return _requests(found)

    async def renew(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        return await self._of_each("renew", namespace, request_ids)

    def renew_blocking(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        """Renew through the client, which gives up within a heartbeat: the lease thread also renews other leases."""
        partition = self._partition(namespace)
        clock = self._link.verified(partition)
        request = {"verb": "renew", "namespace": namespace, "ids": request_ids, "clock": clock}
        message, answers = self._link.run_blocking("lock", partition, request)
        self._publish(message)
        return _requests(answers)

    def acquire_blocking(self, request: LockRequest, *, wait_ms: int | None, limits: LockLimits) -> LockRequest | None:
        return self._blocking(lambda locks: locks.acquire(request, wait_ms=wait_ms, limits=limits))

    def release_blocking(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        return self._blocking(lambda locks: locks.release(namespace, request_ids))

    async def release(self, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        return await self._of_each("release", namespace, request_ids)

    async def upgrade(
        self, namespace: str, grant_id: str, resource: str, *, upgrade_id: str, wait_ms: int | None
    ) -> LockRequest | None:
        refused, answers = await self._do(
            "upgrade",
            namespace,
            grant_id=grant_id,
            resource=resource,
            upgrade_id=upgrade_id,
            wait_ms=_or_false(wait_ms),
        )
        match refused:
            case [b"upgraded", owner]:
                raise UpgradeDeadlock(
                    f"{owner.decode()} also shares the lock on {resource} and waits for you to release it"
                )
            case [_, *_]:
                raise _lost(resource)
        return _only(answers)

    async def downgrade(self, namespace: str, grant_id: str, resource: str) -> LockRequest:
        _, answers = await self._do("downgrade", namespace, grant_id=grant_id, resource=resource, token=new_token())
        shared = _only(answers)
        if shared is None:
            raise _lost(resource)
        return shared

    async def take_away(self, namespace: str, request_id: str, *, reason: str, by: str) -> LockRequest | None:
        """End a grant or a wait by force; return None if the request no longer exists."""
        _, answers = await self._do("force_release", namespace, id=request_id, reason=reason, by=by, token=new_token())
        taken = _only(answers)
        if taken is not None:
            self._wakeups.notify(LOST)
        return taken

    async def cure(self, namespace: str, cure: Resolution, cycle: tuple[str, ...]) -> LockRequest | None:
        """Resolve a deadlock: abort the victim, reorder the wait queue, or take back a grant. None if the state has
        changed."""
        if isinstance(cure, DeadlockVictimChoice):
            verb, wanted = "abort_victim", {"id": cure.request_id, "cycle": cycle}
        elif isinstance(cure, GrantReturn):
            verb, wanted = "return_grant", {"id": cure.request_id}
        else:
            verb, wanted = "reorder", {"id": cure.request_id, "before": cure.before}
        _, answers = await self._do(verb, namespace, token=new_token(), **wanted)
        return _only(answers)

    async def find(self, query: LockQuery) -> list[LockRequest]:
        namespace = query.namespace
        if query.resource is not None:
            namespace = namespace or DEFAULT_NAMESPACE
        request = {
            "namespace": _or_false(namespace),
            "owner": _or_false(query.owner),
            "kind": _or_false(query.kind),
            "resource": _or_false(query.resource),
            "limit": query.limit,
        }
        places = range(self._link.partitions) if namespace is None else [self._partition(namespace)]
        answers = await asyncio.gather(*(self._link.run("lock_find", place, request) for place in places))
        found = [_decode(packed) for answer in answers for packed in answer]
        if query.resource is None:
            found.sort(key=lambda one: one.id)
        return found[: query.limit]

    def follow(self, tell: Callable[[LockUpdates | None], None]) -> Callable[[], None]:
        return self._wakeups.follow_locks(lambda message: tell(None if message is None else _news(message)))

    async def called(self, limit: int) -> list[LockRequest]:
        """List requests that were granted or aborted while no process waited for them."""
        answers = await self._link.reach.each(
            range(self._link.partitions),
            lambda place, patience_s: self._link.run("lock_granted", place, {"limit": limit}, patience_s=patience_s),
        )
        return [_decode(packed) for answer in answers.values() for packed in answer][:limit]

    async def bury(self, limit: int) -> int:
        """Remove expired requests. Without expired requests, which is the usual case, nothing is written."""
        request = {"limit": limit}
        answers = await self._link.reach.each(
            range(self._link.partitions),
            lambda place, patience_s: self._link.run("lock_expired", place, request, patience_s=patience_s),
        )
        ended = [member.decode() for answer in answers.values() for member in answer][:limit]
        by_namespace: dict[str, list[str]] = {}
        for member in ended:
            namespace, _, request_id = member.partition(":")
            by_namespace.setdefault(namespace, []).append(request_id)
        count = 0
        for namespace, ids in by_namespace.items():
            _, [packed] = await self._do("reap", namespace, ids=ids)
            if _count(packed) < len(ids):  # the server shows another time than expected, or its clock was stepped
                self._link.measure_soon(self._partition(namespace))
            count += _count(packed)
        return count

    async def _of_each(self, verb: str, namespace: str, request_ids: Sequence[str]) -> list[LockRequest | None]:
        _, answers = await self._do(verb, namespace, ids=request_ids)
        return _requests(answers)

    async def _do(self, verb: str, namespace: str, **wanted: Any) -> tuple[list[Any], list[Any]]:
        """Run a verb and notify waiters. Return the reason of a rejection, if any, and the resulting requests."""
        partition = self._partition(namespace)
        request = {"verb": verb, "namespace": namespace, "clock": self._link.verified(partition), **wanted}
        message, *answer = await self._run("lock", partition, request)
        if message == b"refused":
            return answer, []
        self._publish(message)
        return [], answer[0]

    def _blocking(self, verb: "Callable[[RedisLocks], Coroutine[Any, Any, Answer]]") -> Answer:
        """Run a verb on this thread if possible, otherwise on the event loop of the client."""
        self._link.check_process()
        if self._direct is not None:
            try:
                return run_to_its_end(verb(self._direct))
            except NotAnswered:  # it might have run: the repeated request is recognized
                pass
        return self._link.wait_for(verb(self))

    def _publish(self, message: bytes | None) -> None:
        """Notify waiters in this process; the script has notified other processes."""
        if message is not None:
            self._wakeups.publish_locally(message)
            self._wakeups.published(LOCK)

    def _partition(self, namespace: str) -> int:
        return partition_of_key(namespace, self._link.partitions)


def _requests(answers: Sequence[bytes | None]) -> list[LockRequest | None]:
    return [None if packed is None else _decode(packed) for packed in answers]


def _only(answers: Sequence[bytes | None]) -> LockRequest | None:
    return _requests(answers)[0] if answers else None


def _or_false(value: Any) -> Any:
    return False if value is None else value


def _lost(resource: str) -> AdeError:
    return LockLost(f"the lock on {resource} is no longer held")
