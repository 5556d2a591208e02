"""Calls: `approvals`, `policies`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.transport import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any, Literal

    from ade.approvals.api import BatchItem
    from ade.approvals.model import Decision, Delegation
    from ade.approvals.policy_check import Findings
    from ade.approvals.repository import RulebookVersion
    from ade.approvals.risk import RiskLevel
    from ade.approvals.service import BatchVoteResult
    from ade.approvals.stats import ApprovalStats, UserStats
    from ade.approvals.views import ApprovalView, PendingApproval, Snoozed, Voted
    from ade.common.calls import Call
    from ade.server.pagination import Page
    from ade.tasks.model import Task


class ApprovalsCalls(Section):
    """Methods of the client: `approvals`, `policies`."""

    def list_approvals(
        self, *, mine: bool | None = None, cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[PendingApproval]]:
        """What waits for people, for oneself or for all."""
        from ade.approvals.api import ListApprovals
        from ade.approvals.views import PendingApproval
        from ade.server.pagination import Page

        query = ListApprovals(mine=mine, cursor=cursor, limit=limit)
        return self._call("list_approvals", Page[PendingApproval], query=query)

    def get_approval_stats(self, *, over: float | None = None) -> Call[ApprovalStats]:
        """How many wait, how long, and how they end."""
        from ade.approvals.api import GetApprovalStats
        from ade.approvals.stats import ApprovalStats

        query = GetApprovalStats(over=over)
        return self._call("get_approval_stats", ApprovalStats, query=query)

    def get_account_approval_stats(self, account: str) -> Call[UserStats]:
        """What waits for one account, and its answers."""
        from ade.approvals.stats import UserStats

        return self._call("get_account_approval_stats", UserStats, account)

    def get_approval(self, task_id: str) -> Call[ApprovalView]:
        """Show the request, the eligible voters, and the votes."""
        from ade.approvals.views import ApprovalView

        return self._call("get_approval", ApprovalView, task_id)

    def respond_to_approval(
        self, task_id: str, *, decision: Decision, approval: str, digest: str, reason: str = "", text: str = "",
        args: dict[str, Any] | None = None, go_on: bool = False, for_whom: str | None = None,
        password: str | None = None,
    ) -> Call[Voted]:
        """Approve, reject, request changes, or respond."""
        from ade.approvals.api import AnswerApproval
        from ade.approvals.views import Voted

        body = AnswerApproval(
            decision=decision, approval=approval, digest=digest, reason=reason, text=text, args=args, go_on=go_on,
            for_whom=for_whom, password=password,
        )
        return self._call("respond_to_approval", Voted, task_id, body=body)

    def respond_to_approvals(
        self, *, decision: Literal["approve", "reject"], items: list[BatchItem], reason: str = "",
        password: str | None = None,
    ) -> Call[Page[BatchVoteResult]]:
        """Answer many in the same way."""
        from ade.approvals.api import AnswerApprovals
        from ade.approvals.service import BatchVoteResult
        from ade.server.pagination import Page

        body = AnswerApprovals(decision=decision, items=items, reason=reason, password=password)
        return self._call("respond_to_approvals", Page[BatchVoteResult], body=body)

    def delegate_approval(
        self, task_id: str, *, to: str, approval: str | None = None, request_key: str | None = None,
    ) -> Call[Delegation]:
        """Delegate your vote on this approval, in a session with a recent password check."""
        from ade.approvals.api import DelegateApproval
        from ade.approvals.model import Delegation

        body = DelegateApproval(to=to, approval=approval)
        return self._call("delegate_approval", Delegation, task_id, body=body, key=request_key)

    def amend_approval(
        self, task_id: str, *, approval: str, digest: str, args: dict[str, Any] | None = None,
        description: str | None = None, reason: str = "", request_key: str | None = None,
    ) -> Call[Task]:
        """Edit what waits, and put it before people again."""
        from ade.approvals.api import AmendApproval
        from ade.tasks.model import Task

        body = AmendApproval(approval=approval, digest=digest, args=args, description=description, reason=reason)
        return self._call("amend_approval", Task, task_id, body=body, key=request_key)

    def snooze_approval(
        self, task_id: str, *, seconds: float = 3600.0, request_key: str | None = None,
    ) -> Call[Snoozed]:
        """Leave it out of one's list for a while."""
        from ade.approvals.api import SnoozeApproval
        from ade.approvals.views import Snoozed

        body = SnoozeApproval(seconds=seconds)
        return self._call("snooze_approval", Snoozed, task_id, body=body, key=request_key)

    def comment_on_approval(self, task_id: str, *, text: str, request_key: str | None = None) -> Call[Task]:
        """Add a comment, which is not a vote."""
        from ade.approvals.api import NewComment
        from ade.tasks.model import Task

        body = NewComment(text=text)
        return self._call("comment_on_approval", Task, task_id, body=body, key=request_key)

    def revoke_approval(self, task_id: str, *, reason: str, request_key: str | None = None) -> Call[Task]:
        """Take an approval back."""
        from ade.approvals.api import RevokeApproval
        from ade.tasks.model import Task

        body = RevokeApproval(reason=reason)
        return self._call("revoke_approval", Task, task_id, body=body, key=request_key)

    def dismiss_request(self, task_id: str, *, voter: str, reason: str, request_key: str | None = None) -> Call[Task]:
        """Set a request for changes aside."""
        from ade.approvals.api import DismissRequest
        from ade.tasks.model import Task

        body = DismissRequest(voter=voter, reason=reason)
        return self._call("dismiss_request", Task, task_id, body=body, key=request_key)

    def break_glass(self, task_id: str, *, reason: str, password: str | None = None) -> Call[Task]:
        """Let it run in an emergency."""
        from ade.approvals.api import BreakGlass
        from ade.tasks.model import Task

        body = BreakGlass(reason=reason, password=password)
        return self._call("break_glass", Task, task_id, body=body)

    def list_delegations(
        self, *, account: str | None = None, cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Delegation]]:
        """Who answers for whom."""
        from ade.approvals.api import ListDelegations
        from ade.approvals.model import Delegation
        from ade.server.pagination import Page

        query = ListDelegations(account=account, cursor=cursor, limit=limit)
        return self._call("list_delegations", Page[Delegation], query=query)

    def create_delegation(
        self, *, delegate: str, ends: float | datetime, starts: float | datetime = 0.0, delegator: str | None = None,
        names: Sequence[str] = (), tags: Sequence[str] = (), resource_types: Sequence[str] = (),
        from_level: RiskLevel | None = None, to_level: RiskLevel | None = None, cascades: bool = False,
        request_key: str | None = None,
    ) -> Call[Delegation]:
        """Delegate your votes, in a session with a recent password check."""
        from ade.approvals.api import NewDelegation
        from ade.approvals.model import Delegation
        from ade.approvals.risk import RiskLevel

        body = NewDelegation(
            delegate=delegate, ends=ends, starts=starts, delegator=delegator, names=list(names), tags=list(tags),
            resource_types=list(resource_types), from_level=RiskLevel.LOW if from_level is None else from_level,
            to_level=RiskLevel.CRITICAL if to_level is None else to_level, cascades=cascades,
        )
        return self._call("create_delegation", Delegation, body=body, key=request_key)

    def get_delegation(self, delegation_id: str) -> Call[Delegation]:
        """One delegation."""
        from ade.approvals.model import Delegation

        return self._call("get_delegation", Delegation, delegation_id)

    def revoke_delegation(self, delegation_id: str) -> Call[Delegation]:
        """End a delegation."""
        from ade.approvals.model import Delegation

        return self._call("revoke_delegation", Delegation, delegation_id)

    def get_rulebook(self) -> Call[RulebookVersion]:
        """The rulebook: guard rules, and who must approve what."""
        from ade.approvals.repository import RulebookVersion

        return self._call("get_rulebook", RulebookVersion)

    def apply_rulebook(self, *, rules: dict[str, Any], if_match: int | None) -> Call[RulebookVersion]:
        """Put another rulebook in force."""
        from ade.approvals.api_rulebook import ApplyRulebook
        from ade.approvals.repository import RulebookVersion

        body = ApplyRulebook(rules=rules)
        return self._call("apply_rulebook", RulebookVersion, body=body, if_match=if_match)

    def list_rulebook_versions(self, *, cursor: str | None = None, limit: int = 20) -> Call[Page[RulebookVersion]]:
        """All rulebooks there were."""
        from ade.approvals.api_rulebook import ListRulebookVersions
        from ade.approvals.repository import RulebookVersion
        from ade.server.pagination import Page

        query = ListRulebookVersions(cursor=cursor, limit=limit)
        return self._call("list_rulebook_versions", Page[RulebookVersion], query=query)

    def get_rulebook_version(self, version: str) -> Call[RulebookVersion]:
        """One of them."""
        from ade.approvals.repository import RulebookVersion

        return self._call("get_rulebook_version", RulebookVersion, version)

    def check_policies(
        self, *, name: str, tool: str | None = None, args: Mapping[str, Any] | None = None,
        resources: Sequence[str] = (), tags: Sequence[str] = (), score: float | None = None,
        rules: dict[str, Any] | None = None,
    ) -> Call[Findings]:
        """What the rules say about a task, without storing it."""
        from ade.approvals.api_rulebook import CheckPolicies
        from ade.approvals.policy_check import Findings

        body = CheckPolicies(
            name=name, tool=tool, args=dict(args or {}), resources=list(resources), tags=list(tags), score=score,
            rules=rules,
        )
        return self._call("check_policies", Findings, body=body)
