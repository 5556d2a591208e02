"""Webhooks, their secrets and their deliveries: replaced without a gap, kept in bounds, shown to nobody."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.errors import InvalidWebhook
from ade.tasks.identifiers import DELIVER, is_own, is_task_id
from ade.webhooks.deliveries import (
    LONGEST_EXCERPT,
    MAX_DELIVERIES,
    MAX_STORED_ATTEMPTS,
    READ_BYTES,
    DeliveryDecision,
    DeliveryResponse,
    DeliveryStep,
    attempted,
    cleaned,
    new_delivery,
    oldest_beyond,
    orders_of,
    replay_order,
    replayed,
)
from ade.webhooks.model import LONGEST_OVERLAP_MS, Secret, Webhook, check_webhook, disabled, enabled, rotated
from ade.webhooks.signatures import secret_of
from tests.depth import examples
from tests.domain import Event, admit, uuid7

NOW = 1_760_000_000_000
FIRST, SECOND, THIRD, FOURTH = (secret_of(bytes([number]) * 32) for number in range(4))
TASK = uuid7(NOW, bytes(10))


def webhook(**more: object) -> Webhook:
    known: dict[str, object] = {"url": "https://example.org/s3cret", "events": ("task.*",), "id": "w1"}
    return Webhook(secrets=(Secret(value=FIRST),), **(known | more))  # type: ignore[arg-type]  # its fields by name


def event(seq: int = 1, kind: str = "task.failed", task_id: str | None = TASK) -> Event:
    return Event(type=kind, at=NOW, task_id=task_id, payload={}, seq=seq)


def test_a_secret_is_replaced_without_a_gap() -> None:
    after = rotated(webhook(), SECOND, overlap_ms=1_000, now=NOW)

    assert after.signing_secrets(NOW + 999) == [SECOND, FIRST]
    assert after.signing_secrets(NOW + 1_000) == [SECOND]


def test_a_secret_that_has_leaked_is_replaced_at_once_with_all_before_it() -> None:
    after = rotated(rotated(webhook(), SECOND, overlap_ms=10_000, now=NOW), THIRD, overlap_ms=0, now=NOW + 1)

    assert after.secrets == (Secret(value=THIRD),)


def test_an_old_secret_never_lives_longer_by_another_rotation() -> None:
    after = rotated(webhook(), SECOND, overlap_ms=1_000, now=NOW)
    after = rotated(after, THIRD, overlap_ms=5_000, now=NOW + 500)
    after = rotated(after, FOURTH, overlap_ms=5_000, now=NOW + 600)

    assert after.signing_secrets(NOW + 700) == [FOURTH, THIRD, SECOND]
    assert after.signing_secrets(NOW + 5_550) == [FOURTH, THIRD]


def test_what_is_no_rotation_is_refused() -> None:
    for overlap in (-1, LONGEST_OVERLAP_MS + 1):
        with pytest.raises(InvalidWebhook, match="7 days"):
            rotated(webhook(), SECOND, overlap_ms=overlap, now=NOW)
    with pytest.raises(InvalidWebhook, match="current or a recent"):
        rotated(webhook(), FIRST, overlap_ms=0, now=NOW)
    with pytest.raises(InvalidWebhook):
        rotated(webhook(), "whsec_short", overlap_ms=0, now=NOW)


def test_neither_secret_nor_url_is_in_any_text_of_a_webhook() -> None:
    shown = f"{webhook()!r} {webhook()} {webhook().secrets}"

    assert "whsec_" not in shown
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://example.org"},
        {"events": ()},
        {"description": "x" * 201},
        {"description": "two\nlines"},
    ],
)
def test_what_no_webhook_may_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidWebhook):
        check_webhook(webhook(**wrong))


def test_only_what_is_wanted_and_new_makes_a_task() -> None:
    late = webhook(id="w2", since=2)
    silent = disabled(webhook(id="w3"), "gone\nfor good", now=NOW)
    orders = orders_of([event(1), event(2, "lock.acquired", None), event(3)], [webhook(), late, silent])

    assert [order.arguments() for order in orders] == [
        {"webhook_id": "w1", "seq": 1},
        {"webhook_id": "w1", "seq": 3},
        {"webhook_id": "w2", "seq": 3},
    ]
    assert silent.disabled_why == "gone for good"
    assert enabled(silent, since=7, now=NOW).disabled_why is None


def test_a_task_that_sends_is_never_sent_itself() -> None:
    [order] = orders_of([event()], [webhook(events=("*",))])

    assert admit(order, now=NOW).name == DELIVER
    assert is_task_id(order.id)
    assert orders_of([event(2, kind, order.id) for kind in ("task.created", "task.failed", "alert")], [webhook()]) == []
    assert is_own(event(2, task_id=order.id))
    assert not is_own(event(2))
    assert not is_own(event(2, task_id=None))


def test_the_same_event_makes_the_same_task_and_another_one_does_not() -> None:
    first, again = orders_of([event()], [webhook()]), orders_of([event()], [webhook()])
    restored = orders_of([Event(type="task.failed", at=NOW + 1, task_id=TASK, seq=1)], [webhook()])

    assert first == again
    assert first[0].idempotency_key != restored[0].idempotency_key
    delivery = replayed(new_delivery("w1", event(), now=NOW), now=NOW)
    assert replay_order(delivery).idempotency_key not in (None, first[0].idempotency_key)
    assert is_own(event(task_id=replay_order(delivery).id))


def test_what_is_kept_of_a_delivery_has_bounds() -> None:
    delivery = new_delivery("w1", event(), now=NOW)
    for number in range(1, 40):
        answer = cleaned(DeliveryResponse(status=500, error="e" * 9_000, excerpt=b"x" * 9_000), [])
        again = DeliveryDecision(step=DeliveryStep.RETRY, reason="it answered 500", delay_ms=5)
        delivery = attempted(delivery, answer, again, number=number, now=NOW)

    assert [attempt.number for attempt in delivery.attempts] == list(range(40 - MAX_STORED_ATTEMPTS, 40))
    assert {len(attempt.excerpt) for attempt in delivery.attempts} == {LONGEST_EXCERPT}
    assert {len(attempt.error) for attempt in delivery.attempts} == {LONGEST_EXCERPT}
    assert delivery.next_at == NOW + 5
    many = [new_delivery("w1", event(seq), now=NOW) for seq in range(MAX_DELIVERIES + 3)]
    assert {each.seq for each in oldest_beyond(many)} == {0, 1, 2}


@given(st.integers(0, READ_BYTES + 100), st.sampled_from([FIRST, "v1," + "A" * 43 + "=", "Bearer " + "b" * 40]))
@settings(max_examples=examples(60))
def test_no_secret_comes_back_wherever_it_stands(place: int, secret: str) -> None:
    content = (b"." * place + secret.encode() + b"\r\n\x00" + b"." * READ_BYTES)[:READ_BYTES]

    shown = cleaned(DeliveryResponse(status=400, excerpt=content), [FIRST]).excerpt.decode()

    assert secret[-20:] not in shown
    assert secret[:20] not in shown
    assert shown.isprintable()


def test_bytes_that_are_no_text_are_shown_all_the_same() -> None:
    shown = cleaned(DeliveryResponse(status=400, excerpt=b"\xff\xfe<b>\x1b[31m no\r\nno </b>"), []).excerpt.decode()

    assert shown == "\ufffd\ufffd<b> [31m no  no </b>"
