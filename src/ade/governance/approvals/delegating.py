"""One approval handed on: whoever is asked lets somebody else answer in his place, for this task alone.

Nothing gets easier by it: who has a hand in the task still cannot answer, one person still fills one place, and what
somebody was lent himself he passes on only if that was allowed. So it is tried out before it is stored.
"""

from msgspec import structs

from ade.core.accounts.errors import InvalidDelegation
from ade.core.approvals.delegations import Delegation
from ade.core.approvals.opening import People
from ade.core.approvals.records import Gate
from ade.core.approvals.refusals import ConflictOfInterest, GateClosed, NotEligible
from ade.core.approvals.voting import gate_for, is_conflicted
from ade.governance.approvals.situation import load_people
from ade.governance.delegations import create
from ade.governance.directory.users import get_user
from ade.ports import Stores
from ade.queue.decisions import get


async def delegate_approval(
    stores: Stores, task_id: str, to: str, *, actor: str, gate_id: str | None = None
) -> Delegation:
    """Until the approval expires. `delegations.revoke` takes it back; a vote that was given stays.

    Raises NoGate, GateClosed, NotEligible, ConflictOfInterest, InvalidDelegation, UnknownAccount.
    """
    gate = gate_for(await get(stores, task_id), gate_id)
    people, now = await load_people(stores), stores.clock.now()
    standing = people.standing(gate, now)
    if not gate.is_undecided or now >= gate.expires_at:
        raise GateClosed(f"approval {gate.id} is {standing.state} already; there is nothing to delegate")
    if actor not in standing.may_vote:
        raise NotEligible(f"{actor} is not asked here, or has answered already, and so has nothing to delegate")
    delegate = (await get_user(stores, to)).id
    wanted = Delegation(
        id="", delegator=actor, delegate=delegate, starts_at=now, ends_at=gate.expires_at, task_id=gate.task_id
    )
    _check_of_use(gate, people, wanted, now)
    return await create(stores, wanted, actor=actor)


def _check_of_use(gate: Gate, people: People, wanted: Delegation, now: int) -> None:
    delegator, delegate, directory = wanted.delegator, wanted.delegate, people.directory
    if is_conflicted(gate, delegate, people):
        raise ConflictOfInterest(
            f"{delegate} has a hand in this task, or answers for the program that has, and cannot answer; ask somebody"
            " else"
        )
    if directory.who(delegate) == directory.who(delegator):
        raise InvalidDelegation("nobody delegates to himself, not to another account of his either")
    account = directory.get(delegate)
    if account is None or not (account.is_active and account.is_human and account.is_approver):
        return  # `create` says what is wrong with it
    then = structs.replace(people, delegations=(*people.delegations, wanted))
    if delegate not in then.standing(gate, now).may_vote:
        raise NotEligible(
            f"{delegate} could not answer here for {delegator}: it has answered already, or has not the role that is"
            f" asked for, or what {delegator} was lent may not be passed on"
        )
