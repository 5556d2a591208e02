"""What the answer to a message means. The whole policy is here, by the recommendations of Standard Webhooks."""

import re
from datetime import UTC, datetime
from enum import StrEnum, auto

from msgspec import Struct, structs

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


class Answer(Struct, frozen=True, kw_only=True):
    """What came of sending a message: a status, or why there is none."""

    status: int | None = None
    error: str = ""  # without a status: no address, refused, no connection, too slow, broken off
    retry_after: str = ""  # the header as it came
    duration_ms: int = 0
    excerpt: bytes = b""  # the beginning of the answer's body

    @property
    def is_good(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class Health(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a webhook has fared lately."""

    succeeded_at: int | None = None
    failed_at: int | None = None
    failing_since: int | None = None  # the first failure after the last success
    failures: int = 0  # since then

    def after(self, answer: Answer, *, now: int) -> "Health":
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


class Step(StrEnum):
    """What becomes of a delivery."""

    DELIVERED = auto()
    RETRY = auto()
    GIVE_UP = auto()  # after the last attempt
    DISABLE = auto()  # and of its webhook: nothing more is sent
    DROP = auto()  # the webhook is gone or disabled: nothing was sent


class Judgement(Struct, frozen=True, kw_only=True):
    step: Step
    reason: str
    delay_ms: int = 0  # before the next attempt


def judge(answer: Answer, health: Health, *, attempt: int, now: int, dice: float) -> Judgement:
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
        return Judgement(step=Step.DELIVERED, reason=what)
    if answer.status == _GONE:
        return Judgement(step=Step.DISABLE, reason="it answered 410 Gone: it wants no more messages")
    if health.is_hopeless(now):
        reason = f"for a week it has answered no message well ({health.failures} failures, the last one: {what})"
        return Judgement(step=Step.DISABLE, reason=reason)
    if attempt >= ATTEMPTS:
        return Judgement(step=Step.GIVE_UP, reason=f"{what}, and that was attempt {attempt} of {ATTEMPTS}")
    delay = round(DELAYS_MS[max(attempt, 1) - 1] * (1 + _JITTER * (2 * dice - 1)))
    if answer.status in _ASKS_FOR_PATIENCE:
        delay = max(delay, min(retry_after_ms(answer.retry_after, now=now), LONGEST_DELAY_MS))
    return Judgement(step=Step.RETRY, reason=what, delay_ms=delay)


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


def _what(answer: Answer) -> str:
    return f"it answered {answer.status}" if answer.status is not None else answer.error or "there was no answer"
