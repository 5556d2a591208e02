"""Calls of the section `policies`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ade.calls.call import Call
    from ade.core.web.answers import Page
    from ade.governance.checking import Findings
    from ade.governance.rulebook import Edition


class PoliciesCalls(Section):
    def get_rulebook(self) -> Call[Edition]:
        """The rulebook: guard rules, and who must approve what."""
        from ade.governance.rulebook import Edition

        return self._call("get_rulebook", Edition)

    def apply_rulebook(self, *, rules: dict[str, Any], if_match: int | None) -> Call[Edition]:
        """Put another rulebook in force."""
        from ade.core.web.forms.policies import ApplyRulebook
        from ade.governance.rulebook import Edition

        body = ApplyRulebook(rules=rules)
        return self._call("apply_rulebook", Edition, body=body, if_match=if_match)

    def list_rulebook_versions(self, *, cursor: str | None = None, limit: int = 20) -> Call[Page[Edition]]:
        """All rulebooks there were."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.policies import ListRulebookVersions
        from ade.governance.rulebook import Edition

        query = ListRulebookVersions(cursor=cursor, limit=limit)
        return self._call("list_rulebook_versions", Page[Edition], query=query)

    def get_rulebook_version(self, version: str) -> Call[Edition]:
        """One of them."""
        from ade.governance.rulebook import Edition

        return self._call("get_rulebook_version", Edition, version)

    def check_policies(
        self, *, name: str, tool: str | None = None, args: Mapping[str, Any] | None = None,
        resources: Sequence[str] = (), tags: Sequence[str] = (), score: float | None = None,
        rules: dict[str, Any] | None = None,
    ) -> Call[Findings]:
        """What the rules say about a task, without storing it."""
        from ade.core.web.forms.policies import CheckPolicies
        from ade.governance.checking import Findings

        body = CheckPolicies(
            name=name, tool=tool, args=dict(args or {}), resources=list(resources), tags=list(tags), score=score,
            rules=rules,
        )
        return self._call("check_policies", Findings, body=body)
