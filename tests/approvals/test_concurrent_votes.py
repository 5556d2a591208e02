"""Many people answer at the same moment, from several processes: each counts once, and nobody is forgotten."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from ade import GateClosed, Status, Task
from ade.approvals import repository as approvals_repository
from ade.approvals import service as approvals_service
from ade.approvals import submission
from tests.approvals.scene import APPROVE, REJECT
from tests.conformance.backends import BACKENDS, sound
from tests.domain import GateState, Payloads, Review, Stores, User, VoteRequest, add_user, enqueue, read_rulebook, uuid7

VOTERS = [f"reviewer{number}" for number in range(20)]
ROOT = Path(__file__).parents[2]
PROGRAM = """
import asyncio, sys
from ade.approvals.model import Decision
from ade.approvals.votes import VoteRequest
from ade.approvals.service import vote
from ade.composition.stores import open_stores

async def main(url, task_id, digest, *voters):
    stores = await open_stores(url)
    gate = f"{task_id}.1"
    ballots = [VoteRequest(voter=voter, decision=Decision.APPROVE, approval=gate, digest=digest) for voter in voters]
    await asyncio.gather(*(vote(stores, task_id, ballot) for ballot in ballots))
    await stores.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=["memory", "sqlite", "valkey", "cluster"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    async with sound(await BACKENDS[request.param].open(tmp_path, None)) as opened:
        for voter in ("ada", *VOTERS):
            await add_user(opened, User(id=voter, roles=frozenset({"reviewer"})))
        yield opened


async def asked(stores: Stores, needed: int, **policy: object) -> Task:
    """A task at a gate that needs so many."""
    ours = {"id": "ours", "names": ["deploy"], "rules": [{"needed": needed, "roles": ["reviewer"]}], **policy}
    await approvals_repository.apply(stores, read_rulebook({"policy": [ours]}), actor="root")
    payloads = Payloads(stores.blobs)
    draft = Task(
        id=uuid7(stores.clock.now(), b"0123456789"),
        name="deploy",
        args=Raw(b"{}"),
        author_id="ada",
        status=Status.DRAFT,
        review=Review(),
    )
    await enqueue(stores, payloads, [draft])
    return await submission.submit(stores, payloads, draft.id)


async def votes_told(stores: Stores, task: Task) -> list[str | None]:
    events = await stores.events.read(0, 1_000, task_id=task.id)
    return [event.actor for event in events if event.type in ("approval.approved", "approval.rejected")]


async def now(stores: Stores, task: Task) -> Task:
    [found] = await stores.tasks.get([task.id])
    assert found is not None
    assert found.review is not None
    assert found.review.gate is not None
    return found


def shown(task: Task) -> dict[str, Any]:
    """What the voters have seen."""
    return {"approval": f"{task.id}.1", "digest": task.digest}


async def test_the_same_click_a_hundred_times_is_one_vote(stores: Stores) -> None:
    task = await asked(stores, 2)
    ballot = VoteRequest(voter=VOTERS[0], decision=APPROVE, **shown(task))
    answers = await asyncio.gather(*(approvals_service.vote(stores, task.id, ballot) for _ in range(100)))

    found = await now(stores, task)
    assert {answer.version for answer in answers} == {found.version}
    assert [vote.voter for vote in found.review.gate.votes] == [VOTERS[0]]  # type: ignore[union-attr]  # see now()
    assert await votes_told(stores, task) == [VOTERS[0]]


async def test_the_last_vote_a_hundred_times_lets_the_task_through_once(stores: Stores) -> None:
    task = await asked(stores, 1)
    ballot = VoteRequest(voter=VOTERS[0], decision=APPROVE, **shown(task))
    answers = await asyncio.gather(*(approvals_service.vote(stores, task.id, ballot) for _ in range(100)))

    assert {answer.status for answer in answers} == {Status.PENDING}
    kinds = [event.type for event in await stores.events.read(0, 1_000, task_id=task.id)]
    assert [kinds.count(kind) for kind in ("approval.approved", "task.approved", "task.queued")] == [1, 1, 1]


async def test_of_twenty_people_at_once_all_are_heard(stores: Stores) -> None:
    task = await asked(stores, 20)
    ballots = [VoteRequest(voter=voter, decision=APPROVE, **shown(task)) for voter in VOTERS]
    await asyncio.gather(*(approvals_service.vote(stores, task.id, ballot) for ballot in ballots))

    found = await now(stores, task)
    assert sorted(vote.voter for vote in found.review.gate.votes) == sorted(VOTERS)  # type: ignore[union-attr]
    assert [vote.seq for vote in found.review.gate.votes] == [*range(1, 21)]  # type: ignore[union-attr]
    assert found.status is Status.PENDING
    assert sorted(str(actor) for actor in await votes_told(stores, task)) == sorted(VOTERS)


async def test_yes_and_no_at_once_are_decided_once_and_never_again(stores: Stores) -> None:
    task = await asked(stores, 5)
    ballots = [
        VoteRequest(voter=voter, decision=REJECT if number == 7 else APPROVE, **shown(task))
        for number, voter in enumerate(VOTERS)
    ]
    answers = await asyncio.gather(
        *(approvals_service.vote(stores, task.id, ballot) for ballot in ballots), return_exceptions=True
    )

    found = await now(stores, task)
    gate = found.review.gate  # type: ignore[union-attr]
    assert gate is not None
    assert (gate.state, found.status) in (
        (GateState.APPROVED, Status.PENDING),
        (GateState.REJECTED, Status.REJECTED),
    )
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert {type(answer) for answer in refused} <= {GateClosed}
    assert len(gate.votes) + len(refused) == len(VOTERS)
    assert len(await votes_told(stores, task)) == len(gate.votes)


async def test_two_processes_count_together(tmp_path: Path) -> None:
    stores = await BACKENDS["sqlite"].open(tmp_path, None)
    for voter in ("ada", *VOTERS):
        await add_user(stores, User(id=voter, roles=frozenset({"reviewer"})))
    task = await asked(stores, 20)
    command = [sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path / 'ade.db'}", task.id, task.digest or ""]
    # The one in the middle votes in both.
    halves = [subprocess.Popen([*command, *voters], cwd=ROOT) for voters in (VOTERS[:11], VOTERS[10:])]
    codes = [await asyncio.to_thread(half.wait, 60) for half in halves]
    found = await now(stores, task)
    told = await votes_told(stores, task)
    await stores.close()

    assert codes == [0, 0]
    assert found.status is Status.PENDING
    assert sorted(map(str, told)) == sorted(VOTERS)
