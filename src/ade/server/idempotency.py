"""Idempotency-Key: a request that is sent twice is carried out once, and answered twice in the same way.

The rules alone; `ade.server.pipeline` keeps what they speak of, and says how to wire it.
"""

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Struct

from ade.server.problems import HttpFault, RequestRefused, error_of_refusal

RETENTION_MS = 24 * 3_600_000
RUNS_MS = 120_000  # who has not answered by then is presumed dead, unless he says that it still runs
MOST_BODY = 64 * 1024
MOST_TASK_KEY = 500  # characters, as of every key of a task
OF_OTHERS = ("account:", "http:", "schedule/", "turn:")  # how keys begin that accounts, schedules and turns have
STORED_HEADERS = frozenset({"content-type", "etag", "location", "preference-applied"})
_BARE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,255}")
_QUOTED = re.compile(r'"([\x20-\x21\x23-\x5b\x5d-\x7e]{1,255})"')
_FIRST_REFUSAL = 400


class StoredResponse(Struct, frozen=True, kw_only=True):
    """An answer to be given again. Without a body: it was too large to be kept."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes | None = b""


class StoredRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a request with a key: that it runs, or how it was answered."""

    fingerprint: str
    holder: str  # who carries it out; only he may say how it was answered
    begun_at: int
    runs_until: int  # steady time
    answer: StoredResponse | None = None
    kept_ms: int = RETENTION_MS

    @property
    def kept_until(self) -> int:
        return self.begun_at + self.kept_ms


class KeyStanding(StrEnum):
    __hash__ = str.__hash__  # an Enum's own is a Python function

    FIRST = auto()  # nobody has asked this before: carry it out
    ABANDONED = auto()  # whoever carried it out has not come back: carry it out, it may be for the second time
    REPEAT = auto()  # answer as the first time
    RUNNING = auto()  # 409
    OTHER = auto()  # 422: the key was used for another request


def read_key(header: str) -> str:
    """The key, bare or as a structured string: `8e03978e-...` or `"8e03978e-..."`. Raises RequestRefused (400)."""
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
    """The same for requests that ask for the same. `target` is the path with its query, as it was sent."""
    parts = [text.encode("utf-8", "surrogatepass") for text in (method.upper(), target, if_match or "")]
    head = b"".join(len(part).to_bytes(8) + part for part in parts)
    return hashlib.sha256(head + body).hexdigest()


def place_of(account: str, key: str) -> str:
    """Under which id it is kept: keys of one account say nothing about those of another."""
    return hashlib.sha256(f"{account}\n{key}".encode()).hexdigest()


def task_key(account: str, key: str) -> str:
    """The idempotency key of a task that such a request makes, so that not even a second time makes a second one."""
    return f"http:{place_of(account, key)}"


def own_task_key(account: str, key: str) -> str:
    """The idempotency key that an account has given its task, made its own: nobody can use it up for another account,
    for a schedule or for a turn of a conversation. What is no key stays as it is, and is refused."""
    if not 0 < len(key) <= MOST_TASK_KEY or not key.isprintable():
        return key
    own = f"account:{account}:{key}"
    return own if len(own) <= MOST_TASK_KEY else f"account:{account}:{hashlib.sha256(key.encode()).hexdigest()}"


def standing(kept: StoredRequest | None, wanted: str, *, steady: int) -> KeyStanding:
    """The whole table. What was asked is compared first: a key belongs to one request for as long as it is kept."""
    if kept is None:
        return KeyStanding.FIRST
    if kept.fingerprint != wanted:
        return KeyStanding.OTHER
    if kept.answer is not None:
        return KeyStanding.REPEAT
    # An end further away than any can be is from before the machine was started anew.
    return KeyStanding.RUNNING if steady < kept.runs_until <= steady + RUNS_MS else KeyStanding.ABANDONED


def refusal(state: KeyStanding) -> RequestRefused:
    """What to answer to who must not go on."""
    if state is KeyStanding.OTHER:
        return RequestRefused(HttpFault.IDEMPOTENCY_CONFLICT)
    return RequestRefused(HttpFault.REQUEST_IN_PROGRESS, retry_after=1)


def is_storable(status: int) -> bool:
    """Whether something was done. A refusal has changed nothing and may not come again, so its key is free again."""
    return status < _FIRST_REFUSAL


def stored_response(answer: StoredResponse) -> StoredResponse:
    """As much of an answer as is kept."""
    headers = {name.lower(): value for name, value in answer.headers.items() if name.lower() in STORED_HEADERS}
    is_small = answer.body is not None and len(answer.body) <= MOST_BODY
    return StoredResponse(status=answer.status, headers=headers, body=answer.body if is_small else None)


def again(answer: StoredResponse) -> StoredResponse:
    """What a repeated request is answered. Raises RequestRefused (409) when the body was too large to be kept."""
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
