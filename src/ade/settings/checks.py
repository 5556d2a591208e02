"""What is wrong with single settings beyond their type. On the way of every start, so that it imports little."""

import re
from collections.abc import Iterator, Sequence

from ade.core.rate import read_rate
from ade.settings.sections import HttpSettings, LockSettings, WebhookSettings

_HOST = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9._-]{0,250}[a-z0-9_])?|\[[0-9a-f:.]{2,45}\]", re.ASCII | re.IGNORECASE)
_RATE_WRONG = "write a count and a period, such as 100/s, or none"


def checked(locks: LockSettings, http: HttpSettings, webhooks: WebhookSettings) -> Iterator[tuple[str, str]]:
    """The name of each setting that does not fit, and what would."""
    rates = {"locks.acquire_rate": locks.acquire_rate}
    rates |= {f"http.{traffic}_rate": text for traffic, text in http.rates().items()}
    yield from ((name, _RATE_WRONG) for name, text in rates.items() if text != "none" and read_rate(text) is None)
    if any(char.isspace() or char in "/[]@#?" for char in http.host):
        yield "http.host", "write one address or name, such as 127.0.0.1 or ::1, without a port"
    for host in http.allowed_hosts:
        if not _HOST.fullmatch(host):
            yield "http.allowed_hosts", f"{host!r} is no name of a host; write it without scheme and port"
    if http.trusted_proxies:
        yield from _checked_networks(http.trusted_proxies)
    if webhooks.allowed_networks or webhooks.refused_networks:
        yield from _checked_reach(webhooks)


def is_own_machine(host: str) -> bool:
    """Whether a server that listens there is reached from this machine alone."""
    from ade.core.web.addresses import is_loopback  # loads much, and hardly anybody comes here

    return is_loopback(host)


def _checked_networks(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    from ade.core.web.addresses import read_networks

    for text in texts:
        try:
            read_networks([text])
        except ValueError:
            yield "http.trusted_proxies", f"{text!r} is no address and no network, such as 10.0.0.7 or 10.0.0.0/8"


def _checked_reach(webhooks: WebhookSettings) -> Iterator[tuple[str, str]]:
    if not webhooks.allowed_networks and not webhooks.refused_networks:
        return
    from ade.core.webhooks.addresses import networks_of
    from ade.core.webhooks.errors import InvalidWebhook

    for name in ("allowed_networks", "refused_networks"):
        try:
            networks_of(getattr(webhooks, name))
        except InvalidWebhook as wrong:
            yield f"webhooks.{name}", wrong.detail
