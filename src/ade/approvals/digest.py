"""Canonical JSON (RFC 8785), and the SHA-256 digest of everything about a task that reviewers approve."""

import hashlib
import math
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ade.approvals.errors import InvalidSubject
from ade.approvals.model import Gate, Policy, Review
from ade.locks.model import LockSpec
from ade.tasks.model import Task

MOST_EXACT = 2**53 - 1  # beyond it, different integers are the same float and would have the same text
_LEAST_PLAIN, _MOST_PLAIN = -7, 21  # exponents between which a number is written without an exponent


def digest_of(subject: Mapping[str, object]) -> str:
    """Return the SHA-256 of the canonical form in hexadecimal. Raises InvalidSubject."""
    return hashlib.sha256(canonical(subject)).hexdigest()


def canonical(value: object) -> bytes:
    """Return the canonical form of a JSON value. Raises InvalidSubject if it has none."""
    try:
        return _written(value).encode()
    except UnicodeEncodeError:
        raise InvalidSubject("a text has half of a surrogate pair in it, which JSON strings cannot contain") from None
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
            return _number(value)  # a float above 2^53 is exact
        case list() | tuple():
            return f"[{','.join(_written(each) for each in value)}]"
        case Mapping():
            return _object(value)
    raise InvalidSubject(f"{type(value).__name__} is not a JSON value; use strings, numbers, lists, and objects")


def _object(value: Mapping[object, object]) -> str:
    """Sort the names by their UTF-16 code units, as RFC 8785 requires."""
    for name in value:
        if not isinstance(name, str):
            raise InvalidSubject(f"the names in a JSON object must be strings, not {name!r:.60}")
    names = sorted((name for name in value if isinstance(name, str)), key=lambda name: name.encode("utf-16-be"))
    return f"{{{','.join(f'{_text(name)}:{_written(value[name])}' for name in names)}}}"


def _text(value: str) -> str:
    """Escape only what JSON requires."""
    return encode_basestring(value)


def _whole(value: int) -> str:
    if abs(value) > MOST_EXACT:
        raise InvalidSubject(f"{value} is above 2^53: many programs would round it; pass it as a string")
    return str(value)


def _number(value: float) -> str:
    """Format as ECMAScript does: the fewest digits that identify the number, and an exponent only if it is far from
    one."""
    if not math.isfinite(value):
        raise InvalidSubject(f"{value} is not a JSON number")
    if value == 0:
        return "0"  # also negative zero
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)  # it is finite
    text = "".join(str(digit) for digit in digits)
    return "-" * sign + _placed(text.rstrip("0"), len(text) + exponent)


def _placed(digits: str, point: int) -> str:
    """Place the decimal point after `point` digits."""
    if _LEAST_PLAIN < point - 1 < _MOST_PLAIN:
        if point <= 0:
            return f"0.{'0' * -point}{digits}"
        if point >= len(digits):
            return digits + "0" * (point - len(digits))
        return f"{digits[:point]}.{digits[point:]}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{rest}e{point - 1:+d}"


# The subject of an approval: every field of a task that matters, and its digest.


class Preview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task would do, found out without doing it. `versions` tells in which state each resource was seen.

    The resources that it names count for the risk: those in `versions`, and the `resource` of each change that has one.
    """

    changes: list[Any] = []
    warnings: list[str] = []
    errors: list[str] = []
    versions: dict[str, str] = {}


LARGEST_PREVIEW = 256 * 1024  # bytes
_preview = msgspec.json.Decoder(Preview).decode


def read_preview(raw: Raw) -> Preview:
    """Decode a preview. Raises InvalidSubject if it is malformed."""
    try:
        return _preview(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # not UTF-8, or nested too deeply
        raise InvalidSubject(
            f"a preview must return ade.Preview(changes=[...], warnings=[...], errors=[...], versions={{...}}): {error}"
        ) from None


def check_size(preview: Raw) -> None:
    """Raise InvalidSubject if a preview is too large."""
    if len(preview) > LARGEST_PREVIEW:
        raise InvalidSubject(
            f"the preview has {len(preview):,} bytes, more than the {LARGEST_PREVIEW:,} that people can be shown; list"
            " fewer changes, or sum them up"
        )


def has_changed(before: Raw | None, now: Raw) -> bool:
    """Whether a new preview saw other resource versions than the approved one, or reports errors."""
    if before is None:
        return True
    current = read_preview(now)
    return bool(current.errors) or read_preview(before).versions != current.versions


def wants_versions(preview: Raw | None) -> bool:
    """Whether the preview contains the versions of its resources."""
    try:
        return preview is not None and bool(read_preview(preview).versions)
    except InvalidSubject:
        return True  # it cannot be compared, so treat it as changed


def resources_of(task: Task) -> tuple[str, ...]:
    """Return the resources that the author of a task declares: those it changes, and those it locks."""
    return tuple(dict.fromkeys((*task.resources, *(spec.resource for spec in task.locks))))


def digest_for(task: Task, policy: Policy, number: int, step: str = "", about: object = None, *, code: str = "") -> str:
    """Return the digest of the task as it would run under this policy, with this version of its code; for a gate within
    a run, also of that step.

    The gate number is part of the digest, so that a vote at one gate can never count at another. Raises InvalidSubject.
    """
    review = task.review or Review()
    written: dict[str, object] = {
        "gate": number,
        "name": task.name,
        "args": plain_json(task.args),
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
        "preview": None if task.preview is None else plain_json(task.preview),
        "policy": {"id": policy.id, "version": policy.version},
    }
    if task.needs:  # left out if empty: digests from before `needs` existed stay valid
        written["needs"] = list(task.needs)
    if code:  # the same
        written["code"] = code
    if step:
        written["step"], written["about"] = step, about
    return digest_of(written)


def digest_at(task: Task, gate: Gate) -> str:
    """Return the current digest of the task at a gate that was opened earlier."""
    return digest_for(task, gate.policy, gate.number, gate.step, gate.about, code=gate.code)


def plain_json(raw: Raw) -> object:
    """Decode JSON. Raises InvalidSubject."""
    try:
        plain: object = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidSubject(f"the task contains text that is not valid JSON: {error}") from None
    return plain


def _wish(spec: LockSpec) -> Mapping[str, object]:
    return {"resource": spec.resource, "mode": str(spec.mode)}
