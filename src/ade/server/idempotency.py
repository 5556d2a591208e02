"""Idempotency-Key rules: a request that is sent twice is executed once and gets the same response twice.

This module contains only the rules. `ade.server.pipeline` stores the requests and responses.
"""

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Struct

from ade.server.problems import HttpFault, RequestRefused, error_of_refusal

RETENTION_MS = 24 * 3_600_000
RUNS_MS = 120_000  # a server that has not responded or renewed by then is presumed dead
MOST_BODY = 64 * 1024
MOST_TASK_KEY = 500  # characters, as for every task key
OF_OTHERS = ("account:", "http:", "schedule/", "turn:")  # reserved key prefixes
STORED_HEADERS = frozenset({"content-type", "etag", "location", "preference-applied"})
_BARE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}")
_QUOTED = re.compile(r'"([\x20-\x21\x23-\x5b\x5d-\x7e]{1,255})"')
_FIRST_REFUSAL = 400


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A response to send again. None as body: it was too large to store."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes | None = b""


class StoredRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored state of a request with a key: still running, or its response."""

    fingerprint: str
    holder: str  # the server that executes it; only the holder can store the response
    begun_at: int
    runs_until: int  # steady time
    answer: StoredResponse | None = None
    kept_ms: int = RETENTION_MS

    @property
    def kept_until(self) -> int:
        return self.begun_at + self.kept_ms


class KeyStanding(StrEnum):
    """The state of an Idempotency-Key when a request with it arrives."""

    __hash__ = str.__hash__  # faster: Enum.__hash__ is a Python function

    FIRST = auto()  # a new key: execute the request
    ABANDONED = auto()  # the server that executed it is gone: execute it, possibly a second time
    REPEAT = auto()  # return the stored response
    RUNNING = auto()  # 409
    OTHER = auto()  # 422: the key was used for another request


def read_key(header: str) -> str:
    """Return the key, sent bare (`8e03978e-...`) or as a quoted string. Raises RequestRefused (400)."""
    text = header.strip(" \t")
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1]
    if _BARE.fullmatch(text):
        return text
    raise RequestRefused(
        HttpFault.BAD_REQUEST,
        "an Idempotency-Key has 1 to 255 printable ASCII characters without quotes and backslashes; a random UUID is"
        " a good one",
    )


def fingerprint(method: str, target: str, body: bytes, if_match: str | None = None) -> str:
    """Return a hash that is equal for equal requests. `target` is the path and query as sent."""
    parts = [text.encode("utf-8", "surrogatepass") for text in (method.upper(), target, if_match or "")]
    head = b"".join(len(part).to_bytes(8) + part for part in parts)
    return hashlib.sha256(head + body).hexdigest()


def place_of(account: str, key: str) -> str:
    """Return the document ID for a key. It includes the account, so accounts cannot see each other's keys."""
    return hashlib.sha256(f"{account}\n{key}".encode()).hexdigest()


def task_key(account: str, key: str) -> str:
    """Return the idempotency key for a task that such a request enqueues, so a rerun creates no second task."""
    return f"http:{place_of(account, key)}"


def own_task_key(account: str, key: str) -> str:
    """Scope a caller's task key to its account, so it cannot collide with other accounts, schedules, or turns.

    An invalid key is returned unchanged and rejected later.
    """
    if not 0 < len(key) <= MOST_TASK_KEY or not key.isprintable():
        return key
    own = f"account:{account}:{key}"
    return own if len(own) <= MOST_TASK_KEY else f"account:{account}:{hashlib.sha256(key.encode()).hexdigest()}"


def standing(kept: StoredRequest | None, wanted: str, *, steady: int, judged: int) -> KeyStanding:
    """Return the state of a key. The fingerprint is compared first: a key belongs to one request. `judged` is the time
    by which the end of a request is judged.
    """
    if kept is None:
        return KeyStanding.FIRST
    if kept.fingerprint != wanted:
        return KeyStanding.OTHER
    if kept.answer is not None:
        return KeyStanding.REPEAT
    # An end further away than RUNS_MS dates from before a reboot, which resets the steady clock.
    return KeyStanding.RUNNING if judged < kept.runs_until <= steady + RUNS_MS else KeyStanding.ABANDONED


def refusal(state: KeyStanding) -> RequestRefused:
    """Return the rejection for a request that must not be executed."""
    if state is KeyStanding.OTHER:
        return RequestRefused(HttpFault.IDEMPOTENCY_CONFLICT)
    return RequestRefused(HttpFault.REQUEST_IN_PROGRESS, retry_after=1)


def is_storable(status: int) -> bool:
    """Return whether to store the response. A rejected request changed nothing, so its key is free again."""
    return status < _FIRST_REFUSAL


def stored_response(answer: StoredResponse) -> StoredResponse:
    """Return the part of a response that is stored."""
    headers = {name.lower(): value for name, value in answer.headers.items() if name.lower() in STORED_HEADERS}
    is_small = answer.body is not None and len(answer.body) <= MOST_BODY
    return StoredResponse(status=answer.status, headers=headers, body=answer.body if is_small else None)


def again(answer: StoredResponse) -> StoredResponse:
    """Return the response to a repeated request. Raises RequestRefused (409) if its body was too large to store."""
    if answer.body is None:
        where = {"location": answer.headers["location"]} if "location" in answer.headers else {}
        raise RequestRefused(HttpFault.ANSWER_NOT_KEPT, first_status=answer.status, **where)
    return StoredResponse(
        status=answer.status, headers={**answer.headers, "idempotency-replayed": "true"}, body=answer.body
    )


def read_checked_key(key: str) -> str:
    """Return an idempotency key as it is stored. Raises the error that a client gets for an invalid key."""
    try:
        return read_key(key)
    except RequestRefused as refused:
        raise error_of_refusal(refused) from None
