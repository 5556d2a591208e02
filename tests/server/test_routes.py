"""One table says what there is and who may use it; these rules hold for every line of it."""

import re
from collections import Counter

import pytest

from ade.accounts.model import FOR_PEOPLE, Caller, LoginSession, NotAuthenticated, Permission, Role, User
from ade.errors import NotPermitted
from ade.server.addresses import SAFE_METHODS
from ade.server.operation import API, WIDE, AuthLevel, ETagUse, Route, RouteAccess, TrafficClass, access, check_access
from tests.domain import ROUTE_OF, ROUTES

# What everybody does about himself alone, so that no more than being known is needed.
ABOUT_ONESELF = {
    "sign_in", "use_login_link", "confirm_session", "sign_out", "sign_out_everywhere", "change_own_password",
    "end_session", "create_own_token", "revoke_own_token",
}  # fmt: skip
NONE_ANSWERED = {RouteAccess.DENIED, RouteAccess.UNKNOWN}


def named(route: Route) -> str:
    return route.operation


def test_no_two_routes_are_one() -> None:
    assert [name for name, count in Counter(map(named, ROUTES)).items() if count > 1] == []
    assert [line for line, count in Counter((r.method, r.shape) for r in ROUTES).items() if count > 1] == []
    assert len(ROUTE_OF) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_every_line_is_whole(route: Route) -> None:
    assert re.fullmatch(r"[a-z][a-z_]+", route.operation)
    assert re.fullmatch(r"(/[a-z0-9.-]+|/\{[a-z_]+\})+", route.path)
    assert route.method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    assert route.summary[0].isupper()
    assert route.summary.endswith(".")
    assert route.needs <= set(Permission)
    assert bool(route.needs) == (route.door is AuthLevel.PERMISSION)
    assert route.others is None or route.others in Permission
    assert route.traffic in TrafficClass
    assert len(set(route.parameters)) == len(route.parameters)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.mutates], ids=named)
def test_what_changes_something_takes_more_than_to_look(route: Route) -> None:
    assert route.method not in SAFE_METHODS
    assert route.path.startswith(API)
    if route.operation not in ABOUT_ONESELF:
        assert route.door is AuthLevel.PERMISSION
        assert access(route, Role.VIEWER) is RouteAccess.DENIED
        assert access(route, None) is RouteAccess.UNKNOWN


@pytest.mark.parametrize("route", [route for route in ROUTES if not route.mutates], ids=named)
def test_what_only_looks_takes_no_key_and_no_condition(route: Route) -> None:
    assert not route.takes_key
    assert route.tag in (ETagUse.NONE, ETagUse.ANSWERED)


def test_programs_never_vote_nor_administer() -> None:
    for route in ROUTES:
        if route.door is AuthLevel.PERMISSION and (route.needs <= FOR_PEOPLE or route.traffic is TrafficClass.VOTE):
            assert {access(route, role) for role in (Role.AGENT, Role.WORKER)} == {RouteAccess.DENIED}, route.operation
    votes = {route.operation for route in ROUTES if route.traffic is TrafficClass.VOTE}
    assert votes >= {"respond_to_approval", "respond_to_approvals", "delegate_approval", "amend_approval"}
    assert all(ROUTE_OF[vote].needs == {Permission.VOTE} for vote in votes)
    for operation in ("revoke_approval", "create_delegation", "break_glass", "dismiss_request"):
        assert access(ROUTE_OF[operation], Role.AGENT) is RouteAccess.DENIED


def test_an_admin_may_do_everything_and_nobody_nothing() -> None:
    for route in ROUTES:
        assert access(route, Role.ADMIN) in (RouteAccess.ALLOWED, RouteAccess.OWN)
        assert (access(route, Role.ADMIN) is RouteAccess.OWN) == (route.door in (AuthLevel.SELF, AuthLevel.SESSION))
        assert (access(route, None) is RouteAccess.ALLOWED) == (route.door is AuthLevel.PUBLIC)


def test_what_is_public_is_a_short_list() -> None:
    assert {route.operation for route in ROUTES if route.door is AuthLevel.PUBLIC} == {
        "sign_in", "use_login_link", "get_liveness", "get_readiness", "get_openapi", "get_problem",
        "get_login_page", "get_login_script",
    }  # fmt: skip


def test_answers_with_secrets_are_not_kept() -> None:
    for operation in (
        *("create_token", "create_own_token", "create_login_link", "create_webhook", "rotate_webhook_secret"),
        *("sign_in", "use_login_link", "change_own_password"),
    ):
        assert not ROUTE_OF[operation].takes_key


def test_of_requests_with_a_password_not_even_a_hash_is_kept() -> None:
    """It would be a quick one, which could be guessed at leisure."""
    for operation in (
        *("respond_to_approval", "respond_to_approvals", "break_glass", "create_user", "set_user_password"),
        *("sign_in", "confirm_session", "change_own_password"),
    ):
        assert not ROUTE_OF[operation].takes_key


@pytest.mark.parametrize(
    ("operation", "role", "expected"),
    [
        ("list_tasks", Role.VIEWER, RouteAccess.ALLOWED),
        ("cancel_task", Role.AGENT, RouteAccess.OWN),
        ("cancel_task", Role.OPERATOR, RouteAccess.ALLOWED),
        ("cancel_task", Role.REVIEWER, RouteAccess.DENIED),
        ("run_bulk_action", Role.AGENT, RouteAccess.DENIED),
        ("respond_to_approval", Role.REVIEWER, RouteAccess.ALLOWED),
        ("respond_to_approval", Role.OPERATOR, RouteAccess.DENIED),
        ("comment_on_approval", Role.AGENT, RouteAccess.ALLOWED),
        ("claim_tasks", Role.WORKER, RouteAccess.ALLOWED),
        ("claim_tasks", Role.AGENT, RouteAccess.DENIED),
        ("acquire_locks", Role.AGENT, RouteAccess.ALLOWED),
        ("force_release_lock", Role.AGENT, RouteAccess.DENIED),
        ("break_glass", Role.OPERATOR, RouteAccess.DENIED),
        ("list_tokens", Role.VIEWER, RouteAccess.OWN),
        ("create_user", Role.OPERATOR, RouteAccess.DENIED),
        ("get_me", Role.VIEWER, RouteAccess.OWN),
        ("get_metrics", None, RouteAccess.UNKNOWN),
    ],
)
def test_some_cells_of_the_matrix(operation: str, role: Role | None, expected: RouteAccess) -> None:
    assert access(ROUTE_OF[operation], role) is expected


def test_every_role_is_of_use_and_every_permission_opens_something() -> None:
    for role in Role:
        assert any(access(route, role) not in NONE_ANSWERED for route in ROUTES if route.door is AuthLevel.PERMISSION)
    opening = {permission for route in ROUTES for permission in route.needs}
    assert opening == set(Permission) - {Permission.READ_PAYLOADS}  # that takes masks away, on all routes


def test_who_may_not_is_told_what_is_missing() -> None:
    vote = ROUTE_OF["respond_to_approval"]
    bot = Caller(user=User(id="bot", roles=frozenset({Role.REVIEWER}), is_human=False))
    eve = Caller(user=User(id="eve", roles=frozenset({Role.REVIEWER})))

    with pytest.raises(NotAuthenticated):
        check_access(vote, None)
    with pytest.raises(NotPermitted, match="bot does not have the permission vote"):
        check_access(vote, bot)
    assert check_access(vote, eve) is RouteAccess.ALLOWED
    assert check_access(ROUTE_OF["get_me"], bot) is RouteAccess.OWN
    assert check_access(ROUTE_OF["get_liveness"], None) is RouteAccess.ALLOWED


def test_a_token_is_not_enough_to_take_an_account_over() -> None:
    session = LoginSession(id="s", account="eve", created_at=0, last_active_at=0, reauthenticated_at=0)
    eve = User(id="eve", roles=frozenset({Role.ADMIN}))

    for operation in ("change_own_password", "sign_out_everywhere"):
        with pytest.raises(NotPermitted, match="a token is not enough"):
            check_access(ROUTE_OF[operation], Caller(user=eve))
        assert check_access(ROUTE_OF[operation], Caller(user=eve, session=session)) is RouteAccess.OWN
        assert access(ROUTE_OF[operation], Role.AGENT) is RouteAccess.DENIED


def test_no_route_hides_one_that_comes_after_it() -> None:
    for at, early in enumerate(ROUTES):
        parts = re.split(r"\{(\w+)\}", early.path)
        wide = [
            ("(.+)" if part in WIDE else "([^/]+)") if odd % 2 else re.escape(part) for odd, part in enumerate(parts)
        ]
        for late in ROUTES[at + 1 :]:
            if late.method == early.method:
                assert not re.fullmatch("".join(wide), late.path), f"{early.operation} hides {late.operation}"


# What the interface must offer, by the words of its design.
OFFERED = {
    "tasks": {"create_task", "create_tasks", "list_tasks", "get_task", "edit_task", "submit_task", "cancel_task",
              "reschedule_task", "retry_task", "apply_task", "run_bulk_action", "preview_bulk_action",
              "get_task_output", "list_task_events", "explain_task"},
    "approvals": {"list_approvals", "get_approval", "respond_to_approval", "delegate_approval",
                  "respond_to_approvals", "get_approval_stats"},
    "locks": {"acquire_locks", "renew_locks", "release_locks", "get_lock_position", "list_locks", "get_lock_graph",
              "force_release_lock"},
    "agents": {"register_agent", "heartbeat_agent", "set_agent_capacity", "drain_agent", "list_workers"},
    "queues": {"pause_queue", "resume_queue", "limit_queue", "list_queues", "put_schedule", "list_schedules"},
    "rest": {"list_dead_letters", "list_inboxes", "list_webhooks", "list_deliveries", "replay_delivery",
             "list_settings", "list_features", "list_users", "list_tokens", "list_sessions", "list_delegations",
             "get_rulebook", "get_stats", "get_stats_series", "list_audit_entries", "list_events"},
    "work": {"claim_tasks", "renew_runs", "complete_run", "fail_run", "hold_run"},
    "outside": {"get_liveness", "get_readiness", "get_metrics"},
}  # fmt: skip


@pytest.mark.parametrize("about", OFFERED)
def test_everything_promised_is_there(about: str) -> None:
    assert OFFERED[about] - set(ROUTE_OF) == set()
