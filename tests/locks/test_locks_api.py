"""Locks of programs elsewhere: asked for, kept by renewing, lost by going silent, and nobody else's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ade.errors import AdeError, DeadlockVictim, InvalidLock, LockLost, LockTimeout, NotPermitted
from ade.locks import api as locks_api
from ade.locks.api import (
    AcquireLocks,
    DowngradeLock,
    ForceRelease,
    GetLockGraph,
    ListLocks,
    OneLock,
    ReleaseLocks,
    RenewLocks,
    UpgradeLock,
)
from ade.locks.model import LockMode, LockState, read
from ade.locks.views import RequestView
from tests.domain import Role, User
from tests.server.operations import LOCAL, Operations
from tests.server.wire import received, sent

Verb = Callable[..., Awaitable[object]]
REPO, DB = "repo:app", "database:main"


async def acquire(ops: Operations, who: User, *wanted: Any, **more: Any) -> RequestView:
    form = AcquireLocks(locks=list(wanted), **more)
    return await locks_api.acquire_locks(ops.services, ops.request(who, "acquire_locks"), form)


async def agents(ops: Operations) -> tuple[User, User]:
    return await ops.account("ann", Role.AGENT), await ops.account("ben", Role.AGENT)


async def waiters(ops: Operations) -> list[str]:
    seen = await locks_api.list_locks(ops.services, LOCAL, ListLocks(resource=REPO))
    return [one.owner for lock in seen.items for one in lock.waiters]


async def test_a_lock_is_had_renewed_and_let_go(ops: Operations) -> None:
    ann, ben = await agents(ops)
    held = await acquire(ops, ann, REPO, read(DB), owner="builder", purpose="to build", ttl=20)
    assert (held.state, held.owner, held.expires_in_ms) == (LockState.GRANTED, "ann/builder", 20_000)
    tokens = {item.resource: (item.mode, item.token) for item in held.items}
    assert {resource: mode for resource, (mode, _) in tokens.items()} == {REPO: "exclusive", DB: "shared"}
    assert all(token > 0 for _, token in tokens.values())
    assert received(held) == held

    with pytest.raises(LockTimeout):
        await acquire(ops, ben, REPO)
    assert await waiters(ops) == []

    ops.clock.advance(15)
    body = RenewLocks(ids=[held.id])
    renewed = await locks_api.renew_locks(ops.services, ops.request(ann, "renew_locks"), body)
    assert [one.expires_in_ms for one in renewed.renewed] == [20_000]
    assert received(renewed) == renewed

    gone = await locks_api.release_locks(
        ops.services, ops.request(ann, "release_locks"), ReleaseLocks(ids=[held.id, "x"])
    )
    assert (gone.released, gone.lost) == ([held.id], ["x"])
    assert (await acquire(ops, ben, REPO)).state is LockState.GRANTED


async def test_whoever_goes_silent_loses_the_lock(ops: Operations) -> None:
    ann, ben = await agents(ops)
    held = await acquire(ops, ann, REPO, ttl=5)
    ops.clock.advance(6)
    taken = await acquire(ops, ben, REPO)
    assert taken.items[0].token > held.items[0].token

    verbs: list[tuple[object, Verb]] = [
        (RenewLocks(ids=[held.id]), locks_api.renew_locks),
        (OneLock(id=held.id), locks_api.get_lock_position),
        (UpgradeLock(id=held.id), locks_api.upgrade_lock),
        (DowngradeLock(id=held.id), locks_api.downgrade_lock),
    ]
    for body, verb in verbs:
        with pytest.raises(LockLost):
            await verb(ops.services, ops.request(ann, "renew_locks"), body)


async def test_a_place_in_line_is_kept_by_renewing_until_it_is_granted(ops: Operations) -> None:
    ann, ben = await agents(ops)
    held = await acquire(ops, ann, REPO)
    first = await acquire(ops, ben, REPO, stay=True, owner="one")
    second = await acquire(ops, ben, REPO, stay=True, owner="two")
    assert [(one.state, one.position) for one in (first, second)] == [(LockState.WAITING, 1), (LockState.WAITING, 2)]
    assert first.items[0].token == 0
    assert received(first) == first

    ops.clock.advance(10)
    keep = RenewLocks(ids=[first.id, second.id])
    kept = await locks_api.renew_locks(ops.services, ops.request(ben, "renew_locks"), keep)
    assert [one.position for one in kept.renewed] == [1, 2]
    ops.clock.advance(10)
    request = ops.request(ann, "release_locks")
    assert (await locks_api.renew_locks(ops.services, ops.request(ben, "renew_locks"), keep)).lost == []
    await locks_api.release_locks(ops.services, request, ReleaseLocks(ids=[held.id]))

    seen = await locks_api.get_lock_position(ops.services, ops.request(ben, "get_lock_position"), OneLock(id=first.id))
    assert (seen.state, seen.position) == (LockState.GRANTED, None)
    ops.clock.advance(16)  # nobody has asked for the second one meanwhile
    still = await locks_api.renew_locks(ops.services, ops.request(ben, "renew_locks"), keep)
    assert ([one.id for one in still.renewed], still.lost) == ([first.id], [second.id])


async def test_one_that_waits_is_told_as_soon_as_it_is_its_turn(ops: Operations) -> None:
    ann, ben = await agents(ops)
    held = await acquire(ops, ann, REPO)
    waiting = asyncio.create_task(acquire(ops, ben, REPO, wait=30))
    await _until(ops, ["ben"])
    await locks_api.release_locks(ops.services, ops.request(ann, "release_locks"), ReleaseLocks(ids=[held.id]))
    got = await waiting
    assert got.state is LockState.GRANTED

    place = await acquire(ops, ann, REPO, stay=True)
    body = RenewLocks(ids=[place.id], wait=30)
    waiting_on = asyncio.create_task(locks_api.renew_locks(ops.services, ops.request(ann, "renew_locks"), body))
    await locks_api.release_locks(ops.services, ops.request(ben, "release_locks"), ReleaseLocks(ids=[got.id]))
    assert [one.state for one in (await waiting_on).renewed] == [LockState.GRANTED]


async def _until(ops: Operations, owners: list[str]) -> None:
    async with asyncio.timeout(60):
        while await waiters(ops) != owners:
            continue


async def test_whoever_goes_away_while_it_waits_has_left_the_line(ops: Operations) -> None:
    ann, ben = await agents(ops)
    await acquire(ops, ann, REPO)
    waiting = asyncio.create_task(acquire(ops, ben, REPO, wait=30, stay=True))
    await _until(ops, ["ben"])
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert await waiters(ops) == []


async def test_who_does_not_want_to_stay_leaves_the_line(ops: Operations) -> None:
    ann, ben = await agents(ops)
    await acquire(ops, ann, REPO)
    with pytest.raises(LockTimeout):
        await acquire(ops, ben, REPO, wait=0.05)
    assert await waiters(ops) == []
    stays = await acquire(ops, ben, REPO, wait=0.05, stay=True)
    assert (stays.state, stays.position) == (LockState.WAITING, 1)


async def test_an_answer_that_got_lost_is_asked_for_again(ops: Operations) -> None:
    ann, ben = await agents(ops)
    key = "a" * 20
    first, again = [await acquire(ops, ann, REPO, id=key) for _ in range(2)]
    assert (first.id, first.items) == (again.id, again.items) == (f"ann:{key}", again.items)
    with pytest.raises(InvalidLock, match="used for other resources"):
        await acquire(ops, ann, DB, id=key)
    other = await acquire(ops, ben, DB, id=key)
    assert other.id == f"ben:{key}"


async def test_nobody_acts_for_another_owner(ops: Operations) -> None:
    ann, ben = await agents(ops)
    owners = [(await acquire(ops, ben, f"r:{name}", owner=name)).owner for name in ("ann", "ann/x", "ben", "ben/y")]
    assert owners == ["ben/ann", "ben/ann/x", "ben", "ben/y"]
    await acquire(ops, ann, "r:scoped", scope="one")
    await acquire(ops, ben, "r:too", scope="one")
    seen = await locks_api.list_locks(ops.services, LOCAL, ListLocks())
    assert {one.scope for lock in seen.items for one in lock.holders} >= {"ann:one", "ben:one"}


async def test_a_foreign_lock_is_answered_as_one_that_does_not_exist(ops: Operations) -> None:
    ann, ben = await agents(ops)
    held = await acquire(ops, ann, REPO)
    local = await locks_api.acquire_locks(ops.services, LOCAL, AcquireLocks(locks=[DB], owner="host-1"))
    assert local.owner == "host-1"

    async def refused(call: Verb, operation: str, form: type[Any], lock: str) -> str:
        fields = {"ids": [lock]} if form in (RenewLocks, ReleaseLocks) else {"id": lock}
        try:
            answer = await call(ops.services, ops.request(ben, operation), form(**fields))
        except AdeError as error:
            return f"{error.code}: {error.detail}".replace(lock, "ID")
        return str(answer).replace(lock, "ID")

    for call, form in (
        (locks_api.renew_locks, RenewLocks),
        (locks_api.release_locks, ReleaseLocks),
        (locks_api.get_lock_position, OneLock),
        (locks_api.upgrade_lock, UpgradeLock),
        (locks_api.downgrade_lock, DowngradeLock),
    ):
        answers = {
            await refused(call, call.__name__, form, lock)
            for lock in (held.id, local.id, "ann:" + "0" * 32, "ben:" + "0" * 32, "{x}")
        }
        assert len(answers) == 1
    seen = await locks_api.list_locks(ops.services, LOCAL, ListLocks())
    assert [one.owner for lock in seen.items for one in lock.holders] == ["host-1", "ann"]


async def test_a_share_becomes_exclusive_and_a_share_again(ops: Operations) -> None:
    ann, ben = await agents(ops)
    mine, other = await acquire(ops, ann, read(REPO)), await acquire(ops, ben, read(REPO))
    upgrade = UpgradeLock(id=mine.id, wait=0.05)
    with pytest.raises(LockTimeout):
        await locks_api.upgrade_lock(ops.services, ops.request(ann, "upgrade_lock"), upgrade)
    assert await waiters(ops) == []

    widening = asyncio.create_task(
        locks_api.upgrade_lock(ops.services, ops.request(ann, "upgrade_lock"), UpgradeLock(id=mine.id, wait=30))
    )
    await _until(ops, ["ann"])
    await locks_api.release_locks(ops.services, ops.request(ben, "release_locks"), ReleaseLocks(ids=[other.id]))
    wide = await widening
    assert (wide.id, wide.items[0].mode) == (mine.id, LockMode.EXCLUSIVE)
    assert wide.items[0].token > mine.items[0].token

    body = DowngradeLock(id=mine.id, resource=REPO)
    shared = await locks_api.downgrade_lock(ops.services, ops.request(ann, "downgrade_lock"), body)
    assert shared.items[0].mode is LockMode.SHARED
    body = DowngradeLock(id=mine.id, resource=DB)
    with pytest.raises(InvalidLock, match="name one of the resources"):
        await locks_api.downgrade_lock(ops.services, ops.request(ann, "downgrade_lock"), body)


async def test_rings_are_seen_and_an_operator_ends_one(ops: Operations) -> None:
    ann, ben = await agents(ops)
    held = await acquire(ops, ann, REPO, scope="a")
    await acquire(ops, ben, DB, scope="b")
    await acquire(ops, ann, DB, scope="a", stay=True)
    await acquire(ops, ben, REPO, scope="b", stay=True)
    graph = await locks_api.get_lock_graph(ops.services, LOCAL, GetLockGraph())
    assert [{edge.scope for edge in ring} for ring in graph.rings] == [{"ann:a", "ben:b"}]
    back = received(graph)
    assert (back.edges, back.rings) == (graph.edges, graph.rings)
    assert "lease_until" not in str(sent(graph))

    body = ForceRelease(id=held.id, reason="in the way")
    with pytest.raises(NotPermitted):
        ops.request(ben, "force_release_lock")
    operator = await ops.account("olga")
    request = ops.request(operator, "force_release_lock")
    taken = await locks_api.force_release_lock(ops.services, request, body)
    assert (taken.request_id, taken.owner, taken.resources) == (held.id, "ann", (REPO,))
    with pytest.raises(LockLost):
        await locks_api.force_release_lock(ops.services, request, body)
    told = [event for event in await ops.services.stores.events.newest(10) if event.type == "lock.lost"]
    assert [event.payload["by"] for event in told] == ["olga"]


async def test_a_ring_across_namespaces_is_seen_from_both(ops: Operations) -> None:
    ann, ben = await agents(ops)
    await acquire(ops, ann, REPO, scope="a")
    await acquire(ops, ben, DB, scope="b", namespace="build")
    await acquire(ops, ann, DB, scope="a", stay=True, namespace="build")
    await acquire(ops, ben, REPO, scope="b", stay=True)
    viewer = ops.request(await ops.account("vic", Role.VIEWER), "get_lock_graph")
    for namespace in ("default", "build"):
        graph = received(await locks_api.get_lock_graph(ops.services, viewer, GetLockGraph(namespace=namespace)))
        assert [{edge.scope for edge in ring} for ring in graph.rings] == [{"ann:a", "ben:b"}]
        assert sorted(one.namespace for one in graph.requests.values()) == ["build", "build", "default", "default"]


async def test_of_two_who_wait_for_each_other_one_gives_way(ops: Operations) -> None:
    users = await agents(ops)
    held = [await acquire(ops, who, what, scope="s") for who, what in zip(users, (REPO, DB), strict=True)]
    places = [await acquire(ops, who, what, scope="s", stay=True) for who, what in zip(users, (DB, REPO), strict=True)]
    waits = [
        asyncio.create_task(
            locks_api.renew_locks(ops.services, ops.request(who, "renew_locks"), RenewLocks(ids=[place.id], wait=30))
        )
        for who, place in zip(users, places, strict=True)
    ]
    done, [other] = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    [victim] = done
    with pytest.raises(DeadlockVictim):
        victim.result()
    loser = waits.index(victim)
    request = ops.request(users[loser], "release_locks")
    await locks_api.release_locks(ops.services, request, ReleaseLocks(ids=[held[loser].id]))
    assert [one.state for one in (await other).renewed] == [LockState.GRANTED]


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "{x}"},
        {"ttl": 0.1},
        {"ttl": 1e9},
        {"ttl": float("nan")},
        {"purpose": ""},
        {"owner": "a{b}"},
        {"locks": [""]},
        {"locks": ["x" * 600]},
    ],
)
async def test_what_cannot_be_is_refused_and_nothing_is_locked(ops: Operations, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidLock):
        await locks_api.acquire_locks(ops.services, LOCAL, AcquireLocks(**{"locks": [REPO], **wrong}))
    assert (await locks_api.list_locks(ops.services, LOCAL, ListLocks())).items == []
