"""What votes mean: all rules met together, by those who may, for the digest that counts, in time; no goes first."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from ade.accounts.model import Account, Directory
from ade.approvals.errors import InvalidPolicy
from ade.approvals.gates import GateStanding, admitting_chain, evaluate, still_stands
from ade.approvals.model import (
    Decision,
    Delegation,
    Gate,
    GateState,
    Policy,
    PolicyRule,
    PolicyStep,
    Recheck,
    Subject,
    Vote,
    check_policy,
)

DAY = 86_400_000
APPROVE, REJECT, CHANGES = Decision.APPROVE, Decision.REJECT, Decision.REQUEST_CHANGES
RESPOND = Decision.RESPOND
PEOPLE = {
    "ada": Account(id="ada", roles=frozenset({"lead", "reviewer"})),
    "bob": Account(id="bob", roles=frozenset({"ops", "reviewer"})),
    "cyd": Account(id="cyd", roles=frozenset({"ops", "lead", "reviewer"})),
    "dan": Account(id="dan", roles=frozenset({"ops", "reviewer"})),
    "bot": Account(id="bot", roles=frozenset({"ops", "lead"}), is_human=False),
}
TWO_OPS = Policy(id="two ops", rules=(PolicyRule(needed=2, roles=frozenset({"ops"})),))


def gate(policy: Policy = TWO_OPS, *conflicts: str, **more: object) -> Gate:
    known: dict[str, object] = {"opened_at": 0, "digest": "d1", "subject": Subject(name="deploy")}
    return Gate(id="g", task_id="t", policy=policy, conflicts=frozenset(conflicts or {"eve"}), **(known | more))  # type: ignore[arg-type]  # its fields by name


def vote(seq: int, voter: str, decision: Decision = APPROVE, **more: object) -> Vote:
    known: dict[str, object] = {"digest": "d1", "at": seq, "roles": PEOPLE[voter].roles}
    return Vote(seq=seq, voter=voter, decision=decision, **(known | more))  # type: ignore[arg-type]  # its fields by name


def judged(
    votes: Sequence[Vote],
    at: Gate | None = None,
    *,
    people: dict[str, Account] | None = None,
    delegations: Sequence[Delegation] = (),
    now: int = 100,
) -> GateStanding:
    asked = structs.replace(at or gate(), votes=tuple(votes))
    return evaluate(asked, Directory((people or PEOPLE).values()), delegations, now)


def state(*votes: Vote, at: Gate | None = None, now: int = 100) -> GateState:
    return judged(votes, at, now=now).state


def test_it_is_open_until_all_rules_are_met() -> None:
    standing = judged([vote(1, "bob")])

    assert standing.state is GateState.OPEN
    assert standing.approved_by == ("bob",)
    assert standing.missing == ("1 of role ops",)
    assert standing.may_vote == ("cyd", "dan")
    assert state(vote(1, "bob"), vote(2, "dan")) is GateState.APPROVED


def test_one_person_fills_one_slot_of_several_rules() -> None:
    ops, lead = (PolicyRule(needed=1, roles=frozenset({role})) for role in ("ops", "lead"))
    both = Policy(id="both", rules=(ops, lead))

    assert state(vote(1, "cyd"), at=gate(both)) is GateState.OPEN
    assert state(vote(1, "cyd"), vote(2, "bob"), at=gate(both)) is GateState.APPROVED
    assert state(vote(1, "cyd"), vote(2, "ada"), at=gate(both)) is GateState.APPROVED


def test_two_accounts_of_one_person_count_once() -> None:
    people = {**PEOPLE, "bob2": Account(id="bob2", person="bob", roles=frozenset({"ops"}))}
    votes = [vote(1, "bob"), structs.replace(vote(2, "bob"), voter="bob2")]

    assert judged(votes, people=people).state is GateState.OPEN


def test_who_wrote_or_edited_it_never_counts() -> None:
    assert state(vote(1, "bob"), vote(2, "dan"), at=gate(TWO_OPS, "dan")) is GateState.OPEN
    free = structs.replace(TWO_OPS, authors_may_vote=True)
    assert state(vote(1, "bob"), vote(2, "dan"), at=gate(free, "dan")) is GateState.APPROVED


def test_another_account_of_the_author_never_counts() -> None:
    people = {**PEOPLE, "dan": structs.replace(PEOPLE["dan"], person="eve"), "eve": Account(id="eve")}

    assert judged([vote(1, "bob"), vote(2, "dan")], people=people).state is GateState.OPEN


def test_programs_and_those_who_left_never_count() -> None:
    gone = {**PEOPLE, "dan": structs.replace(PEOPLE["dan"], is_active=False)}

    assert state(vote(1, "bob"), vote(2, "bot")) is GateState.OPEN
    assert judged([vote(1, "bob"), vote(2, "dan")], people=gone).state is GateState.OPEN


def test_votes_for_another_digest_are_kept_and_not_counted() -> None:
    assert state(vote(1, "bob"), vote(2, "dan", digest="d0")) is GateState.OPEN


def test_one_no_is_enough_and_goes_before_any_number_of_yes() -> None:
    assert state(vote(1, "bob"), vote(2, "dan"), vote(3, "cyd", REJECT)) is GateState.REJECTED


def test_the_newest_vote_of_a_person_counts() -> None:
    assert state(vote(1, "bob", REJECT), vote(2, "bob"), vote(3, "dan")) is GateState.APPROVED
    assert state(vote(3, "bob", REJECT), vote(2, "bob"), vote(1, "dan")) is GateState.REJECTED


def test_a_higher_threshold_wants_more_who_say_no_but_a_veto_does_not() -> None:
    policy = structs.replace(TWO_OPS, deny_threshold=2, veto_roles=frozenset({"lead"}))

    assert state(vote(1, "bob", REJECT), at=gate(policy)) is GateState.OPEN
    assert state(vote(1, "bob", REJECT), vote(2, "dan", REJECT), at=gate(policy)) is GateState.REJECTED
    assert state(vote(1, "ada", REJECT), at=gate(policy)) is GateState.REJECTED, "though no rule asks for her"


def test_changes_that_somebody_asks_for_block_until_that_one_votes_again() -> None:
    asked = [vote(1, "bob"), vote(2, "cyd", CHANGES), vote(3, "dan")]

    assert state(*asked) is GateState.CHANGES_REQUESTED
    assert state(*asked, vote(4, "cyd")) is GateState.APPROVED
    assert state(*(structs.replace(one, is_dismissed=one.seq == 2) for one in asked)) is GateState.APPROVED


def test_a_rule_that_nobody_can_meet_blocks_and_never_passes() -> None:
    few = {name: account for name, account in PEOPLE.items() if name in ("ada", "bob", "bot")}

    assert judged([vote(1, "bob")], people=few).state is GateState.BLOCKED
    assert judged([], gate(TWO_OPS, "bob", "cyd")).state is GateState.BLOCKED


def test_no_answer_in_time_is_no_approval() -> None:
    assert state(vote(1, "bob"), now=DAY) is GateState.EXPIRED
    late = [vote(1, "bob"), vote(2, "dan", at=DAY)]
    assert state(*late, now=DAY + 1) is GateState.EXPIRED


def test_an_escalation_adds_people_and_approves_nothing() -> None:
    policy = structs.replace(TWO_OPS, steps=(PolicyStep(after_ms=1_000, roles=frozenset({"lead"})),))

    assert state(vote(1, "bob"), vote(2, "ada"), at=gate(policy), now=500) is GateState.OPEN
    assert state(vote(1, "bob"), vote(2, "ada", at=1_500), at=gate(policy), now=1_500) is GateState.APPROVED
    assert state(vote(1, "bob"), at=gate(policy), now=5_000) is GateState.OPEN


def test_what_is_decided_stays_decided() -> None:
    decided = structs.replace(gate(), state=GateState.REJECTED)

    assert state(vote(1, "bob"), vote(2, "dan"), at=decided) is GateState.REJECTED


def delegated(delegator: str, delegate: str) -> Delegation:
    return Delegation(id="x", delegator=delegator, delegate=delegate, starts_at=0, ends_at=DAY)


def test_a_delegate_counts_in_the_place_of_who_is_away() -> None:
    named = Policy(id="named", rules=(PolicyRule(needed=1, users=frozenset({"ada"})),))
    away = [delegated("ada", "bob")]
    by_bob = vote(1, "bob", chain=("ada", "bob"))

    assert judged([vote(1, "bob")], gate(named), delegations=away).state is GateState.OPEN
    assert judged([by_bob], gate(named), delegations=away).state is GateState.APPROVED
    assert judged([], gate(named), delegations=away).may_vote == ("ada", "bob")


def test_two_slots_that_were_delegated_to_one_person_are_one_vote() -> None:
    named = Policy(id="named", rules=(PolicyRule(needed=2, users=frozenset({"ada", "cyd"})),))
    votes = [vote(1, "bob", chain=("ada", "bob")), vote(2, "bob", chain=("cyd", "bob"))]

    assert judged(votes, gate(named)).state is GateState.OPEN


def test_a_person_and_the_delegates_of_that_person_are_one_vote() -> None:
    """Ada and a friend of hers are not two of Ada and Cyd."""
    named = Policy(id="named", deny_threshold=2, rules=(PolicyRule(needed=2, users=frozenset({"ada", "cyd"})),))
    own, by_bob, by_dan = vote(1, "ada"), vote(2, "bob", chain=("ada", "bob")), vote(3, "dan", chain=("ada", "dan"))
    away = [delegated("ada", "bob"), delegated("ada", "dan")]
    cyd = vote(4, "cyd")

    for votes in ([own, by_bob], [by_bob, by_dan], [own, by_bob, by_dan]):
        assert judged(votes, gate(named), delegations=away).state is GateState.OPEN
        assert judged([*votes, cyd], gate(named), delegations=away).state is GateState.APPROVED
    against = structs.replace(own, decision=REJECT)
    assert judged([against, by_bob, cyd], gate(named), delegations=away).state is GateState.OPEN
    assert judged([by_bob, structs.replace(against, seq=5), cyd], gate(named)).state is GateState.OPEN


def test_who_votes_for_another_is_not_represented() -> None:
    """Bob votes for Ada, and Cyd for Bob. Bob has voted, so they are not two of Ada and Bob."""
    named = Policy(id="named", rules=(PolicyRule(needed=2, users=frozenset({"ada", "bob"})),))
    for_ada, for_bob = vote(1, "bob", chain=("ada", "bob")), vote(2, "cyd", chain=("bob", "cyd"))
    away = [delegated("ada", "bob"), delegated("bob", "cyd")]

    for votes in ([for_ada, for_bob], [structs.replace(for_bob, seq=1), structs.replace(for_ada, seq=2)]):
        standing = judged(votes, gate(named), delegations=away)
        assert (standing.state, standing.approved_by) == (GateState.OPEN, ("bob",))
    voted = structs.replace(gate(named), votes=(for_ada,))
    assert admitting_chain(voted, "cyd", "bob", Directory(PEOPLE.values()), away, 100) is None
    assert judged([for_ada, vote(3, "ada"), vote(4, "bob")], gate(named)).state is GateState.APPROVED


def test_a_person_who_votes_through_a_delegation_to_an_own_account_can_vote_again() -> None:
    named = Policy(id="named", rules=(PolicyRule(needed=1, users=frozenset({"ada"})),))
    accounts = Directory([PEOPLE["ada"], structs.replace(PEOPLE["bob"], person="ada")])
    first = vote(1, "bob", chain=("ada", "bob"), person="ada")
    voted = structs.replace(gate(named), votes=(first,))

    assert evaluate(voted, accounts, [delegated("ada", "bob")], 100).state is GateState.APPROVED
    assert admitting_chain(voted, "bob", "ada", accounts, [delegated("ada", "bob")], 100) == ("ada", "bob")


def test_unlinking_accounts_does_not_multiply_the_votes_for_their_person() -> None:
    """Bob votes for Ada and Cyd for an account of hers, or Ada votes too. Then the account is unlinked."""
    named = Policy(id="named", rules=(PolicyRule(needed=2, users=frozenset({"ada", "dan"})),))
    by_bob = vote(1, "bob", chain=("ada", "bob"))
    by_cyd = vote(2, "cyd", chain=("dan", "cyd"), owner_person="ada")

    assert judged([by_bob, structs.replace(by_cyd, owner_person="")], gate(named)).state is GateState.APPROVED
    for votes in ([by_bob, by_cyd], [by_cyd, vote(3, "ada")], [by_bob, by_cyd, vote(3, "dan")]):
        assert judged(votes, gate(named)).state is GateState.OPEN


def test_a_vote_for_one_who_has_voted_is_not_accepted() -> None:
    named = Policy(id="named", rules=(PolicyRule(needed=2, users=frozenset({"ada", "cyd"})),))
    away, people = [delegated("ada", "bob"), delegated("cyd", "bob")], Directory(PEOPLE.values())

    def chain(asked: Gate, for_whom: str | None = None) -> tuple[str, ...] | None:
        return admitting_chain(asked, "bob", for_whom, people, away, 100)

    voted = structs.replace(gate(named), votes=(vote(1, "ada"),))
    assert chain(gate(named), "ada") == ("ada", "bob")
    assert chain(voted, "ada") is None
    assert chain(voted) == ("cyd", "bob")


def test_nobody_answers_for_or_through_the_author() -> None:
    named = Policy(id="named", rules=(PolicyRule(needed=1, users=frozenset({"ada", "cyd"})),))

    assert judged([vote(1, "bob", chain=("ada", "bob"))], gate(named, "ada")).state is GateState.OPEN


def test_a_role_does_not_travel_unless_the_policy_says_so() -> None:
    leads = Policy(id="leads", rules=(PolicyRule(needed=1, roles=frozenset({"lead"})),))
    by_bob = vote(1, "bob", chain=("ada", "bob"))

    assert judged([by_bob], gate(leads)).state is GateState.OPEN
    assert judged([by_bob], gate(structs.replace(leads, roles_travel=True))).state is GateState.APPROVED


class TestAtTheStart:
    VOTES = (vote(1, "bob"), vote(2, "dan"))

    def stands(self, people: dict[str, Account] = PEOPLE, policy: Policy = TWO_OPS, now: int = 100) -> bool:
        approved = structs.replace(gate(policy), state=GateState.APPROVED, decided_at=10)
        return still_stands(structs.replace(approved, votes=tuple(self.VOTES)), Directory(people.values()), now)

    def test_an_approval_stands_for_a_while(self) -> None:
        assert self.stands()
        assert not self.stands(now=10 + DAY)

    def test_whoever_approved_must_still_be_there(self) -> None:
        assert not self.stands({**PEOPLE, "dan": structs.replace(PEOPLE["dan"], is_active=False)})

    def test_and_have_the_role_where_the_policy_wants_that(self) -> None:
        demoted = {**PEOPLE, "dan": structs.replace(PEOPLE["dan"], roles=frozenset())}

        assert self.stands(demoted)
        assert not self.stands(demoted, structs.replace(TWO_OPS, recheck=Recheck.ROLES))

    def test_what_was_never_approved_does_not_stand(self) -> None:
        assert not still_stands(gate(votes=tuple(self.VOTES)), Directory(PEOPLE.values()), 100)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rules": ()},
        {"rules": (PolicyRule(needed=0, roles=frozenset({"ops"})),)},
        {"rules": (PolicyRule(needed=1),)},
        {"rules": (PolicyRule(needed=2, users=frozenset({"ada"})),)},
        {"deny_threshold": 0},
        {"expires_after_ms": 0},
        {"valid_for_ms": 31 * DAY},
        {"steps": (PolicyStep(after_ms=DAY, roles=frozenset({"lead"})),)},
        {"steps": (PolicyStep(after_ms=5),)},
        {"id": ""},
    ],
)
def test_a_policy_that_could_pass_by_nobody_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidPolicy):
        check_policy(structs.replace(TWO_OPS, **wrong))


names = st.sampled_from(sorted(PEOPLE))
digests = st.sampled_from(["d1", "d1", "d0"])
some_votes = st.lists(st.tuples(names, st.sampled_from(list(Decision)), digests), max_size=8)
some_policies = st.builds(
    lambda rules, deny: Policy(id="p", rules=tuple(rules), deny_threshold=deny),
    st.lists(
        st.builds(
            PolicyRule,
            needed=st.integers(1, 2),
            users=st.frozensets(names, max_size=2),
            roles=st.frozensets(st.sampled_from(["ops", "lead"]), min_size=1),
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 2),
)


def is_named(policy: Policy, who: str) -> bool:
    return any(who in rule.users or PEOPLE[who].roles & rule.roles for rule in policy.rules)


@given(some_policies, some_votes, st.frozensets(names, max_size=2))
@example(
    Policy(id="p", rules=(PolicyRule(needed=1, roles=frozenset({"lead"})),)),
    [("ada", Decision.APPROVE, "d1"), ("bob", Decision.REJECT, "d1")],
    frozenset(),
)
def test_nothing_is_approved_without_enough_people_who_may(
    policy: Policy, said: list[tuple[str, Decision, str]], conflicts: frozenset[str]
) -> None:
    votes = [vote(seq, who, decision, digest=digest) for seq, (who, decision, digest) in enumerate(said, 1)]
    standing = judged(votes, gate(policy, *(conflicts or {"eve"})))
    newest = {who: decision for who, decision, digest in said if digest == "d1"}
    if standing.state is GateState.APPROVED:
        approving = {who for who, decision in newest.items() if decision is APPROVE}
        assert set(standing.approved_by) <= approving - conflicts - {"bot"}
        assert len(standing.approved_by) == sum(rule.needed for rule in policy.rules)
        heard = {who for who in newest if who not in conflicts | {"bot"} and is_named(policy, who)}
        assert REJECT not in {newest[who] for who in heard} or policy.deny_threshold > 1


@given(some_policies, some_votes)
def test_a_vote_of_one_who_may_not_changes_nothing(policy: Policy, said: list[tuple[str, Decision, str]]) -> None:
    votes = [vote(seq, who, decision, digest=digest) for seq, (who, decision, digest) in enumerate(said, 1)]
    heard = [one for one in votes if one.voter not in ("ada", "bot") and one.digest == "d1"]

    assert judged(votes, gate(policy, "ada")) == judged(heard, gate(policy, "ada"))


# Responses to a step of a run deny as rejections do; the run continues if no one who denies wants it to end.


def denied(*votes: Vote, threshold: int = 2, step: str = "go live", **fields: object) -> GateState:
    strict = structs.replace(TWO_OPS, deny_threshold=threshold, **fields)
    return judged(votes, gate(strict, step=step)).state


def test_responses_count_to_the_threshold_of_rejections() -> None:
    no = vote(1, "bob", RESPOND)
    assert denied(no) is GateState.OPEN
    assert denied(no, vote(2, "cyd", RESPOND)) is GateState.RESPONDED
    assert denied(no, vote(2, "cyd", REJECT, go_on=True)) is GateState.RESPONDED
    assert denied(no, threshold=1) is GateState.RESPONDED


def test_the_run_ends_if_anyone_who_denies_wants_it_to() -> None:
    assert denied(vote(1, "bob", RESPOND), vote(2, "cyd", REJECT)) is GateState.REJECTED


def test_a_response_of_a_role_with_a_veto_is_enough() -> None:
    assert denied(vote(1, "cyd", RESPOND), veto_roles=frozenset({"lead"})) is GateState.RESPONDED


def test_a_response_goes_before_approvals() -> None:
    assert denied(vote(1, "bob"), vote(2, "cyd"), vote(3, "dan", RESPOND), threshold=1) is GateState.RESPONDED


@pytest.mark.parametrize("step", ["", "after the fact"])
def test_no_run_continues_where_none_waits(step: str) -> None:
    assert denied(vote(1, "bob", RESPOND), threshold=1, step=step) is GateState.REJECTED
