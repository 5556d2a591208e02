"""Webhooks and their deliveries as `ade webhooks` shows them. Secrets are never among it."""

from collections.abc import Sequence
from typing import Any

from ade.cli.output import Cell, Output, Row
from ade.cli.times import distance, local_with_distance
from ade.core.webhooks.deliveries import Attempt, Delivery, State
from ade.insight.reasons import moment
from ade.insight.webhooks import WebhookView

_HEAD = ("webhook", "state", "origin", "events", "last good", "failures", "description")
_DELIVERY_HEAD = ("delivery", "state", "event", "when", "attempts", "answer")
_STYLES = {State.DELIVERED: "green", State.FAILED: "red", State.WAITING: "yellow", State.DROPPED: "dim"}


def webhook_view(webhook: WebhookView) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": webhook.id,
        **({"origin": webhook.origin} if webhook.url is None else {"url": webhook.url}),
        "events": list(webhook.events),
        "description": webhook.description,
        "is_active": webhook.is_active,
        "created_by": webhook.created_by,
        "created_at": moment(webhook.created_at),
        "updated_at": moment(webhook.updated_at),
    }
    if webhook.disabled_at is not None:
        shown |= {"disabled_at": moment(webhook.disabled_at), "disabled_why": webhook.disabled_why}
    fared = webhook.health
    times = {"succeeded_at": fared.succeeded_at, "failed_at": fared.failed_at, "failing_since": fared.failing_since}
    return shown | {name: moment(at) for name, at in times.items() if at is not None} | {"failures": fared.failures}


def delivery_view(delivery: Delivery, *, whole: bool = False) -> dict[str, Any]:
    """The body of the message is only in the whole."""
    shown: dict[str, Any] = {
        "id": delivery.id,
        "webhook": delivery.webhook,
        "type": delivery.type,
        "seq": delivery.seq,
        "state": str(delivery.state),
        "why": delivery.why,
        "created_at": moment(delivery.created_at),
        "updated_at": moment(delivery.updated_at),
        "replays": delivery.replays,
        "attempts": [_attempt_view(attempt) for attempt in delivery.attempts],
    }
    if delivery.next_at is not None:
        shown["next_at"] = moment(delivery.next_at)
    return shown | {"body": delivery.body} if whole else shown


def _attempt_view(attempt: Attempt) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "number": attempt.number,
        "at": moment(attempt.at),
        "duration_ms": attempt.duration_ms,
        "status": attempt.status,
    }
    said = {"error": attempt.error, "excerpt": attempt.excerpt}
    return shown | {name: text for name, text in said.items() if text}


def show_webhooks(out: Output, known: Sequence[WebhookView], *, now: int) -> None:
    if out.as_json:
        out.document({"webhooks": [webhook_view(webhook) for webhook in known]})
        return
    out.table(_HEAD, [_row(each, now) for each in known], ("failures", "events"))
    if not known:
        out.note("No webhooks. `ade webhooks create URL --event 'task.*'` makes one.")


def _row(webhook: WebhookView, now: int) -> Row:
    health = webhook.health
    return (
        webhook.id,
        _state(webhook),
        webhook.origin,
        ", ".join(webhook.events),
        "never" if health.succeeded_at is None else distance(health.succeeded_at, now=now),
        str(health.failures),
        webhook.description,
    )


def _state(webhook: WebhookView) -> Cell:
    return Cell("active", "green") if webhook.is_active else Cell("disabled", "red")


def show_webhook(out: Output, webhook: WebhookView, *, now: int) -> None:
    if out.as_json:
        out.document(webhook_view(webhook))
        return
    fared = webhook.health
    out.facts(
        [
            ("webhook", webhook.id),
            ("state", _state(webhook)),
            ("disabled", local_with_distance(webhook.disabled_at, now=now)),
            ("because", webhook.disabled_why or ""),
            ("url", webhook.url or ""),
            ("origin", "" if webhook.url else webhook.origin),  # of one whose URL is for admins alone
            ("events", ", ".join(webhook.events)),
            ("description", webhook.description),
            ("old secrets", _old_secrets(webhook, now)),
            ("last good", local_with_distance(fared.succeeded_at, now=now)),
            ("last bad", local_with_distance(fared.failed_at, now=now)),
            ("failing since", local_with_distance(fared.failing_since, now=now)),
            ("failures", str(fared.failures) if fared.failures else ""),
            ("made by", webhook.created_by or ""),
            ("made", local_with_distance(webhook.created_at, now=now)),
        ]
    )


def _old_secrets(webhook: WebhookView, now: int) -> str:
    if not webhook.old_secrets:
        return ""
    return f"{webhook.old_secrets}, sign until {local_with_distance(webhook.old_secrets_end_at, now=now)}"


def show_deliveries(out: Output, found: Sequence[Delivery], *, now: int) -> None:
    if out.as_json:
        out.document({"deliveries": [delivery_view(delivery) for delivery in found]})
        return
    out.table(_DELIVERY_HEAD, [_delivery_row(delivery, now) for delivery in found], ("attempts",))
    if not found:
        out.note("Nothing was sent, or it is not kept any more: deliveries are kept for 14 days, the newest 500.")


def _delivery_row(delivery: Delivery, now: int) -> Row:
    last = delivery.attempts[-1] if delivery.attempts else None
    return (
        delivery.id,
        Cell(str(delivery.state), _STYLES[delivery.state]),
        delivery.type,
        distance(delivery.created_at, now=now),
        str(last.number if last else 0),
        delivery.why,
    )


def show_delivery(out: Output, delivery: Delivery, *, now: int) -> None:
    if out.as_json:
        out.document(delivery_view(delivery, whole=True))
        return
    out.facts(
        [
            ("delivery", delivery.id),
            ("webhook", delivery.webhook),
            ("state", Cell(str(delivery.state), _STYLES[delivery.state])),
            ("because", delivery.why),
            ("next attempt", local_with_distance(delivery.next_at, now=now)),
            ("event", f"{delivery.type} ({delivery.seq})"),
            ("replays", str(delivery.replays) if delivery.replays else ""),
            ("body", delivery.body),
        ]
    )
    rows: list[Row] = [
        (
            str(attempt.number),
            distance(attempt.at, now=now),
            f"{attempt.duration_ms} ms",
            "none" if attempt.status is None else str(attempt.status),
            attempt.error or attempt.excerpt,
        )
        for attempt in delivery.attempts
    ]
    out.table(("attempt", "when", "took", "status", "answer"), rows)


def tell_webhook(out: Output, webhook: WebhookView, *, secret: str | None = None) -> None:
    """What became of it, and the secret that was just made, which nobody is shown again."""
    if out.as_json:
        out.document(webhook_view(webhook) | ({} if secret is None else {"secret": secret}))
        return
    state = "active" if webhook.is_active else "disabled"
    out.line(f"{webhook.id}: {state}, {', '.join(webhook.events)} to {webhook.origin}")
    if secret is not None:
        out.line(secret)
        out.note("Its receiver checks signatures with this secret. It is not shown again.")
