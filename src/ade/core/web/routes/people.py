"""Approvals and delegations, the rulebook, accounts, tokens and sessions."""

from ade.core.accounts.permissions import Permission
from ade.core.web.rates import Traffic
from ade.core.web.routing import Door, Route, Tag, change, read

_ENQUEUE, _OPERATE, _VOTE = Permission.ENQUEUE, Permission.OPERATE, Permission.VOTE
_ADMIN, _GLASS = Permission.ADMINISTER, Permission.BREAK_GLASS
_APPROVAL = "/approvals/{task_id}"


def _vote(line: str, operation: str, summary: str, **more: object) -> Route:
    return change(f"POST {line}", operation, summary, _VOTE, traffic=Traffic.VOTE, **more)


def _secretive(line: str, operation: str, summary: str, *needs: Permission, **more: object) -> Route:
    """What is sent has a password in it, or the answer a secret: nothing of it is kept, not even a hash."""
    return change(line, operation, summary, *needs, takes_key=False, **more)


def _self(line: str, operation: str, summary: str, door: Door = Door.SESSION) -> Route:
    return change(line, operation, summary, door=door, traffic=Traffic.LOGIN, takes_key=False)


APPROVALS: tuple[Route, ...] = (
    read("/approvals", "list_approvals", "What waits for people, for oneself or for all."),
    read("/approvals/stats", "get_approval_stats", "How many wait, how long, and how they end."),
    read("/approvals/stats/{account}", "get_account_approval_stats", "What waits for one account, and its answers."),
    read(_APPROVAL, "get_approval", "What is asked, who may answer, what was answered."),
    _vote(f"{_APPROVAL}/respond", "respond_to_approval", "Approve, reject or ask for changes.", takes_key=False),
    _vote("/approvals/batch", "respond_to_approvals", "Answer many in the same way.", takes_key=False),
    _vote(f"{_APPROVAL}/delegate", "delegate_approval", "Let somebody else answer this one."),
    _vote(f"{_APPROVAL}/amend", "amend_approval", "Edit what waits, and put it before people again."),
    _vote(f"{_APPROVAL}/snooze", "snooze_approval", "Leave it out of one's list for a while."),
    change(f"POST {_APPROVAL}/comment", "comment_on_approval", "Say something.", _ENQUEUE, _VOTE),
    change(f"POST {_APPROVAL}/revoke", "revoke_approval", "Take an approval back.", _VOTE),
    change(f"POST {_APPROVAL}/dismiss", "dismiss_request", "Set a request for changes aside.", _ADMIN),
    _secretive(f"POST {_APPROVAL}/break-glass", "break_glass", "Let it run in an emergency.", _GLASS),
    read("/delegations", "list_delegations", "Who answers for whom."),
    change("POST /delegations", "create_delegation", "Let somebody answer for oneself.", _VOTE, others=_ADMIN),
    read("/delegations/{delegation_id}", "get_delegation", "One delegation."),
    change("DELETE /delegations/{delegation_id}", "revoke_delegation", "End a delegation.", _VOTE, others=_ADMIN),
)

POLICIES: tuple[Route, ...] = (
    read("/policies", "get_rulebook", "The rulebook: guard rules, and who must approve what.", tag=Tag.ANSWERED),
    change("PUT /policies", "apply_rulebook", "Put another rulebook in force.", _ADMIN, tag=Tag.REQUIRED),
    read("/policies/versions", "list_rulebook_versions", "All rulebooks there were."),
    read("/policies/versions/{version}", "get_rulebook_version", "One of them."),
    read("/policies/check", "check_policies", "What the rules say about a task, without storing it.", method="POST"),
)

ACCOUNTS: tuple[Route, ...] = (
    read("/users", "list_users", "Accounts of people and programs."),
    _secretive("POST /users", "create_user", "Make an account.", _ADMIN, tag=Tag.ANSWERED),
    read("/users/{account}", "get_user", "One account.", tag=Tag.ANSWERED),
    change("PATCH /users/{account}", "change_user", "Change name, roles, owner or whether it is active.", _ADMIN,
           tag=Tag.REQUIRED),
    change("PUT /users/{account}/password", "set_user_password", "Give a new password.", _ADMIN),
    change("DELETE /users/{account}/sessions", "end_user_sessions", "End all its sessions.", _ADMIN),
    _secretive("POST /users/{account}/login-link", "create_login_link", "Let a person sign in once.", _ADMIN),
    read("/tokens", "list_tokens", "Access tokens, without their secrets.", others=_ADMIN),
    _secretive("POST /tokens", "create_token", "Make an access token; its secret is shown this once.", _ADMIN),
    read("/tokens/{token_id}", "get_token", "One access token.", others=_ADMIN),
    change("DELETE /tokens/{token_id}", "revoke_token", "Revoke an access token.", _ADMIN),
    read("/me", "get_me", "Who one is, and what one may do.", None, door=Door.SELF),
    read("/sessions", "list_sessions", "Live login sessions.", others=_ADMIN),
    _self("POST /sessions", "sign_in", "Sign in with name and password.", Door.PUBLIC),
    _self("POST /sessions/login-link", "use_login_link", "Sign in with the one-time link.", Door.PUBLIC),
    _self("POST /sessions/current/confirm", "confirm_session", "Give the password once more."),
    _self("DELETE /sessions/current", "sign_out", "End this session."),
    _self("DELETE /sessions/{session_id}", "end_session", "End another session of one's own."),
    _self("DELETE /sessions", "sign_out_everywhere", "End all sessions of one's own."),
    _self("PUT /me/password", "change_own_password", "Change one's own password."),
    _self("POST /me/tokens", "create_own_token", "Make an access token of one's own; its secret is shown this once."),
    _self("DELETE /me/tokens/{token_id}", "revoke_own_token", "Revoke an access token of one's own."),
)  # fmt: skip
