"""Guard rules: the conditions of a rule, and the verdict on a task or tool call (allow, deny, or demand approval).

A rule that denies or demands matches if any text, path, or resource matches: hiding one among others does not evade it.
A rule that allows matches only if all of them match: adding one does not get past it. Of tags, resources, and scores, a
rule that allows relies only on what the author of the task did not choose: declaring more never gets a task past the
rules that follow.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum, auto
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from ade.common.patterns import matches_any, parts_of, path_pattern, readings, text_pattern

ANYWHERE = "*"  # instead of an argument name: any text anywhere in the arguments
_WORD_ENDS = re.compile(r"[\s'\"`;|&<>(){}\[\],=:]+")
_PATH_STARTS = ("~", ".", "/")
_DEEPEST, _MOST_STEPS = 30, 10_000  # levels of a schema, and parts that are looked at: it can refer to itself
Scalar = str | int | float | bool
T = TypeVar("T")


class UnknownDefault(Enum):
    """Stands for a default that JSON cannot represent."""

    UNKNOWN = auto()


UNKNOWN: Final = UnknownDefault.UNKNOWN


class GuardOccasion(StrEnum):
    """When the guard is consulted."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    ENQUEUE = auto()
    RUN = auto()
    TOOL = auto()


class GuardRulesVerdict(StrEnum):
    """What a guard rule decides."""

    __hash__ = str.__hash__

    ALLOW = auto()
    DENY = auto()
    DEMAND = auto()  # reviewers must approve first


class GuardRule(Struct, frozen=True, kw_only=True):
    """A guard rule. All given conditions must hold; without any, the rule matches everything."""

    do: GuardRulesVerdict
    name: str | None = None  # patterns
    tool: str | None = None
    when: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()  # argument -> any of these text patterns or exact values
    paths: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    from_score: float | None = None
    at: frozenset[GuardOccasion] = frozenset(GuardOccasion)
    policy: str | None = None
    reason: str = ""


class _Path(NamedTuple):
    word: str
    parts: tuple[str, ...]
    is_absolute: bool

    @property
    def looks_so(self) -> bool:
        return "/" in self.word or self.word.startswith(_PATH_STARTS)

    @property
    def climbs(self) -> bool:
        return not self.is_absolute and self.parts[:1] == ("..",)


class GuardCase:
    """A task or tool call to judge. `arguments` can be undecoded JSON, which is decoded only if a rule needs it."""

    def __init__(
        self,
        *,
        name: str,
        tool: str | None = None,
        arguments: Mapping[str, object] | Raw | None = None,
        schema: Mapping[str, Any] | None = None,  # of the arguments: it has the defaults of those that are left out
        resources: Sequence[str] = (),
        tags: Iterable[str] = (),
        score: float | None = None,  # None: unknown, so rules about it match unless they allow
        trusted_resources: Iterable[str] = (),  # those that the author did not choose; only these let a rule allow
        trusted_tags: Iterable[str] = (),
        trusted_score: float | None = None,
    ) -> None:
        self.name = name
        self.tool = tool
        self.raw_arguments = {} if arguments is None else arguments
        self.schema = schema
        self.resources = tuple(resources)
        self.tags = frozenset(tags)
        self.score = score
        self.trusted_resources = tuple(trusted_resources)
        self.trusted_tags = frozenset(trusted_tags)
        self.trusted_score = trusted_score

    @cached_property
    def arguments(self) -> object:
        """The decoded arguments, as the handler receives them. Raises msgspec.DecodeError."""
        raw = self.raw_arguments
        return with_defaults(msgspec.json.decode(raw) if isinstance(raw, Raw) else raw, self.schema)

    @cached_property
    def readings(self) -> list[str]:
        """All texts in the arguments, in every form in which a program might read them."""
        return list(_readings(self.arguments))

    @cached_property
    def paths(self) -> list[_Path]:
        """Everything that could be a path: whole texts, and the words in them."""
        words = dict.fromkeys(word for text in _texts(self.arguments) for word in _words(text))
        return [_Path(word, *parts_of(word)) for word in words]


def holds(rule: GuardRule, case: GuardCase) -> bool:
    """Whether a rule matches a case. Cheap conditions come first: arguments are read only if all others match."""
    return (
        (rule.name is None or matches_any((rule.name,), case.name))
        and (rule.tool is None or (case.tool is not None and matches_any((rule.tool,), case.tool)))
        and _facts_fit(rule, case, trusted=_is_lenient(rule))
        and all(_argument_fits(rule, case, path, expected) for path, expected in rule.when)
        and (not rule.paths or _paths_fit(rule, case))
    )


def _is_lenient(rule: GuardRule) -> bool:
    return rule.do is GuardRulesVerdict.ALLOW


def _facts_fit(rule: GuardRule, case: GuardCase, *, trusted: bool) -> bool:
    """Whether tags, score, and resources match; if `trusted`, without those that the author chose."""
    return (
        (not rule.tags or not rule.tags.isdisjoint(case.trusted_tags if trusted else case.tags))
        and (rule.from_score is None or _reaches(rule, case.trusted_score if trusted else case.score))
        and (not rule.resources or _resources_fit(rule, case, trusted=trusted))
    )


def _reaches(rule: GuardRule, score: float | None) -> bool:
    if score is None:
        return not _is_lenient(rule)
    return rule.from_score is not None and score >= rule.from_score


def _resources_fit(rule: GuardRule, case: GuardCase, *, trusted: bool) -> bool:
    """A rule that allows needs a resource that the author did not choose; but all must fit, the author's too."""
    if trusted and not case.trusted_resources:
        return False
    found = case.resources if _is_lenient(rule) or not trusted else case.trusted_resources
    return _fit(rule, found, lambda one: matches_any(rule.resources, one))


def _fit(rule: GuardRule, found: Sequence[T], fits: Callable[[T], bool]) -> bool:
    if _is_lenient(rule):
        return bool(found) and all(fits(one) for one in found)
    return any(fits(one) for one in found)


def _argument_fits(rule: GuardRule, case: GuardCase, path: str, expected: tuple[Scalar, ...]) -> bool:
    patterns = [text_pattern(one) for one in expected if isinstance(one, str)]
    exact = [one for one in expected if not isinstance(one, str)]

    def reads_so(reading: str) -> bool:
        return any(pattern.matches(reading) for pattern in patterns)

    if path == ANYWHERE:
        return _fit(rule, case.readings, reads_so)
    fitting = [
        not _is_lenient(rule)
        if value is UNKNOWN
        else any(_is_same(value, one) for one in exact) or _fit(rule, list(_readings(value)), reads_so)
        for value in values_at(case.arguments, path)
    ]
    return bool(fitting) and (all(fitting) if _is_lenient(rule) else any(fitting))


def _is_same(value: object, expected: Scalar) -> bool:
    """Compare values; unlike in Python, True is not 1."""
    return isinstance(value, bool) is isinstance(expected, bool) and value == expected


def with_defaults(arguments: object, schema: Mapping[str, Any] | None) -> object:
    """Return arguments as the handler receives them: what is left out has its default, also inside objects and lists.

    A default of a parameter that JSON cannot represent is UNKNOWN. Of a very large schema, inner defaults are left out.
    """
    if not schema or not isinstance(arguments, Mapping):
        return arguments
    required = frozenset(schema.get("required", ()))
    unknown = {name: UNKNOWN for name in schema.get("properties", {}) if name not in required}
    filled = _filled(arguments, schema, schema.get("$defs", {}), _DEEPEST, iter(range(_MOST_STEPS)))
    return unknown | filled if isinstance(filled, dict) else filled


def _filled(value: object, schema: Any, definitions: Mapping[str, Any], depth: int, steps: Iterator[int]) -> object:
    """Return a value with the defaults of its schema. Of several possible object types, all defaults count."""
    if not isinstance(schema, Mapping) or not depth or next(steps, None) is None:
        return value
    if isinstance(reference := schema.get("$ref"), str):
        value = _filled(value, definitions.get(reference.rpartition("/")[2]), definitions, depth - 1, steps)
    for either in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(either, ()):
            value = _filled(value, each, definitions, depth - 1, steps)
    if isinstance(value, list | tuple):
        return [_filled(each, schema.get("items"), definitions, depth - 1, steps) for each in value]
    properties = schema.get("properties")
    if not isinstance(value, Mapping) or not isinstance(properties, Mapping):
        return value
    filled: dict[str, object] = dict(value)
    for name, described in properties.items():
        if name not in filled and isinstance(described, Mapping) and "default" in described:
            filled[name] = described["default"]
        if name in filled:
            filled[name] = _filled(filled[name], described, definitions, depth - 1, steps)
    return filled


def values_at(value: object, path: str) -> Iterator[object]:
    """Yield the values under a dotted path. Names can contain dots themselves; lists are searched."""
    waiting: list[tuple[object, str]] = [(value, path)]
    while waiting:
        here, rest = waiting.pop()
        if isinstance(here, list | tuple):
            waiting.extend((each, rest) for each in here)
        elif isinstance(here, Mapping):
            if rest in here:
                yield here[rest]
            dots = (index for index, char in enumerate(rest) if char == ".")
            waiting.extend((here[rest[:dot]], rest[dot + 1 :]) for dot in dots if rest[:dot] in here)


def _texts(value: object) -> Iterator[str]:
    """Yield every text inside, including names and numbers, and the strings of a list joined, as in a command line."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if here is UNKNOWN:
            continue
        if isinstance(here, str):
            yield here
        elif isinstance(here, bool):
            yield "true" if here else "false"
        elif isinstance(here, int | float):
            yield repr(here)
        elif isinstance(here, Mapping):
            waiting.extend(here.keys())
            waiting.extend(here.values())
        elif isinstance(here, list | tuple):
            waiting.extend(here)
            words = [each for each in here if isinstance(each, str)]
            if len(words) > 1:
                yield " ".join(words)
        elif here is not None:
            raise TypeError(f"{type(here).__name__} is no JSON value")


def _readings(value: object) -> Iterator[str]:
    for text in _texts(value):
        yield from readings(text)


def _words(text: str) -> Iterator[str]:
    yield text
    if _WORD_ENDS.search(text):
        yield from filter(None, _WORD_ENDS.split(text))


def _paths_fit(rule: GuardRule, case: GuardCase) -> bool:
    patterns = [path_pattern(pattern) for pattern in rule.paths]

    def fits(path: _Path) -> bool:
        _, parts, is_absolute = path
        if path.climbs and not _is_lenient(rule):
            # A path that starts with `..` can lead anywhere, even to the root.
            parts, is_absolute = tuple(part for part in parts if part != ".."), True
        return bool(parts) and any(pattern.matches(parts, is_absolute=is_absolute) for pattern in patterns)

    paths = [path for path in case.paths if path.looks_so] if _is_lenient(rule) else case.paths
    return _fit(rule, paths, fits)


# The guard applies the rules in order. A case that cannot be judged is denied.


class GuardRuling(Struct, frozen=True, kw_only=True):
    """The verdict on a case. `rule` is the number of the first rule that decided, from 1; None if none did."""

    verdict: GuardRulesVerdict
    rule: int | None = None
    policy: str | None = None
    reason: str = ""
    more_policies: tuple[str | None, ...] = ()  # of further rules that demand approval; None: the default quorum


class GuardRuleSource(Protocol):
    """An object with guard rules, such as a rulebook."""

    @property
    def guard(self) -> Sequence[GuardRule]: ...


ALLOWED = GuardRuling(verdict=GuardRulesVerdict.ALLOW)


def rule_on(rulebook: GuardRuleSource, case: GuardCase, occasion: GuardOccasion) -> GuardRuling:
    """Apply the first rule that matches; if none does, the case is allowed. Never raises: an error denies the case.

    A rule that demands approval, and matches only because of what the author declared, does not end the search: it adds
    to what a later rule decides.
    """
    number, demands = 0, list[GuardRuling]()
    try:
        for number, rule in enumerate(rulebook.guard, 1):
            if occasion not in rule.at or not holds(rule, case):
                continue
            ruling = GuardRuling(verdict=rule.do, rule=number, policy=rule.policy, reason=rule.reason)
            if rule.do is GuardRulesVerdict.DEMAND and not _facts_fit(rule, case, trusted=True):
                demands.append(ruling)
            else:
                return _added(demands, ruling)
    except Exception as error:  # an attacker might have caused it, so fail closed
        reason = f"guard rule {number} could not be evaluated ({type(error).__name__}), so this is denied"
        return GuardRuling(verdict=GuardRulesVerdict.DENY, rule=number or None, reason=reason)
    return _added(demands, ALLOWED)


def _added(demands: Sequence[GuardRuling], last: GuardRuling) -> GuardRuling:
    """Combine demands with the ruling of the rule that ended the search."""
    if not demands or last.verdict is GuardRulesVerdict.DENY:
        return last
    first, *others = [*demands, last] if last.verdict is GuardRulesVerdict.DEMAND else demands
    more = tuple(dict.fromkeys(ruling.policy for ruling in others if ruling.policy != first.policy))
    return structs.replace(first, more_policies=more)
