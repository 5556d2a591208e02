"""The events of webhooks and notification channels."""

from collections.abc import Mapping

from ade.notifications import model as notifications_model
from ade.webhooks import model as webhooks_model
from docs.generators.told import Told

WEBHOOK_EVENTS: Mapping[str, Told] = {
    webhooks_model.WEBHOOK_CREATED: Told("a webhook was created", ("webhook", "origin", "events")),
    webhooks_model.WEBHOOK_CHANGED: Told(
        "the URL, events, or description of a webhook changed", ("webhook", "fields", "origin", "events")
    ),
    webhooks_model.WEBHOOK_ROTATED: Told(
        "a webhook has a new secret; the old one also signs until `ends_at`", ("webhook", "ends_at")
    ),
    webhooks_model.WEBHOOK_TESTED: Told("a test was sent to this webhook, whatever its event types", ("webhook",)),
    webhooks_model.WEBHOOK_REPLAYED: Told("a message was sent again", ("webhook", "delivery", "type")),
    webhooks_model.WEBHOOK_DISABLED: Told(
        "a webhook was disabled: by a person, because it returned 410, or because every message failed for a week",
        ("webhook", "reason"),
    ),
    webhooks_model.WEBHOOK_ENABLED: Told("a webhook was enabled again, for later events", ("webhook",)),
    webhooks_model.WEBHOOK_REMOVED: Told("a webhook and its deliveries were removed", ("webhook",)),
    notifications_model.CHANNEL_ADDED: Told("a person was given another channel", ("account", "channel", "kind")),
    notifications_model.CHANNEL_REMOVED: Told("a channel was removed", ("account", "channel", "kind")),
    notifications_model.CHANNEL_DISABLED: Told(
        "a channel was disabled: it returned 410, or every message failed for a week",
        ("account", "channel", "kind", "reason"),
    ),
    notifications_model.PREFERENCES_CHANGED: Told(
        "quiet hours, the digest, or the time zone of a person were changed", ("account", "fields")
    ),
}

WEBHOOK_FIELDS: Mapping[str, str] = {
    "channel": "the id of the notification channel",
    "delivery": "the ID of the message, by which the receiver can deduplicate",
    "events": "its event types, such as `task.*`",
    "origin": "scheme, host, and port; the rest of its URL might be a secret",
    "webhook": "its id",
}
