"""No account asks more often than it may."""

from collections.abc import Mapping

from ade.core.accounts.errors import TooManyRequests
from ade.core.accounts.rates import RATES, Asking, Rate
from ade.ports import Stores


async def take(stores: Stores, account: str, asking: Asking, rates: Mapping[Asking, Rate] = RATES) -> None:
    """Count one request. Raises TooManyRequests, and then it was not counted."""
    count, period_ms = rates[asking]
    wait_ms = await stores.documents.take_rate(f"{asking}:{account}", count, period_ms)
    if wait_ms:
        seconds = wait_ms / 1000
        raise TooManyRequests(
            f"{account} may do this {count} times in {period_ms // 1000} s ({asking}); try again in {seconds:.1f} s",
            retry_after=seconds,
        )
