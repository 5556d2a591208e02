"""What the answer to a message means. The whole policy is here, by the recommendations of Standard Webhooks."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum, auto

import msgspec
from msgspec import Raw, Struct, structs

from ade.accounts.model import SYSTEM
from ade.agents.protocols.base import HIDDEN, without_secrets
from ade.events.model import Event, is_of_access
from ade.failures import Backoff
from ade.server.wire_format import event_to_wire, write_time
from ade.tasks.identifiers import DELIVER, MARK, QUEUE, is_own
from ade.tasks.model import Task
from ade.webhooks.model import WEBHOOK_TESTED, Webhook, matches
from ade.webhooks.signatures import SECRET_PREFIX

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
# How long to wait after the first failure, the second ... as the rules of Standard Webhooks have it.
DELAYS_MS = (
    *(5 * SECOND, 5 * MINUTE, 30 * MINUTE),
    *(2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR),
)
ATTEMPTS = len(DELAYS_MS) + 1
LONGEST_DELAY_MS = 24 * HOUR  # whatever the other side asks for
WEEK_MS = 7 * 24 * HOUR
LEAST_FAILURES = 10  # one message that failed long ago, and another one today, are no week of failures
TOUCH_MS = MINUTE  # `succeeded_at` is at most this much behind
_JITTER = 0.1
_GONE = 410
_ASKS_FOR_PATIENCE = frozenset({429, 502, 503, 504})  # whose Retry-After counts
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = re.compile(
    rf"[A-Z][a-z]{{2}}, ([0-9]{{2}}) ({'|'.join(_MONTHS)}) ([0-9]{{4}}) ([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}}) GMT"
)


class DeliveryResponse(Struct, frozen=True, kw_only=True):
    """What came of sending a message: a status, or why there is none."""

    status: int | None = None
    error: str = ""  # without a status: no address, refused, no connection, too slow, broken off
    retry_after: str = ""  # the header as it came
    duration_ms: int = 0
    excerpt: bytes = b""  # the beginning of the answer's body

    @property
    def is_good(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class WebhookHealth(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a webhook has fared lately."""

    succeeded_at: int | None = None
    failed_at: int | None = None
    failing_since: int | None = None  # the first failure after the last success
    failures: int = 0  # since then

    def after(self, answer: DeliveryResponse, *, now: int) -> "WebhookHealth":
        """The same record where there is nothing worth a write."""
        if not answer.is_good:
            since = now if self.failing_since is None else self.failing_since
            return structs.replace(self, failed_at=now, failing_since=since, failures=self.failures + 1)
        if self.failing_since is None and self.succeeded_at is not None and now - self.succeeded_at < TOUCH_MS:
            return self
        return structs.replace(self, succeeded_at=now, failing_since=None, failures=0)

    def is_hopeless(self, now: int) -> bool:
        """Nothing but failures for a week."""
        is_long = self.failing_since is not None and now - self.failing_since >= WEEK_MS
        return is_long and self.failures >= LEAST_FAILURES


class DeliveryStep(StrEnum):
    """What becomes of a delivery."""

    DELIVERED = auto()
    RETRY = auto()
    GIVE_UP = auto()  # after the last attempt
    DISABLE = auto()  # and of its webhook: nothing more is sent
    DROP = auto()  # the webhook is gone or disabled: nothing was sent


class DeliveryDecision(Struct, frozen=True, kw_only=True):
    step: DeliveryStep
    reason: str
    delay_ms: int = 0  # before the next attempt


def decide_delivery(
    answer: DeliveryResponse, health: WebhookHealth, *, attempt: int, now: int, randomness: float
) -> DeliveryDecision:
    """What to do about an answer. `health` is that after it, `attempt` counts from 1; with a `dice` of 0.5 (in [0, 1))
    the delay is plain.

    | answer | step |
    |---|---|
    | 2xx | delivered |
    | 410 | disable the webhook |
    | 429, 502, 503, 504 with Retry-After | as below, and not before the time asked for, a day at most |
    | anything else, also 3xx: no redirect is followed | retry after the delay of this attempt |
    | a failure, and nothing else for a week | disable the webhook |
    | a failure of the last attempt | give up |
    """
    what = _what(answer)
    if answer.is_good:
        return DeliveryDecision(step=DeliveryStep.DELIVERED, reason=what)
    if answer.status == _GONE:
        return DeliveryDecision(step=DeliveryStep.DISABLE, reason="it answered 410 Gone: it wants no more messages")
    if health.is_hopeless(now):
        reason = f"for a week it has answered no message well ({health.failures} failures, the last one: {what})"
        return DeliveryDecision(step=DeliveryStep.DISABLE, reason=reason)
    if attempt >= ATTEMPTS:
        return DeliveryDecision(
            step=DeliveryStep.GIVE_UP, reason=f"{what}, and that was attempt {attempt} of {ATTEMPTS}"
        )
    delay = round(DELAYS_MS[max(attempt, 1) - 1] * (1 + _JITTER * (2 * randomness - 1)))
    if answer.status in _ASKS_FOR_PATIENCE:
        delay = max(delay, min(retry_after_ms(answer.retry_after, now=now), LONGEST_DELAY_MS))
    return DeliveryDecision(step=DeliveryStep.RETRY, reason=what, delay_ms=delay)


def retry_after_ms(text: str, *, now: int) -> int:
    """How long a header Retry-After asks to wait, in seconds or until a date. 0 for what is neither, or is past."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return int(text) * SECOND
    found = _DATE.fullmatch(text)
    if found is None:
        return 0
    day, month, year, hour, minute, second = found.groups()
    try:
        date = datetime(int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError:
        return 0
    return max(int(date.timestamp()) * SECOND - now, 0)


def _what(answer: DeliveryResponse) -> str:
    return f"it answered {answer.status}" if answer.status is not None else answer.error or "there was no answer"


# What a webhook is told of an event: ids and facts, never arguments, results, or what people or programs have
# written.
#
# Only fields that are known to be such are told, so a new kind of event tells too little rather than too much.


LARGEST_BODY = 20_000  # bytes: what Standard Webhooks recommends
_LONGEST_TEXT, _MOST_ITEMS = 200, 50
_ERROR_TYPE = re.compile(r"([A-Za-z_][A-Za-z0-9_.]{0,99}): ")

# fmt: off
FACTS = frozenset({
    "account", "agent", "agent_id", "approval", "attempt", "automatic", "batch_id", "capabilities",
    "cleared_count", "client_message_id", "conversation_id", "cost_usd", "cron", "cycle", "delay_ms", "delegate",
    "delegation", "delegator", "delivery", "digest", "edited", "ended", "ends_at", "entry", "events", "expires_at",
    "fields", "generation", "inbox_id", "is_active", "is_early", "is_human", "item_id", "item_ids", "items", "kind",
    "level", "locks", "max_depth", "max_tasks", "merged_count", "mode", "model", "name", "namespace",
    "new_worker", "occasion", "owner", "parent_id", "policies", "previous_worker", "queue", "queue_len",
    "queue_len_after", "request_id", "resource", "roles", "roles_before", "rule", "run_id", "schedule", "scope",
    "scopes", "score", "session_id", "source", "starts_at", "state", "status", "step", "subagent_type", "task",
    "task_id", "timezone", "token", "tokens", "tool", "tool_calls", "turns", "type", "users", "version", "voter",
    "webhook", "worker",
})
# fmt: on

_OF_ACCESS = frozenset({"account"})  # of sessions, tokens and links no more is told than whose they are
_encode = msgspec.json.Encoder(order="deterministic").encode


def body_of(event: Event) -> bytes:
    """The body of the message: `type`, `timestamp` (of the event, RFC 3339) and `data`. The same event makes the same
    body, at most 20 kB of it."""
    ids: dict[str, object] = {"seq": event.seq}
    if event.task_id is not None:
        ids["task_id"] = event.task_id
    if event.actor is not None:
        ids["actor"] = _short(event.actor)
    body = _body(event, {**_facts(event), **ids})
    return body if len(body) <= LARGEST_BODY else _body(event, {**ids, "cut": True})


def _body(event: Event, data: Mapping[str, object]) -> bytes:
    return _encode({"type": event.type, "timestamp": write_time(event.at), "data": data})


def _facts(event: Event) -> dict[str, object]:
    facts, payload = {}, event_to_wire(event).payload
    told = _OF_ACCESS if is_of_access(event) else FACTS
    for name, value in payload.items():
        if name in told and (fact := _fact(value)) is not None:
            facts[name] = fact
    error = payload.get("error")
    if isinstance(error, str) and (found := _ERROR_TYPE.match(error)):
        facts["error_type"] = found[1]  # what it says may be anything
    return facts


def _fact(value: object) -> object:
    """A short text, a number, or a list of such; None for what is no fact."""
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        listed = (_item(each) for each in value[:_MOST_ITEMS])
        return [each for each in listed if each is not None]
    return None


def _item(value: object) -> object:
    """As in a list of locks, which are resource, mode and token each."""
    if isinstance(value, dict):
        known = {name: _short(each) if isinstance(each, str) else each for name, each in value.items() if name in FACTS}
        return {name: each for name, each in known.items() if isinstance(each, str | bool | int | float)}
    return _fact(value) if isinstance(value, str | bool | int | float) else None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


# Deliveries: one message to one webhook, with all attempts to send it, as they are kept for people to look at.


DELIVERY_RETENTION_MS = 14 * 86_400_000  # after the last that happened
MAX_DELIVERIES = 500  # of one webhook, and a few more until the next clearing
MAX_STORED_ATTEMPTS = 20
LONGEST_EXCERPT = 1_000  # characters that are kept of an answer
READ_BYTES = 4_000  # what the sender reads of it: more than is kept, so that no secret is cut in two
_CUT = 200  # longer than any secret of ours
_CLEARED_EVERY = 64
_SECRET = re.compile(rf"{SECRET_PREFIX}[A-Za-z0-9+/=]*|(?<=v1,)[A-Za-z0-9+/=]{{20,}}")


class DeliveryState(StrEnum):
    WAITING = auto()  # for its next attempt, or for a replay
    DELIVERED = auto()
    FAILED = auto()  # for good
    DROPPED = auto()  # the webhook was disabled: not sent, or not again


STATE_AFTER = {
    DeliveryStep.DELIVERED: DeliveryState.DELIVERED,
    DeliveryStep.RETRY: DeliveryState.WAITING,
    DeliveryStep.GIVE_UP: DeliveryState.FAILED,
    DeliveryStep.DISABLE: DeliveryState.FAILED,
    DeliveryStep.DROP: DeliveryState.DROPPED,
}


class DeliveryAttempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    state: DeliveryState = DeliveryState.WAITING
    why: str = ""
    next_at: int | None = None
    attempts: tuple[DeliveryAttempt, ...] = ()  # the newest
    replays: int = 0

    @property
    def kept_until(self) -> int:
        return self.updated_at + DELIVERY_RETENTION_MS

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


def attempted(
    delivery: Delivery, answer: DeliveryResponse, judgement: DeliveryDecision, *, number: int, now: int
) -> Delivery:
    """The delivery after one more attempt, with an answer that was cleaned."""
    attempt = DeliveryAttempt(
        number=number,
        at=now,
        duration_ms=answer.duration_ms,
        status=answer.status,
        error=answer.error,
        excerpt=answer.excerpt.decode(),
    )
    attempts = (*delivery.attempts, attempt)[-MAX_STORED_ATTEMPTS:]
    return structs.replace(ended(delivery, judgement, now=now), attempts=attempts)


def ended(delivery: Delivery, judgement: DeliveryDecision, *, now: int) -> Delivery:
    """The delivery as a judgement leaves it."""
    return structs.replace(
        delivery,
        state=STATE_AFTER[judgement.step],
        why=judgement.reason,
        next_at=now + judgement.delay_ms if judgement.step is DeliveryStep.RETRY else None,
        updated_at=now,
    )


def replayed(delivery: Delivery, *, now: int) -> Delivery:
    return structs.replace(
        delivery,
        state=DeliveryState.WAITING,
        why="somebody had it sent once more",
        next_at=None,
        replays=delivery.replays + 1,
        updated_at=now,
    )


def cleaned(answer: DeliveryResponse, secrets: Iterable[str]) -> DeliveryResponse:
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
    return newest_first[MAX_DELIVERIES:]


# Tasks that send messages: one for each webhook and event, and none about the sending itself.


TIMEOUT_MS = 60_000  # of a run; the sender gives up sooner
RESULT_KEPT_MS = 86_400_000
BACKOFF = Backoff(base_ms=5_000, multiplier=8.0, cap_ms=86_400_000)  # where a run fails before there is a judgement


class DeliveryTaskArguments(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of such a task. What is sent is not among them: nobody can have something else signed."""

    webhook_id: str
    seq: int
    replay: int = 0  # which one; 0: the first time


def wants(webhook: Webhook, event: Event) -> bool:
    is_told = webhook.is_active and event.seq > webhook.since
    return is_told and not is_own(event) and (matches(webhook.events, event.type) or _is_test_of(webhook, event))


def _is_test_of(webhook: Webhook, event: Event) -> bool:
    """A test is told to the webhook that it tests, whatever that wants otherwise."""
    return event.type == WEBHOOK_TESTED and event.payload.get("webhook") == webhook.id


def orders_of(events: Sequence[Event], webhooks: Iterable[Webhook]) -> list[Task]:
    """A task for each message that these events lead to, in their order. The same again makes the same tasks."""
    active = [webhook for webhook in webhooks if webhook.is_active]
    return [
        _task(
            DeliveryTaskArguments(webhook_id=webhook.id, seq=event.seq),
            delivery_id(webhook.id, event),
            event.type,
            event.at,
        )
        for event in events
        for webhook in active
        if wants(webhook, event)
    ]


def replay_order(delivery: Delivery) -> Task:
    """The task of a delivery that was marked as replayed. The same replay makes one task."""
    order = DeliveryTaskArguments(webhook_id=delivery.webhook, seq=delivery.seq, replay=delivery.replays)
    return _task(order, delivery.id, delivery.type, delivery.updated_at)


def _task(order: DeliveryTaskArguments, message_id: str, event_type: str, at: int) -> Task:
    key = f"webhook:{message_id}:{order.replay}"
    return Task(
        id=_task_id(at, key),
        name=DELIVER,
        queue=QUEUE,
        args=Raw(msgspec.json.encode(order)),
        description=f"{event_type} to webhook {order.webhook_id}",
        tags=(f"webhook:{order.webhook_id}",),
        idempotency_key=key,
        concurrency_key=order.webhook_id,
        source=SYSTEM,
        timeout_ms=TIMEOUT_MS,
        max_attempts=ATTEMPTS,
        backoff=BACKOFF,
        result_ttl_ms=RESULT_KEPT_MS,
    )


def _task_id(at: int, key: str) -> str:
    """A UUID of version 8: a time, as in other ids, and a hash in place of chance."""
    time, rest = f"{at & 0xFFFFFFFFFFFF:012x}", hashlib.sha256(key.encode()).hexdigest()
    return f"{time[:8]}-{time[8:]}-{MARK}{rest[:3]}-8{rest[3:6]}-{rest[6:18]}"
