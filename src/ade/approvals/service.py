"""Operations on approvals: vote, comment, revoke, bypass, dismiss, start, delegate, amend, snooze, and sweep."""

from functools import partial

from msgspec import Raw, Struct, structs

from ade.accounts.authorization import password_change_needed
from ade.accounts.model import Directory, InvalidDelegation, Permission
from ade.accounts.users import get_user, permitted
from ade.approvals import decisions
from ade.approvals.decisions import advance_review
from ade.approvals.delegations import create
from ade.approvals.digest import digest_at
from ade.approvals.errors import ConflictOfInterest, GateClosed, NotEligible, ReauthenticationNeeded, TaskCannotRun
from ade.approvals.gates import uncounted
from ade.approvals.model import Decision, Delegation, Gate
from ade.approvals.repository import load_people
from ade.approvals.review_requests import ReviewerDirectory, Standings, ended_late, lateness, review_of
from ade.approvals.rollback import prepare_rollbacks
from ade.approvals.submission import submit, sweep_submitted
from ade.approvals.votes import REAUTHENTICATION_MS, VoteRequest, cast, gate_for, is_conflicted
from ade.errors import InvalidTask, NotPermitted
from ade.settings import runtime
from ade.stores.ports import Stores, TaskQuery
from ade.stores.resource_ports import DocumentWrite
from ade.tasks.changes import Change
from ade.tasks.lifecycle import Status
from ade.tasks.model import AfterFailure, Task
from ade.tasks.payloads import Payloads
from ade.tasks.service import Check, any_version, decide, edit, get, notify_for, settle_broken

_UNSTARTED = frozenset({Status.DRAFT, Status.SUBMITTED, Status.REVIEWING, Status.APPROVED})
_TRIES = 200  # every lost race means that another vote was written


async def vote(stores: Stores, task_id: str, ballot: VoteRequest) -> Task:
    """Vote at the gate that the ballot names. Repeating the same vote has no effect.

    Raises UnknownApproval, GateClosed, TaskCannotRun, DigestMismatch, NotEligible, and its subclasses.
    """
    await _check_can_run(stores, await get(stores, task_id))
    people = await load_people(stores)
    voted = await decide(
        stores,
        task_id,
        lambda task, now: cast(task, ballot, people, now=now),
        tries=_TRIES,
        before=partial(_prepare_rollback, stores),
    )
    if voted.status is Status.REJECTED:  # tasks that depend on it cannot run
        await settle_broken(stores)
    return voted


async def _prepare_rollback(stores: Stores, change: Change) -> None:
    """A rejection or a deadline can end a task that ran up to some step, so its rollback is stored first."""
    await prepare_rollbacks(stores, Payloads(stores.blobs), [change])


async def _check_can_run(stores: Stores, task: Task) -> None:
    """Raise TaskCannotRun if it is too late for the task to start, after it was failed, or if a dependency did not
    complete, after what `after_failure` says was done.

    A replayed task no longer waits for dependencies that had failed by then.
    """
    if task.status in _UNSTARTED and (why := lateness(task, stores.clock.now())):
        await decide(stores, task.id, ended_late, before=partial(_prepare_rollback, stores))
        await settle_broken(stores)
        raise TaskCannotRun(f"task {task.id} will not run: {why}")
    is_affected = task.depends_on and task.after_failure is not AfterFailure.RUN and task.generation == 1
    if not is_affected or task.is_final:
        return
    found = await stores.tasks.get(list(task.depends_on))
    failed = [each.id for each in found if each is not None and each.is_final and each.status is not Status.COMPLETED]
    if failed:
        await settle_broken(stores)
        raise TaskCannotRun(f"task {task.id} waits for {', '.join(failed)}, which did not complete, so it will not run")


class BatchVoteResult(Struct, frozen=True, kw_only=True):
    """The result of one vote of a batch; `error` is empty if the vote was counted."""

    task_id: str
    status: Status | None = None
    code: str = ""
    error: str = ""


async def check_batch(stores: Stores) -> None:
    """Raise NotPermitted if batch votes are disabled."""
    if not (await runtime.load(stores)).is_on("batch_approvals"):
        raise NotPermitted(
            "answering many at once is disabled: the feature batch_approvals allows it",
            advice="`ade features enable batch_approvals` enables it",
        )


async def vote_in_batch(stores: Stores, gate: Gate, digest: str, ballot: VoteRequest) -> Task:
    """Cast one vote of a batch. Raises NotPermitted for a high risk unless its policy allows it: no one can review
    many of those together."""
    if ballot.decision is Decision.APPROVE and not gate.in_batch:
        raise NotPermitted("its risk is too high for a batch; answer it separately")
    own = structs.replace(ballot, approval=gate.id, digest=digest, via="batch")
    return await vote(stores, gate.task_id, own)


async def comment(stores: Stores, task_id: str, text: str, *, actor: str) -> Task:
    """Add a comment to an approval: for those who wrote the task, reviewers, and operators. Raises NoGate,
    NotPermitted, and InvalidTask."""
    people, gate = await load_people(stores), gate_for(await get(stores, task_id))
    if actor not in gate.conflicts and people.directory.get(actor) is not None:
        user = await get_user(stores, actor)
        if user.permissions.isdisjoint((Permission.VOTE, Permission.OPERATE)):
            raise NotPermitted(f"{actor} may not comment on this task: only its author, reviewers, and operators may")
    return await decide(
        stores, task_id, lambda task, now: decisions.comment(task, text, now=now, actor=actor), tries=_TRIES
    )


async def revoke(stores: Stores, task_id: str, reason: str, *, actor: str) -> Task:
    """Revoke an approval while no run holds the task. For those whose approval counts, and for operators."""
    people = await load_people(stores)
    if actor not in approvers(gate_for(await get(stores, task_id)), people.directory):
        await permitted(stores, actor, Permission.OPERATE, "revoke an approval that others gave")
    return await decide(
        stores, task_id, lambda task, now: decisions.revoke(task, people, now=now, actor=actor, reason=reason)
    )


def approvers(gate: Gate, directory: Directory) -> frozenset[str]:
    """Return the accounts whose approval counts at this gate."""
    ignored = uncounted(gate, directory)
    approved = (vote for vote in gate.votes if vote.decision is Decision.APPROVE)
    return frozenset(vote.voter for vote in approved if vote.seq not in ignored)


async def break_glass(
    stores: Stores, task_id: str, reason: str, *, actor: str, authenticated_at: int | None = None
) -> Task:
    """Run a task without approval. Requires the permission, a reason, and a recently given password."""
    user = await permitted(stores, actor, Permission.BREAK_GLASS, "bypass an approval")
    if user.must_change_password:
        raise password_change_needed(user.id, user.password_set_by)
    now = stores.clock.now()
    if authenticated_at is None or not now - REAUTHENTICATION_MS <= authenticated_at <= now:
        raise ReauthenticationNeeded("bypassing an approval requires a password check within the last five minutes")
    await _check_can_run(stores, await get(stores, task_id))
    return await decide(
        stores, task_id, lambda task, now: decisions.break_glass(task, now=now, actor=actor, reason=reason)
    )


async def dismiss(stores: Stores, task_id: str, voter: str, reason: str, *, actor: str) -> Task:
    """Dismiss a reviewer's request for changes. For admins."""
    await permitted(stores, actor, Permission.ADMINISTER, "dismiss a request for changes")
    await _check_can_run(stores, await get(stores, task_id))
    people = await load_people(stores)
    return await decide(
        stores, task_id, lambda task, now: decisions.dismiss(task, voter, reason, people, now=now, actor=actor)
    )


async def start(stores: Stores, task_id: str, *, actor: str, check: Check = any_version) -> Task:
    """Move an approved task that waits for a manual start to its queue. For its author and editors, and for
    operators."""
    task = await get(stores, task_id)
    if actor not in (task.author_id, *review_of(task).editors):
        await permitted(stores, actor, Permission.OPERATE, "start tasks of others")
    check(task)
    await _check_can_run(stores, task)
    directory = (await load_people(stores)).directory

    def decision(task: Task, now: int) -> Change:
        check(task)
        return decisions.start(task, directory, now=now, actor=actor)

    return await decide(stores, task_id, decision)


# Delegating one approval: a reviewer lets another account vote on their behalf, for this task only.
#
# This relaxes no rule: accounts with an author conflict still cannot vote, one person still fills one slot, and a
# delegation that was received is passed on only if it cascades. So it is tried out before it is stored.


async def delegate_approval(
    stores: Stores, task_id: str, to: str, *, actor: str, gate_id: str | None = None
) -> Delegation:
    """Delegate one approval until it expires. `delegations.revoke` ends the delegation; votes that were cast stay.

    Raises NoGate, GateClosed, NotEligible, ConflictOfInterest, InvalidDelegation, and UnknownAccount.
    """
    gate = gate_for(await get(stores, task_id), gate_id)
    people, now = await load_people(stores), stores.clock.now()
    standing = people.standing(gate, now)
    if not gate.is_undecided or now >= gate.expires_at:
        raise GateClosed(f"approval {gate.id} is {standing.state} already; there is nothing to delegate")
    if actor not in standing.may_vote:
        raise NotEligible(f"{actor} is not a reviewer here, or has already answered, and so has nothing to delegate")
    delegate = (await get_user(stores, to)).id
    new = Delegation(
        id="", delegator=actor, delegate=delegate, starts_at=now, ends_at=gate.expires_at, task_id=gate.task_id
    )
    _check_of_use(gate, people, new, now)
    return await create(stores, new, actor=actor)


def _check_of_use(gate: Gate, people: ReviewerDirectory, new: Delegation, now: int) -> None:
    delegator, delegate, directory = new.delegator, new.delegate, people.directory
    if is_conflicted(gate, delegate, people):
        raise ConflictOfInterest(
            f"{delegate} is involved in this task, or owns the service account that is, and cannot answer; choose"
            " someone else"
        )
    if directory.who(delegate) == directory.who(delegator):
        raise InvalidDelegation("an account cannot delegate to itself or to another account of the same person")
    account = directory.get(delegate)
    if account is None or not (account.is_active and account.is_human and account.is_approver):
        return  # `create` raises the specific error
    then = structs.replace(people, delegations=(*people.delegations, new))
    if delegate not in then.standing(gate, now).may_vote:
        raise NotEligible(
            f"{delegate} could not answer here for {delegator}: it has answered already, or has not the role that is"
            f" asked for, or what {delegator} was lent may not be passed on"
        )


# A reviewer edits a task, or snoozes it.


SNOOZE = "snooze"
LONGEST_SNOOZE_MS = 7 * 86_400_000


async def amend(stores: Stores, payloads: Payloads, task_id: str, ballot: VoteRequest, **fields: object) -> Task:
    """Edit a task under review, and submit it again.

    The amending account gets an author conflict, so others must vote. If the caller crashes half-way, the task is a
    draft that anyone can submit. Raises InvalidTask, and the errors of `vote` and `edit`.
    """
    if not fields:
        raise InvalidTask("name what to change, or approve it as it is", advice="`ade approvals approve` approves it")
    task = await get(stores, task_id)
    gate = gate_for(task, ballot.approval)
    if digest_at(structs.replace(task, **fields), gate) == digest_at(task, gate):
        raise InvalidTask("nothing that needs approval would change; name what to change")
    request = structs.replace(ballot, decision=Decision.REQUEST_CHANGES, reason=ballot.reason or "amended")
    await vote(stores, task_id, request)
    await edit(stores, payloads, task_id, actor=ballot.voter, check=any_version, **fields)
    return await submit(stores, payloads, task_id, actor=ballot.voter)


async def snooze(stores: Stores, task_id: str, account: str, until: int) -> None:
    """Leave a task out of an account's inbox until then; the account can still vote. Raises NoGate and InvalidTask."""
    now = stores.clock.now()
    if not now < until <= now + LONGEST_SNOOZE_MS:
        raise InvalidTask("an approval can be snoozed for at most seven days")
    gate = gate_for(await get(stores, task_id))
    body = Raw(f'{{"until":{until}}}'.encode())
    write = DocumentWrite(kind=SNOOZE, id=_place(account, gate.id), body=body, seen=None, expires_at=until)
    await stores.documents.write([write])


async def snoozed(stores: Stores, account: str) -> frozenset[str]:
    """Return the gates that an account has snoozed."""
    head = _place(account, "")
    found = await stores.documents.list_documents(SNOOZE)
    return frozenset(each.id.removeprefix(head) for each in found if each.id.startswith(head))


def _place(account: str, gate_id: str) -> str:
    return f"{account} {gate_id}"


# The sweep: reviews escalate, approvals expire, and interrupted previews continue.


_PAGE = 200
_WAITING = frozenset({Status.REVIEWING, Status.APPROVED, Status.SUBMITTED})


async def sweep_reviews(stores: Stores, payloads: Payloads) -> int:
    """Advance all tasks under review, and return how many changed. Safe to run concurrently: each step is a guarded
    write, so it is taken once."""
    people, moved, after = None, 0, None
    while True:
        query = TaskQuery(statuses=_WAITING, oldest_first=True, after=after, limit=_PAGE)
        page = await stores.tasks.find(query)
        now = stores.clock.now()
        waiting = [task for task in page.tasks if task.status is not Status.SUBMITTED or lateness(task, now)]
        if waiting:
            people = people or await load_people(stores)
            standings = Standings(people, now)
            moves = (advance_review(task, people, now=now, standings=standings) for task in waiting)
            changes = [change for change in moves if change is not None]
            await prepare_rollbacks(stores, payloads, changes)
            answers = await stores.tasks.commit_each(changes) if changes else []
            written = [change for change, answer in zip(changes, answers, strict=True) if answer is None]
            if written:
                notify_for(stores, *written)
            moved += len(written)
        moved += await sweep_submitted(stores, payloads, _submitted(page.tasks))
        if page.next is None:
            return moved
        after = page.next


def _submitted(tasks: list[Task]) -> list[Task]:
    return [task for task in tasks if task.status is Status.SUBMITTED]
