"""What webhooks may reach, as the settings have it."""

from ade.core.webhooks.addresses import Reach, networks_of
from ade.settings.sections import WebhookSettings


def reach_of(webhooks: WebhookSettings) -> Reach:
    return Reach(
        allow_http=webhooks.allow_http,
        ports=frozenset(webhooks.allowed_ports),
        allowed=networks_of(webhooks.allowed_networks),
        refused=networks_of(webhooks.refused_networks),
    )
