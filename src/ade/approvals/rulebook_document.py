"""The rulebook as a document: read and validated from plain data (TOML or JSON), and written back."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from ade.accounts.model import InvalidAccount, normal_id, normal_roles
from ade.approvals.digest import MOST_EXACT, digest_of
from ade.approvals.errors import InvalidPolicy, InvalidRulebook
from ade.approvals.guard import GuardOccasion, GuardRule, GuardRulesVerdict, Scalar
from ade.approvals.model import MAX_POLICY_MS, Policy, PolicyRule, PolicyStep, Recheck, check_policy
from ade.approvals.risk import RiskLevel
from ade.approvals.rulebook import VALUE, MissingAuthor, PolicyEntry, ResourceRule, RiskRules, Rulebook
from ade.common.text import read_duration, written_duration
from ade.errors import close_names
from ade.locks.model import LockRule

# Plain data, read field by field. Every error names its location and what to write there.


Word = TypeVar("Word", bound=StrEnum)
_MOST_TEXT = 1_000


class TableReader:
    """One table. A key that was not read before `read_up` is an error: it might be a misspelled condition."""

    def __init__(self, data: object, place: str) -> None:
        if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
            raise InvalidRulebook(f"{place} must be a table of names and values, not {_shown(data)}")
        self._data: Mapping[str, object] = data
        self._known: list[str] = []
        self.place = place

    def wrong(self, key: str, what: str) -> InvalidRulebook:
        """Return the error for a key."""
        return InvalidRulebook(f"{self._at(key)} {what}")

    def _at(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key

    def has(self, key: str) -> bool:
        return self.value(key) is not None

    def value(self, key: str) -> object:
        """Return any value, or None; the key counts as read."""
        self._known.append(key)
        return self._data.get(key)

    def text(self, key: str) -> str | None:
        value = self.value(key)
        return None if value is None else self._checked(key, value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings; a single string is a list of one."""
        value = self.value(key)
        if value is None:
            return ()
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list | tuple) or not listed:
            raise self.wrong(key, f'must be a list of texts such as ["one", "two"], not {_shown(value)}')
        return tuple(self._checked(key, each) for each in listed)

    def _checked(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip() or len(value) > _MOST_TEXT:
            raise self.wrong(key, f"must be text of 1 to {_MOST_TEXT} characters, not {_shown(value)}")
        return self.whole_text(key, value)

    def whole_text(self, key: str, value: str) -> str:
        """Return the string, if files, databases, and other programs can all store it."""
        if any("\ud800" <= char <= "\udfff" or char == "\0" for char in value):
            raise self.wrong(key, "has NUL or half of a surrogate pair in it, which some programs cannot read")
        return value

    def flag(self, key: str) -> bool:
        """Return a boolean; False if it is missing."""
        value = self.value(key)
        if not isinstance(value, bool | None):
            raise self.wrong(key, f"must be true or false, not {_shown(value)}")
        return bool(value)

    def whole(self, key: str, default: int, *, least: int, most: int) -> int:
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.wrong(key, f"must be a whole number from {least} to {most}, not {_shown(value)}")
        return value

    def number(self, key: str, *, least: float, most: float) -> float | None:
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(key, f"must be a number from {least} to {most}, not {_shown(value)}")
        return float(value)

    def word(self, key: str, words: Iterable[Word]) -> Word | None:
        value = self.value(key)
        return None if value is None else self._one_of(key, value, list(words))

    def words(self, key: str, words: Iterable[Word]) -> frozenset[Word]:
        known = list(words)
        return frozenset(self._one_of(key, each, known) for each in self.texts(key))

    def _one_of(self, key: str, value: object, known: list[Word]) -> Word:
        for word in known:
            if value == word.value:
                return word
        raise self.wrong(key, f"must be {_either([word.value for word in known])}, not {_shown(value)}")

    def duration(self, key: str, *, most_ms: int) -> int | None:
        value = self.value(key)
        if value is None:
            return None
        ms = read_duration(value) if isinstance(value, str) else None
        if ms is None or not 0 < ms <= most_ms:
            longest = written_duration(most_ms)
            raise self.wrong(
                key, f'must be a time such as "90s", "15m", "4h", at most "{longest}", not {_shown(value)}'
            )
        return ms

    def tables(self, key: str) -> "Iterator[TableReader]":
        """Yield the tables of a list, each with its number, from 1, in its location."""
        value = self.value(key)
        if not isinstance(value, list | tuple | None):
            raise self.wrong(key, f"must be a list of tables, not {_shown(value)}")
        for number, each in enumerate(value or (), 1):
            yield TableReader(each, f"{self._at(key)}[{number}]")

    def table(self, key: str) -> "TableReader":
        value = self.value(key)
        return TableReader({} if value is None else value, self._at(key))

    def names(self) -> list[str]:
        return list(self._data)

    def items(self) -> Iterator[tuple[str, object]]:
        """Yield all items, for a table with arbitrary keys."""
        self._known.extend(self._data)
        yield from self._data.items()

    def read_up(self) -> None:
        """Raise InvalidRulebook for unknown keys."""
        for key in self._data:
            if key not in self._known:
                near = close_names(key, self._known)
                hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(set(self._known)))}"
                raise self.wrong(key[:100], f"is unknown; {hint}")


def scalar(table: TableReader, key: str, value: object) -> str | int | float | bool:
    """Return a value to compare an argument with. Raises InvalidRulebook."""
    if isinstance(value, str):
        return table._checked(key, value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= MOST_EXACT:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise table.wrong(
        key, f"must be a pattern for text, a number, true, false, or a list of these, not {_shown(value)}"
    )


def _either(words: list[str]) -> str:
    quoted = [f'"{word}"' for word in words]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.80}"


_MOST_PEOPLE = 20
_TO_BE_SAID = ("recheck", "valid_for", "expires_after")


def read_rulebook(data: object, *, version: int = 0) -> Rulebook:
    """Read a rulebook from plain data. Raises InvalidRulebook, which counts the tables of a list from 1."""
    top = TableReader(data, "")
    criticality = dict(_criticalities(top.table("criticality")))
    guard = tuple(_guard_rule(table) for table in top.tables("guard"))
    policies = tuple(_entry(table) for table in top.tables("policy"))
    locks = tuple(_lock_rule(table) for table in top.tables("locks"))
    authors = top.table("authors")
    missing = authors.word("missing", MissingAuthor) or MissingAuthor.REJECT
    authors.read_up()
    resources = tuple(_resource_rule(table) for table in top.tables("resource"))
    risk = _risk_rules(top.table("risk"))
    top.read_up()
    _check_names(top, guard, policies)
    return Rulebook(
        version=version,
        guard=guard,
        policies=policies,
        criticality=criticality,
        locks=locks,
        missing_author=missing,
        resources=resources,
        risk=risk,
    )


def _resource_rule(table: TableReader) -> ResourceRule:
    argument, resource = table.text("argument"), table.text("resource")
    if argument is None:
        raise table.wrong("argument", 'is missing: name the argument that contains the resource, such as "table"')
    if resource is None:
        raise table.wrong("resource", f'is missing: write what the resource is called, such as "table:{VALUE}"')
    if VALUE not in resource or any(brace in resource.replace(VALUE, "") for brace in "{}"):
        raise table.wrong("resource", f"must contain {VALUE} for the value of the argument, and no other braces")
    rule = ResourceRule(names=table.texts("names"), argument=argument, resource=resource)
    table.read_up()
    return rule


def _risk_rules(table: TableReader) -> RiskRules:
    usual = RiskRules()
    word = isinstance(table.value("unknown_resources"), str)
    unknown = (
        table.word("unknown_resources", RiskLevel) if word else table.number("unknown_resources", least=0, most=100)
    )
    window_ms = table.duration("window", most_ms=MAX_POLICY_MS) or usual.window_ms
    table.read_up()
    return RiskRules(unknown_resources=unknown, window_ms=window_ms)


def _lock_rule(table: TableReader) -> LockRule:
    rule = LockRule(names=table.texts("names"), roles=_roles(table, "roles"), accounts=_users(table, "accounts"))
    table.read_up()
    if not rule.names:
        raise table.wrong("names", 'is missing: name the resources by patterns, such as ["prod:*"]')
    if not rule.roles and not rule.accounts:
        raise table.wrong("roles", "is missing: name the roles or accounts that may lock these resources")
    return rule


def _criticalities(table: TableReader) -> Iterator[tuple[str, int]]:
    for pattern in table.names():
        if not pattern.strip():
            raise table.wrong('""', 'must be a pattern such as "db:*"')
        yield pattern, table.whole(pattern, 0, least=0, most=100)


def _check_names(top: TableReader, guard: Sequence[GuardRule], policies: Sequence[PolicyEntry]) -> None:
    ids = [entry.policy.id for entry in policies]
    for number, one in enumerate(ids, 1):
        if one in ids[: number - 1]:
            raise top.wrong(f"policy[{number}].id", f"is {one!r}, which an earlier policy has already; choose another")
    for number, rule in enumerate(guard, 1):
        if rule.policy is not None and rule.policy not in ids:
            raise top.wrong(f"guard[{number}].policy", f"names {rule.policy!r}; add a [[policy]] with this id")


def _guard_rule(table: TableReader) -> GuardRule:
    do = table.word("do", GuardRulesVerdict)
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
        at=table.words("at", GuardOccasion) or frozenset(GuardOccasion),
        policy=table.text("policy"),
        reason=table.text("reason") or "",
    )
    table.read_up()
    if rule.policy is not None and do is not GuardRulesVerdict.DEMAND:
        raise table.wrong("policy", 'is only valid with do = "demand"')
    if not rule.reason and do is not GuardRulesVerdict.ALLOW:
        raise table.wrong("reason", "is missing: give the reason, for users whom this rule stops")
    return rule


def _when(table: TableReader) -> tuple[tuple[str, tuple[Scalar, ...]], ...]:
    found: dict[str, tuple[Scalar, ...]] = {}
    for path, values in _conditions(table.table("when")):
        if path in found:
            raise table.wrong("when", f"names the argument {path!r} twice; give a list of what it may be")
        found[path] = values
    return tuple(sorted(found.items()))


def _conditions(table: TableReader, above: str = "") -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    """Yield dotted paths. TOML reads an unquoted dotted key as nested tables, which mean the same."""
    for key, value in table.items():
        path = f"{above}{key}"
        if not key.strip():
            raise table.wrong('""', "is not the name of an argument")
        if isinstance(value, Mapping) and value:
            yield from _conditions(table.table(key), f"{path}.")
        else:
            listed = value if isinstance(value, list | tuple) and value else [value]
            yield path, tuple(scalar(table, key, each) for each in listed)


def _entry(table: TableReader) -> PolicyEntry:
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


def _policy(table: TableReader) -> Policy:
    usual = Policy(id="usual", rules=())
    return Policy(
        id=_policy_id(table),
        rules=tuple(_rule(one) for one in table.tables("rules")),
        deny_threshold=table.whole("deny_threshold", usual.deny_threshold, least=1, most=_MOST_PEOPLE),
        veto_roles=_roles(table, "veto_roles"),
        expires_after_ms=table.duration("expires_after", most_ms=MAX_POLICY_MS) or usual.expires_after_ms,
        valid_for_ms=table.duration("valid_for", most_ms=MAX_POLICY_MS) or usual.valid_for_ms,
        steps=tuple(_step(one) for one in table.tables("steps")),
        authors_may_vote=table.flag("authors_may_vote"),
        roles_travel=table.flag("roles_travel"),
        recheck=table.word("recheck", Recheck) or usual.recheck,
    )


def _policy_id(table: TableReader) -> str:
    found = table.text("id")
    if found is None:
        raise table.wrong("id", "is missing: give the policy a name, so that rules and tasks can refer to it")
    if "+" in found or "," in found or found != found.strip():
        raise table.wrong("id", "must not have a plus sign, a comma, or spaces around it")
    return found


def _rule(table: TableReader) -> PolicyRule:
    rule = PolicyRule(
        needed=table.whole("needed", 1, least=1, most=_MOST_PEOPLE),
        users=_users(table),
        roles=_roles(table, "roles"),
        name=table.text("name") or "",
    )
    table.read_up()
    return rule


def _users(table: TableReader, key: str = "users") -> frozenset[str]:
    """Return normalized account IDs."""
    try:
        return frozenset(normal_id(name) for name in table.texts(key))
    except InvalidAccount as error:
        raise table.wrong(key, f"must name accounts: {error.detail}") from None


def _roles(table: TableReader, key: str) -> frozenset[str]:
    try:
        return normal_roles(table.texts(key))
    except InvalidAccount as error:
        raise table.wrong(key, f"must name roles: {error.detail}") from None


def _step(table: TableReader) -> PolicyStep:
    after_ms = table.duration("after", most_ms=MAX_POLICY_MS)
    if after_ms is None:
        raise table.wrong("after", 'is missing: give the time after which others can also answer, such as "1h"')
    step = PolicyStep(after_ms=after_ms, users=_users(table), roles=_roles(table, "roles"))
    table.read_up()
    return step


# A rulebook as plain data, in the form in which it is written by hand. Defaults are left out.


def as_document(rulebook: Rulebook) -> dict[str, Any]:
    """Return the rulebook without its version. `read_rulebook` makes an equal rulebook from it."""
    missing = rulebook.missing_author
    document: dict[str, Any] = {
        "criticality": dict(sorted(rulebook.criticality.items())),
        "guard": [_guard_rule_document(rule) for rule in rulebook.guard],
        "policy": [_entry_document(entry) for entry in rulebook.policies],
        **({} if missing is MissingAuthor.REJECT else {"authors": {"missing": missing.value}}),
        # Left out if empty: the digests of rulebooks from before these sections existed stay the same.
        **_given(
            resource=[_resource_rule_document(rule) for rule in rulebook.resources], risk=_risk_document(rulebook.risk)
        ),
    }
    if rulebook.locks:  # an older rulebook keeps its digest
        document["locks"] = [_lock_rule_document(rule) for rule in rulebook.locks]
    return document


def _lock_rule_document(rule: LockRule) -> dict[str, Any]:
    return _given(names=list(rule.names), roles=_words(rule.roles), accounts=_words(rule.accounts))


def _resource_rule_document(rule: ResourceRule) -> dict[str, Any]:
    return _given(names=list(rule.names), argument=rule.argument, resource=rule.resource)


def _risk_document(rules: RiskRules) -> dict[str, Any]:
    unknown, window_ms = rules.unknown_resources, rules.window_ms
    document: dict[str, Any] = {} if unknown is None else {"unknown_resources": unknown}
    if isinstance(unknown, RiskLevel):
        document["unknown_resources"] = unknown.value
    return document | ({} if window_ms == RiskRules().window_ms else {"window": written_duration(window_ms)})


def digested(rulebook: Rulebook) -> tuple[dict[str, Any], str]:
    """Return the document of a rulebook and the digest by which two documents are compared."""
    document = as_document(rulebook)
    return document, digest_of(document)


def _guard_rule_document(rule: GuardRule) -> dict[str, Any]:
    return _given(
        name=rule.name,
        tool=rule.tool,
        when={path: values[0] if len(values) == 1 else list(values) for path, values in rule.when},
        paths=list(rule.paths),
        resources=list(rule.resources),
        tags=_words(rule.tags),
        from_score=rule.from_score,
        at=[] if rule.at == frozenset(GuardOccasion) else [one.value for one in GuardOccasion if one in rule.at],
        do=rule.do.value,
        policy=rule.policy,
        reason=rule.reason,
    )


def _entry_document(entry: PolicyEntry) -> dict[str, Any]:
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


def _people(one: PolicyRule | PolicyStep) -> dict[str, list[str]]:
    return {"users": _words(one.users), "roles": _words(one.roles)}


def _words(words: Collection[str]) -> list[str]:
    return sorted(words)


def _given(**fields: Any) -> dict[str, Any]:
    """Drop None, false, and empty values, which are the defaults."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and value is not False and value not in ([], {}, "")
    }
