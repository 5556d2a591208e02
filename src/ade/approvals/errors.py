"""Errors of approvals, guard rules, policies, the rulebook, and run-time settings."""

from ade.errors import AdeError


class NoGate(AdeError):
    """This task does not wait for approval now."""

    code = "no_gate"
    usual_advice = "`ade show ID` shows its status"


class UnknownApproval(AdeError):
    """There is no such approval: the task needs none, or has none with this id."""

    code = "unknown_approval"
    usual_advice = "`ade show ID` shows its status"


class GateClosed(AdeError):
    """The decision has already been made; nothing was changed."""

    code = "gate_closed"
    usual_advice = "`ade approvals show ID` shows it"


class DigestMismatch(AdeError):
    """The task has changed since you reviewed it. Your vote was not counted; review it again, then answer."""

    code = "digest_mismatch"


class NotEligible(AdeError):
    """This account may not answer here."""

    code = "not_eligible"
    usual_advice = "`ade approvals show ID` shows who can"


class ConflictOfInterest(NotEligible):
    """You cannot approve a task that you, or an agent you own, wrote or edited. Ask another reviewer."""

    code = "conflict_of_interest"


class ReauthenticationNeeded(NotEligible):
    """This requires a login session with a recent password check. Sign in with your password, and try again."""

    code = "reauthentication_needed"


class PasswordChangeNeeded(NotEligible):
    """Another account has set this password, and so could act with it. Change it first, then try again."""

    code = "password_change_needed"
    usual_advice = "`ade users password NAME` changes it, or PUT /api/v1/me/password with the old one"


class Denied(AdeError):
    """A guard rule forbids this. Nothing was stored."""

    code = "denied"
    usual_advice = "`ade policies check` shows the rule"


class StepDenied(Denied):
    """Reviewers did not approve this step of a run. The message contains their response; continue without the step."""

    code = "step_denied"
    usual_advice = "`ade approvals show ID` shows the response"


class TaskCannotRun(GateClosed):
    """The task will not run: one that it waits for did not complete, or its deadline or window is over. Your vote was
    not counted."""

    code = "task_cannot_run"
    usual_advice = "`ade show ID` shows what it waits for, and its deadline"


class AuthorRequired(AdeError):
    """A task that needs approval must name its author: an account, which then cannot approve it. Nothing was stored."""

    code = "author_required"
    usual_advice = "set ADE_USER to your account, or name it with `--as` or `Ade(author=...)`"


class TooManyApprovals(AdeError):
    """The author of this task has too many approvals open. Nothing was stored; wait until some of them are decided."""

    code = "too_many_approvals"
    usual_advice = "`ade approvals list` shows them"


class ApprovalNotGood(AdeError):
    """The approval is no longer valid, so the task was not started."""

    code = "approval_not_good"
    usual_advice = "`ade show ID` shows why"


class InvalidSubject(AdeError):
    """What is to be approved has no canonical form, so it could not be proven later what was approved."""

    code = "invalid_subject"


class InvalidPolicy(AdeError):
    """The review policy is not valid. Nothing was stored; correct it and try again."""

    code = "invalid_policy"


class InvalidRulebook(AdeError):
    """The rulebook is not valid. Nothing was stored; correct what the message names and apply it again."""

    code = "invalid_rulebook"


class UnknownRulebook(AdeError):
    """The rulebook never had this version."""

    code = "unknown_rulebook"
    usual_advice = "`ade policies history` shows those it had"


class InvalidSetting(AdeError):
    """The value is not valid for this setting. Nothing was stored; use one within its bounds."""

    code = "invalid_setting"


class UnknownSetting(AdeError):
    """No run-time setting or feature has this name."""

    code = "unknown_setting"
    usual_advice = "`ade config show` and `ade features list` show those that do"
