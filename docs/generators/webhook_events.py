"""The events of webhooks and notification channels."""

from collections.abc import Mapping

from ade.notifications import model as notifications_model
from ade.webhooks import model as webhooks_model
from docs.generators.told import Told

WEBHOOK_EVENTS: Mapping[str, Told] = {
    webhooks_model.WEBHOOK_CREATED: Told("somebody is told of events from now on", ("webhook", "origin", "events")),
    webhooks_model.WEBHOOK_CHANGED: Told(
        "a webhook has another URL, other events or another description", ("webhook", "fields", "origin", "events")
    ),
    webhooks_model.WEBHOOK_ROTATED: Told(
        "a webhook has a new secret; the old one signs until then", ("webhook", "ends_at")
    ),
    webhooks_model.WEBHOOK_TESTED: Told("somebody had a test sent; it goes to this webhook in any case", ("webhook",)),
    webhooks_model.WEBHOOK_REPLAYED: Told("somebody had a message sent once more", ("webhook", "delivery", "type")),
    webhooks_model.WEBHOOK_DISABLED: Told(
        "nothing more is sent to a webhook: somebody wanted so, it answered 410, or nothing went well for a week",
        ("webhook", "reason"),
    ),
    webhooks_model.WEBHOOK_ENABLED: Told("a webhook is told again of what happens from then on", ("webhook",)),
    webhooks_model.WEBHOOK_REMOVED: Told("somebody had a webhook and its deliveries forgotten", ("webhook",)),
    notifications_model.CHANNEL_ADDED: Told(
        "a person is notified through another channel from now on", ("account", "channel", "kind")
    ),
    notifications_model.CHANNEL_REMOVED: Told("a channel was removed", ("account", "channel", "kind")),
    notifications_model.CHANNEL_DISABLED: Told(
        "nothing more is sent to a channel: it answered 410, or every message failed for a week",
        ("account", "channel", "kind", "reason"),
    ),
    notifications_model.PREFERENCES_CHANGED: Told(
        "quiet hours, the digest, or the time zone of a person were changed", ("account", "fields")
    ),
}

WEBHOOK_FIELDS: Mapping[str, str] = {
    "channel": "the id of the notification channel",
    "delivery": "the id of the message, by which its receiver knows it again",
    "events": "the types of events it wants, such as `task.*`",
    "origin": "where it is: scheme, host and port; the rest of its URL may be a secret",
    "webhook": "its id",
}
