"""Delegations over the operations: made, shown and ended by whose place it is, or by an admin."""

from datetime import UTC, datetime, timedelta

import pytest

from ade.accounts.model import InvalidDelegation, UnknownAccount, UnknownDelegation
from ade.approvals import api as approvals_api
from ade.approvals.api import ListDelegations, NewDelegation
from ade.approvals.risk import RiskLevel
from ade.errors import NotPermitted
from tests.approvals.people import by, council, fresh, through_token
from tests.domain import ReauthenticationNeeded
from tests.server.operations import LOCAL, Operations

DAY_MS = 86_400_000


async def test_somebody_answers_for_a_while(ops: Operations) -> None:
    await council(ops)
    bob = await fresh(ops, "bob", "create_delegation")
    form = NewDelegation(delegate="CY", starts=60.0, ends=3_600.0, names=["deploy*"], to_level=RiskLevel.MEDIUM)
    made = await approvals_api.create_delegation(ops.services, bob, form)

    now = ops.clock.now()
    assert (made.delegator, made.delegate) == ("bob", "cy")
    assert (made.starts_at - now, made.ends_at - now) == (60_000, 3_660_000)
    assert (made.names, made.to_level) == (frozenset({"deploy*"}), RiskLevel.MEDIUM)
    assert await approvals_api.get_delegation(ops.services, LOCAL, made.id) == made
    listed = await approvals_api.list_delegations(ops.services, LOCAL, ListDelegations(account="Cy"))
    assert listed.items == [made]
    assert (await approvals_api.list_delegations(ops.services, LOCAL, ListDelegations(account="ada"))).items == []

    ended = await approvals_api.revoke_delegation(ops.services, await by(ops, "bob", "revoke_delegation"), made.id)
    assert ended.is_revoked


async def test_moments_may_be_given_instead_of_spans(ops: Operations) -> None:
    await council(ops)
    start = datetime.fromtimestamp(ops.clock.now() / 1000, UTC) + timedelta(days=1)
    form = NewDelegation(delegate="cy", starts=start, ends=start + timedelta(days=2))
    made = await approvals_api.create_delegation(ops.services, await fresh(ops, "bob", "create_delegation"), form)
    assert (made.starts_at - ops.clock.now(), made.ends_at - made.starts_at) == (DAY_MS, 2 * DAY_MS)


async def test_only_an_admin_decides_for_others(ops: Operations) -> None:
    await council(ops)
    form = NewDelegation(delegator="bob", delegate="cy", ends=3_600.0)
    with pytest.raises(NotPermitted, match="only bob or an admin"):
        await approvals_api.create_delegation(ops.services, await by(ops, "ada", "create_delegation"), form)
    with pytest.raises(ReauthenticationNeeded):
        await approvals_api.create_delegation(ops.services, await by(ops, "root", "create_delegation"), form)
    made = await approvals_api.create_delegation(ops.services, await fresh(ops, "root", "create_delegation"), form)

    with pytest.raises(UnknownDelegation) as foreign:
        await approvals_api.revoke_delegation(ops.services, await by(ops, "ada", "revoke_delegation"), made.id)
    absent = made.id[:-1] + ("0" if made.id[-1] != "0" else "1")
    with pytest.raises(UnknownDelegation) as missing:
        await approvals_api.revoke_delegation(ops.services, await by(ops, "ada", "revoke_delegation"), absent)
    assert foreign.value.detail.replace(made.id, absent) == missing.value.detail
    assert not (await approvals_api.get_delegation(ops.services, LOCAL, made.id)).is_revoked
    root = await by(ops, "root", "revoke_delegation")
    assert (await approvals_api.revoke_delegation(ops.services, root, made.id)).is_revoked


async def test_an_admins_token_without_that_scope_decides_for_nobody_else(ops: Operations) -> None:
    from ade.accounts.model import Permission

    await council(ops)
    narrow = await through_token(ops, "root", "create_delegation", Permission.READ, Permission.VOTE)
    form = NewDelegation(delegator="bob", delegate="cy", ends=3_600.0)
    with pytest.raises(NotPermitted):
        await approvals_api.create_delegation(ops.services, narrow, form)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"delegate": "bob", "ends": 60.0}, InvalidDelegation),  # to himself
        ({"delegate": "nobody", "ends": 60.0}, UnknownAccount),
        ({"delegate": "cy", "ends": 91 * 86_400.0}, InvalidDelegation),
        ({"delegate": "cy", "ends": 0.0}, InvalidDelegation),
        ({"delegate": "cy", "starts": datetime(9999, 12, 1, tzinfo=UTC), "ends": 60.0}, InvalidDelegation),
        ({"delegate": "cy", "ends": 60.0, "from_level": "high", "to_level": "low"}, InvalidDelegation),
    ],
)
async def test_bad_input_stores_nothing(ops: Operations, fields: dict[str, object], error: type[Exception]) -> None:
    await council(ops)
    given = {name: RiskLevel(str(value)) if name.endswith("level") else value for name, value in fields.items()}
    bob = await fresh(ops, "bob", "create_delegation")
    with pytest.raises(error):
        await approvals_api.create_delegation(ops.services, bob, NewDelegation(**given))  # type: ignore[arg-type]
    assert (await approvals_api.list_delegations(ops.services, LOCAL, ListDelegations())).items == []


async def test_what_is_no_id_is_unknown(ops: Operations) -> None:
    for wrong in ("a{b}", "../x", "x" * 900, ""):
        with pytest.raises(UnknownDelegation):
            await approvals_api.get_delegation(ops.services, LOCAL, wrong)
