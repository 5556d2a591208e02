"""The log alone must prove every run; whatever is missing from it, or was made up, is found."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from tests.approvals.scene import ONE, TWO, scene
from tests.domain import ApprovalProof, Decision, Event, UserChanges, change_user


def faults(events: Sequence[Event]) -> list[str]:
    proof = ApprovalProof()
    return [fault for event in events if (fault := proof.add(event)) is not None]


async def a_history() -> list[Event]:
    """Of a task that two people approved and a worker ran."""
    async with scene() as here:
        await here.people(ada="reviewer", bob="reviewer", cyd="reviewer")
        await here.rules(TWO)
        task = await here.asked()
        await here.vote(task, "bob")
        await here.vote(task, "cyd")
        await here.kit.drain()
        return [event async for event in task.events()]


async def test_a_run_that_was_approved_is_proved() -> None:
    proof = ApprovalProof()
    assert [fault for event in await a_history() if (fault := proof.add(event))] == []
    assert (proof.starts, proof.unknown) == (1, 0)


@pytest.mark.parametrize("missing", ["approval.approved", "task.queued"])
async def test_a_run_without_one_of_its_steps_is_found(missing: str) -> None:
    events = await a_history()
    [first, *_] = [event for event in events if event.type == missing]
    assert faults([event for event in events if event is not first]) != []


async def test_a_vote_of_the_author_proves_nothing() -> None:
    forged = [_with(event, "cyd", voter="ada") for event in await a_history()]
    assert faults(forged) != []


async def test_two_votes_of_one_person_prove_nothing() -> None:
    forged = [_with(event, "cyd", voter="bob") for event in await a_history()]
    assert faults(forged) != []


async def test_a_vote_about_another_digest_proves_nothing() -> None:
    forged = [_with(event, "cyd", digest="f" * 64) for event in await a_history()]
    assert faults(forged) != []


async def test_a_log_that_begins_later_says_what_it_cannot_prove() -> None:
    events, proof = await a_history(), ApprovalProof()
    from_there = events[[event.type for event in events].index("task.approved") :]

    assert [fault for event in from_there if (fault := proof.add(event))] == []
    assert (proof.starts, proof.unknown) == (0, 1)


async def test_a_bypass_is_told_as_such_and_nothing_else_is_one() -> None:
    async with scene() as here:
        await here.people(ada="reviewer", bob="reviewer", root="admin")
        await here.rules(ONE)
        task = await here.asked()
        from ade.approvals import service as approvals_service

        now = here.kit.clock.now()
        await approvals_service.break_glass(here.stores, task.id, "fire", actor="root", authenticated_at=now)
        await here.kit.drain()
        events = [event async for event in task.events()]

    assert faults(events) == []
    assert faults([event for event in events if event.type != "approval.bypassed"]) != []


async def test_votes_count_with_the_roles_that_their_accounts_have_by_then() -> None:
    mixed = {"id": "mixed", "names": ["*"], "rules": [_one("dba"), {"needed": 1, "roles": ["reviewer"]}]}
    async with scene() as here:
        await here.people(ada="reviewer", bob="reviewer", cyd="reviewer")
        await here.rules(mixed)
        task = await here.asked()
        await here.vote(task, "bob")
        await change_user(here.stores, "bob", UserChanges(roles=frozenset({"dba"})), actor="ada")
        await here.vote(task, "cyd")
        await here.kit.drain()
        events = await here.stores.events.read(0, 1_000)

    assert "task.succeeded" in [event.type for event in events]
    assert faults(events) == []


async def test_a_vote_of_an_account_that_was_switched_off_counts_no_more() -> None:
    async with scene() as here:
        await here.people(ada="reviewer", bob="reviewer", cyd="reviewer")
        await here.rules(ONE)
        task = await here.asked()
        await here.vote(task, "bob", Decision.REQUEST_CHANGES)
        await change_user(here.stores, "bob", UserChanges(is_active=False), actor="ada")
        await here.vote(task, "cyd")
        await here.kit.drain()
        events = await here.stores.events.read(0, 1_000)

    assert "task.succeeded" in [event.type for event in events]
    assert faults(events) == []


def _one(role: str) -> dict[str, object]:
    return {"needed": 1, "roles": [role]}


def _with(event: Event, actor: str, **fields: str) -> Event:
    """Somebody's vote, made out to be another one."""
    if event.type != "approval.approved" or event.actor != actor:
        return event
    vote = event.payload["vote"]
    assert isinstance(vote, dict)
    return structs.replace(event, payload={**event.payload, "vote": {**vote, **fields}})
