"""Calls of the section `outside`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from ade.calls.call import Call
    from ade.core.web.answers import Content
    from ade.insight.health import Readiness
    from ade.insight.serving import Liveness, Meaning


class OutsideCalls(Section):
    def get_liveness(self) -> Call[Liveness]:
        """Whether the process is alive."""
        from ade.insight.serving import Liveness

        return self._call("get_liveness", Liveness)

    def get_readiness(self) -> Call[Readiness]:
        """Whether it can do its work: store, migrations, loops."""
        from ade.insight.health import Readiness

        return self._call("get_readiness", Readiness)

    def get_metrics(self) -> Call[Content]:
        """Figures for Prometheus."""
        from ade.core.web.answers import Content

        return self._call("get_metrics", Content)

    def get_openapi(self) -> Call[Content]:
        """This interface, described for programs."""
        from ade.core.web.answers import Content

        return self._call("get_openapi", Content)

    def get_problem(self, code: str) -> Call[Meaning]:
        """What a problem means, and what to do."""
        from ade.insight.serving import Meaning

        return self._call("get_problem", Meaning, code)
