"""Read access to tasks: which tasks a limited account reads, and which values of payloads are masked."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from fnmatch import translate
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from ade.errors import NotPermitted
from ade.tasks.identifiers import owner_of
from ade.tasks.model import Task

# The scope of an account that does not read everything. Stores filter lists by it (`TaskQuery.scope`).


class ReadScope(Struct, frozen=True, kw_only=True):
    """The tasks that a limited account reads: those that it wrote or ran, their children, and those of its queues."""

    account: str
    works: bool = False  # it can have workers, and so tasks that it ran
    queues: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of the tasks in its queues; empty: all

    def is_own(self, task: Task) -> bool:
        """Whether the account wrote the task, or one of its workers ran it last."""
        return task.author_id == self.account or (self.works and owner_of(task.worker_id or "") == self.account)

    def covers(self, queue: str, name: str) -> bool:
        """Whether tasks of this name in this queue are for the workers of the account."""
        return queue in self.queues and (not self.names or name in self.names)

    def allows(self, task: Task, parent: Task | None = None) -> bool:
        """Whether the account reads the task. Without its parent, children of tasks that it ran are left out."""
        return (
            self.is_own(task)
            or self.covers(task.queue, task.name)
            or (parent is not None and parent.id == task.parent_id and self.is_own(parent))
        )

    @property
    def is_author_alone(self) -> bool:
        """Whether the account reads what it wrote, and nothing else. Children have the author of their parent."""
        return not self.works and not self.queues


# Bindings of worker accounts, enforced at every claim.


def bound_names(account: str, bound: Sequence[str], wanted: Iterable[str]) -> frozenset[str]:
    """Return the task names that the account's workers can claim. Raises NotPermitted if none of those is."""
    names = frozenset(wanted)
    if not bound:
        return names
    if names and names.isdisjoint(bound):
        raise NotPermitted(
            f"{account} is bound to the tasks {', '.join(bound)[:500]} and cannot claim"
            f" {', '.join(sorted(names))[:500]}; claim other tasks, or let an admin change the account"
        )
    return names.intersection(bound)


def bound_queues(account: str, bound: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the queues from which the account's workers can claim; none requested: all of them. Raises NotPermitted
    if none of the requested queues is."""
    if not bound:
        return tuple(wanted)
    queues = tuple(queue for queue in wanted if queue in bound) if wanted else tuple(bound)
    if not queues:
        raise NotPermitted(
            f"{account} is bound to the queues {', '.join(bound)[:500]} and cannot claim from"
            f" {', '.join(wanted)[:500]}; claim from other queues, or let an admin change the account"
        )
    return queues


# Masks. A value is secret if the schema of the arguments says so (`x-secret`), if the settings name its field, or if
# it matches a pattern in the settings. Secret arguments are also masked where they appear in results, errors, and logs.


MASKED = "[masked]"
KEYWORD = "x-secret"
_SHORTEST = 4  # characters: shorter secrets are masked in arguments, but not searched for in other text
_DEEPEST = 64


class MaskRules:
    """What the settings declare as secret: names of fields, as patterns such as *password*, and regular expressions."""

    def __init__(self, fields: Sequence[str] = (), patterns: Sequence[str] = ()) -> None:
        self._name = re.compile("|".join(translate(each.lower()) for each in fields)) if fields else None
        self._patterns = [re.compile(pattern) for pattern in patterns]

    def __bool__(self) -> bool:
        return self._name is not None or bool(self._patterns)

    def is_secret_field(self, name: object) -> bool:
        """Whether values of fields with this name are masked, in any payload."""
        return self._name is not None and isinstance(name, str) and self._name.match(name.lower()) is not None

    def text(self, text: str) -> str:
        """Return the text with everything masked that matches a pattern."""
        for pattern in self._patterns:
            text = pattern.sub(MASKED, text)
        return text


def has_secrets(schema: object) -> bool:
    """Whether a schema declares any value as secret."""
    if isinstance(schema, dict):
        return schema.get(KEYWORD) is True or any(map(has_secrets, schema.values()))
    return isinstance(schema, list) and any(map(has_secrets, schema))


def has_mask(value: object) -> bool:
    """Whether a JSON value contains a mask."""
    return MASKED in _texts(value)


class PayloadMask:
    """Masks the payloads of one task, whose arguments are known, or of anything else.

    With `hides_all`, every text is masked: the arguments are not known, and could be repeated in it.
    """

    def __init__(
        self,
        rules: MaskRules,
        schema: Mapping[str, Any] | None = None,
        args: object = None,
        *,
        hides_all: bool = False,
    ) -> None:
        self._rules = rules
        self._schema = schema
        self._hides_all = hides_all
        self._secrets: set[str] = set()
        self.paths: list[str] = []  # of the masked arguments
        self.args = self._arguments(args, "", keep=True) if args is not None else None
        longest_first = sorted(self._secrets, key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def value(self, value: Any) -> Any:
        """Return a payload with masked values: a record, JSON, text, or a list or mapping of them."""
        if isinstance(value, Enum) or value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Raw):
            return self._raw(value)
        if isinstance(value, Struct):
            changed = {name: self.value(getattr(value, name)) for name in value.__struct_fields__}
            return structs.replace(value, **changed)
        if isinstance(value, Mapping):
            return {name: self._member(name, each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.value, value))
        return MASKED if isinstance(value, int | float) and str(value) in self._secrets else value

    def raw_arguments(self, raw: Raw) -> Raw:
        """Return arguments as JSON, masked by their schema too."""
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            return Raw(msgspec.json.encode(MASKED))
        return Raw(msgspec.json.encode(self._arguments(value, "")))

    def at(self, path: str, value: object) -> object:
        """Return the value of one argument by its path, such as `card.number` or `items[0]`."""
        parts = re.findall(r"[^.\[\]]+", path)
        whole: Any = value
        for place, part in reversed(list(enumerate(parts))):
            whole = [whole] if f"[{part}]" in path and part.isdigit() and place else {part: whole}
        whole = self._arguments(whole, "")
        for part in parts:
            if isinstance(whole, list) and whole:
                whole = whole[0]
            elif isinstance(whole, dict) and part in whole:
                whole = whole[part]
            else:
                return MASKED if whole == MASKED else self.value(value)
        return whole

    def _arguments(self, value: object, path: str, *, keep: bool = False) -> object:
        by_schema = self._by_schema(value, self._schema or {}, path, 0, keep=keep)
        return self.value(by_schema) if not keep else self._by_name(by_schema, path)

    def _by_name(self, value: Any, path: str) -> Any:
        """Mask fields that the settings name, and remember their values."""
        if isinstance(value, dict):
            made = {}
            for name, each in value.items():
                here = f"{path}.{name}" if path else str(name)
                is_secret = self._rules.is_secret_field(name) and each is not None
                made[name] = self._secret(each, here, keep=True) if is_secret else self._by_name(each, here)
            return made
        if isinstance(value, list):
            return [self._by_name(each, f"{path}[{place}]") for place, each in enumerate(value)]
        return self._rules.text(value) if isinstance(value, str) else value

    def _by_schema(self, value: Any, schema: Any, path: str, depth: int, *, keep: bool) -> Any:
        if not isinstance(schema, dict) or depth > _DEEPEST or value == MASKED:
            return value
        if schema.get(KEYWORD) is True and value is not None:
            return self._secret(value, path, keep=keep)
        if isinstance(reference := schema.get("$ref"), str):
            value = self._by_schema(value, self._resolved(reference), path, depth + 1, keep=keep)
        for combined in ("allOf", "anyOf", "oneOf"):
            for each in schema.get(combined) or ():
                value = self._by_schema(value, each, path, depth + 1, keep=keep)
        if isinstance(value, dict):
            properties, others = schema.get("properties") or {}, schema.get("additionalProperties")
            return {
                name: self._by_schema(
                    each, properties.get(name, others), f"{path}.{name}" if path else name, depth + 1, keep=keep
                )
                for name, each in value.items()
            }
        if isinstance(value, list):
            first, rest = schema.get("prefixItems") or (), schema.get("items")
            return [
                self._by_schema(
                    each, first[place] if place < len(first) else rest, f"{path}[{place}]", depth + 1, keep=keep
                )
                for place, each in enumerate(value)
            ]
        return value

    def _resolved(self, reference: str) -> Any:
        found: Any = self._schema
        for part in reference.removeprefix("#/").split("/"):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found

    def _secret(self, value: object, path: str, *, keep: bool) -> str:
        if keep:
            self.paths.append(path)
            self._secrets.update(each for each in _texts(value) if len(each) >= _SHORTEST)
        return MASKED

    def _member(self, name: object, value: object) -> Any:
        if name == "args" and self._schema is not None and isinstance(value, dict):
            return self._arguments(value, "")
        return MASKED if self._rules.is_secret_field(name) and value is not None else self.value(value)

    def _raw(self, raw: Raw) -> Raw:
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, RecursionError):
            return Raw(msgspec.json.encode(MASKED))
        return Raw(msgspec.json.encode(self.value(value)))

    def _text(self, text: str) -> str:
        if self._hides_all:
            return MASKED
        return self._rules.text(text if self._found is None else self._found.sub(MASKED, text))


def _texts(value: object) -> Iterable[str]:
    """Yield all values inside a secret as text."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
