"""One text for one meaning: JSON in the canonical form of RFC 8785, and its SHA-256."""

import hashlib
import math
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ade.approvals.errors import InvalidSubject
from ade.approvals.model import Gate, Policy, Review, Subject
from ade.approvals.risk import RiskLevel
from ade.locks.model import LockSpec
from ade.tasks.model import Task

MOST_EXACT = 2**53 - 1  # beyond it two whole numbers are one floating point number, and would be one text
_LEAST_PLAIN, _MOST_PLAIN = -7, 21  # exponents between which a number is written without one


def digest_of(subject: Mapping[str, object]) -> str:
    """SHA-256 over everything that matters, in hexadecimal digits. Raises InvalidSubject."""
    return hashlib.sha256(canonical(subject)).hexdigest()


def canonical(value: object) -> bytes:
    """The one way to write this JSON value. Raises InvalidSubject for what has none."""
    try:
        return _written(value).encode()
    except UnicodeEncodeError:
        raise InvalidSubject("a text has half of a surrogate pair in it, which no JSON text can have") from None
    except RecursionError:
        raise InvalidSubject("it is nested too deeply to be written down") from None


def _written(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int():
            return _whole(value)
        case float():
            return _number(value)  # also one above 2^53: it is what it says
        case list() | tuple():
            return f"[{','.join(_written(each) for each in value)}]"
        case Mapping():
            return _object(value)
    raise InvalidSubject(f"{type(value).__name__} is no JSON value; give text, numbers, lists and objects")


def _object(value: Mapping[object, object]) -> str:
    """Names in the order of their UTF-16 units, as RFC 8785 wants it."""
    for name in value:
        if not isinstance(name, str):
            raise InvalidSubject(f"the names in a JSON object are text, not {name!r:.60}")
    names = sorted((name for name in value if isinstance(name, str)), key=lambda name: name.encode("utf-16-be"))
    return f"{{{','.join(f'{_text(name)}:{_written(value[name])}' for name in names)}}}"


def _text(value: str) -> str:
    """With as few escapes as JSON allows."""
    return encode_basestring(value)


def _whole(value: int) -> str:
    if abs(value) > MOST_EXACT:
        raise InvalidSubject(f"{value} is above 2^53: many programs would round it; give it as text")
    return str(value)


def _number(value: float) -> str:
    """As ECMAScript writes it: the fewest digits that mean this number, with an exponent only far from one."""
    if not math.isfinite(value):
        raise InvalidSubject(f"{value} is no JSON number")
    if value == 0:
        return "0"  # also what is below zero by sign alone
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)  # it is finite
    text = "".join(str(digit) for digit in digits)
    return "-" * sign + _placed(text.rstrip("0"), len(text) + exponent)


def _placed(digits: str, point: int) -> str:
    """The digits with the point behind so many of them."""
    if _LEAST_PLAIN < point - 1 < _MOST_PLAIN:
        if point <= 0:
            return f"0.{'0' * -point}{digits}"
        if point >= len(digits):
            return digits + "0" * (point - len(digits))
        return f"{digits[:point]}.{digits[point:]}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{rest}e{point - 1:+d}"


# What exactly people approve: everything of a task that matters, written down in one way, and its digest.


class Preview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task would do, found out without doing it. `versions` tells in which state each resource was seen."""

    changes: list[Any] = []
    warnings: list[str] = []
    errors: list[str] = []
    versions: dict[str, str] = {}


_preview = msgspec.json.Decoder(Preview).decode


def read_preview(raw: Raw) -> Preview:
    """Raises InvalidSubject for what no preview looks like."""
    try:
        return _preview(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # not UTF-8, or too deep
        raise InvalidSubject(
            f"a preview must return ade.Preview(changes=[...], warnings=[...], errors=[...], versions={{...}}): {error}"
        ) from None


def resources_of(task: Task) -> tuple[str, ...]:
    """All that the task names: what it changes, and what it locks."""
    return tuple(dict.fromkeys((*task.resources, *(spec.resource for spec in task.locks))))


def subject_of(task: Task, level: RiskLevel) -> Subject:
    kinds = frozenset(resource.partition(":")[0] for resource in resources_of(task))
    return Subject(name=task.name, tags=frozenset(task.tags), resource_types=kinds, level=level, task_id=task.id)


def digest_for(task: Task, policy: Policy, number: int, step: str = "", about: object = None) -> str:
    """Of the task as it would run under this policy; for a gate in the middle of a run, of that step too.

    The number of the gate is part of it, so that no answer at one gate can ever be taken for one at another. Raises
    InvalidSubject.
    """
    review = task.review or Review()
    written: dict[str, object] = {
        "gate": number,
        "name": task.name,
        "args": _plain(task.args),
        "description": task.description,
        "tags": sorted(task.tags),
        "queue": task.queue,
        "resources": list(task.resources),
        "locks": [_wish(spec) for spec in task.locks],
        "rollback": task.rollback,
        "timeout_ms": task.timeout_ms,
        "max_attempts": task.max_attempts,
        "deadline": task.deadline,
        "start": [str(review.start), review.not_before, review.not_after],
        "preview": None if task.preview is None else _plain(task.preview),
        "policy": {"id": policy.id, "version": policy.version},
    }
    if task.needs:  # most ask for none, and were approved before any could
        written["needs"] = list(task.needs)
    if step:
        written["step"], written["about"] = step, about
    return digest_of(written)


def digest_at(task: Task, gate: Gate) -> str:
    """What the digest of the task is now, at a gate that was opened earlier."""
    return digest_for(task, gate.policy, gate.number, gate.step, gate.about)


def _plain(raw: Raw) -> object:
    try:
        plain: object = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidSubject(f"the task holds text that is no JSON: {error}") from None
    return plain


def _wish(spec: LockSpec) -> Mapping[str, object]:
    return {"resource": spec.resource, "mode": str(spec.mode)}
