"""Calls of the section `approvals`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any, Literal

    from ade.calls.call import Call
    from ade.core.approvals.delegations import Delegation
    from ade.core.approvals.records import Decision
    from ade.core.approvals.risk import RiskLevel
    from ade.core.records import Task
    from ade.core.web.answers import Page
    from ade.core.web.forms.approvals import BatchItem
    from ade.governance.approvals.voting import Answered
    from ade.insight.approval_stats import ApprovalStats
    from ade.insight.approval_views import ApprovalView, Snoozed, Voted
    from ade.insight.approvals import InboxItem, UserStats


class ApprovalsCalls(Section):
    def list_approvals(
        self, *, mine: bool | None = None, cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[InboxItem]]:
        """What waits for people, for oneself or for all."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.approvals import ListApprovals
        from ade.insight.approvals import InboxItem

        query = ListApprovals(mine=mine, cursor=cursor, limit=limit)
        return self._call("list_approvals", Page[InboxItem], query=query)

    def get_approval_stats(self, *, over: float | None = None) -> Call[ApprovalStats]:
        """How many wait, how long, and how they end."""
        from ade.core.web.forms.approvals import GetApprovalStats
        from ade.insight.approval_stats import ApprovalStats

        query = GetApprovalStats(over=over)
        return self._call("get_approval_stats", ApprovalStats, query=query)

    def get_account_approval_stats(self, account: str) -> Call[UserStats]:
        """What waits for one account, and its answers."""
        from ade.insight.approvals import UserStats

        return self._call("get_account_approval_stats", UserStats, account)

    def get_approval(self, task_id: str) -> Call[ApprovalView]:
        """What is asked, who may answer, what was answered."""
        from ade.insight.approval_views import ApprovalView

        return self._call("get_approval", ApprovalView, task_id)

    def respond_to_approval(
        self, task_id: str, *, decision: Decision, digest: str, reason: str = "", for_whom: str | None = None,
        approval: str | None = None, password: str | None = None,
    ) -> Call[Voted]:
        """Approve, reject or ask for changes."""
        from ade.core.web.forms.approvals import AnswerApproval
        from ade.insight.approval_views import Voted

        body = AnswerApproval(
            decision=decision, digest=digest, reason=reason, for_whom=for_whom, approval=approval, password=password,
        )
        return self._call("respond_to_approval", Voted, task_id, body=body)

    def respond_to_approvals(
        self, *, decision: Literal["approve", "reject"], items: list[BatchItem], reason: str = "",
        password: str | None = None,
    ) -> Call[Page[Answered]]:
        """Answer many in the same way."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.approvals import AnswerApprovals
        from ade.governance.approvals.voting import Answered

        body = AnswerApprovals(decision=decision, items=items, reason=reason, password=password)
        return self._call("respond_to_approvals", Page[Answered], body=body)

    def delegate_approval(
        self, task_id: str, *, to: str, approval: str | None = None, request_key: str | None = None,
    ) -> Call[Delegation]:
        """Let somebody else answer this one."""
        from ade.core.approvals.delegations import Delegation
        from ade.core.web.forms.approvals import DelegateApproval

        body = DelegateApproval(to=to, approval=approval)
        return self._call("delegate_approval", Delegation, task_id, body=body, key=request_key)

    def amend_approval(
        self, task_id: str, *, digest: str, args: dict[str, Any] | None = None, description: str | None = None,
        reason: str = "", request_key: str | None = None,
    ) -> Call[Task]:
        """Edit what waits, and put it before people again."""
        from ade.core.records import Task
        from ade.core.web.forms.approvals import AmendApproval

        body = AmendApproval(digest=digest, args=args, description=description, reason=reason)
        return self._call("amend_approval", Task, task_id, body=body, key=request_key)

    def snooze_approval(
        self, task_id: str, *, seconds: float = 3600.0, request_key: str | None = None,
    ) -> Call[Snoozed]:
        """Leave it out of one's list for a while."""
        from ade.core.web.forms.approvals import SnoozeApproval
        from ade.insight.approval_views import Snoozed

        body = SnoozeApproval(seconds=seconds)
        return self._call("snooze_approval", Snoozed, task_id, body=body, key=request_key)

    def comment_on_approval(self, task_id: str, *, text: str, request_key: str | None = None) -> Call[Task]:
        """Say something."""
        from ade.core.records import Task
        from ade.core.web.forms.approvals import NewComment

        body = NewComment(text=text)
        return self._call("comment_on_approval", Task, task_id, body=body, key=request_key)

    def revoke_approval(self, task_id: str, *, reason: str, request_key: str | None = None) -> Call[Task]:
        """Take an approval back."""
        from ade.core.records import Task
        from ade.core.web.forms.approvals import RevokeApproval

        body = RevokeApproval(reason=reason)
        return self._call("revoke_approval", Task, task_id, body=body, key=request_key)

    def dismiss_request(self, task_id: str, *, voter: str, reason: str, request_key: str | None = None) -> Call[Task]:
        """Set a request for changes aside."""
        from ade.core.records import Task
        from ade.core.web.forms.approvals import DismissRequest

        body = DismissRequest(voter=voter, reason=reason)
        return self._call("dismiss_request", Task, task_id, body=body, key=request_key)

    def break_glass(self, task_id: str, *, reason: str, password: str | None = None) -> Call[Task]:
        """Let it run in an emergency."""
        from ade.core.records import Task
        from ade.core.web.forms.approvals import BreakGlass

        body = BreakGlass(reason=reason, password=password)
        return self._call("break_glass", Task, task_id, body=body)

    def list_delegations(
        self, *, account: str | None = None, cursor: str | None = None, limit: int = 50,
    ) -> Call[Page[Delegation]]:
        """Who answers for whom."""
        from ade.core.approvals.delegations import Delegation
        from ade.core.web.answers import Page
        from ade.core.web.forms.approvals import ListDelegations

        query = ListDelegations(account=account, cursor=cursor, limit=limit)
        return self._call("list_delegations", Page[Delegation], query=query)

    def create_delegation(
        self, *, delegate: str, ends: float | datetime, starts: float | datetime = 0.0, delegator: str | None = None,
        names: Sequence[str] = (), tags: Sequence[str] = (), resource_types: Sequence[str] = (),
        from_level: RiskLevel | None = None, to_level: RiskLevel | None = None, cascades: bool = False,
        request_key: str | None = None,
    ) -> Call[Delegation]:
        """Let somebody answer for oneself."""
        from ade.core.approvals.delegations import Delegation
        from ade.core.approvals.risk import RiskLevel
        from ade.core.web.forms.approvals import NewDelegation

        body = NewDelegation(
            delegate=delegate, ends=ends, starts=starts, delegator=delegator, names=list(names), tags=list(tags),
            resource_types=list(resource_types), from_level=RiskLevel.LOW if from_level is None else from_level,
            to_level=RiskLevel.CRITICAL if to_level is None else to_level, cascades=cascades,
        )
        return self._call("create_delegation", Delegation, body=body, key=request_key)

    def get_delegation(self, delegation_id: str) -> Call[Delegation]:
        """One delegation."""
        from ade.core.approvals.delegations import Delegation

        return self._call("get_delegation", Delegation, delegation_id)

    def revoke_delegation(self, delegation_id: str) -> Call[Delegation]:
        """End a delegation."""
        from ade.core.approvals.delegations import Delegation

        return self._call("revoke_delegation", Delegation, delegation_id)
