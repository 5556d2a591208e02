"""One story for every rule of the table of approvals in the design; the names are those of its rows."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ade import Status
from ade.accounts.model import InvalidDelegation, User
from ade.approvals import delegations, submission
from ade.approvals import service as approvals_service
from ade.approvals.errors import (
    ConflictOfInterest,
    DigestMismatch,
    GateClosed,
    InvalidRulebook,
    NotEligible,
    ReauthenticationNeeded,
)
from ade.approvals.views import inbox
from ade.errors import InvalidTask, NotPermitted
from ade.settings import runtime
from ade.tasks import service as tasks_service
from tests.approvals.scene import APPROVE, CHANGES, ONE, REJECT, TWO, Scene, scene
from tests.domain import ApprovalProof, Delegation, GateState, VoteRequest, add_user

HOUR, DAY = 3_600, 86_400


@pytest.fixture
async def here() -> AsyncIterator[Scene]:
    async with scene() as made:
        await made.people(ada="operator reviewer", bob="reviewer", cyd="reviewer", dan="reviewer", root="admin")
        yield made


def a_delegation(here: Scene, delegator: str, delegate: str, **more: object) -> Delegation:
    now = here.kit.clock.now()
    known = {"id": "", "starts_at": now, "ends_at": now + DAY * 1000}
    return Delegation(delegator=delegator, delegate=delegate, **(known | more))  # type: ignore[arg-type]  # by name


class TestWhoMayNotApprove:
    async def test_the_author(self, here: Scene) -> None:
        task = await here.asked()
        with pytest.raises(ConflictOfInterest):
            await here.vote(task, "ada")

    async def test_whoever_edited_it(self, here: Scene) -> None:
        draft = await here.app.draft("deploy", {"what": "shop"}, author="ada")
        await tasks_service.edit(here.stores, here.kit._opened.payloads, draft.id, actor="bob", description="better")
        await draft.submit(by="ada")
        await here.kit.drain()

        with pytest.raises(ConflictOfInterest):
            await here.vote(draft, "bob")
        assert (await here.vote(draft, "cyd")).status is Status.PENDING

    async def test_who_answers_for_the_agent_that_wrote_it(self, here: Scene) -> None:
        await add_user(here.stores, User(id="coder", is_human=False, owner="bob", roles=frozenset({"agent"})))
        task = await here.asked(author="coder")

        with pytest.raises(ConflictOfInterest):
            await here.vote(task, "bob")
        with pytest.raises(NotEligible):
            await here.vote(task, "coder")

    async def test_another_account_of_the_author(self, here: Scene) -> None:
        await add_user(here.stores, User(id="ada2", person="ada", roles=frozenset({"reviewer"})))
        task = await here.asked()
        with pytest.raises(ConflictOfInterest):
            await here.vote(task, "ada2")

    async def test_nobody_through_a_delegate(self, here: Scene) -> None:
        named = {**ONE, "rules": [{"needed": 1, "users": ["ada"]}, {"needed": 1, "users": ["dan"]}]}
        await here.rules(named)
        await delegations.create(here.stores, a_delegation(here, "ada", "bob"), actor="ada")
        task = await here.asked()
        with pytest.raises(NotEligible):
            await here.vote(task, "bob", on_behalf_of="ada")

    async def test_unless_the_policy_says_otherwise_which_is_told(self, here: Scene) -> None:
        await here.rules({**ONE, "authors_may_vote": True})
        task = await here.asked()

        assert (await here.vote(task, "ada")).status is Status.PENDING
        told = [event.type for event in await here.stores.events.read(0, 1000)]
        assert "policy.self_review_allowed" in told


async def test_identity_for_counting(here: Scene) -> None:
    await here.rules(TWO)
    await add_user(here.stores, User(id="bob2", person="bob", roles=frozenset({"reviewer"})))
    task = await here.asked()
    await here.vote(task, "bob")

    assert (await here.vote(task, "bob2")).status is Status.REVIEWING
    assert (await here.vote(task, "cyd")).status is Status.PENDING


class TestQuorum:
    async def test_all_rules_are_met_by_different_people(self, here: Scene) -> None:
        both = [{"needed": 1, "roles": ["reviewer"]}, {"needed": 1, "users": ["bob"]}]
        await here.rules({**ONE, "rules": both})
        task = await here.asked()

        assert (await here.vote(task, "bob")).status is Status.REVIEWING
        assert (await here.vote(task, "cyd")).status is Status.PENDING

    @pytest.mark.parametrize("rules", [[], [{"needed": 0, "roles": ["reviewer"]}], [{"needed": 1}]])
    async def test_nothing_passes_for_want_of_rules(self, here: Scene, rules: list[dict[str, object]]) -> None:
        with pytest.raises(InvalidRulebook):
            await here.rules({**ONE, "rules": rules})


async def test_counting_after_delegation(here: Scene) -> None:
    named = [{"needed": 1, "users": ["bob"]}, {"needed": 1, "users": ["cyd"]}]
    await here.rules({**ONE, "rules": named})
    for delegator in ("bob", "cyd"):
        await delegations.create(here.stores, a_delegation(here, delegator, "dan"), actor=delegator)
    task = await here.asked()

    after = await here.vote(task, "dan", on_behalf_of="bob")
    assert after.status is Status.REVIEWING
    assert (await here.vote(task, "dan", on_behalf_of="cyd")).status is Status.REVIEWING  # still one person
    vote = (await here.gate(task)).votes[0]
    assert (vote.voter, vote.chain) == ("dan", ("bob", "dan"))
    assert (await here.vote(task, "bob")).status is Status.PENDING


class TestDelegationLoopsAndDepth:
    async def test_a_ring_is_refused(self, here: Scene) -> None:
        await delegations.create(here.stores, a_delegation(here, "bob", "cyd"), actor="bob")
        with pytest.raises(InvalidDelegation):
            await delegations.create(here.stores, a_delegation(here, "cyd", "bob"), actor="cyd")

    async def test_it_is_passed_on_only_where_that_was_allowed(self, here: Scene) -> None:
        await here.rules({**ONE, "rules": [{"needed": 1, "users": ["bob"]}]})
        await delegations.create(here.stores, a_delegation(here, "bob", "cyd"), actor="bob")
        await delegations.create(here.stores, a_delegation(here, "cyd", "dan"), actor="cyd")
        task = await here.asked()

        with pytest.raises(NotEligible):
            await here.vote(task, "dan")
        assert (await here.vote(task, "cyd")).status is Status.PENDING

    async def test_it_cascades_where_it_was_allowed(self, here: Scene) -> None:
        await here.rules({**ONE, "rules": [{"needed": 1, "users": ["bob"]}]})
        await delegations.create(here.stores, a_delegation(here, "bob", "cyd", cascades=True), actor="bob")
        await delegations.create(here.stores, a_delegation(here, "cyd", "dan"), actor="cyd")
        task = await here.asked()

        assert (await here.vote(task, "dan")).status is Status.PENDING
        assert (await here.gate(task)).votes[0].chain == ("bob", "cyd", "dan")


class TestDelegationTime:
    async def test_it_counts_when_somebody_votes(self, here: Scene) -> None:
        await here.rules({**ONE, "rules": [{"needed": 1, "users": ["bob"]}], "expires_after": "7d"})
        end = here.kit.clock.now() + HOUR * 1000
        await delegations.create(here.stores, a_delegation(here, "bob", "cyd", ends_at=end), actor="bob")
        task = await here.asked()
        await here.kit.advance(HOUR)

        with pytest.raises(NotEligible):
            await here.vote(task, "cyd")

    async def test_a_vote_stays_when_the_delegation_is_revoked(self, here: Scene) -> None:
        named = [{"needed": 1, "users": ["bob"]}, {"needed": 1, "users": ["dan"]}]
        await here.rules({**ONE, "rules": named})
        made = await delegations.create(here.stores, a_delegation(here, "bob", "cyd"), actor="bob")
        task = await here.asked()
        await here.vote(task, "cyd")
        await delegations.revoke(here.stores, made.id, actor="bob")

        assert (await here.vote(task, "dan")).status is Status.PENDING


async def test_delegates_rights(here: Scene) -> None:
    await here.people(eve="viewer")
    with pytest.raises(InvalidDelegation):
        await delegations.create(here.stores, a_delegation(here, "bob", "eve"), actor="bob")
    await here.rules({**ONE, "rules": [{"needed": 1, "roles": ["dba"]}]})
    await here.change("bob", roles=frozenset({"dba", "reviewer"}))
    await delegations.create(here.stores, a_delegation(here, "bob", "cyd"), actor="bob")
    task = await here.asked()

    with pytest.raises(NotEligible):  # cyd is no dba, and the role does not travel
        await here.vote(task, "cyd")


class TestChangeAfterApproval:
    async def test_a_vote_names_what_it_saw(self, here: Scene) -> None:
        task = await here.asked()
        with pytest.raises(DigestMismatch):
            await here.vote(task, "bob", digest="0" * 64)
        assert (await here.gate(task)).votes == ()

    async def test_another_plan_needs_other_votes(self, here: Scene) -> None:
        task = await here.asked()
        before = await here.gate(task)
        await here.vote(task, "bob", CHANGES)
        await tasks_service.edit(here.stores, here.kit._opened.payloads, task.id, actor="ada", args=_args("bank"))
        await task.submit(by="ada")
        await here.kit.drain()
        after = await here.gate(task)

        assert after.digest != before.digest
        assert after.votes == ()
        with pytest.raises(DigestMismatch):
            await here.vote(task, "bob", digest=before.digest)


async def test_last_pusher(here: Scene) -> None:
    task = await here.asked()
    await here.vote(task, "bob", CHANGES)
    await tasks_service.edit(here.stores, here.kit._opened.payloads, task.id, actor="cyd", description="as asked")
    await task.submit(by="cyd")
    await here.kit.drain()

    with pytest.raises(ConflictOfInterest):
        await here.vote(task, "cyd")
    assert (await here.vote(task, "bob")).status is Status.PENDING


async def test_stale_approval(here: Scene) -> None:
    await here.rules({**ONE, "valid_for": "4h"})
    task = await here.asked(start="by_hand")
    assert (await here.vote(task, "bob")).status is Status.APPROVED
    await here.kit.advance(4 * HOUR)

    after = await task.get()
    assert (after.status, after.reason) == (Status.REJECTED, "expired: the approval is too old")


async def test_base_state_changed(here: Scene) -> None:
    task = await here.asked()
    await here.vote(task, "bob")
    here.versions["site"] = "v2"
    await here.kit.drain()

    assert here.deployed == []
    assert (await task.status()) is Status.REVIEWING
    review = (await task.get()).review
    assert review is not None
    assert [gate.state for gate in review.gates] == [GateState.STALE, GateState.OPEN]
    await here.vote(task, "bob")
    await here.kit.drain()
    assert here.deployed == ["shop"]


async def test_escalation(here: Scene) -> None:
    steps = [{"after": "1h", "roles": ["admin"]}]
    await here.rules({**ONE, "rules": [{"needed": 1, "users": ["bob"]}], "steps": steps})
    task = await here.asked()
    with pytest.raises(NotEligible):
        await here.vote(task, "root")
    await here.kit.advance(HOUR)
    await here.kit.advance(60)

    assert (await here.types(task)).count("approval.escalated") == 1
    assert (await task.status()) is Status.REVIEWING
    assert (await here.vote(task, "root")).status is Status.PENDING


async def test_no_answer(here: Scene) -> None:
    task = await here.asked()
    await here.kit.advance(DAY)

    after = await task.get()
    assert (after.status, after.reason) == (Status.REJECTED, "expired: no one answered in time")
    with pytest.raises(GateClosed):
        await here.vote(task, "bob")


class TestDenyAndVeto:
    async def test_one_no_is_enough(self, here: Scene) -> None:
        await here.rules(TWO)
        task = await here.asked()
        await here.vote(task, "bob")
        assert (await here.vote(task, "cyd", REJECT)).status is Status.REJECTED

    async def test_unless_the_policy_wants_more(self, here: Scene) -> None:
        await here.rules({**TWO, "deny_threshold": 2})
        task = await here.asked()
        await here.vote(task, "bob", REJECT)
        assert (await task.status()) is Status.REVIEWING
        assert (await here.vote(task, "cyd", REJECT)).status is Status.REJECTED

    async def test_a_veto_counts_for_all(self, here: Scene) -> None:
        await here.rules({**TWO, "deny_threshold": 3, "veto_roles": ["security"]})
        await here.people(sam="security")
        task = await here.asked()
        assert (await here.vote(task, "sam", REJECT)).status is Status.REJECTED


class TestRequestChanges:
    async def test_it_goes_back_to_its_author_and_blocks(self, here: Scene) -> None:
        task = await here.asked()
        after = await here.vote(task, "bob", CHANGES)

        assert after.status is Status.DRAFT
        assert (await here.gate(task)).state is GateState.CHANGES_REQUESTED
        assert (await here.vote(task, "cyd")).status is Status.DRAFT  # others do not clear it

    async def test_whoever_asked_may_think_again(self, here: Scene) -> None:
        task = await here.asked()
        await here.vote(task, "bob", CHANGES)
        assert (await here.vote(task, "bob")).status is Status.PENDING

    async def test_an_administrator_may_dismiss_it_and_the_author_may_not(self, here: Scene) -> None:
        await here.people(al="admin")
        task = await here.asked(author="al")
        await here.vote(task, "bob", CHANGES)

        with pytest.raises(NotPermitted):
            await approvals_service.dismiss(here.stores, task.id, "bob", "no need", actor="cyd")
        with pytest.raises(NotPermitted):
            await approvals_service.dismiss(here.stores, task.id, "bob", "no need", actor="al")
        assert (
            await approvals_service.dismiss(here.stores, task.id, "bob", "away", actor="root")
        ).status is Status.REVIEWING


async def test_change_of_vote(here: Scene) -> None:
    await here.rules({**TWO, "deny_threshold": 2})
    task = await here.asked()
    await here.vote(task, "bob", REJECT)
    await here.vote(task, "bob")

    assert len((await here.gate(task)).votes) == 2  # both on record
    assert (await here.vote(task, "cyd")).status is Status.PENDING  # and the newest counts


class TestAfterTheDecision:
    async def test_late_votes_are_told_the_outcome(self, here: Scene) -> None:
        task = await here.asked()
        await here.vote(task, "bob", REJECT)
        with pytest.raises(GateClosed, match="rejected"):
            await here.vote(task, "cyd")

    async def test_an_approval_is_taken_back_by_a_verb_of_its_own(self, here: Scene) -> None:
        task = await here.asked(start="by_hand")
        await here.vote(task, "bob")
        with pytest.raises(NotPermitted):
            await approvals_service.revoke(here.stores, task.id, "hm", actor="cyd")
        after = await approvals_service.revoke(here.stores, task.id, "found a fault", actor="bob")

        assert after.status is Status.REVIEWING
        assert after.review is not None
        assert [gate.state for gate in after.review.gates] == [GateState.REVOKED, GateState.OPEN]


async def test_double_click_and_two_tabs(here: Scene) -> None:
    task = await here.asked()
    answers = await asyncio.gather(*(here.vote(task, "bob") for _ in range(100)))

    assert {answer.status for answer in answers} == {Status.PENDING}
    assert len((await here.gate(task)).votes) == 1
    assert (await here.types(task)).count("approval.approved") == 1


class TestEligibilityChangesLater:
    async def test_who_is_gone_at_the_start_counts_no_more(self, here: Scene) -> None:
        task = await here.asked()
        await here.vote(task, "bob")
        await here.change("bob", is_active=False)
        await here.kit.drain()

        assert here.deployed == []
        assert (await task.status()) is Status.REVIEWING

    async def test_from_a_high_risk_on_the_role_must_last(self, here: Scene) -> None:
        await here.rules(ONE, criticality={"db:main": 100, "*": 100})
        resources = [f"db:{number}" for number in range(16)]
        task = await here.asked(resources=["db:main", *resources])
        assert (await here.gate(task)).subject.level == "high"
        await here.vote(task, "bob", authenticated_at=here.kit.clock.now())
        await here.change("bob", roles=frozenset({"viewer"}))
        await here.kit.drain()

        assert here.deployed == []
        assert (await task.status()) is Status.REVIEWING


async def test_unsatisfiable(here: Scene) -> None:
    await here.rules({**ONE, "rules": [{"needed": 2, "roles": ["dba"]}]})
    task = await here.asked()

    assert (await here.gate(task)).state is GateState.BLOCKED
    assert "approval.blocked" in await here.types(task)
    await here.change("bob", roles=frozenset({"dba"}))
    await here.change("cyd", roles=frozenset({"dba"}))
    await here.kit.advance(10)
    assert (await here.gate(task)).state is GateState.OPEN


async def test_bypass(here: Scene) -> None:
    task = await here.asked()
    now = here.kit.clock.now()
    with pytest.raises(NotPermitted):
        await approvals_service.break_glass(here.stores, task.id, "fire", actor="bob", authenticated_at=now)
    with pytest.raises(ReauthenticationNeeded):
        await approvals_service.break_glass(here.stores, task.id, "fire", actor="root")
    with pytest.raises(InvalidTask):
        await approvals_service.break_glass(here.stores, task.id, " ", actor="root", authenticated_at=now)
    await approvals_service.break_glass(here.stores, task.id, "fire", actor="root", authenticated_at=now)
    await here.kit.drain()

    assert here.deployed == ["shop"]
    types = await here.types(task)
    assert "approval.bypassed" in types
    assert "task.approved" not in types
    review = (await task.get()).review
    assert review is not None
    assert review.bypass is not None
    [later] = [gate for gate in review.gates if gate.step == "after the fact"]
    ballot = VoteRequest(voter="bob", decision=APPROVE, approval=later.id, digest=later.digest, reason="was right")
    await approvals_service.vote(here.stores, task.id, ballot)
    assert (await task.status()) is Status.COMPLETED


async def test_an_approval_is_for_one_generation(here: Scene) -> None:
    here.fails = True
    task = await here.asked(max_attempts=1)
    await here.vote(task, "bob")
    await here.kit.drain()
    assert (await task.status()) is Status.FAILED
    await submission.replay(here.stores, here.kit._opened.payloads, task.id)
    await here.kit.drain()

    assert here.deployed == ["shop"]  # by the first run, which failed then
    assert (await task.status()) is Status.REVIEWING
    here.fails = False
    await here.vote(task, "bob")
    await here.kit.drain()
    assert (await task.status()) is Status.COMPLETED


async def test_a_no_that_counts_again_ends_it(here: Scene) -> None:
    await here.rules({**TWO, "deny_threshold": 2})
    task = await here.asked()
    await here.vote(task, "bob", REJECT)
    await here.change("bob", is_active=False)
    await here.vote(task, "cyd", REJECT)
    assert (await task.status()) is Status.REVIEWING
    await here.change("bob", is_active=True)
    await here.kit.advance(10)

    assert (await task.status()) is Status.REJECTED


async def test_nobody_changes_sides_for_ever(here: Scene) -> None:
    await here.rules({**TWO, "deny_threshold": 2})
    task = await here.asked()
    for _ in range(10):
        await here.vote(task, "bob", REJECT)
        await here.vote(task, "bob")
    with pytest.raises(NotEligible, match="20 times"):
        await here.vote(task, "bob", REJECT)


class TestAutomaticApproval:
    async def test_by_policy_and_flag_as_the_system(self, here: Scene) -> None:
        await here.rules({**ONE, "auto_approve": "low"})
        task = await here.asked()
        assert (await task.status()) is Status.REVIEWING  # the flag is off
        await runtime.switch(here.stores, "auto_approve_low_risk", True, actor="root")
        other = await here.asked("bank")

        assert here.deployed == ["bank"]
        gate = await here.gate(other)
        assert (gate.is_automatic, gate.votes) == (True, ())

    async def test_never_for_a_high_risk(self, here: Scene) -> None:
        await here.rules({**ONE, "auto_approve": "medium"}, criticality={"*": 100})
        await runtime.switch(here.stores, "auto_approve_low_risk", True, actor="root")
        task = await here.asked(resources=[f"db:{number}" for number in range(16)])
        assert (await task.status()) is Status.REVIEWING


async def test_re_auth(here: Scene) -> None:
    await here.rules(ONE, criticality={"*": 100})
    task = await here.asked(resources=[f"db:{number}" for number in range(16)])
    now = here.kit.clock.now()

    for given in (None, now - 300_001, now + 60_000):
        with pytest.raises(ReauthenticationNeeded):
            await here.vote(task, "bob", authenticated_at=given)
    assert (await here.vote(task, "bob", authenticated_at=now)).status is Status.PENDING


class TestBatch:
    async def test_only_while_the_feature_is_on(self, here: Scene) -> None:
        await approvals_service.check_batch(here.stores)
        await runtime.switch(here.stores, "batch_approvals", False, actor="root")
        with pytest.raises(NotPermitted):
            await approvals_service.check_batch(here.stores)

    async def test_a_high_risk_is_looked_at_by_itself(self, here: Scene) -> None:
        await here.rules(ONE, criticality={"*": 100})
        task = await here.asked(resources=[f"db:{number}" for number in range(16)])
        gate = await here.gate(task)
        ballot = VoteRequest(
            voter="bob", decision=APPROVE, approval="", digest="", authenticated_at=here.kit.clock.now()
        )
        with pytest.raises(NotPermitted):
            await approvals_service.vote_in_batch(here.stores, gate, gate.digest, ballot)


async def test_comments(here: Scene) -> None:
    task = await here.asked()
    await approvals_service.comment(here.stores, task.id, "what about the cache?", actor="bob")
    after = await approvals_service.comment(here.stores, task.id, "what about it?", actor="ada")

    assert after.review is not None
    assert [(said.by, said.text) for said in after.review.comments][1] == ("ada", "what about it?")
    assert after.status is Status.REVIEWING
    assert (await here.gate(task)).votes == ()


async def test_audit(here: Scene) -> None:
    await here.rules(TWO)
    task = await here.asked()
    await here.vote(task, "bob")
    await here.vote(task, "cyd")
    await here.kit.drain()
    events, proof = await here.stores.events.read(0, 1_000), ApprovalProof()

    assert [fault for event in events if (fault := proof.add(event))] == []
    assert proof.starts == 1
    forged, without = (
        [event for event in events if event.actor != "cyd" or event.type != "approval.approved"],
        ApprovalProof(),
    )
    assert [fault for event in forged if (fault := without.add(event))] != []  # one vote is missing


async def test_waiting_and_the_queue(here: Scene) -> None:
    task = await here.asked()

    waiting = await task.get()
    assert (waiting.status, waiting.lease_until, waiting.worker_id, waiting.attempt) == (
        Status.REVIEWING,
        None,
        None,
        0,
    )
    assert await here.kit.drain() == 0  # nobody can claim it
    assert (await here.vote(task, "bob")).status is Status.PENDING  # decided and put in line in one write
    assert (await here.gate(task)).id == f"{task.id}.1"


def _args(what: str) -> object:
    from msgspec import Raw

    return Raw(f'{{"what":"{what}"}}'.encode())


async def test_notifications(here: Scene) -> None:
    """Nobody with a hand in it is asked, and delegates are."""
    await here.rules({**ONE, "rules": [{"needed": 1, "users": ["ada", "bob"]}]})
    await delegations.create(here.stores, a_delegation(here, "bob", "cyd"), actor="bob")
    task = await here.asked()
    asked = {name: [item.task_id for item in await inbox(here.stores, name)] for name in ("ada", "bob", "cyd", "dan")}

    assert asked == {"ada": [], "bob": [task.id], "cyd": [task.id], "dan": []}


class TestHumanInboxVerbs:
    async def test_an_amended_task_is_another_one_and_others_must_answer(self, here: Scene) -> None:
        task = await here.asked()
        before = await here.gate(task)
        ballot = VoteRequest(voter="bob", decision=CHANGES, approval=before.id, digest=before.digest)
        await approvals_service.amend(here.stores, here.kit._opened.payloads, task.id, ballot, args=_args("bank"))
        await here.kit.drain()

        assert (await here.gate(task)).digest != before.digest
        with pytest.raises(ConflictOfInterest):
            await here.vote(task, "bob")
        await here.vote(task, "cyd")
        await here.kit.drain()
        assert here.deployed == ["bank"]

    async def test_only_who_is_asked_can_amend_it_and_only_what_he_has_seen(self, here: Scene) -> None:
        task = await here.asked()
        gate, payloads = await here.gate(task), here.kit._opened.payloads
        for voter, seen in (("ada", gate.digest), ("bob", "0" * 64)):
            ballot = VoteRequest(voter=voter, decision=CHANGES, approval=gate.id, digest=seen)
            with pytest.raises((ConflictOfInterest, DigestMismatch)):
                await approvals_service.amend(here.stores, payloads, task.id, ballot, args=_args("bank"))
        assert (await here.gate(task)).votes == ()

    async def test_an_answer_can_be_put_off(self, here: Scene) -> None:
        task = await here.asked()
        await approvals_service.snooze(here.stores, task.id, "bob", here.kit.clock.now() + HOUR * 1000)

        assert await inbox(here.stores, "bob") == []
        assert len(await inbox(here.stores, "cyd")) == 1
        await here.kit.advance(HOUR)
        assert len(await inbox(here.stores, "bob")) == 1

    async def test_not_for_ever(self, here: Scene) -> None:
        task = await here.asked()
        for until in (0, here.kit.clock.now() + 8 * DAY * 1000):
            with pytest.raises(InvalidTask):
                await approvals_service.snooze(here.stores, task.id, "bob", until)
