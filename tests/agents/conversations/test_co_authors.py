"""Attack: several accounts write one turn of a conversation, and one of them approves what another is the author of."""

from collections.abc import Sequence

import pytest

from ade import Status, Task
from ade.approvals import repository as approvals_repository
from ade.approvals import service as approvals_service
from ade.approvals.errors import ConflictOfInterest
from ade.approvals.submission import enqueue_guarded
from tests.agents.conversations.coding_agent import TALK, Coder, tasks_of, turns
from tests.agents.conversations.consumers import Waterworks
from tests.domain import Decision, User, VoteRequest, add_user, admit, read_rulebook
from tests.waiting import eventually
from tests.worker.harness import Workshop

RULES = {
    "guard": [{"do": "demand", "name": "agent:coder", "policy": "one", "reason": "care"}],
    "policy": [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}],
}


async def test_whoever_wrote_part_of_a_turn_cannot_approve_it(works: Waterworks, shop: Workshop, coder: Coder) -> None:
    for name in ("ann", "bert", "carl", "dora"):
        await add_user(works.stores, User(id=name, roles=frozenset({"reviewer"})))
    await approvals_repository.apply(works.stores, read_rulebook(RULES), actor="dora")

    async def guarded(tasks: Sequence[Task]) -> list[Task]:
        new = [admit(task, now=works.stores.clock.now()) for task in tasks]
        return await enqueue_guarded(works.stores, shop.payloads, new)

    async def reviewing() -> Task | None:
        return next((task for task in await tasks_of(shop) if task.status is Status.REVIEWING), None)

    async def vote(voter: str) -> None:
        task = await eventually(reviewing)
        assert task.digest is not None
        ballot = VoteRequest(voter=voter, decision=Decision.APPROVE, approval=f"{task.id}.1", digest=task.digest)
        await approvals_service.vote(works.stores, task.id, ballot)

    await works.say(TALK, "look at the invoices", author="ann")
    await works.say(TALK, "and pay them", author="bert")
    await works.say(TALK, "all to me", author="carl")
    async with shop.worker(), works.house(turns(shop, guarded)):
        for writer in ("ann", "bert", "carl"):
            with pytest.raises(ConflictOfInterest):
                await vote(writer)
        assert coder.prompts == []
        await vote("dora")
        await works.until_empty(TALK)
    assert coder.prompts == ["look at the invoices\nand pay them\nall to me"]
