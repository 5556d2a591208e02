"""What a program that nobody controls has written as JSON, read without ever raising."""

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

MOST_COUNT = 2**53
LONGEST_ID = 200

Record = Mapping[str, Any]
_DECODER = msgspec.json.Decoder()
_FAULTS = (msgspec.MsgspecError, ValueError, RecursionError)


def read_record(data: bytes) -> Record | None:
    """The JSON object that these bytes are; None if they are anything else."""
    text = data.strip()
    if not text.startswith(b"{") or not text.endswith(b"}"):
        return None
    try:
        value = _DECODER.decode(text)
    except _FAULTS:
        value = _read_leniently(text)
    return value if isinstance(value, dict) else None


def _read_leniently(data: bytes) -> object:
    """Programs cut texts anywhere, so that half a surrogate pair or half a UTF-8 character is left over."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except _FAULTS:
        return None


def text_of(record: Record, *keys: str) -> str | None:
    """The first of these fields that holds text which is not empty."""
    for key in keys:
        value = record.get(key)
        if isinstance(value, str) and value:
            return whole_text(value)
    return None


def whole_text(text: str) -> str:
    """Text that every store can keep: without halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode("utf-8")


def id_of(record: Record, *keys: str) -> str | None:
    found = text_of(record, *keys)
    return found if found is not None and len(found) <= LONGEST_ID else None


def count_of(record: Record, key: str) -> int | None:
    """A whole number that counts something; nonsense is no number."""
    value = record.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_COUNT:
        return None
    return value


def amount_of(record: Record, key: str) -> float | None:
    """An amount of money or time; nonsense is none."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        amount = float(value)
    except OverflowError:
        return None
    return amount if math.isfinite(amount) and 0 <= amount <= MOST_COUNT else None


def record_of(record: Record, key: str) -> Record:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def records_of(record: Record, key: str) -> list[Record]:
    value = record.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def written(value: object) -> str:
    """A value of a record as JSON; text, which some programs use for JSON, as it is."""
    if value is None:
        return ""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        text = "[too deep to be shown]"
    return whole_text(text)
