"""What a client asks for is what the server reads, whatever is in it."""

from datetime import UTC, datetime
from urllib.parse import parse_qsl

from hypothesis import given
from hypothesis import strategies as st

from ade import Status
from ade.client.http_transport import query_pairs, target_of
from ade.server.router import Router
from ade.tasks.api.requests import GetTask, ListTasks
from tests.domain import ROUTE_OF

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=50)


@given(NAMES)
def test_a_value_is_one_part_of_the_path(value: str) -> None:
    router = Router((route, route.operation) for route in ROUTE_OF.values())
    for operation in ("cancel_task", "get_inbox", "set_agent_capacity", "limit_queue"):
        route = ROUTE_OF[operation]
        found = router.find(route.method, target_of(route, [value]))
        assert (found.endpoint, found.values) == (operation, (value,))


def test_a_form_becomes_parameters() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    query = ListTasks(status=[Status.FAILED, Status.RUNNING], text="a&b=c", created_from=moment, discarded=False)
    assert query_pairs(query) == [
        ("status", "failed"),
        ("status", "running"),
        ("text", "a&b=c"),
        ("created_from", "2026-01-31T12:00:00.000Z"),
        ("discarded", "false"),
        ("order", "newest"),
        ("limit", "50"),
        ("count", "false"),
    ]
    target = target_of(ROUTE_OF["list_tasks"], (), query)
    assert parse_qsl(target.partition("?")[2], strict_parsing=True) == query_pairs(query)


def test_what_is_not_said_is_not_sent() -> None:
    assert target_of(ROUTE_OF["get_task"], ["t"], GetTask()).partition("?")[0] == "/api/v1/tasks/t"
