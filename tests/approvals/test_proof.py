"""The log alone must prove every run; whatever is missing from it, or was made up, is found."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from ade.approvals import delegations
from ade.approvals.service import delegate_approval
from tests.approvals.scene import ONE, TWO, Scene, scene
from tests.domain import ApprovalProof, Decision, Delegation, Event, UserChanges, change_user

BOB = {"id": "bobs", "names": ["deploy"], "rules": [{"needed": 1, "users": ["bob"]}]}
DAY = 86_400_000


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


async def _delegated(here: Scene, delegator: str, delegate: str, **fields: object) -> Delegation:
    now = here.kit.clock.now()
    plain = Delegation(id="", delegator=delegator, delegate=delegate, starts_at=now, ends_at=now + DAY)
    return await delegations.create(here.stores, structs.replace(plain, **fields), actor=delegator)


async def _history_of_delegates() -> list[Event]:
    """Of tasks that others approved for bob: through one delegation, through two, and for one task alone."""
    async with scene() as here:
        await here.people(ada="reviewer", bob="reviewer", cyd="reviewer", dee="reviewer")
        await here.rules(BOB)
        lent = await _delegated(here, "bob", "cyd", names=frozenset({"dep*"}), cascades=True)
        passed_on = await _delegated(here, "cyd", "dee")
        for voter in ("cyd", "dee"):
            await here.vote(await here.asked(), voter)
        for made in (lent, passed_on):
            await delegations.revoke(here.stores, made.id, actor=made.delegator)
        here.kit.clock.advance(60)
        task = await here.asked()
        await delegate_approval(here.stores, task.id, "dee", actor="bob")
        await here.vote(task, "dee")
        await here.kit.drain()
        assert len(here.deployed) == 3
        return list(await here.stores.events.read(0, 1_000))


async def test_votes_for_others_are_proved_by_their_delegations_also_if_revoked_later() -> None:
    proof = ApprovalProof()
    assert [fault for event in await _history_of_delegates() if (fault := proof.add(event))] == []
    assert (proof.starts, proof.unproven_votes()) == (3, [])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (None, "it is not in the log"),
        ({"starts_at": 2**50, "ends_at": 2**50 + 1}, "it had not begun"),
        ({"ends_at": 1, "starts_at": 0}, "it had expired"),
        ({"conditions": {"names": ["undeploy"]}}, "it does not cover this task"),
        ({"conditions": {"task_id": "another"}}, "it does not cover this task"),
        ({"conditions": {"from_level": "critical"}}, "it does not cover this task"),
        ({"delegate": "dee"}, "it is not in the log"),
        ({"cascades": False}, "it may not be passed on"),
    ],
)
async def test_a_vote_for_somebody_who_had_not_delegated_it_proves_nothing(
    changes: dict[str, object] | None, why: str
) -> None:
    events = await _history_of_delegates()
    lent = next(event for event in events if event.type == "delegation.created")
    changed = [] if changes is None else [structs.replace(lent, payload={**lent.payload, **changes})]
    proof, found = ApprovalProof(), list[str]()
    for event in events:
        for each in changed if event is lent else [event]:
            if event.type != "delegation.revoked" and (fault := proof.add(each)):
                found.append(fault)

    unproven = proof.unproven_votes()
    assert len(unproven) == (1 if "cascades" in (changes or {}) else 2)
    assert all(line.endswith(f"a delegation from bob to cyd was needed, and {why}") for line in unproven)
    assert any(
        f"which was not met: it was blocked, with 1 of bob missing; the vote by {by}" in found[0]
        for by in ("cyd", "dee")
    )


async def test_a_vote_after_the_delegation_was_revoked_proves_nothing() -> None:
    async with scene() as here:
        await here.people(ada="reviewer", bob="reviewer", cyd="reviewer")
        await here.rules(BOB)
        task = await here.asked()
        made = await _delegated(here, "bob", "cyd")
        here.kit.clock.advance(60)
        await here.vote(task, "cyd")
        events = list(await here.stores.events.read(0, 1_000))
        created = next(event for event in events if event.type == "delegation.created")
        revoked = structs.replace(created, type="delegation.revoked")
        await delegations.revoke(here.stores, made.id, actor="bob")
    [first, *_] = [number for number, event in enumerate(events) if event.type == "approval.approved"]
    assert "it had been revoked" in faults([*events[:first], revoked, *events[first:]])[0]
    at_once = structs.replace(revoked, at=events[first].at)  # while the vote was being written
    assert faults([*events[:first], at_once, *events[first:]]) == []


@pytest.mark.parametrize("chain", [["bob", "dee"], ["bob", "cyd", "bob", "cyd"], ["bob", "e1", "e2", "e3", "cyd"]])
async def test_a_chain_that_no_delegations_form_proves_nothing(chain: list[str]) -> None:
    events = await _history_of_delegates()
    assert "no delegations form the chain" in faults([_with(event, "cyd", chain=chain) for event in events])[0]


async def test_delegations_from_before_the_log_are_trusted_for_as_long_as_they_could_last() -> None:
    events = await _history_of_delegates()
    from_there = [event for event in events if not event.type.startswith(("user.", "delegation."))]
    assert faults(from_there) == []
    early = structs.replace(from_there[0], type="settings.changed", task_id=None, at=from_there[0].at - 91 * DAY)
    assert "it is not in the log" in faults([early, *from_there])[0]


def _one(role: str) -> dict[str, object]:
    return {"needed": 1, "roles": [role]}


def _with(event: Event, actor: str, **fields: object) -> Event:
    """Somebody's vote, made out to be another one."""
    if event.type != "approval.approved" or event.actor != actor:
        return event
    vote = event.payload["vote"]
    assert isinstance(vote, dict)
    return structs.replace(event, payload={**event.payload, "vote": {**vote, **fields}})
