"""What waits for whom, how each approval stands, and how people have dealt with it."""

from typing import Any

import pytest

from ade import Status, Task
from ade.accounts.model import InvalidDelegation, User
from ade.approvals import delegations, submission
from ade.approvals import repository as approvals_repository
from ade.approvals import service as approvals_service
from ade.approvals.model import Decision, Delegation, GateState, Review, StartMode
from ade.approvals.repository import load_people
from ade.approvals.stats import user_stats
from ade.approvals.views import (
    GateView,
    PendingApproval,
    ReviewView,
    inbox,
    task_stats,
    view_review,
    waiting,
)
from ade.approvals.votes import gate_to_answer
from ade.tasks.service import edit
from tests.domain import Stores, UserChanges, VoteRequest, add_user, change_user, explain, read_rulebook
from tests.tasks.queue_driver import QueueDriver

DAY = 86_400_000
BOOK = {
    "criticality": {"db:main": 100},
    "risk": {"unknown_resources": "low"},  # these stories are about people: a task that names nothing is harmless here
    "policy": [
        {
            "id": "pairs",
            "rules": [{"needed": 2, "roles": ["reviewer"], "name": "two reviewers"}],
            "steps": [{"after": "1h", "roles": ["admin"]}],
        },
        {"id": "dora", "rules": [{"needed": 1, "users": ["dora"]}]},
    ],
}


@pytest.fixture(autouse=True)
async def people(stores: Stores) -> None:
    """An admin who writes the tasks, and three reviewers."""
    await add_user(stores, User(id="ada", roles=frozenset({"admin"})))
    for name in ("rita", "rob", "ruth"):
        await add_user(stores, User(id=name, roles=frozenset({"reviewer"})))
    await approvals_repository.apply(stores, read_rulebook(BOOK), actor="ada")


async def asked(queue: QueueDriver, *policies: str, author: str = "ada", **fields: Any) -> Task:
    """A task that was written and submitted."""
    review = Review(policies=policies, start=fields.pop("start", StartMode.AT_ONCE))
    draft = await queue.enqueue("deploy", status=Status.DRAFT, author_id=author, review=review, **fields)
    return await submission.submit(queue.stores, queue.payloads, draft.id, actor=author)


async def answer(stores: Stores, task: Task, voter: str, decision: str = "approve", **more: Any) -> Task:
    gate = gate_to_answer(task)
    assert gate is not None
    ballot = VoteRequest(voter=voter, decision=Decision(decision), approval=gate.id, digest=gate.digest, **more)
    return await approvals_service.vote(stores, task.id, ballot)


async def seen(queue: QueueDriver, task: Task) -> ReviewView:
    review = view_review(await queue.get(task), await load_people(queue.stores), now=queue.clock.now())
    assert review is not None
    return review


async def newest(queue: QueueDriver, task: Task) -> GateView:
    return (await seen(queue, task)).gates[-1]


def ids(items: list[PendingApproval]) -> list[str]:
    return [item.task_id for item in items]


async def test_everybody_sees_what_is_theirs_to_answer(queue: QueueDriver, stores: Stores) -> None:
    by_ada, by_rita = await asked(queue), await asked(queue, author="rita")

    assert ids(await inbox(stores, "rob")) == [by_ada.id, by_rita.id]
    assert ids(await inbox(stores, "rita")) == [by_ada.id]
    assert ids(await inbox(stores, "ada")) == [by_rita.id]
    assert await inbox(stores, "nobody") == []
    assert [item.may_answer for item in await waiting(stores)] == [["rita", "rob", "ruth"], ["ada", "rob", "ruth"]]


async def test_the_most_urgent_comes_first(queue: QueueDriver, stores: Stores) -> None:
    late = await asked(queue)
    risky = await asked(queue, resources=("db:main",))
    queue.clock.advance(60)
    later = await asked(queue)
    urgent = await asked(queue, priority=1)
    soon = await asked(queue, deadline=queue.clock.now() + 60_000)

    assert ids(await waiting(stores)) == [urgent.id, soon.id, risky.id, late.id, later.id]


async def test_more_than_one_page_waits(queue: QueueDriver, stores: Stores) -> None:
    for _ in range(205):
        await asked(queue)

    assert len(await inbox(stores, "rita")) == 205


async def test_an_answer_that_was_given_is_not_asked_for_again(queue: QueueDriver, stores: Stores) -> None:
    task = await asked(queue, "pairs")
    await answer(stores, task, "rita")

    assert await inbox(stores, "rita") == []
    [item] = await inbox(stores, "rob")
    assert (item.missing, item.for_whom) == (["1 of two reviewers"], "")


async def test_it_is_told_for_whom_a_delegate_answers(queue: QueueDriver, stores: Stores) -> None:
    await add_user(stores, User(id="dora"))
    task, other = await asked(queue, "dora"), await asked(queue, "dora")
    now = queue.clock.now()
    lent = Delegation(id="", delegator="dora", delegate="rita", starts_at=now, ends_at=now + DAY, task_id=task.id)
    await delegations.create(stores, lent, actor="dora")

    [item] = await inbox(stores, "rita")
    assert (item.task_id, item.for_whom) == (task.id, "dora")
    assert ids(await inbox(stores, "dora")) == [task.id, other.id]
    await answer(stores, task, "rita")
    gate = await newest(queue, task)
    assert [(vote.voter, vote.for_whom, vote.why_not) for vote in gate.votes] == [("rita", "dora", "")]


async def test_one_task_is_not_delegated_to_two(queue: QueueDriver, stores: Stores) -> None:
    task, other = await asked(queue), await asked(queue)
    now = queue.clock.now()

    def lent(to: str, task_id: str) -> Delegation:
        return Delegation(id="", delegator="rita", delegate=to, starts_at=now, ends_at=now + DAY, task_id=task_id)

    await delegations.create(stores, lent("rob", task.id), actor="rita")
    await delegations.create(stores, lent("ruth", other.id), actor="rita")
    with pytest.raises(InvalidDelegation):
        await delegations.create(stores, lent("ruth", task.id), actor="rita")


async def test_what_nobody_can_answer_is_seen_and_explains_itself(queue: QueueDriver, stores: Stores) -> None:
    task = await asked(queue, "dora")

    [item] = await waiting(stores)
    assert (item.state, item.may_answer, item.missing) == (GateState.BLOCKED, [], ["1 of dora"])
    why = await explain(stores, task.id)
    assert why.codes == ["approval_blocked"]
    assert "no one is left" in why.sentence
    assert why.reasons[0].advice == "`ade users add dora` creates an account that can"


async def test_a_role_that_nobody_has_names_the_role(queue: QueueDriver, stores: Stores) -> None:
    for name in ("rita", "rob"):
        await change_user(stores, name, UserChanges(is_active=False))
    task = await asked(queue, "pairs")

    why = await explain(stores, task.id)
    assert "only ruth may still (involved and therefore excluded: ada): 2 of two reviewers missing" in why.sentence
    assert "`ade users add NAME --role reviewer`" in (why.reasons[0].advice or "")


async def test_a_bypassed_approval_is_looked_at_after_the_fact(queue: QueueDriver, stores: Stores) -> None:
    task = await asked(queue, author="rita")
    now = stores.clock.now()
    await approvals_service.break_glass(stores, task.id, "the shop is down", actor="ada", authenticated_at=now)

    assert await inbox(stores, "ada") == []
    [item] = await inbox(stores, "rob")
    assert (item.task_id, item.step) == (task.id, "after the fact")
    after = await answer(stores, await queue.get(task), "rob", "reject", reason="it could have waited")
    assert after.status is Status.PENDING
    assert await inbox(stores, "rob") == []
    review = await seen(queue, task)
    assert review.bypass is not None
    assert [(gate.step, gate.state) for gate in review.gates] == [("after the fact", "rejected"), ("", "cancelled")]


async def test_an_approval_tells_how_it_stands(queue: QueueDriver, stores: Stores) -> None:
    task = await asked(queue, "pairs", resources=("service:web",))
    await answer(stores, task, "rita", reason="fine")
    await approvals_service.comment(stores, task.id, "on which day?", actor="ruth")

    review = await seen(queue, task)
    [gate] = review.gates
    assert (gate.state, gate.policy, gate.missing) == (GateState.OPEN, "pairs", ["1 of two reviewers"])
    assert [(rule.needed, rule.filled_by) for rule in gate.rules] == [(2, ["rita"])]
    assert (gate.may_answer, gate.conflicts) == (["rob", "ruth"], ["ada"])
    assert [(vote.voter, vote.reason, vote.why_not) for vote in gate.votes] == [("rita", "fine", "")]
    [step] = gate.escalations
    assert (step.at, step.roles, step.is_fired) == (gate.opened_at + 3_600_000, ["admin"], False)
    assert gate.expires_at == gate.opened_at + DAY
    assert [comment.text for comment in review.comments] == ["on which day?"]
    assert review.risk is not None
    assert review.risk["level"] == gate.level
    assert (review.risk["auto_approvable"], review.risk["assessed_by"]) == (False, "ade-risk/1")


async def test_people_are_shown_by_their_display_names(queue: QueueDriver, stores: Stores) -> None:
    for account, name in (("ada", "Ada Lovelace"), ("rita", "Rita Levi"), ("rob", "Rob Pike")):
        await change_user(stores, account, UserChanges(display_name=name))
    task = await asked(queue, "pairs")
    await answer(stores, task, "rita")

    [pending] = await waiting(stores)
    assert (pending.author, pending.author_name) == ("ada", "Ada Lovelace")
    [gate] = (await seen(queue, task)).gates
    assert [(vote.voter, vote.voter_name) for vote in gate.votes] == [("rita", "Rita Levi")]
    assert gate.names == {"ada": "Ada Lovelace", "rita": "Rita Levi", "rob": "Rob Pike"}  # ruth has none
    await change_user(stores, "ada", UserChanges(display_name="Ada King"))
    [pending] = await waiting(stores)
    assert pending.author_name == "Ada King"
    [stored] = await stores.tasks.get([task.id])
    assert stored is not None
    assert (stored.author_id, stored.author_name) == ("ada", "Ada Lovelace")  # as it was then


async def test_votes_that_do_not_count_say_why(queue: QueueDriver, stores: Stores) -> None:
    task = await asked(queue, "pairs")
    await answer(stores, task, "rita")
    await answer(stores, task, "rob")
    await approvals_service.revoke(stores, task.id, "too early", actor="rita")
    task = await answer(stores, await queue.get(task), "rita")
    await change_user(stores, "rita", UserChanges(is_active=False))

    gate = await newest(queue, task)
    assert [vote.why_not for vote in gate.votes] == ["rita is not an active person"]
    await change_user(stores, "rita", UserChanges(is_active=True, fewer_roles=frozenset({"reviewer"})))
    assert [vote.why_not for vote in (await newest(queue, task)).votes] == ["no rule includes rita any longer"]
    assert [gate.state for gate in (await seen(queue, task)).gates] == ["revoked", "open"]


async def test_the_later_of_two_votes_counts(queue: QueueDriver, stores: Stores) -> None:
    task = await asked(queue, "pairs")
    task = await answer(stores, task, "rita")
    task = await answer(stores, task, "rita", "request_changes", reason="name the host")

    gate = await newest(queue, task)
    assert gate.state is GateState.CHANGES_REQUESTED
    assert [vote.why_not for vote in gate.votes] == ["the same person voted again later", ""]


async def test_an_approval_is_used_up_by_the_start(queue: QueueDriver, stores: Stores) -> None:
    task = await asked(queue)
    await answer(stores, task, "rita")

    before = await newest(queue, task)
    assert (before.state, before.valid_until) == (GateState.APPROVED, queue.clock.now() + DAY)
    await queue.claim("deploy")
    after = await newest(queue, task)
    assert (after.state, after.valid_until) == (GateState.CONSUMED, None)
    assert [rule.filled_by for rule in after.rules] == [["rita"]]


async def test_what_somebody_did_today_is_told(queue: QueueDriver, stores: Stores) -> None:
    for decision in ("approve", "approve", "reject"):
        task = await asked(queue)
        queue.clock.advance(10)
        await answer(stores, task, "rita", decision)
    waiting_still = await asked(queue)

    told = await user_stats(stores, "rita")
    assert (told.pending, told.approved, told.rejected, told.response_ms) == (1, 2, 1, 10_000)
    assert (told.last_action, told.last_at) == ("approval.rejected", queue.clock.now())
    queue.clock.advance(DAY / 1000 - 20)  # past midnight: that is when the clock began
    later = await user_stats(stores, "rita")
    assert (later.approved, later.rejected, later.response_ms) == (0, 0, None)
    assert later.last_action == "approval.rejected"
    assert (await user_stats(stores, "rob")).last_at is None
    assert ids(await inbox(stores, "rob")) == [waiting_still.id]


async def test_how_far_a_task_is(queue: QueueDriver, stores: Stores) -> None:
    plain, task = await queue.enqueue(), await asked(queue, "pairs")
    known = await load_people(stores)

    async def far() -> tuple[int, int, int, int, bool]:
        told = task_stats(await queue.get(task), known, now=queue.clock.now())
        assert told is not None
        return told.required, told.approved, told.rejected, told.pending, told.quorum_reached

    assert task_stats(plain, known, now=queue.clock.now()) is None
    assert await far() == (2, 0, 0, 2, False)
    await answer(stores, task, "rita")
    assert await far() == (2, 1, 0, 1, False)
    await answer(stores, task, "rob")
    assert await far() == (2, 2, 0, 0, True)


async def test_who_must_still_answer_is_explained(queue: QueueDriver, stores: Stores) -> None:
    task = await asked(queue, "pairs")
    await answer(stores, task, "rita")

    why = await explain(stores, task.id)
    assert why.codes == ["waits_for_approval"]
    assert "1 of two reviewers missing, rob, ruth may answer" in why.sentence
    assert "it expires at 2030-01-02T00:00:00.000Z" in why.sentence
    assert why.reasons[0].facts["may_answer"] == ["rob", "ruth"]


async def test_an_approved_task_explains_what_it_waits_for(queue: QueueDriver, stores: Stores) -> None:
    task = await asked(queue, start=StartMode.BY_HAND)
    await answer(stores, task, "rita")

    why = await explain(stores, task.id)
    assert why.codes == ["waits_for_start"]
    assert why.reasons[0].advice == f"`ade approvals start {task.id}` does"
    assert "good until 2030-01-02" in why.sentence


async def test_a_draft_explains_what_is_to_be_done(queue: QueueDriver, stores: Stores) -> None:
    draft = await queue.enqueue("deploy", status=Status.DRAFT, author_id="ada")
    wrong = await asked(queue, "no-such-policy")
    asked_back = await answer(stores, await asked(queue), "rita", "request_changes", reason="name the host")

    assert (await explain(stores, draft.id)).codes == ["draft"]
    why = await explain(stores, wrong.id)
    assert (wrong.status, why.codes) == (Status.DRAFT, ["sent_back"])
    assert "no-such-policy" in why.sentence
    why = await explain(stores, asked_back.id)
    assert why.codes == ["changes_requested"]
    assert why.sentence.startswith("Changes were asked for by rita: name the host")
    await edit(stores, queue.payloads, asked_back.id, actor="ada", description="on host 7")
    assert (await explain(stores, asked_back.id)).codes == ["draft"]
