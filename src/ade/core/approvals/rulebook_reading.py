"""A rulebook from plain data, as TOML or JSON gives it."""

from collections.abc import Iterator, Mapping, Sequence

from ade.core.accounts.errors import InvalidAccount
from ade.core.accounts.users import normal_id, normal_roles
from ade.core.approvals.policies import LONGEST_MS, Policy, Recheck, Rule, Step, check_policy
from ade.core.approvals.refusals import InvalidPolicy
from ade.core.approvals.risk import RiskLevel
from ade.core.approvals.rulebook import PolicyEntry, Rulebook
from ade.core.approvals.tables import Table, scalar
from ade.core.guard_rules import GuardRule, Occasion, Scalar, Verdict

_MOST_PEOPLE = 20
_TO_BE_SAID = ("recheck", "valid_for", "expires_after")


def read_rulebook(data: object, *, version: int = 0) -> Rulebook:
    """A rulebook from plain data. Raises InvalidRulebook, which counts the tables of a list from 1."""
    top = Table(data, "")
    criticality = dict(_criticalities(top.table("criticality")))
    guard = tuple(_guard_rule(table) for table in top.tables("guard"))
    policies = tuple(_entry(table) for table in top.tables("policy"))
    top.read_up()
    _check_names(top, guard, policies)
    return Rulebook(version=version, guard=guard, policies=policies, criticality=criticality)


def _criticalities(table: Table) -> Iterator[tuple[str, int]]:
    for pattern in table.names():
        if not pattern.strip():
            raise table.wrong('""', 'must be a pattern such as "db:*"')
        yield pattern, table.whole(pattern, 0, least=0, most=100)


def _check_names(top: Table, guard: Sequence[GuardRule], policies: Sequence[PolicyEntry]) -> None:
    ids = [entry.policy.id for entry in policies]
    for number, one in enumerate(ids, 1):
        if one in ids[: number - 1]:
            raise top.wrong(f"policy[{number}].id", f"is {one!r}, which an earlier policy has already; choose another")
    for number, rule in enumerate(guard, 1):
        if rule.policy is not None and rule.policy not in ids:
            raise top.wrong(f"guard[{number}].policy", f"names {rule.policy!r}; add a [[policy]] with this id")


def _guard_rule(table: Table) -> GuardRule:
    do = table.word("do", Verdict)
    if do is None:
        raise table.wrong("do", 'is missing: write "allow", "deny" or "demand"')
    rule = GuardRule(
        do=do,
        name=table.text("name"),
        tool=table.text("tool"),
        when=_when(table),
        paths=table.texts("paths"),
        resources=table.texts("resources"),
        tags=frozenset(table.texts("tags")),
        from_score=table.number("from_score", least=0, most=100),
        at=table.words("at", Occasion) or frozenset(Occasion),
        policy=table.text("policy"),
        reason=table.text("reason") or "",
    )
    table.read_up()
    if rule.policy is not None and do is not Verdict.DEMAND:
        raise table.wrong("policy", 'belongs to do = "demand" alone')
    if not rule.reason and do is not Verdict.ALLOW:
        raise table.wrong("reason", "is missing: say why, for whoever is held up by this rule")
    return rule


def _when(table: Table) -> tuple[tuple[str, tuple[Scalar, ...]], ...]:
    found: dict[str, tuple[Scalar, ...]] = {}
    for path, wanted in _conditions(table.table("when")):
        if path in found:
            raise table.wrong("when", f"names the argument {path!r} twice; give a list of what it may be")
        found[path] = wanted
    return tuple(sorted(found.items()))


def _conditions(table: Table, above: str = "") -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    """Dotted paths; TOML makes a table of a dotted name that has no quotes, which means the same."""
    for key, value in table.items():
        path = f"{above}{key}"
        if not key.strip():
            raise table.wrong('""', "is no name of an argument")
        if isinstance(value, Mapping) and value:
            yield from _conditions(table.table(key), f"{path}.")
        else:
            listed = value if isinstance(value, list | tuple) and value else [value]
            yield path, tuple(scalar(table, key, each) for each in listed)


def _entry(table: Table) -> PolicyEntry:
    policy = _policy(table)
    entry = PolicyEntry(
        policy=policy,
        names=table.texts("names"),
        tags=frozenset(table.texts("tags")),
        resource_types=frozenset(table.texts("resource_types")),
        from_level=table.word("from_level", RiskLevel),
        auto_approve=table.word("auto_approve", (RiskLevel.LOW, RiskLevel.MEDIUM)),
        high_risk_in_batch=table.flag("high_risk_in_batch"),
        said=frozenset(key for key in _TO_BE_SAID if table.has(key)),
    )
    table.read_up()
    try:
        check_policy(policy)
    except InvalidPolicy as error:
        raise table.wrong("id", f"= {policy.id[:100]!r}: {error.detail}") from None
    return entry


def _policy(table: Table) -> Policy:
    usual = Policy(id="usual", rules=())
    return Policy(
        id=_policy_id(table),
        rules=tuple(_rule(one) for one in table.tables("rules")),
        deny_threshold=table.whole("deny_threshold", usual.deny_threshold, least=1, most=_MOST_PEOPLE),
        veto_roles=_roles(table, "veto_roles"),
        expires_after_ms=table.duration("expires_after", most_ms=LONGEST_MS) or usual.expires_after_ms,
        valid_for_ms=table.duration("valid_for", most_ms=LONGEST_MS) or usual.valid_for_ms,
        steps=tuple(_step(one) for one in table.tables("steps")),
        authors_may_vote=table.flag("authors_may_vote"),
        roles_travel=table.flag("roles_travel"),
        recheck=table.word("recheck", Recheck) or usual.recheck,
    )


def _policy_id(table: Table) -> str:
    found = table.text("id")
    if found is None:
        raise table.wrong("id", "is missing: give the policy a name, so that rules and tasks can ask for it")
    if "+" in found or "," in found or found != found.strip():
        raise table.wrong("id", "must not have a plus sign, a comma, or spaces around it")
    return found


def _rule(table: Table) -> Rule:
    rule = Rule(
        needed=table.whole("needed", 1, least=1, most=_MOST_PEOPLE),
        users=_users(table),
        roles=_roles(table, "roles"),
        name=table.text("name") or "",
    )
    table.read_up()
    return rule


def _users(table: Table) -> frozenset[str]:
    """Accounts, by the id that a name stands for."""
    try:
        return frozenset(normal_id(name) for name in table.texts("users"))
    except InvalidAccount as error:
        raise table.wrong("users", f"must name accounts: {error.detail}") from None


def _roles(table: Table, key: str) -> frozenset[str]:
    try:
        return normal_roles(table.texts(key))
    except InvalidAccount as error:
        raise table.wrong(key, f"must name roles: {error.detail}") from None


def _step(table: Table) -> Step:
    after_ms = table.duration("after", most_ms=LONGEST_MS)
    if after_ms is None:
        raise table.wrong("after", 'is missing: say after which time others may answer too, such as "1h"')
    step = Step(after_ms=after_ms, users=_users(table), roles=_roles(table, "roles"))
    table.read_up()
    return step
