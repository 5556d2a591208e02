"""The rulebook, and the policy it selects for a task: all matching entries, combined at their strictest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum, auto

from msgspec import Struct, structs

from ade.accounts.model import SYSTEM
from ade.approvals.digest import Preview
from ade.approvals.errors import InvalidPolicy
from ade.approvals.guard import (
    UNKNOWN,
    GuardOccasion,
    GuardRule,
    GuardRulesVerdict,
    GuardRuling,
    values_at,
    with_defaults,
)
from ade.approvals.model import NO_POLICY, Policy, PolicyRule, PolicyStep, Recheck, Subject, Timeouts, check_policy
from ade.approvals.risk import ResourceSource, Risk, RiskLevel, usual_quorum
from ade.common.patterns import folded, matches_any, text_pattern
from ade.locks.model import LockRule
from ade.tasks.admission import ROLLBACK_SUFFIX, is_rollback
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Task

# The rulebook: guard rules, policies with their conditions, and the criticality of resources.


class PolicyEntry(Struct, frozen=True, kw_only=True):
    """A policy and its conditions, all of which must hold. Without conditions it must be named."""

    policy: Policy
    names: tuple[str, ...] = ()  # patterns
    tags: frozenset[str] = frozenset()
    resource_types: frozenset[str] = frozenset()
    from_level: RiskLevel | None = None
    auto_approve: RiskLevel | None = None  # up to this level no reviewer is needed
    high_risk_in_batch: bool = False  # whether a batch vote can approve high risks
    said: frozenset[str] = frozenset()  # which of recheck, valid_for, and expires_after are set explicitly


class MissingAuthor(StrEnum):
    """What to do with a new task that needs approval and names no author with an account."""

    REJECT = auto()
    BLOCK = auto()  # it is stored, and its gate is blocked


class ResourceRule(Struct, frozen=True, kw_only=True):
    """Where the arguments of tasks name a resource: the template makes one of each value under a dotted path."""

    names: tuple[str, ...] = ()  # patterns of task names; empty: all
    argument: str
    resource: str  # with VALUE in it


class RiskRules(Struct, frozen=True, kw_only=True):
    """How a risk is assessed, apart from the criticality of resources."""

    # The least level or score of a task if nothing but its author says what it changes. None: critical if the rulebook
    # rates resources at all; otherwise they do not matter, known or not.
    unknown_resources: RiskLevel | float | None = None
    window_ms: int = 3_600_000  # in which the tasks of one author on one resource add up


class Rulebook(Struct, frozen=True, kw_only=True):
    """One version of the guard rules, policies, criticalities, and rules about resources and risk."""

    version: int = 0  # 0: none has been applied yet
    guard: tuple[GuardRule, ...] = ()
    policies: tuple[PolicyEntry, ...] = ()
    criticality: dict[str, int] = {}
    locks: tuple[LockRule, ...] = ()  # who may lock what
    missing_author: MissingAuthor = MissingAuthor.REJECT
    resources: tuple[ResourceRule, ...] = ()
    risk: RiskRules = RiskRules()

    def guards(self, occasion: GuardOccasion) -> bool:
        """Whether any rule is for this occasion; if not, no case needs to be built."""
        return any(occasion in rule.at for rule in self.guard)

    @property
    def unknown_resources(self) -> RiskLevel | float | None:
        """The least level or score of a task whose resources are unknown; None if that does not matter."""
        if self.risk.unknown_resources is None and self.criticality:
            return RiskLevel.CRITICAL
        return self.risk.unknown_resources


# What a task changes: facts that the definition, the preview, and the arguments give, and what its author declares.


VALUE = "{value}"


class TaskFacts(Struct, frozen=True, kw_only=True):
    """The resources and tags of a task, and which of them its author did not choose."""

    resources: Mapping[str, tuple[ResourceSource, ...]] = {}
    tags: frozenset[str] = frozenset()
    trusted_tags: frozenset[str] = frozenset()

    @property
    def trusted_resources(self) -> tuple[str, ...]:
        """The resources that the definition, the preview, or the arguments name."""
        return tuple(name for name, sources in self.resources.items() if sources != (ResourceSource.AUTHOR,))

    @property
    def is_everywhere(self) -> bool:
        """Whether a resource names a whole type and not one resource."""
        return any(_is_everywhere(name, sources) for name, sources in self.resources.items())

    def without_authors(self) -> "TaskFacts":
        """Return the facts without what only the author declared."""
        trusted = {name: self.resources[name] for name in self.trusted_resources}
        return TaskFacts(resources=trusted, tags=self.trusted_tags, trusted_tags=self.trusted_tags)

    def subject(self, name: str, level: RiskLevel, task_id: str = "") -> Subject:
        """Return the part of a task that the conditions of policies and delegations look at."""
        return Subject(
            name=name,
            tags=self.tags,
            resource_types=frozenset(map(_type_of, self.resources)),
            level=level,
            task_id=task_id,
            trusted_tags=self.trusted_tags,
            trusted_resource_types=frozenset(map(_type_of, self.trusted_resources)),
        )


def _type_of(resource: str) -> str:
    return resource.partition(":")[0]


def _is_everywhere(resource: str, sources: Sequence[ResourceSource]) -> bool:
    """A preview or an argument names one thing, unless it is a pattern; a bare type declares all of that type."""
    _, colon, rest = resource.partition(":")
    is_declared = ResourceSource.AUTHOR in sources or ResourceSource.DEFINITION in sources
    return "*" in rest or (is_declared and (not colon or not rest))


def facts_of(
    rulebook: Rulebook,
    name: str,
    *,
    arguments: object = None,
    definition: Definition | None = None,
    preview: Preview | None = None,
    declared: Iterable[str] = (),
    tags: Iterable[str] = (),
) -> TaskFacts:
    """Collect the facts about a task. `declared` and `tags` are what its author chose; they can only add."""
    sources: dict[str, set[ResourceSource]] = {}
    known = definition or Definition(name=name)

    def add(source: ResourceSource, names: Iterable[str]) -> None:
        for each in names:
            sources.setdefault(each, set()).add(source)

    add(ResourceSource.DEFINITION, known.resources)
    add(ResourceSource.ARGUMENTS, _in_arguments(rulebook, name, arguments, known))
    if preview is not None:
        add(ResourceSource.PREVIEW, preview.versions)
        changed = (each.get("resource") for each in preview.changes if isinstance(each, Mapping))
        add(ResourceSource.PREVIEW, (each for each in changed if isinstance(each, str) and each))
    add(ResourceSource.AUTHOR, declared)
    order = list(ResourceSource)
    return TaskFacts(
        resources={each: tuple(sorted(found, key=order.index)) for each, found in sources.items()},
        tags=frozenset((*known.tags, *tags)),
        trusted_tags=frozenset(known.tags),
    )


def _in_arguments(rulebook: Rulebook, name: str, arguments: object, definition: Definition) -> Iterator[str]:
    """Yield the resources that the rules find in the arguments. An omitted argument has its default."""
    name = name.removesuffix(ROLLBACK_SUFFIX)
    arguments = with_defaults({} if arguments is None else arguments, definition.schema)
    for rule in rulebook.resources:
        if rule.names and not matches_any(rule.names, name):
            continue
        found = [value for value in values_at(arguments, rule.argument) if value is not UNKNOWN]
        yield from (rule.resource.replace(VALUE, text) for value in found for text in _plain_values(value))


def _plain_values(value: object) -> Iterator[str]:
    """Yield every text, number, and name inside a value."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, Mapping):
            waiting.extend((*here.keys(), *here.values()))
        elif isinstance(here, list | tuple):
            waiting.extend(here)
        elif here is not None and (text := str(here).strip()):
            yield text


def criticalities_of(rulebook: Rulebook, resources: Sequence[str]) -> tuple[int, ...]:
    """Return the criticality of each resource, 0 to 100, by the longest pattern that matches; 0 if none does."""
    return tuple(_criticality(rulebook.criticality, resource) for resource in resources)


def _criticality(table: Mapping[str, int], resource: str) -> int:
    fitting = [(len(folded(pattern)), value) for pattern, value in table.items() if matches_any((pattern,), resource)]
    return max(fitting, default=(0, 0))[1]


def passes(task: Task, rulebook: Rulebook) -> bool:
    """Whether a new task needs neither guard nor review, which is by far the most frequent case."""
    if (task.source == SYSTEM and not is_rollback(task)) or task.status is Status.DRAFT:
        return True
    if task.locks and rulebook.locks:
        return False
    return task.review is None and not rulebook.guards(GuardOccasion.ENQUEUE)


USUAL = "usual"  # the ID of the policy that applies if the rulebook has none
_FOUR_HOURS_MS = 14_400_000
_LONGEST_ID = 100


_TIMEOUTS = Timeouts()


class SelectedPolicy(Struct, frozen=True, kw_only=True):
    """The policy for a task, the entries it combines, and why each of them applies."""

    policy: Policy
    ids: tuple[str, ...]
    required: tuple[str, ...] = ()  # those that the author of the task did not choose
    auto_approve: RiskLevel | None = None
    high_risk_in_batch: bool = False
    why: tuple[str, ...] = ()


def policies_of(ruling: GuardRuling) -> tuple[str, ...]:
    """Return the policies that a ruling requires; USUAL for a rule that names none."""
    if ruling.verdict is not GuardRulesVerdict.DEMAND:
        return ()
    return tuple(policy or USUAL for policy in (ruling.policy, *ruling.more_policies))


def policy_for(
    rulebook: Rulebook,
    subject: Subject,
    risk: Risk,
    required: Sequence[str] = (),
    timeouts: Timeouts = _TIMEOUTS,
    *,
    chosen: Sequence[str] = (),
    least: Risk | None = None,
) -> SelectedPolicy:
    """Select the policy for a task that needs approval. Raises InvalidPolicy if a named one does not exist, or all of
    them together demand more than a policy can.

    `required` are the policies that guard rules name; USUAL among them requires approval without naming a policy.
    `chosen` are the author's: they are met in addition, and never instead. So are policies whose conditions match only
    because of tags or resources that the author declared; `least` is the risk without these. If nothing but the
    author's choice asks for approval, that choice alone decides.
    """
    known = {entry.policy.id for entry in rulebook.policies}
    for name in (*required, *chosen):
        if name not in known and (name != USUAL or name in chosen):
            raise InvalidPolicy(
                f"no policy {name[:100]!r} is in the rulebook", advice="`ade policies show` lists its policies"
            )
    trusted = subject.trusted
    without = least or risk
    found = [
        (entry, why) for entry in rulebook.policies if (why := _why(entry, trusted, without, required)) is not None
    ]
    if not found and (required or not chosen):
        found = [_usual(rulebook, risk)]
    by_rules = [entry.policy.id for entry, _ in found]
    others = [entry for entry in rulebook.policies if entry.policy.id not in by_rules]
    added = [(entry, why) for entry in others if (why := _why(entry, subject, risk, chosen)) is not None]
    found += [(_without_steps(entry) if by_rules else entry, why) for entry, why in added]
    entries = [entry for entry, _ in found]
    policies = [_in_time(_at_level(entry, risk.level), entry, timeouts) for entry in entries]
    return SelectedPolicy(
        policy=_combined(policies, rulebook.version, len(by_rules) or len(policies)),
        ids=tuple(policy.id for policy in policies),
        required=tuple(by_rules),
        auto_approve=_lowest(entry.auto_approve for entry in entries),
        high_risk_in_batch=all(entry.high_risk_in_batch for entry in entries),
        why=tuple(why for _, why in found),
    )


def _usual(rulebook: Rulebook, risk: Risk) -> tuple[PolicyEntry, str]:
    """The default policy: a quorum of reviewers, by score."""
    needed = usual_quorum(risk.score)
    rule = PolicyRule(needed=needed, roles=frozenset({"reviewer", "admin"}), name="reviewers")
    entry = PolicyEntry(policy=Policy(id=USUAL, version=rulebook.version, rules=(rule,)))
    why = f"no policy of the rulebook matches: the default quorum at a score of {risk.score:g}"
    return entry, f"{why}, {needed} of the reviewers"


def _without_steps(entry: PolicyEntry) -> PolicyEntry:
    """Drop the escalation steps of a policy that the author chose: an approval for it can count for a required rule,
    which these steps must not open."""
    return structs.replace(entry, policy=structs.replace(entry.policy, steps=()))


def _asked_for(entry: PolicyEntry) -> str:
    return f"policy {entry.policy.id}: it was requested by name"


def _why(entry: PolicyEntry, subject: Subject, risk: Risk, named: Sequence[str]) -> str | None:
    """Return why an entry applies to this subject, or None."""
    if entry.policy.id in named:
        return _asked_for(entry)
    reasons = []
    if entry.names:
        plain = folded(subject.name)
        fitting = [pattern for pattern in entry.names if text_pattern(pattern).matches(plain)]
        reasons.append(f"the name {subject.name} fits {fitting[0]!r}" if fitting else "")
    if entry.tags:
        reasons.append(_shared("tag", entry.tags, subject.tags))
    if entry.resource_types:
        reasons.append(_shared("resource type", entry.resource_types, subject.resource_types))
    if entry.from_level is not None:
        reaches = risk.level.rank >= entry.from_level.rank
        reasons.append(f"the risk is {risk.level}, and it begins at {entry.from_level}" if reaches else "")
    return f"policy {entry.policy.id}: {', '.join(reasons)}" if reasons and all(reasons) else None


def _shared(what: str, conditions: frozenset[str], found: frozenset[str]) -> str:
    both = sorted(conditions & found)
    return f"it has the {what} {both[0]}" if both else ""


def _at_level(entry: PolicyEntry, level: RiskLevel) -> Policy:
    """From a high risk on, shorten the validity and recheck roles, unless the rulebook sets these explicitly."""
    policy = entry.policy
    if level.rank < RiskLevel.HIGH.rank:
        return policy
    if "recheck" not in entry.said:
        policy = structs.replace(policy, recheck=Recheck.ROLES)
    if "valid_for" not in entry.said:
        policy = structs.replace(policy, valid_for_ms=min(policy.valid_for_ms, _FOUR_HOURS_MS))
    return policy


def _in_time(policy: Policy, entry: PolicyEntry, timeouts: Timeouts) -> Policy:
    """Set the expiry of the rulebook or the default, limited to the maximum, and drop later escalation steps."""
    chosen_ms = policy.expires_after_ms if "expires_after" in entry.said else timeouts.usual_ms
    expires_after_ms = min(chosen_ms, timeouts.longest_ms)
    if expires_after_ms == policy.expires_after_ms:
        return policy
    steps = tuple(step for step in policy.steps if step.after_ms < expires_after_ms)
    return structs.replace(policy, expires_after_ms=expires_after_ms, steps=steps)


def _combined(policies: Sequence[Policy], version: int, required: int) -> Policy:
    """Combine policies at their strictest. The first `required` ones are required; the others are met in addition."""
    if len(policies) == 1:
        return structs.replace(policies[0], version=version)
    expires_after_ms = min(policy.expires_after_ms for policy in policies)
    rules = _all_rules(policies[:required])
    steps = _all_steps(policies[:required], rules, expires_after_ms)
    if len(policies) > required:
        rules = _once(rules, steps, _all_rules(policies[required:]))
    policy = Policy(
        id=_joined([policy.id for policy in policies]),
        version=version,
        rules=rules,
        deny_threshold=min(policy.deny_threshold for policy in policies),
        veto_roles=frozenset[str]().union(*(policy.veto_roles for policy in policies)),
        expires_after_ms=expires_after_ms,
        valid_for_ms=min(policy.valid_for_ms for policy in policies),
        steps=steps,
        authors_may_vote=all(policy.authors_may_vote for policy in policies),
        roles_travel=all(policy.roles_travel for policy in policies),
        recheck=Recheck.ROLES if any(policy.recheck is Recheck.ROLES for policy in policies) else Recheck.ACTIVE,
    )
    check_policy(policy)
    return policy


def _joined(ids: Sequence[str]) -> str:
    whole = "+".join(ids)
    return whole if len(whole) <= _LONGEST_ID else f"{whole[: _LONGEST_ID - 1]}…"


def _all_rules(policies: Sequence[Policy]) -> tuple[PolicyRule, ...]:
    """Combine the rules, all of which must be met. Rules of two policies for the same reviewers become one with the
    higher number: one person fills one slot, so that otherwise twice as many people would be needed."""
    wanted: dict[tuple[frozenset[str], frozenset[str]], dict[int, PolicyRule]] = {}
    for number, policy in enumerate(policies):
        for rule in policy.rules:
            own = wanted.setdefault((rule.users, rule.roles), {})
            before = own.get(number)
            needed = rule.needed + (0 if before is None else before.needed)
            own[number] = structs.replace(before or rule, needed=needed)
    return tuple(rule for by_policy in wanted.values() for rule in _layers(by_policy, policies))


def _layers(by_policy: Mapping[int, PolicyRule], policies: Sequence[Policy]) -> Iterator[PolicyRule]:
    """Yield what policies need of the same reviewers. An approval that counts for several of them can only come from
    someone whom the escalation steps of each add; what one needs beyond the others follows its own steps."""
    first = next(iter(by_policy.values()))
    layers: dict[tuple[int, ...], int] = {}
    done = 0
    for needed in sorted({rule.needed for rule in by_policy.values()}):
        sharing = tuple(number for number, rule in by_policy.items() if rule.needed >= needed)
        escalating = sharing if all(policies[number].steps for number in sharing) else (NO_POLICY,)
        layers[escalating] = layers.get(escalating, 0) + needed - done
        done = needed
    for escalating, needed in layers.items():
        yield structs.replace(first, needed=needed, policies=escalating)


def _once(
    required: Sequence[PolicyRule], steps: Sequence[PolicyStep], added: Sequence[PolicyRule]
) -> tuple[PolicyRule, ...]:
    """Count an approval for a required rule and for an added one, each at most once, if it meets both in any case: an
    author who asks for two reviewers where the rules require one gets two, not three."""
    shared, needed = [0] * len(required), [rule.needed for rule in added]
    for place, rule in enumerate(added):
        for other, stricter in enumerate(required):
            if _is_within(_escalated(stricter, steps), rule):
                both = min(needed[place], stricter.needed - shared[other])
                needed[place], shared[other] = needed[place] - both, shared[other] + both
    left, spare = [rule.needed for rule in required], list(needed)
    for other, rule in enumerate(required):
        for place, stricter in enumerate(added):
            if _is_within(stricter, rule):
                both = min(left[other] - shared[other], spare[place])
                left[other], spare[place] = left[other] - both, spare[place] - both
    counts = zip((*required, *added), (*left, *needed), strict=True)
    return tuple(structs.replace(rule, needed=count) for rule, count in counts if count)


def _is_within(rule: PolicyRule, other: PolicyRule) -> bool:
    return rule.users <= other.users and rule.roles <= other.roles


def _escalated(rule: PolicyRule, steps: Sequence[PolicyStep]) -> PolicyRule:
    """Return the rule with all that escalation steps could add to it."""
    own = [step for step in steps if step.policy in rule.escalating]
    users = rule.users.union(*(step.users for step in own))
    return structs.replace(rule, users=users, roles=rule.roles.union(*(step.roles for step in own)))


def _all_steps(
    policies: Sequence[Policy], rules: Sequence[PolicyRule], expires_after_ms: int
) -> tuple[PolicyStep, ...]:
    """Return the steps of all policies in order, each with the number of its own. Those that change no rule are left
    out."""
    escalating = {number for rule in rules for number in rule.escalating}
    steps = [
        structs.replace(step, policy=number)
        for number, policy in enumerate(policies)
        for step in policy.steps
        if number in escalating and step.after_ms < expires_after_ms
    ]
    return tuple(sorted(steps, key=lambda step: step.after_ms))


def _lowest(levels: Iterable[RiskLevel | None]) -> RiskLevel | None:
    known = list(levels)
    if any(level is None for level in known):
        return None
    return min((level for level in known if level is not None), key=lambda level: level.rank, default=None)
