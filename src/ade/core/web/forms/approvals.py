"""What is said about approvals and delegations."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from ade.core.approvals.records import Decision
from ade.core.approvals.risk import RiskLevel
from ade.core.web.forms.secret import Password, SecretForm
from ade.core.web.forms.tasks import Form, PageSize
from ade.core.web.forms.words import AccountName

# The whole digest of what was looked at, or at least this much of its beginning.
SeenDigest = Annotated[str, Meta(min_length=8, max_length=64)]
Why = Annotated[str, Meta(max_length=2_000)]
NeededWhy = Annotated[str, Meta(min_length=1, max_length=2_000)]
Account = Annotated[AccountName, Meta(min_length=1, max_length=100)]
ApprovalId = Annotated[str, Meta(max_length=60)]  # of a gate; without it the newest that waits for an answer
Words = Annotated[list[Annotated[str, Meta(min_length=1, max_length=200)]], Meta(max_length=50)]
_YEAR_S = 366 * 86_400.0
FromNow = Annotated[float, Meta(ge=0, le=_YEAR_S)]  # seconds


class ListApprovals(Form):
    mine: bool | None = None  # what one may answer oneself; otherwise what anybody may. Usual for who has an account
    cursor: str | None = None
    limit: PageSize = 50


class GetApprovalStats(Form):
    over: Annotated[float, Meta(ge=1, le=_YEAR_S)] | None = None  # how far to look back, in seconds; a week


class AnswerApproval(SecretForm, kw_only=True):
    """A high risk takes a password given within the last five minutes: here, or before in this session."""

    decision: Decision
    digest: SeenDigest
    reason: Why = ""  # for changes it says which
    for_whom: Account | None = None  # in the place of somebody who delegated to oneself
    approval: ApprovalId | None = None
    password: Password | None = None


class BatchItem(Form, kw_only=True):
    task_id: Annotated[str, Meta(max_length=60)]
    digest: SeenDigest
    approval: ApprovalId | None = None


class AnswerApprovals(SecretForm, kw_only=True):
    decision: Literal["approve", "reject"]
    items: Annotated[list[BatchItem], Meta(min_length=1, max_length=50)]
    reason: Why = ""
    password: Password | None = None


class DelegateApproval(Form, kw_only=True):
    to: Account
    approval: ApprovalId | None = None


class AmendApproval(Form, kw_only=True):
    """What shall be different; at least one of the two."""

    digest: SeenDigest
    args: dict[str, Any] | None = None  # all of them
    description: Annotated[str, Meta(max_length=10_000)] | None = None
    reason: Why = ""


class SnoozeApproval(Form):
    seconds: Annotated[float, Meta(ge=1, le=7 * 86_400)] = 3_600.0


class NewComment(Form, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=4_000)]


class RevokeApproval(Form, kw_only=True):
    reason: NeededWhy


class DismissRequest(Form, kw_only=True):
    voter: Account  # who has asked for changes
    reason: NeededWhy


class BreakGlass(SecretForm, kw_only=True):
    """It takes a password given within the last five minutes: here, or before in this session."""

    reason: NeededWhy
    password: Password | None = None


class ListDelegations(Form):
    account: Account | None = None  # those that it has given or was given
    cursor: str | None = None
    limit: PageSize = 50


class NewDelegation(Form, kw_only=True):
    """Times are moments, or seconds: of `starts` from now, of `ends` from the start. Empty conditions: everything."""

    delegate: Account
    ends: FromNow | datetime
    starts: FromNow | datetime = 0.0
    delegator: Account | None = None  # otherwise oneself; an admin may name others
    names: Words = field(default_factory=list)
    tags: Words = field(default_factory=list)
    resource_types: Words = field(default_factory=list)
    from_level: RiskLevel = RiskLevel.LOW
    to_level: RiskLevel = RiskLevel.CRITICAL
    cascades: bool = False  # whoever gets it may pass it on
