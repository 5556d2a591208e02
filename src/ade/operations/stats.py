"""Figures: how things stand now, and over time."""

from datetime import datetime

from ade.core.web.forms.events import StatsSeries
from ade.insight.overview import Overview, overview
from ade.insight.series import Series, series
from ade.operations.kit import Asked, Office

_HOUR_MS = 3_600_000


async def get_stats(office: Office, asked: Asked) -> Overview:
    return await overview(office.stores)


async def get_stats_series(office: Office, asked: Asked, query: StatsSeries) -> Series:
    until = office.stores.clock.now() if query.until is None else _ms(query.until)
    since = max(until - _HOUR_MS, 0) if query.since is None else _ms(query.since)
    return await series(
        office.stores, since=since, until=until, step_s=query.step_s, queue=query.queue, name=query.name
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
