"""Worker accounts that are bound to queues and tasks claim nothing else over HTTP."""

from typing import Any

from tests.domain import Role, UserChanges, change_user
from tests.server.conftest import Answer, ServerHarness
from tests.server.test_read_access import API, bound

MAIL = [{"name": "mail"}, {"name": "greet"}]


async def register(server: ServerHarness, **body: object) -> Answer:
    return await server.ask("PUT", f"{API}/workers/w1", {"definitions": MAIL, **body}, by="mailer")


async def claimed(server: ServerHarness, **body: object) -> list[str]:
    answer = await server.ask("POST", f"{API}/runs/claim", {"worker": "w1", "count": 10, **body}, by="mailer")
    assert answer.status == 200, answer
    return [grant["task"]["id"] for grant in answer.json()["runs"]]


async def stored(server: ServerHarness, name: str, queue: str) -> str:
    made: dict[str, Any] = await server.task(name=name, queue=queue, allow_unknown=True)
    return str(made["id"])


async def test_a_worker_claims_only_what_its_account_is_bound_to(server: ServerHarness) -> None:
    server.tokens["mailer"] = await bound(server.stores, "mailer", queues=("post",), names=("mail",))
    meant = await stored(server, "mail", "post")
    for name, queue in (("mail", "default"), ("greet", "post")):
        await stored(server, name, queue)
    registered = await register(server)
    assert registered.status in (200, 201), registered
    worker = registered.json()["worker"]
    assert (worker["queues"], worker["names"]) == (["post"], ["mail"])
    assert await claimed(server, names=["mail", "greet"], queues=[]) == [meant]
    assert await claimed(server) == []

    for asked in ({"names": ["greet"]}, {"queues": ["default"]}):
        answer = await server.ask("POST", f"{API}/runs/claim", {"worker": "w1", "count": 1, **asked}, by="mailer")
        assert (answer.status, answer.code) == (403, "not_permitted"), answer
        assert "mailer is bound to the" in answer.json()["detail"]
    refused = await register(server, definitions=[{"name": "greet"}])
    assert (refused.status, refused.code) == (403, "not_permitted")
    assert (await register(server, queues=["default"])).code == "not_permitted"


async def test_a_binding_counts_from_the_next_claim_on(server: ServerHarness) -> None:
    server.tokens["mailer"] = await bound(server.stores, "mailer")
    await register(server)
    await change_user(server.stores, "mailer", UserChanges(queues=("post",), names=("mail",)))
    await stored(server, "greet", "default")
    meant = await stored(server, "mail", "post")
    assert await claimed(server) == [meant]
    await change_user(server.stores, "mailer", UserChanges(queues=(), names=()))
    assert len(await claimed(server)) == 1


async def test_admins_set_bindings_over_http(server: ServerHarness) -> None:
    await server.person("root", Role.ADMIN, password="correct horse battery staple")
    session = await server.signed_in("root")
    new = {"id": "mailer", "is_human": False, "owner": "root", "roles": ["worker"], "queues": ["post", "post", "a"]}
    made = await server.ask("POST", f"{API}/users", new, by=None, headers=session)
    assert made.status == 201, made
    assert (made.json()["reads"], made.json()["queues"], made.json().get("names", [])) == ("own", ["a", "post"], [])
    place, change = f"{API}/users/mailer", {"names": ["mail"], "queues": [], "reads": "all"}
    changed = await server.ask("PATCH", place, change, by=None, headers={**session, "if-match": "*"})
    assert changed.status == 200, changed
    assert (changed.json()["reads"], changed.json().get("queues", []), changed.json()["names"]) == ("all", [], ["mail"])
    by_token = await server.ask("PATCH", place, {"names": []}, by=Role.ADMIN, if_match="*")
    assert (by_token.status, by_token.code) == (403, "reauthentication_needed")  # a stolen token widens nothing
    wrong = await server.ask(
        "PATCH", place, {"queues": [b"a\\nb".decode("unicode_escape")]}, by=None, headers={**session, "if-match": "*"}
    )
    assert (wrong.status, wrong.code) == (422, "invalid_account")
