"""A rulebook as plain data, in the form in which people write it. What is usual is left out."""

from collections.abc import Collection
from typing import Any

from ade.core.approvals.policies import Policy, Rule, Step
from ade.core.approvals.rulebook import PolicyEntry, Rulebook
from ade.core.durations import written_duration
from ade.core.guard_rules import GuardRule, Occasion


def as_document(rulebook: Rulebook) -> dict[str, Any]:
    """Without the version. `read_rulebook` makes an equal rulebook of it."""
    return {
        "criticality": dict(sorted(rulebook.criticality.items())),
        "guard": [_guard_rule(rule) for rule in rulebook.guard],
        "policy": [_entry(entry) for entry in rulebook.policies],
    }


def _guard_rule(rule: GuardRule) -> dict[str, Any]:
    return _given(
        name=rule.name,
        tool=rule.tool,
        when={path: wanted[0] if len(wanted) == 1 else list(wanted) for path, wanted in rule.when},
        paths=list(rule.paths),
        resources=list(rule.resources),
        tags=_words(rule.tags),
        from_score=rule.from_score,
        at=[] if rule.at == frozenset(Occasion) else [one.value for one in Occasion if one in rule.at],
        do=rule.do.value,
        policy=rule.policy,
        reason=rule.reason,
    )


def _entry(entry: PolicyEntry) -> dict[str, Any]:
    policy, usual = entry.policy, Policy(id="usual", rules=())
    return _given(
        id=policy.id,
        names=list(entry.names),
        tags=_words(entry.tags),
        resource_types=_words(entry.resource_types),
        from_level=None if entry.from_level is None else entry.from_level.value,
        rules=[_given(needed=rule.needed, **_people(rule), name=rule.name) for rule in policy.rules],
        deny_threshold=None if policy.deny_threshold == usual.deny_threshold else policy.deny_threshold,
        veto_roles=_words(policy.veto_roles),
        expires_after=written_duration(policy.expires_after_ms) if "expires_after" in entry.said else None,
        valid_for=written_duration(policy.valid_for_ms) if "valid_for" in entry.said else None,
        steps=[_given(after=written_duration(step.after_ms), **_people(step)) for step in policy.steps],
        authors_may_vote=policy.authors_may_vote,
        roles_travel=policy.roles_travel,
        recheck=policy.recheck.value if "recheck" in entry.said else None,
        auto_approve=None if entry.auto_approve is None else entry.auto_approve.value,
        high_risk_in_batch=entry.high_risk_in_batch,
    )


def _people(one: Rule | Step) -> dict[str, list[str]]:
    return {"users": _words(one.users), "roles": _words(one.roles)}


def _words(words: Collection[str]) -> list[str]:
    return sorted(words)


def _given(**fields: Any) -> dict[str, Any]:
    """Those that say something: an empty list, an empty text and a plain no are what they would be anyway."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and value is not False and value not in ([], {}, "")
    }
