"""How often somebody may try a password or a link, and how long a session is good for: as the settings say."""

from collections.abc import Mapping

from ade.core.accounts.rates import RATES, Asking, Rate
from ade.core.rate import read_rate
from ade.core.web.addresses import counted_address
from ade.governance.directory.rates import take
from ade.governance.directory.sessions import Manner
from ade.operations.kit import Asked, Office


def login_rates(office: Office) -> Mapping[Asking, Rate]:
    """Passwords are never tried without a limit: where the settings have none, the usual one holds."""
    rate = read_rate(office.settings.http.login_rate) or RATES[Asking.LOGIN]
    return {**RATES, Asking.LOGIN: rate, Asking.CONFIRM: rate}


async def count_address(office: Office, asked: Asked) -> None:
    """One try from where the request comes from, whatever name it is for. Raises TooManyRequests."""
    if asked.address:
        place = f"address {counted_address(asked.address)}"  # no account has a space in its name
        await take(office.stores, place, Asking.LOGIN, login_rates(office))


def manner(office: Office, asked: Asked) -> Manner:
    http = office.settings.http
    return Manner(
        ip=asked.address,
        user_agent=asked.user_agent,
        idle_ms=round(http.session_idle_s * 1000),
        lasts_ms=round(http.session_lasts_s * 1000),
    )
