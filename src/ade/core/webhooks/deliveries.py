"""Deliveries: one message to one webhook, with all attempts to send it, as they are kept for people to look at."""

import hashlib
import re
from collections.abc import Iterable
from enum import StrEnum, auto

from msgspec import Struct, structs

from ade.core.agent_runs.redaction import HIDDEN, without_secrets
from ade.core.events import Event
from ade.core.webhooks.judging import Answer, Judgement, Step
from ade.core.webhooks.messages import body_of
from ade.core.webhooks.signatures import SECRET_PREFIX

KEPT_MS = 14 * 86_400_000  # after the last that happened
MOST_KEPT = 500  # of one webhook, and a few more until the next clearing
MOST_ATTEMPTS_KEPT = 20
LONGEST_EXCERPT = 1_000  # characters that are kept of an answer
READ_BYTES = 4_000  # what the sender reads of it: more than is kept, so that no secret is cut in two
_CUT = 200  # longer than any secret of ours
_CLEARED_EVERY = 64
_SECRET = re.compile(rf"{SECRET_PREFIX}[A-Za-z0-9+/=]*|(?<=v1,)[A-Za-z0-9+/=]{{20,}}")


class State(StrEnum):
    WAITING = auto()  # for its next attempt, or for a replay
    DELIVERED = auto()
    FAILED = auto()  # for good
    DROPPED = auto()  # the webhook was disabled: not sent, or not again


STATE_AFTER = {
    Step.DELIVERED: State.DELIVERED,
    Step.RETRY: State.WAITING,
    Step.GIVE_UP: State.FAILED,
    Step.DISABLE: State.FAILED,
    Step.DROP: State.DROPPED,
}


class Attempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    number: int
    at: int
    duration_ms: int
    status: int | None = None
    error: str = ""
    excerpt: str = ""  # the beginning of the answer, without secrets


class Delivery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`id` is the message's id, the same in every attempt and replay, by which the receiver knows it again."""

    id: str
    webhook: str
    seq: int
    type: str
    body: str
    created_at: int
    updated_at: int
    state: State = State.WAITING
    why: str = ""
    next_at: int | None = None
    attempts: tuple[Attempt, ...] = ()  # the newest
    replays: int = 0

    @property
    def kept_until(self) -> int:
        return self.updated_at + KEPT_MS

    @property
    def clears(self) -> bool:
        """Whether old ones of its webhook are cleared away when this one comes: so for some of them, by chance of
        their ids."""
        return int(self.id[-8:], 16) % _CLEARED_EVERY == 0


def delivery_id(webhook_id: str, event: Event) -> str:
    """The same however often it is asked. An event that took its seq after a backup was restored has another one."""
    text = f"{webhook_id}\n{event.seq}\n{event.type}\n{event.at}"
    return f"msg_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def new_delivery(webhook_id: str, event: Event, *, now: int) -> Delivery:
    return Delivery(
        id=delivery_id(webhook_id, event),
        webhook=webhook_id,
        seq=event.seq,
        type=event.type,
        body=body_of(event).decode(),
        created_at=now,
        updated_at=now,
    )


def attempted(delivery: Delivery, answer: Answer, judgement: Judgement, *, number: int, now: int) -> Delivery:
    """The delivery after one more attempt, with an answer that was cleaned."""
    attempt = Attempt(
        number=number,
        at=now,
        duration_ms=answer.duration_ms,
        status=answer.status,
        error=answer.error,
        excerpt=answer.excerpt.decode(),
    )
    attempts = (*delivery.attempts, attempt)[-MOST_ATTEMPTS_KEPT:]
    return structs.replace(ended(delivery, judgement, now=now), attempts=attempts)


def ended(delivery: Delivery, judgement: Judgement, *, now: int) -> Delivery:
    """The delivery as a judgement leaves it."""
    return structs.replace(
        delivery,
        state=STATE_AFTER[judgement.step],
        why=judgement.reason,
        next_at=now + judgement.delay_ms if judgement.step is Step.RETRY else None,
        updated_at=now,
    )


def replayed(delivery: Delivery, *, now: int) -> Delivery:
    return structs.replace(
        delivery,
        state=State.WAITING,
        why="somebody had it sent once more",
        next_at=None,
        replays=delivery.replays + 1,
        updated_at=now,
    )


def cleaned(answer: Answer, secrets: Iterable[str]) -> Answer:
    """The answer as it may be kept and shown: these hidden wherever the other side has sent them back, and short."""
    hidden = list(secrets)
    error = _excerpt(answer.error.encode(errors="replace"), hidden)
    return structs.replace(answer, error=error, excerpt=_excerpt(answer.excerpt, hidden).encode())


def _excerpt(content: bytes, secrets: Iterable[str]) -> str:
    """The beginning, on one line, without what nobody may read."""
    text = without_secrets(content[:READ_BYTES].decode(errors="replace"), secrets)
    text = _SECRET.sub(HIDDEN, text)
    if len(content) >= READ_BYTES:
        text = text[:-_CUT]  # its last word may be the first half of a secret
    return "".join(char if char.isprintable() else " " for char in text)[:LONGEST_EXCERPT].rstrip()


def oldest_beyond(kept: Iterable[Delivery]) -> list[Delivery]:
    """Those that must go for the others to be few enough."""
    newest_first = sorted(kept, key=lambda delivery: (delivery.created_at, delivery.seq), reverse=True)
    return newest_first[MOST_KEPT:]
