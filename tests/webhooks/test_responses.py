"""What an answer means: the whole table, row by row."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.webhooks.deliveries import (
    ATTEMPTS,
    DELAYS_MS,
    HOUR,
    LONGEST_DELAY_MS,
    MINUTE,
    SECOND,
    WEEK_MS,
    DeliveryResponse,
    DeliveryStep,
    WebhookHealth,
    decide_delivery,
    retry_after_ms,
)
from tests.depth import examples

NOW = 1_760_000_000_000  # Thu, 09 Oct 2025 08:53:20 GMT
WELL = WebhookHealth()
STATUSES = st.one_of(st.none(), st.integers(100, 599))


def judged(answer: DeliveryResponse, health: WebhookHealth = WELL, attempt: int = 1) -> tuple[DeliveryStep, int]:
    judgement = decide_delivery(answer, health, attempt=attempt, now=NOW, randomness=0.5)
    return judgement.step, judgement.delay_ms


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_good_even_in_the_last_attempt(status: int) -> None:
    assert judged(DeliveryResponse(status=status), attempt=ATTEMPTS) == (DeliveryStep.DELIVERED, 0)


def test_410_disables_at_once() -> None:
    assert judged(DeliveryResponse(status=410)) == (DeliveryStep.DISABLE, 0)


@pytest.mark.parametrize("status", [100, 199, 301, 302, 307, 400, 401, 404, 409, 418, 422, 500, 501, 505, None])
def test_all_else_is_tried_again_in_the_same_way(status: int | None) -> None:
    assert judged(DeliveryResponse(status=status, retry_after="7200")) == (DeliveryStep.RETRY, 5 * SECOND)


def test_the_schedule_is_that_of_standard_webhooks() -> None:
    delays = [judged(DeliveryResponse(status=500), attempt=attempt)[1] for attempt in range(1, ATTEMPTS)]

    assert delays == list(DELAYS_MS)
    assert (ATTEMPTS, delays[0], delays[1], delays[-1]) == (10, 5 * SECOND, 5 * MINUTE, 24 * HOUR)
    assert sum(delays) == 75 * HOUR + 35 * MINUTE + 5 * SECOND
    assert judged(DeliveryResponse(status=500), attempt=ATTEMPTS) == (DeliveryStep.GIVE_UP, 0)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_who_asks_for_patience_is_given_it(status: int) -> None:
    assert judged(DeliveryResponse(status=status, retry_after="120")) == (DeliveryStep.RETRY, 120 * SECOND)
    assert judged(DeliveryResponse(status=status, retry_after="1")) == (DeliveryStep.RETRY, 5 * SECOND)
    assert judged(DeliveryResponse(status=status, retry_after="999999999")) == (DeliveryStep.RETRY, LONGEST_DELAY_MS)
    assert judged(DeliveryResponse(status=status, retry_after="120"), attempt=ATTEMPTS) == (DeliveryStep.GIVE_UP, 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *((" 90 ", 90), ("0", 0), ("-1", 0), ("1.5", 0), ("", 0), ("soon", 0), ("\u0661", 0), ("9" * 30, 0)),
        ("Thu, 09 Oct 2025 08:54:20 GMT", 60),
        ("Thu, 09 Oct 2025 08:53:00 GMT", 0),
        ("Thu, 31 Feb 2025 08:53:00 GMT", 0),
        ("Thu, 09 Oct 2025 25:00:00 GMT", 0),
        ("Thu, 09 Oct 0000 08:53:00 GMT", 0),
    ],
)
def test_how_long_the_other_side_asks_to_wait(text: str, seconds: int) -> None:
    assert retry_after_ms(text, now=NOW) == seconds * SECOND


def test_a_week_of_nothing_but_failures_disables() -> None:
    long_ago = WebhookHealth(failing_since=NOW - WEEK_MS, failures=10)

    assert judged(DeliveryResponse(status=500), long_ago) == (DeliveryStep.DISABLE, 0)
    assert judged(DeliveryResponse(error="no connection"), long_ago) == (DeliveryStep.DISABLE, 0)
    assert judged(DeliveryResponse(status=200), long_ago) == (DeliveryStep.DELIVERED, 0)
    assert (
        judged(DeliveryResponse(status=500), WebhookHealth(failing_since=NOW - WEEK_MS + 1, failures=99))[0]
        is DeliveryStep.RETRY
    )
    assert (
        judged(DeliveryResponse(status=500), WebhookHealth(failing_since=NOW - WEEK_MS, failures=2))[0]
        is DeliveryStep.RETRY
    )


@given(st.lists(st.tuples(STATUSES, st.integers(0, WEEK_MS // 4)), max_size=30))
@settings(max_examples=examples(50))
def test_one_good_answer_in_a_week_keeps_a_webhook_alive(history: list[tuple[int | None, int]]) -> None:
    health, now, last_good = WebhookHealth(), NOW, NOW
    for status, pause in history:
        now += pause
        answer = DeliveryResponse(status=status)
        health = health.after(answer, now=now)
        if answer.is_good:
            last_good = now
        assert (health.failing_since is None) == (health.failures == 0)
        assert not (health.is_hopeless(now) and now - last_good < WEEK_MS)


def test_good_answers_are_written_down_once_a_minute() -> None:
    health = WebhookHealth().after(DeliveryResponse(status=200), now=NOW)

    assert health.after(DeliveryResponse(status=204), now=NOW + MINUTE - 1) is health
    assert health.after(DeliveryResponse(status=204), now=NOW + MINUTE).succeeded_at == NOW + MINUTE


@given(STATUSES, st.integers(1, 12), st.floats(0, 1, exclude_max=True), st.text(max_size=10))
@settings(max_examples=examples(50))
def test_a_delay_is_never_far_from_the_schedule(
    status: int | None, attempt: int, randomness: float, retry_after: str
) -> None:
    judgement = decide_delivery(
        DeliveryResponse(status=status, retry_after=retry_after), WELL, attempt=attempt, now=NOW, randomness=randomness
    )

    assert (judgement.step is DeliveryStep.RETRY) == (judgement.delay_ms > 0)
    assert judgement.delay_ms <= 1.1 * LONGEST_DELAY_MS
    if judgement.step is DeliveryStep.RETRY:
        assert judgement.delay_ms >= 0.9 * DELAYS_MS[attempt - 1]
