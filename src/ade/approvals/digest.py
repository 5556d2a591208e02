"""Canonical JSON (RFC 8785), and the SHA-256 digest of everything about a task that reviewers approve."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import islice
from json.encoder import encode_basestring
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, structs

from ade.approvals.errors import InvalidSubject
from ade.approvals.model import FieldChange, Gate, Policy, Review
from ade.locks.model import LockSpec
from ade.tasks.model import AfterFailure, Task

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
    """What a task would do, computed without doing it. `versions` contains the state of each resource that was read.

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

    Raises InvalidSubject.
    """
    return digest_of(signed_fields(task, policy, number, step, about, code=code))


def signed_fields(
    task: Task, policy: Policy, number: int, step: str = "", about: object = None, *, code: str = ""
) -> dict[str, object]:
    """Return every field that the digest covers: what reviewers are shown, and what they sign.

    The gate number is one of them, so that a vote at one gate can never count at another. Fields that were added later
    are left out at their defaults, so that earlier digests stay valid. Raises InvalidSubject.
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
    if task.needs:
        written["needs"] = list(task.needs)
    if code:
        written["code"] = code
    if task.depends_on:
        written["depends_on"] = sorted(task.depends_on)
    if task.after_failure is not AfterFailure.CANCEL:
        written["after_failure"] = str(task.after_failure)
    if task.concurrency_key is not None:
        written["concurrency_key"] = task.concurrency_key
    if step:
        written["step"], written["about"] = step, about
    return written


def digest_at(task: Task, gate: Gate) -> str:
    """Return the current digest of the task at a gate that was opened earlier."""
    return digest_for(task, gate.policy, gate.number, gate.step, gate.about, code=gate.code)


def signed_at(task: Task, gate: Gate) -> dict[str, object] | None:
    """Return what the digest of a gate covers; None if the task is no longer as it was then."""
    try:
        fields = signed_fields(task, gate.policy, gate.number, gate.step, gate.about, code=gate.code)
        return fields if digest_of(fields) == gate.digest else None
    except InvalidSubject:
        return None


def remembered(task: Task) -> Review | None:
    """Return the review with what was signed last, before the task changes: its next gate lists the differences."""
    gates = [gate for gate in task.review.gates if not gate.step] if task.review is not None else []
    if task.review is None or not gates or task.review.signed is not None:
        return task.review
    return structs.replace(task.review, signed=signed_at(task, gates[-1]))


_MOST_CHANGES, _LONGEST_VALUE, _CONTEXT = 100, 1_000, 40


def differences(before: object, after: object, path: str = "") -> Iterator[FieldChange]:
    """Yield what differs between two JSON values, with the path of each difference. Of long values, it shows the part
    that differs."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            here = f"{path}.{name}" if path else str(name)
            if name not in before or name not in after:
                kind: Literal["added", "removed"] = "added" if name in after else "removed"
                yield _change(here, kind, before.get(name), after.get(name))
            else:
                yield from differences(before[name], after[name], here)
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif canonical(before) != canonical(after):
        yield _change(path, "changed", before, after)


def _change(path: str, kind: Literal["added", "removed", "changed"], before: object, after: object) -> FieldChange:
    """Describe a difference. Reviewers must see it, so what long values have in common is left out first."""
    are_texts = isinstance(before, str) and isinstance(after, str)
    one, other = (str(each) if are_texts else canonical(each).decode() for each in (before, after))
    if max(len(one), len(other)) > _LONGEST_VALUE:
        start = max(0, _common(one, other) - _CONTEXT)
        one, other = one[start:], other[start:]
        end = max(0, _common(one[::-1], other[::-1]) - _CONTEXT)
        before, after = (_shortened(text, start, end) for text in (one, other))
    return FieldChange(
        path=path,
        kind=kind,
        before=None if kind == "added" else before,
        after=None if kind == "removed" else after,
    )


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _shortened(text: str, start: int, end: int) -> str:
    """Return the part of a text between `start`, which is removed already, and `end`, and say what is left out."""
    part = text[: len(text) - end]
    if (hidden := len(part) - _LONGEST_VALUE) > 0:
        half = _LONGEST_VALUE // 2
        part = f"{part[:half]}… ({hidden:,} characters are not shown) …{part[-half:]}"
    return f"{'…' * bool(start)}{part}{'…' * bool(end)} (of {start + len(text):,} characters)"


def changes_since(signed: Mapping[str, object] | None, fields: Mapping[str, object]) -> tuple[FieldChange, ...]:
    """Return how the fields of a new gate differ from those that were signed before; the gate number always does."""
    if signed is None:
        return ()
    old, new = ({name: each for name, each in some.items() if name != "gate"} for some in (signed, fields))
    found = differences(old, new)
    first = tuple(islice(found, _MOST_CHANGES))
    more = sum(1 for _ in found)
    return (*first, FieldChange(path="", kind="more", after=more)) if more else first


def plain_json(raw: Raw) -> object:
    """Decode JSON. Raises InvalidSubject."""
    try:
        plain: object = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidSubject(f"the task contains text that is not valid JSON: {error}") from None
    return plain


def _wish(spec: LockSpec) -> Mapping[str, object]:
    return {"resource": spec.resource, "mode": str(spec.mode)}
