"""What a server has beside its routes: who may be whom, how often, how much, and whether it is about to stop."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ade.core.accounts.callers import Caller
from ade.core.web.addresses import Network
from ade.core.web.credentials import Credentials
from ade.core.web.limits import USUAL, RequestLimits
from ade.governance.web_rates import WebRates
from ade.http.access_log import Which
from ade.operations.kit import Office

Recognise = Callable[[Credentials], Awaitable[Caller | None]]


@dataclass(frozen=True, kw_only=True)
class Service:
    office: Office
    recognise: Recognise
    rates: WebRates
    hosts: frozenset[str]
    trusted: tuple[Network, ...] = ()
    limits: RequestLimits = USUAL
    local: Caller | None = None  # whoever asks, where nobody is asked who he is (http.auth = "off")
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    session_lasts_s: int = 86_400
    key_retention_ms: int = 86_400_000
    key_runs_ms: int = 30_000  # after which a request with a key is taken for dead, unless its server says otherwise
    max_subscribers: int = 5_000
    max_subscribers_each: int = 200
    access_log: Which = "off"
    recheck_ms: int = 15_000  # how long a stream goes on for somebody who may not see it any more
