"""Delivery rules: retry policy, message bodies, delivery records, and delivery tasks.

The retry policy follows the recommendations of Standard Webhooks.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum, auto
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from ade.accounts.model import SYSTEM
from ade.agents.protocols.base import without_secrets
from ade.common.text import HIDDEN
from ade.events.model import Event, is_of_access
from ade.failures import Backoff
from ade.server.wire_format import event_to_wire, write_time
from ade.tasks.identifiers import DELIVER, MARK, QUEUE, is_own
from ade.tasks.model import Task
from ade.webhooks.model import WEBHOOK_TESTED, Webhook, matches
from ade.webhooks.signatures import SECRET_PREFIX

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
# Delays after the first failure, the second, and so on, as recommended by Standard Webhooks.
DELAYS_MS = (
    *(5 * SECOND, 5 * MINUTE, 30 * MINUTE),
    *(2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR),
)
ATTEMPTS = len(DELAYS_MS) + 1
LONGEST_DELAY_MS = 24 * HOUR  # whatever Retry-After requests
WEEK_MS = 7 * 24 * HOUR
LEAST_FAILURES = 10  # two failures a week apart are not a week of failures
TOUCH_MS = MINUTE  # maximum lag of `succeeded_at`
_JITTER = 0.1
_GONE = 410
_ASKS_FOR_PATIENCE = frozenset({429, 502, 503, 504})  # statuses whose Retry-After is respected
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = re.compile(
    rf"[A-Z][a-z]{{2}}, ([0-9]{{2}}) ({'|'.join(_MONTHS)}) ([0-9]{{4}}) ([0-9]{{2}}):([0-9]{{2}}):([0-9]{{2}}) GMT"
)


class DeliveryResponse(Struct, frozen=True, kw_only=True):
    """The result of one attempt: a status code, or the error if there was no response."""

    status: int | None = None
    error: str = ""  # if there is no status: DNS failure, address refused, no connection, timeout, or disconnect
    retry_after: str = ""  # the raw header
    duration_ms: int = 0
    excerpt: bytes = b""  # the start of the response body

    @property
    def is_good(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class WebhookHealth(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a webhook has fared lately."""

    succeeded_at: int | None = None
    failed_at: int | None = None
    failing_since: int | None = None  # the first failure after the last success
    failures: int = 0  # since then

    def after(self, response: DeliveryResponse, *, now: int) -> "WebhookHealth":
        """Return the health after a response; the same object if the change is not worth a write."""
        if not response.is_good:
            since = now if self.failing_since is None else self.failing_since
            return structs.replace(self, failed_at=now, failing_since=since, failures=self.failures + 1)
        if self.failing_since is None and self.succeeded_at is not None and now - self.succeeded_at < TOUCH_MS:
            return self
        return structs.replace(self, succeeded_at=now, failing_since=None, failures=0)

    def is_hopeless(self, now: int) -> bool:
        """Return whether there were only failures for a week."""
        is_long = self.failing_since is not None and now - self.failing_since >= WEEK_MS
        return is_long and self.failures >= LEAST_FAILURES


class DeliveryStep(StrEnum):
    """What happens next to a delivery."""

    DELIVERED = auto()
    RETRY = auto()
    GIVE_UP = auto()  # after the last attempt
    DISABLE = auto()  # also disable the webhook: nothing more is sent
    DROP = auto()  # the webhook is gone or disabled: nothing was sent


class DeliveryDecision(Struct, frozen=True, kw_only=True):
    """The next step of a delivery, and its reason."""

    step: DeliveryStep
    reason: str
    delay_ms: int = 0  # before the next attempt


def decide_delivery(
    response: DeliveryResponse, health: WebhookHealth, *, attempt: int, now: int, randomness: float
) -> DeliveryDecision:
    """Decide what to do after a response. `health` includes this response, and `attempt` counts from 1.

    `randomness` is in [0, 1); 0.5 adds no jitter to the delay.

    | response | step |
    |---|---|
    | 2xx | delivered |
    | 410 | disable the webhook |
    | 429, 502, 503, 504 with Retry-After | as below, but not before the requested time, up to one day |
    | anything else, including 3xx: redirects are not followed | retry after the delay of this attempt |
    | a failure, after a week with only failures | disable the webhook |
    | a failure of the last attempt | give up |
    """
    what = _what(response)
    if response.is_good:
        return DeliveryDecision(step=DeliveryStep.DELIVERED, reason=what)
    if response.status == _GONE:
        return DeliveryDecision(step=DeliveryStep.DISABLE, reason="it answered 410 Gone: it accepts no more messages")
    if health.is_hopeless(now):
        reason = f"no message was accepted for a week ({health.failures} failures, the last one: {what})"
        return DeliveryDecision(step=DeliveryStep.DISABLE, reason=reason)
    if attempt >= ATTEMPTS:
        return DeliveryDecision(
            step=DeliveryStep.GIVE_UP, reason=f"{what}, and that was attempt {attempt} of {ATTEMPTS}"
        )
    delay = round(DELAYS_MS[max(attempt, 1) - 1] * (1 + _JITTER * (2 * randomness - 1)))
    if response.status in _ASKS_FOR_PATIENCE:
        delay = max(delay, min(retry_after_ms(response.retry_after, now=now), LONGEST_DELAY_MS))
    return DeliveryDecision(step=DeliveryStep.RETRY, reason=what, delay_ms=delay)


def retry_after_ms(text: str, *, now: int) -> int:
    """Parse a Retry-After header, in seconds or as a date. Returns 0 if it is invalid or in the past."""
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


def _what(response: DeliveryResponse) -> str:
    return f"it answered {response.status}" if response.status is not None else response.error or "there was no answer"


# Message bodies contain IDs and facts, never arguments, results, or text written by people or programs. The fields are
# an allowlist, so that a new event type exposes too little rather than too much.


LARGEST_BODY = 20_000  # bytes, as recommended by Standard Webhooks
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

_OF_ACCESS = frozenset({"account"})  # for sessions, tokens, and links, only the owner is sent
_encode = msgspec.json.Encoder(order="deterministic").encode


def body_of(event: Event, task: Task | None = None, public_url: str = "") -> bytes:
    """Encode the message body: `type`, `timestamp` (of the event, RFC 3339), and `data`, with facts about its task. It
    is deterministic and has at most 20 kB.
    """
    ids: dict[str, object] = {"seq": event.seq}
    if event.task_id is not None:
        ids["task_id"] = event.task_id
    if event.actor is not None:
        ids["actor"] = _short(event.actor)
    about = {} if task is None else _task_facts(task, public_url)
    body = _body(event, {**about, **_facts(event), **ids})
    return body if len(body) <= LARGEST_BODY else _body(event, {**ids, "cut": True})


def _task_facts(task: Task, public_url: str) -> dict[str, object]:
    """Return what receivers need to route a message. The link is a path if the server has no public URL."""
    facts: dict[str, object] = {
        "name": task.name,
        "queue": task.queue,
        "link": f"{public_url.rstrip('/')}/api/v1/tasks/{task.id}",
    }
    if task.tags:
        facts["tags"] = [_short(tag) for tag in task.tags[:_MOST_ITEMS]]
    if task.author_id is not None:
        facts["author"] = _short(task.author_id)
    return facts


def _body(event: Event, data: Mapping[str, object]) -> bytes:
    return _encode({"type": event.type, "timestamp": write_time(event.at), "data": data})


def _facts(event: Event) -> dict[str, object]:
    facts, payload = {}, event_to_wire(event).payload
    allowed = _OF_ACCESS if is_of_access(event) else FACTS
    for name, value in payload.items():
        if name in allowed and (fact := _fact(value)) is not None:
            facts[name] = fact
    error = payload.get("error")
    if isinstance(error, str) and (found := _ERROR_TYPE.match(error)):
        facts["error_type"] = found[1]  # the error message might contain anything
    return facts


def _fact(value: object) -> object:
    """Return a short string, a number, or a list of them; None for any other value."""
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        listed = (_item(each) for each in value[:_MOST_ITEMS])
        return [each for each in listed if each is not None]
    return None


def _item(value: object) -> object:
    """Return a list item, for example a lock with its resource, mode, and token."""
    if isinstance(value, dict):
        facts = {name: _short(each) if isinstance(each, str) else each for name, each in value.items() if name in FACTS}
        return {name: each for name, each in facts.items() if isinstance(each, str | bool | int | float)}
    return _fact(value) if isinstance(value, str | bool | int | float) else None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


# A delivery is one message to one webhook, stored with all attempts for inspection.


DELIVERY_RETENTION_MS = 14 * 86_400_000  # after the last update
MAX_DELIVERIES = 500  # per webhook, and a few more until the next pruning
MAX_STORED_ATTEMPTS = 20
LONGEST_EXCERPT = 1_000  # stored characters of a response
READ_BYTES = 4_000  # bytes read of a response: more than is stored, so that no secret is cut in two
_CUT = 200  # longer than any secret
_CLEARED_EVERY = 64
_SECRET = re.compile(rf"{SECRET_PREFIX}[A-Za-z0-9+/=]*|(?<=v1,)[A-Za-z0-9+/=]{{20,}}")


class DeliveryState(StrEnum):
    """The state of a delivery."""

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
    """One attempt to deliver an event, and the response to it."""

    number: int
    at: int
    duration_ms: int
    status: int | None = None
    error: str = ""
    excerpt: str = ""  # the beginning of the answer, without secrets


class DeliveryRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message and its attempts. `id` is the same in every attempt, so that a receiver can deduplicate by it."""

    id: str
    body: str
    created_at: int
    updated_at: int
    state: DeliveryState = DeliveryState.WAITING
    why: str = ""
    next_at: int | None = None
    attempts: tuple[DeliveryAttempt, ...] = ()  # the newest

    @property
    def kept_until(self) -> int:
        return self.updated_at + DELIVERY_RETENTION_MS

    @property
    def place(self) -> "Place":
        """The sort key in lists, which is stable while others are added or removed."""
        return self.created_at, int(self.id[-8:], 16)

    @property
    def clears(self) -> bool:
        """Whether storing this delivery also prunes old ones. True for a fixed fraction of the IDs."""
        return int(self.id[-8:], 16) % _CLEARED_EVERY == 0


class Delivery(DeliveryRecord, frozen=True, kw_only=True, omit_defaults=True):
    """`id` is the message's id, the same in every attempt and replay, by which the receiver knows it again."""

    webhook: str
    seq: int
    type: str
    replays: int = 0

    @property
    def place(self) -> "Place":
        return self.created_at, self.seq


Place = tuple[int, int]
D = TypeVar("D", bound=DeliveryRecord)


def delivery_id(webhook_id: str, event: Event) -> str:
    """Return the deterministic message ID. It covers type and time, as a seq can recur after a restored backup."""
    text = f"{webhook_id}\n{event.seq}\n{event.type}\n{event.at}"
    return f"msg_{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def new_delivery(
    webhook_id: str, event: Event, *, now: int, task: Task | None = None, public_url: str = ""
) -> Delivery:
    """Return the record of a message that was not sent yet."""
    return Delivery(
        id=delivery_id(webhook_id, event),
        webhook=webhook_id,
        seq=event.seq,
        type=event.type,
        body=body_of(event, task, public_url).decode(),
        created_at=now,
        updated_at=now,
    )


def attempted(delivery: D, response: DeliveryResponse, decision: DeliveryDecision, *, number: int, now: int) -> D:
    """Return the delivery after one more attempt. The response must be `cleaned`."""
    attempt = DeliveryAttempt(
        number=number,
        at=now,
        duration_ms=response.duration_ms,
        status=response.status,
        error=response.error,
        excerpt=response.excerpt.decode(),
    )
    attempts = (*delivery.attempts, attempt)[-MAX_STORED_ATTEMPTS:]
    return structs.replace(ended(delivery, decision, now=now), attempts=attempts)


def ended(delivery: D, decision: DeliveryDecision, *, now: int) -> D:
    """Return the delivery after a decision."""
    return structs.replace(
        delivery,
        state=STATE_AFTER[decision.step],
        why=decision.reason,
        next_at=now + decision.delay_ms if decision.step is DeliveryStep.RETRY else None,
        updated_at=now,
    )


def replayed(delivery: Delivery, *, now: int) -> Delivery:
    """Return the delivery, marked to be sent again."""
    return structs.replace(
        delivery,
        state=DeliveryState.WAITING,
        why="replayed manually",
        next_at=None,
        replays=delivery.replays + 1,
        updated_at=now,
    )


def cleaned(response: DeliveryResponse, secrets: Iterable[str]) -> DeliveryResponse:
    """Return the response for storage: shortened, and with these secrets redacted if the receiver echoed them."""
    hidden = list(secrets)
    error = _excerpt(response.error.encode(errors="replace"), hidden)
    return structs.replace(response, error=error, excerpt=_excerpt(response.excerpt, hidden).encode())


def _excerpt(content: bytes, secrets: Iterable[str]) -> str:
    """Return the start of the content on one line, without secrets."""
    text = without_secrets(content[:READ_BYTES].decode(errors="replace"), secrets)
    text = _SECRET.sub(HIDDEN, text)
    if len(content) >= READ_BYTES:
        text = text[:-_CUT]  # the end might be the first half of a secret
    return "".join(char if char.isprintable() else " " for char in text)[:LONGEST_EXCERPT].rstrip()


def oldest_beyond(kept: Iterable[D]) -> list[D]:
    """Return the deliveries to prune."""
    newest_first = sorted(kept, key=lambda delivery: delivery.place, reverse=True)
    return newest_first[MAX_DELIVERIES:]


# One delivery task per webhook and event. Events about delivery tasks themselves are not sent.


TIMEOUT_MS = 60_000  # of an attempt; the sender times out earlier
RESULT_KEPT_MS = 86_400_000
BACKOFF = Backoff(base_ms=5_000, multiplier=8.0, cap_ms=86_400_000)  # for an attempt that fails before a decision


class DeliveryTaskArguments(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Arguments of a delivery task. The message is not among them, so that no caller can have other content signed."""

    webhook_id: str
    seq: int
    replay: int = 0  # replay number; 0 is the original delivery


def wants(webhook: Webhook, event: Event, task: Task | None = None) -> bool:
    """Return whether an event is sent to a webhook. `task` is the task of the event, if the webhook selects tasks."""
    if not webhook.is_active or event.seq <= webhook.since or is_own(event):
        return False
    if _is_test_of(webhook, event):
        return True
    return matches(webhook.events, event.type) and (webhook.tasks.is_empty or webhook.tasks.includes(task))


def _is_test_of(webhook: Webhook, event: Event) -> bool:
    """Return whether the event tests this webhook. A test is sent whatever the patterns of the webhook."""
    return event.type == WEBHOOK_TESTED and event.payload.get("webhook") == webhook.id


def orders_of(
    events: Sequence[Event], webhooks: Iterable[Webhook], tasks: Mapping[str, Task] | None = None
) -> list[Task]:
    """Return one task per message for these events, in order. Deterministic, so that a repetition is deduplicated."""
    known = tasks or {}
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
        if wants(webhook, event, known.get(event.task_id or ""))
    ]


def replay_order(delivery: Delivery) -> Task:
    """Return the task of a delivery that was marked as replayed. Each replay has exactly one task."""
    order = DeliveryTaskArguments(webhook_id=delivery.webhook, seq=delivery.seq, replay=delivery.replays)
    return _task(order, delivery.id, delivery.type, delivery.updated_at)


def _task(order: DeliveryTaskArguments, message_id: str, event_type: str, at: int) -> Task:
    key = f"webhook:{message_id}:{order.replay}"
    return Task(
        id=own_task_id(at, key),
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


def own_task_id(at: int, key: str) -> str:
    """Return the ID of a delivery task: a UUID of version 8, with a timestamp, and a hash instead of random bits."""
    time, rest = f"{at & 0xFFFFFFFFFFFF:012x}", hashlib.sha256(key.encode()).hexdigest()
    return f"{time[:8]}-{time[8:]}-{MARK}{rest[:3]}-8{rest[3:6]}-{rest[6:18]}"
