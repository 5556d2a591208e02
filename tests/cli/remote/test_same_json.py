"""`ade ... --json` prints what the HTTP interface returns for the same object, on a store and through a server."""

from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from ade import read, write
from tests.cli.conftest import work
from tests.cli.remote.conftest import Shop
from tests.cli.remote.test_approvals import BOOK
from tests.cli.test_locks import take
from tests.cli.test_webhooks import URL, sent
from tests.domain import DeliveryResponse as Reply
from tests.domain import Role

_MOVING = ("at", "throughput", "progress_at", "last_used_at")
_MOST_LOOKS = 5

# One command for every kind of record, and the address of the same object.
RECORDS = [
    ("tasks", "tasks"),
    ("tasks --status failed --oldest-first", "tasks?status=failed&order=oldest"),
    ("tasks --limit 1 --queue slow", "tasks?limit=1&queue=slow"),
    ("explain {waits}", "tasks/{waits}/explain"),
    ("queues", "queues"),
    ("schedules", "schedules"),
    ("workers", "workers"),
    ("locks", "locks"),
    ("locks graph", "locks/graph"),
    ("agents", "agents"),
    ("agents show coder", "agents/coder"),
    ("subagents", "subagents"),
    ("subagents {agent_run}", "subagents/{agent_run}"),
    ("dlq", "dlq/groups"),
    ("approvals list --all", "approvals?mine=false"),
    ("approvals show {reviewed}", "approvals/{reviewed}"),
    ("approvals stats rita", "approvals/stats/rita"),
    ("delegations", "delegations"),
    ("policies", "policies"),
    ("policies history", "policies/versions"),
    ("users", "users"),
    ("tokens", "tokens"),
    ("webhooks", "webhooks"),
    ("webhooks show {webhook}", "webhooks/{webhook}"),
    ("webhooks deliveries {webhook}", "webhooks/{webhook}/deliveries"),
    ("webhooks delivery {webhook} {delivery}", "webhooks/{webhook}/deliveries/{delivery}"),
    ("inbox", "inboxes"),
    ("inbox show conv-1", "inboxes/conv-1"),
    ("features", "features"),
    ("config get risk.high", "config/risk.high"),
    ("stats", "stats"),
]
LINES = [  # one document per line: the items of a list
    ("events tail --after 0", "events?after=0&limit=500"),
    ("logs {packed}", "tasks/{packed}/output"),
]


def got(shop: Shop, address: str, method: str = "GET") -> Any:
    """The body of a response, as any HTTP client has it."""
    connection = HTTPConnection(urlsplit(shop.url).netloc, timeout=60)
    connection.request(method, f"/api/v1/{address}", headers={"Authorization": f"Bearer {shop.token(Role.ADMIN)}"})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.status == 200, body
    return msgspec.json.decode(body)


def still(value: Any) -> Any:
    """A document in which all that moves on from one look to the next is only known to be there."""
    if isinstance(value, dict):
        return {
            name: "moves" if name in _MOVING or name.endswith("_ms") else still(each) for name, each in value.items()
        }
    return [still(each) for each in value] if isinstance(value, list) else value


@pytest.fixture
def full(served: Shop, monkeypatch: pytest.MonkeyPatch) -> tuple[Shop, dict[str, str]]:
    """A shop with at least one object of every kind, and the IDs of some."""
    monkeypatch.setenv("ADE_USER", "otto")
    ade, ids = served.local, {}
    ade("policies", "apply", "-", stdin=BOOK)
    served.person("otto", "operator")
    for name in ("rita", "rob"):
        served.person(name, "reviewer")
    ids["packed"] = ade("enqueue", "pack", "item=lamp", "--tag", "gift", "--key", "k1").out.strip()
    ade("enqueue", "send", "address=nowhere")
    ade("enqueue", "wobble")
    work()
    ids["waits"] = ade(
        "enqueue", "pack", "item=sofa", "--delay", "1h", "--deadline", "2h", "--lock", "shelf:1"
    ).out.strip()
    ids["reviewed"] = ade("enqueue", "pack", "item=cup", "--approval", "one", "--resource", "db:main").out.strip()
    ids["agent_run"] = ade("enqueue", "agent:coder", "--args", '{"prompt": "write"}', "--allow-unknown").out.strip()
    take("a", write("repo:app"))
    take("b", read("repo:app"))
    ade("agents", "register", "coder", "--max-tasks", "3", "--type", "writer", "--capability", "gpu")
    ade("delegations", "create", "--from", "rita", "--to", "rob", "--ends", "1d", "--name", "deploy*", "--as", "rita")
    ade("inbox", "send", "conv-1", "hello", "--conversation-id", "c9")
    ade("features", "enable", "auto_approve_low_risk")
    ade("config", "set", "risk.high", "60")
    ids["webhook"] = ade("webhooks", "create", URL, "--event", "webhook.tested", "--json").json["id"]
    ade("webhooks", "test", ids["webhook"])
    ids["delivery"] = sent(Reply(status=503, excerpt=b"busy", duration_ms=12), Reply(status=204))
    got(served, "me")  # the token is used, and says so from now on
    return served, ids


def test_every_record_is_the_same_as_over_http(full: tuple[Shop, dict[str, str]]) -> None:
    shop, ids = full
    for command, address in RECORDS:
        words = [*command.format(**ids).split(), "--json"]
        for way in (shop.local, shop.remote):
            for _ in range(_MOST_LOOKS):  # a worker may be lost in between
                expected, answer = still(got(shop, address.format(**ids))), way(*words)
                if answer.code == 0 and still(answer.json) == expected:
                    break
            assert (answer.code, answer.err) == (0, ""), (command, answer)
            assert still(answer.json) == expected, command
            assert expected.get("items") != [], f"{command} shows nothing that could differ"


def test_lines_are_the_items_of_a_list(full: tuple[Shop, dict[str, str]]) -> None:
    shop, ids = full
    for command, address in LINES:
        items = got(shop, address.format(**ids))["items"]
        for way in (shop.local, shop.remote):
            assert way(*command.format(**ids).split(), "--json").json_lines == items != [], command


def test_a_task_is_shown_with_the_documents_that_belong_to_it(full: tuple[Shop, dict[str, str]]) -> None:
    shop, ids = full
    for task in ("packed", "waits", "reviewed"):
        record = got(shop, f"tasks/{ids[task]}")
        for way in (shop.local, shop.remote):
            shown = way("show", ids[task], "--json").json
            assert {name: shown[name] for name in record} == record
            assert shown["events"] == got(shop, f"tasks/{ids[task]}/events")["items"]
            if task == "reviewed":
                assert shown["approval"] == got(shop, f"approvals/{ids[task]}")
            more = shown.keys() - record.keys()
            assert more == {"attempts", "events"} | ({"approval"} if task == "reviewed" else set())
        assert shop.local("wait", ids["packed"], "--json").json == got(shop, f"tasks/{ids['packed']}")


def test_a_change_prints_the_record_as_its_response_has_it(full: tuple[Shop, dict[str, str]]) -> None:
    shop, ids = full
    for command, address in (
        ("queues pause default", "queues/default/pause"),
        ("agents drain coder", "agents/coder/drain"),
        ("webhooks test {webhook}", "webhooks/{webhook}/test"),
    ):
        words = [*command.format(**ids).split(), "--json"]
        response = got(shop, address.format(**ids), "POST")
        assert shop.local(*words).json == shop.remote(*words).json == response, command
    made = shop.remote("enqueue", "pack", "item=vase", "--delay", "1h", "--json").json
    assert made == got(shop, f"tasks/{made['id']}")
    me = got(shop, "me")
    assert still(shop.remote("whoami", "--json").json) == still({"account": me["user"]["id"], **me})
