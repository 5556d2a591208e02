"""Delegations: who answers for whom."""

from datetime import datetime

from ade.core.accounts.errors import InvalidDelegation, UnknownDelegation
from ade.core.accounts.users import normal_id
from ade.core.approvals.delegations import Delegation
from ade.core.approvals.refusals import NotPermitted
from ade.core.ids import is_task_id
from ade.core.web.access import Access
from ade.core.web.forms.approvals import ListDelegations, NewDelegation
from ade.governance import delegations as use_cases
from ade.operations.acting import account_id, acting, voter
from ade.operations.kit import Asked, Office, Page
from ade.operations.owning import check_own
from ade.operations.paging import cut

_FURTHEST_MS = 366 * 86_400_000


async def list_delegations(office: Office, asked: Asked, query: ListDelegations) -> Page[Delegation]:
    """The oldest first; those that are over are shown for 90 days."""
    account = None if query.account is None else account_id(query.account)
    return cut("delegations", query, await use_cases.list_delegations(office.stores, account))


async def get_delegation(office: Office, asked: Asked, delegation_id: str) -> Delegation:
    kept = await use_cases.DELEGATIONS.get(office.stores, delegation_id) if is_task_id(delegation_id) else None
    if kept is None:
        raise _unknown(delegation_id)
    return kept.record


async def create_delegation(office: Office, asked: Asked, body: NewDelegation) -> Delegation:
    """Of one's own place; an admin may decide on that of others."""
    account = voter(asked)
    delegator = account if body.delegator is None else normal_id(body.delegator)
    if asked.access is Access.OWN and delegator != account:
        raise NotPermitted(f"{account} cannot decide on a delegation of {delegator}: only {delegator} or an admin can")
    now = office.stores.clock.now()
    starts_at = max(_at(body.starts, now), now)
    if starts_at > now + _FURTHEST_MS:
        raise InvalidDelegation("a delegation starts at most 366 days from now")
    wanted = Delegation(
        id="",
        delegator=delegator,
        delegate=body.delegate,
        starts_at=starts_at,
        ends_at=_at(body.ends, starts_at),
        cascades=body.cascades,
        names=frozenset(body.names),
        tags=frozenset(body.tags),
        resource_types=frozenset(body.resource_types),
        from_level=body.from_level,
        to_level=body.to_level,
    )
    return await use_cases.create(office.stores, wanted, actor=account)


def _at(given: float | datetime, since: int) -> int:
    return round(given.timestamp() * 1000) if isinstance(given, datetime) else since + round(given * 1000)


async def revoke_delegation(office: Office, asked: Asked, delegation_id: str) -> Delegation:
    """It is over at once; votes that were given under it stay as they are."""
    kept = await get_delegation(office, asked, delegation_id)
    if asked.access is Access.OWN:
        await check_own(office, asked, kept.delegator, _unknown(delegation_id))
    return await use_cases.revoke(office.stores, delegation_id, actor=acting(asked))


def _unknown(delegation_id: str) -> UnknownDelegation:
    return UnknownDelegation(f"no delegation {delegation_id[:60]!r} exists", advice=UnknownDelegation.usual_advice)
