"""What people are told about webhooks."""

from ade.core.errors import AdeError


class InvalidWebhook(AdeError):
    """The webhook's URL, event types, secret or description are not valid. Nothing was stored; correct them."""

    code = "invalid_webhook"


class UnknownWebhook(AdeError):
    """No webhook with this id exists, or no such delivery of it is kept. The list of webhooks shows those that do."""

    code = "unknown_webhook"


class AddressRefused(AdeError):
    """No webhook may reach this network address. An administrator can allow its network."""

    code = "address_refused"


class InvalidSignature(AdeError):
    """The signature of a webhook's message does not hold, or it is too old. Do not believe the message."""

    code = "invalid_signature"
