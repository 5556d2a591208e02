"""What webhooks may reach is read from the settings, and what is wrong there is told at the start."""

import pytest

from ade.errors import AddressRefused
from ade.settings import SettingsError, load
from ade.settings.sections import WebhookSettings
from ade.webhooks.destinations import PUBLIC, check_address
from ade.webhooks.service import reach_of


def test_without_settings_only_public_addresses_and_tls() -> None:
    assert reach_of(WebhookSettings()) == PUBLIC


def test_networks_and_ports_come_from_the_environment_too() -> None:
    env = {
        "ADE_WEBHOOKS__ALLOW_HTTP": "true",
        "ADE_WEBHOOKS__ALLOWED_PORTS": "81, 82",
        "ADE_WEBHOOKS__ALLOWED_NETWORKS": "127.0.0.0/8,10.1.0.0/16",
        "ADE_WEBHOOKS__REFUSED_NETWORKS": "10.1.2.0/24",
    }
    reach = reach_of(load(env=env, files=[]).settings.webhooks)

    assert (reach.allow_http, reach.ports) == (True, frozenset({81, 82}))
    assert str(check_address("10.1.0.1", reach)) == "10.1.0.1"
    with pytest.raises(AddressRefused):
        check_address("10.1.2.3", reach)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALLOWED_NETWORKS", "10.1.0.0/33"),
        ("ALLOWED_NETWORKS", "10.1.0.1/16"),
        ("REFUSED_NETWORKS", "localhost"),
        ("ALLOWED_PORTS", "0"),
        ("ALLOWED_PORTS", "8080"),
    ],
)
def test_what_is_no_network_or_port_is_told_with_its_name(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"webhooks.{name.lower()}"):
        load(env={f"ADE_WEBHOOKS__{name}": value}, files=[])
