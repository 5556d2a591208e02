"""What is told of webhooks."""

from collections.abc import Mapping

from ade.core.webhooks import records
from docs.generators.told import Told

WEBHOOK_EVENTS: Mapping[str, Told] = {
    records.WEBHOOK_CREATED: Told("somebody is told of events from now on", ("webhook", "origin", "events")),
    records.WEBHOOK_CHANGED: Told(
        "a webhook has another URL, other events or another description", ("webhook", "fields", "origin", "events")
    ),
    records.WEBHOOK_ROTATED: Told("a webhook has a new secret; the old one signs until then", ("webhook", "ends_at")),
    records.WEBHOOK_TESTED: Told("somebody had a test sent; it goes to this webhook in any case", ("webhook",)),
    records.WEBHOOK_REPLAYED: Told("somebody had a message sent once more", ("webhook", "delivery", "type")),
    records.WEBHOOK_DISABLED: Told(
        "nothing more is sent to a webhook: somebody wanted so, it answered 410, or nothing went well for a week",
        ("webhook", "reason"),
    ),
    records.WEBHOOK_ENABLED: Told("a webhook is told again of what happens from then on", ("webhook",)),
    records.WEBHOOK_REMOVED: Told("somebody had a webhook and its deliveries forgotten", ("webhook",)),
}

WEBHOOK_FIELDS: Mapping[str, str] = {
    "delivery": "the id of the message, by which its receiver knows it again",
    "events": "the types of events it wants, such as `task.*`",
    "origin": "where it is: scheme, host and port; the rest of its URL may be a secret",
    "webhook": "its id",
}
