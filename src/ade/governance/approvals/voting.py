"""People answer: one gate, or up to fifty at once; and what else they can do about an approval."""

from collections.abc import Sequence

from msgspec import Struct, structs

from ade.core.accounts.permissions import Permission
from ade.core.approvals import deciding
from ade.core.approvals.opening import review_of
from ade.core.approvals.records import Decision
from ade.core.approvals.refusals import NotPermitted, ReauthenticationNeeded
from ade.core.approvals.voting import REAUTHENTICATION_MS, Ballot, cast, gate_for
from ade.core.change import Change
from ade.core.errors import AdeError, InvalidTask, StoreError
from ade.core.lifecycle import Status
from ade.core.records import Task
from ade.governance import runtime as runtimes
from ade.governance.approvals.rolling_back import prepare_rollbacks
from ade.governance.approvals.situation import load_people
from ade.governance.directory.users import permitted
from ade.ports import Stores
from ade.queue.decisions import decide, get
from ade.queue.payloads import Payloads
from ade.queue.tasks import Check, any_version

MOST_TOGETHER = 50
_TRIES = 200  # whenever one is too late, somebody else's answer has been written


async def vote(stores: Stores, task_id: str, ballot: Ballot, *, gate_id: str | None = None) -> Task:
    """Answer at the newest gate of a task, or at one that is named. The same answer twice is one answer.

    Raises NoGate, GateClosed, DigestMismatch, NotEligible and its kinds.
    """
    people = await load_people(stores)

    async def prepare(change: Change) -> None:
        """A no may end a task that was let go up to some step: what undoes that is stored first."""
        await prepare_rollbacks(stores, Payloads(stores.blobs), [change])

    return await decide(
        stores,
        task_id,
        lambda task, now: cast(task, ballot, people, now=now, gate_id=gate_id),
        tries=_TRIES,
        before=prepare,
    )


class Answered(Struct, frozen=True, kw_only=True):
    """What came of one of many answers; `error` is empty where it was counted."""

    task_id: str
    status: Status | None = None
    code: str = ""
    error: str = ""


async def batch(stores: Stores, seen: Sequence[tuple[str, str]], ballot: Ballot) -> list[Answered]:
    """The same answer to many tasks, given as (task id, digest). Each is written by itself and has its own answer.

    A high risk is left out unless its policy says otherwise: nobody looks at fifty of those at once.
    """
    await check_batch(stores, len(seen))
    return [await one_of_many(stores, task_id, digest, ballot) for task_id, digest in seen]


async def check_batch(stores: Stores, count: int) -> None:
    """Raise NotPermitted where this is switched off, and InvalidTask for too many."""
    if not (await runtimes.load(stores)).is_on("batch_approvals"):
        raise NotPermitted(
            "answering many at once is switched off: the feature batch_approvals allows it",
            advice="`ade features enable batch_approvals` switches it on",
        )
    if not 1 <= count <= MOST_TOGETHER:
        raise InvalidTask(f"{count} answers at once are not possible; give 1 to {MOST_TOGETHER}")


async def one_of_many(stores: Stores, asked: str, digest: str, ballot: Ballot) -> Answered:
    """`asked` is the id of a task, or of one of its gates."""
    task_id, dot, _ = asked.partition(".")
    try:
        gate = gate_for(await get(stores, task_id), asked if dot else None)
        if ballot.decision is Decision.APPROVE and not gate.in_batch:
            raise NotPermitted("its risk is too high to be approved among others; answer it by itself")
        own = structs.replace(ballot, digest=digest, via="batch")
        task = await vote(stores, task_id, own, gate_id=gate.id)
    except StoreError:
        raise
    except AdeError as error:
        return Answered(task_id=asked, code=error.code, error=error.detail)
    return Answered(task_id=asked, status=task.status)


async def comment(stores: Stores, task_id: str, text: str, *, actor: str) -> Task:
    return await decide(
        stores, task_id, lambda task, now: deciding.comment(task, text, now=now, actor=actor), tries=_TRIES
    )


async def revoke(stores: Stores, task_id: str, reason: str, *, actor: str) -> Task:
    """Take an approval back before the task runs: for those who gave it, and for administrators."""
    people = await load_people(stores)
    gate = gate_for(await get(stores, task_id))
    if actor not in {vote.voter for vote in gate.votes}:
        await permitted(stores, actor, Permission.ADMINISTER, "revoke an approval that others gave")
    return await decide(
        stores, task_id, lambda task, now: deciding.revoke(task, people, now=now, actor=actor, reason=reason)
    )


async def break_glass(
    stores: Stores, task_id: str, reason: str, *, actor: str, authenticated_at: int | None = None
) -> Task:
    """Let a task run without approval. Takes the permission, a reason, and a password given just now."""
    await permitted(stores, actor, Permission.BREAK_GLASS, "bypass an approval")
    now = stores.clock.now()
    if authenticated_at is None or not now - REAUTHENTICATION_MS <= authenticated_at <= now:
        raise ReauthenticationNeeded("bypassing an approval takes a password given within the last five minutes")
    return await decide(
        stores, task_id, lambda task, now: deciding.break_glass(task, now=now, actor=actor, reason=reason)
    )


async def dismiss(stores: Stores, task_id: str, voter: str, reason: str, *, actor: str) -> Task:
    """Strike out somebody's request for changes."""
    await permitted(stores, actor, Permission.ADMINISTER, "dismiss a request for changes")
    people = await load_people(stores)
    return await decide(
        stores, task_id, lambda task, now: deciding.dismiss(task, voter, reason, people, now=now, actor=actor)
    )


async def start(stores: Stores, task_id: str, *, actor: str, check: Check = any_version) -> Task:
    """Let an approved task that waits for a hand join its queue: for its author, and for operators."""
    task = await get(stores, task_id)
    if actor not in (task.author_id, *review_of(task).editors):
        await permitted(stores, actor, Permission.OPERATE, "start tasks of others")
    directory = (await load_people(stores)).directory

    def decision(task: Task, now: int) -> Change:
        check(task)
        return deciding.start(task, directory, now=now, actor=actor)

    return await decide(stores, task_id, decision)
