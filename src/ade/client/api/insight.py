"""Calls of the section `insight`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from datetime import datetime

    from ade.calls.call import Call
    from ade.core.audit import AuditLine, AuditReport
    from ade.core.events import Event
    from ade.core.web.answers import Content, Page
    from ade.insight.health import HealthReport
    from ade.insight.overview import Overview
    from ade.insight.series import Series


class InsightCalls(Section):
    def get_stats(self) -> Call[Overview]:
        """Depths, ages, throughput and workers now."""
        from ade.insight.overview import Overview

        return self._call("get_stats", Overview)

    def get_stats_series(
        self, *, since: datetime | None = None, until: datetime | None = None, step_s: int = 60,
        queue: str | None = None, name: str | None = None,
    ) -> Call[Series]:
        """The same over time, for charts."""
        from ade.core.web.forms.events import StatsSeries
        from ade.insight.series import Series

        query = StatsSeries(since=since, until=until, step_s=step_s, queue=queue, name=name)
        return self._call("get_stats_series", Series, query=query)

    def list_events(
        self, *, type: tuple[str, ...] = (), task: tuple[str, ...] = (), queue: tuple[str, ...] = (),
        name: tuple[str, ...] = (), inbox: tuple[str, ...] = (), after: int | None = None, cursor: str | None = None,
        limit: int = 50,
    ) -> Call[Page[Event]]:
        """The event log, page by page or as a stream."""
        from ade.core.events import Event
        from ade.core.web.answers import Page
        from ade.core.web.forms.events import ListEvents

        query = ListEvents(
            type=type, task=task, queue=queue, name=name, inbox=inbox, after=after, cursor=cursor, limit=limit,
        )
        return self._call("list_events", Page[Event], query=query)

    def list_audit_entries(
        self, *, type: tuple[str, ...] = (), task: tuple[str, ...] = (), queue: tuple[str, ...] = (),
        name: tuple[str, ...] = (), inbox: tuple[str, ...] = (), after: int | None = None, cursor: str | None = None,
        limit: int = 50,
    ) -> Call[Page[AuditLine]]:
        """The tamper-evident copy of the event log."""
        from ade.core.audit import AuditLine
        from ade.core.web.answers import Page
        from ade.core.web.forms.events import ListAuditEntries

        query = ListAuditEntries(
            type=type, task=task, queue=queue, name=name, inbox=inbox, after=after, cursor=cursor, limit=limit,
        )
        return self._call("list_audit_entries", Page[AuditLine], query=query)

    def verify_audit(self) -> Call[AuditReport]:
        """Whether its chain holds."""
        from ade.core.audit import AuditReport
        from ade.core.web.forms.tasks import Nothing

        body = Nothing()
        return self._call("verify_audit", AuditReport, body=body)

    def export_audit(self, *, after: int = 0) -> Call[Content]:
        """All of it, as a file."""
        from ade.core.web.answers import Content
        from ade.core.web.forms.events import ExportAudit

        query = ExportAudit(after=after)
        return self._call("export_audit", Content, query=query)

    def get_health(self, *, thorough: bool = False) -> Call[HealthReport]:
        """Versions, sizes and what deserves attention."""
        from ade.core.web.forms.health import GetHealth
        from ade.insight.health import HealthReport

        query = GetHealth(thorough=thorough)
        return self._call("get_health", HealthReport, query=query)
