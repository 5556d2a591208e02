"""Attack: an admin, or a thief of an admin's token, takes over another account and votes in its name."""

from typing import Any

import pytest

from tests.attacks.site import PASSWORD, Site
from tests.domain import InvalidToken, Permission, User, add_user, create_token, use_token
from tests.server.conftest import Answer

GUARD = [{"do": "demand", "name": "pay", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]
CHOSEN = "a password that ada chose"
SECRET = "a password that only she has"


class Browser:
    """A person at the site with a login session."""

    def __init__(self, site: Site, cookie: str) -> None:
        self.site, self.cookie = site, cookie

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        sent = {"cookie": self.cookie, "origin": self.site.server.url, **headers}
        answer = await self.site.server.ask(method, f"/api/v1{path}", body, by=None, headers=sent)
        if "set-cookie" in answer.headers:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return answer

    async def vote(self, task_id: str, **more: object) -> Answer:
        gate = (await self.ask("GET", f"/approvals/{task_id}")).json()["review"]["gates"][-1]
        body = {"decision": "approve", "digest": gate["digest"], "approval": gate["id"], **more}
        return await self.ask("POST", f"/approvals/{task_id}/respond", body)


async def signed_in(site: Site, name: str, password: str = PASSWORD) -> Browser:
    return await _opened(site, "/sessions", {"name": name, "password": password})


async def through_link(site: Site, secret: str) -> Browser:
    return await _opened(site, "/sessions/login-link", {"secret": secret})


async def _opened(site: Site, path: str, body: object) -> Browser:
    answer = await site.server.ask("POST", f"/api/v1{path}", body, by=None)
    assert answer.status == 200, answer
    return Browser(site, answer.headers["set-cookie"].partition(";")[0])


async def payment(site: Site) -> str:
    """A payment that waits for a reviewer."""
    await site.rules(guard=GUARD, policy=POLICY)
    return str((await site.enqueue("pay", args={"to": "mallory"}))["id"])


async def happened(site: Site, *kinds: str) -> list[tuple[str, str | None, Any]]:
    """The events of these types: type, actor, and the account that they are about."""
    events = await site.stores.events.read(0, 10_000)
    return [(event.type, event.actor, event.payload.get("account")) for event in events if event.type in kinds]


WAYS = {
    "the password of a reviewer": ("PUT", "/users/rita/password", {"password": CHOSEN}),
    "no password for a reviewer": ("PUT", "/users/rita/password", {"remove": True}),
    "the admin's own password": ("PUT", "/users/ada/password", {"password": CHOSEN}),
    "a link to sign in as a reviewer": ("POST", "/users/rita/login-link", None),
    "a role for oneself": ("PATCH", "/users/mallory", {"more_roles": ["admin"]}),
    "fewer roles for a reviewer": ("PATCH", "/users/rob", {"fewer_roles": ["reviewer"]}),
    "a second person for one human": ("PATCH", "/users/rita", {"person": "bob"}),
    "another owner of a program": ("PATCH", "/users/bot", {"owner": "olga"}),
    "a new reviewer": ("POST", "/users", {"id": "eve", "roles": ["reviewer"], "password": CHOSEN}),
    "a token of a reviewer": ("POST", "/tokens", {"account": "rita"}),
    "a token of a program": ("POST", "/tokens", {"account": "bot", "scopes": ["read"]}),
    "a longer-lived token": ("POST", "/tokens", {"account": "ada", "seconds": 30_000_000}),
    "a delegation of a reviewer": ("POST", "/delegations", {"delegator": "rita", "delegate": "rosa", "ends": 3600}),
}


async def test_a_stolen_token_of_an_admin_becomes_nothing_more(site: Site) -> None:
    before = len(await site.stores.events.read(0, 10_000))
    for what, (method, path, body) in WAYS.items():
        headers = {"if-match": "*"} if method == "PATCH" else {}
        refused = await site.server.ask(method, f"/api/v1{path}", body, by="ada", headers=headers)
        assert (refused.status, refused.code) == (403, "reauthentication_needed"), what
        assert "an access token is not enough" in refused.json()["detail"], what
    own = await site.ask("ada", "POST", "/me/tokens", {})
    assert (own.status, own.code) == (403, "not_permitted")
    after = await site.stores.events.read(0, 10_000)
    assert [event.type for event in after[before:]] == []


async def test_a_session_without_a_fresh_password_is_no_better(site: Site) -> None:
    """As from a link, which proves only that the person has the link."""
    ada = await signed_in(site, "ada")
    link = (await ada.ask("POST", "/users/ada/login-link")).json()["secret"]
    linked = await through_link(site, link)
    for what, (method, path, body) in WAYS.items():
        refused = await linked.ask(method, path, body, **({"if-match": "*"} if method == "PATCH" else {}))
        assert (refused.status, refused.code) == (403, "reauthentication_needed"), what
    own = await linked.ask("POST", "/me/tokens", {})
    assert (own.status, own.code) == (403, "reauthentication_needed")
    assert (await linked.ask("POST", "/sessions/current/confirm", {"password": PASSWORD})).status == 200
    assert (await linked.ask("POST", "/me/tokens", {})).status == 201


async def test_an_admin_sets_the_password_of_a_reviewer_and_votes_as_her(site: Site) -> None:
    task = await payment(site)
    ada = await signed_in(site, "ada")
    changed = await ada.ask("PUT", "/users/rita/password", {"password": CHOSEN})
    assert (changed.status, changed.json()["must_change_password"]) == (200, True)
    assert await happened(site, "user.password_set_by_other") == [("user.password_set_by_other", "ada", "rita")]

    as_rita = await signed_in(site, "rita", CHOSEN)
    for body in ({}, {"password": CHOSEN}):
        refused = await as_rita.vote(task, **body)
        assert (refused.status, refused.code) == (403, "password_change_needed")
        assert "ada has set the password of rita" in refused.json()["detail"]
    token = await site.vote("rita", task, password=None)  # her own token was made before, and cannot vote either
    assert (token.status, token.code) == (403, "password_change_needed")
    ways: list[tuple[str, dict[str, object]]] = [
        ("/me/tokens", {}),
        ("/delegations", {"delegate": "rosa", "ends": 3600}),
        (f"/approvals/{task}/delegate", {"to": "rosa"}),
    ]
    for path, way in ways:
        refused = await as_rita.ask("POST", path, way)
        assert (refused.status, refused.code) == (403, "password_change_needed"), path
    same = await as_rita.ask("PUT", "/me/password", {"old": CHOSEN, "new": CHOSEN})
    assert (same.status, same.code) == (422, "weak_password")
    assert await site.status(task) == "reviewing"


async def test_whoever_changes_a_password_that_was_set_votes_and_the_log_and_the_vote_show_it(site: Site) -> None:
    """ADE cannot tell whether rita changed it, or ada once more. So rita is notified, and the vote says so."""
    task = await payment(site)
    ada = await signed_in(site, "ada")
    await ada.ask("PUT", "/users/rita/password", {"password": CHOSEN})
    rita = await signed_in(site, "rita", CHOSEN)
    changed = await rita.ask("PUT", "/me/password", {"old": CHOSEN, "new": SECRET})
    assert (changed.status, changed.json()["must_change_password"]) == (200, False)
    assert (await rita.vote(task, password=SECRET)).status == 200
    [vote] = (await rita.ask("GET", f"/approvals/{task}")).json()["review"]["gates"][-1]["votes"]
    assert (vote["voter"], vote["password_set_by"]) == ("rita", "ada")
    [approved] = [e for e in await site.stores.events.read(0, 10_000) if e.type == "approval.approved"]
    assert approved.payload["vote"]["password_set_by"] == "ada"  # type: ignore[index]
    assert await happened(site, "user.password_set_by_other", "user.password_changed") == [
        ("user.password_set_by_other", "ada", "rita"),
        ("user.password_changed", "rita", "rita"),
    ]


async def test_an_admin_makes_a_link_for_a_reviewer_and_votes_as_her(site: Site) -> None:
    task = await payment(site)
    ada = await signed_in(site, "ada")
    link = (await ada.ask("POST", "/users/rita/login-link")).json()["secret"]
    as_rita = await through_link(site, link)
    refused = await as_rita.vote(task)
    assert (refused.status, refused.code) == (403, "reauthentication_needed")
    assert "ada created the login link" in refused.json()["detail"]
    assert (await as_rita.ask("POST", "/sessions/current/confirm", {"password": CHOSEN})).status == 401
    assert (await happened(site, "login_link.created"))[-1] == ("login_link.created", "ada", "rita")
    assert (await as_rita.ask("POST", "/sessions/current/confirm", {"password": PASSWORD})).status == 200
    assert (await as_rita.vote(task)).status == 200


async def test_an_admin_takes_the_password_away_and_sets_one_through_a_link(site: Site) -> None:
    task = await payment(site)
    ada = await signed_in(site, "ada")
    assert (await ada.ask("PUT", "/users/rita/password", {"remove": True})).status == 200
    link = (await ada.ask("POST", "/users/rita/login-link")).json()["secret"]
    as_rita = await through_link(site, link)
    refused = await as_rita.vote(task)
    assert (refused.status, refused.code) == (403, "reauthentication_needed")
    assert (await as_rita.ask("PUT", "/me/password", {"new": CHOSEN})).json()["must_change_password"] is True
    refused = await as_rita.vote(task, password=CHOSEN)
    assert (refused.status, refused.code) == (403, "password_change_needed")
    assert [kind for kind, *_ in await happened(site, "user.password_set_by_other")] == [
        "user.password_set_by_other",  # removed
        "user.password_set_by_other",  # and set through the link
    ]


async def test_a_new_reviewer_whose_password_an_admin_chose_cannot_vote(site: Site) -> None:
    task = await payment(site)
    ada = await signed_in(site, "ada")
    eve = {"id": "eve", "roles": ["reviewer", "admin"], "password": CHOSEN}
    assert (await ada.ask("POST", "/users", eve)).status == 201
    as_eve = await signed_in(site, "eve", CHOSEN)
    refused = await as_eve.vote(task)
    assert (refused.status, refused.code) == (403, "password_change_needed")
    glass = await as_eve.ask("POST", f"/approvals/{task}/break-glass", {"reason": "now", "password": CHOSEN})
    assert (glass.status, glass.code) == (403, "password_change_needed")
    friend = await as_eve.ask("POST", "/users", {"id": "friend", "roles": ["reviewer"]})
    assert (friend.status, friend.code) == (403, "password_change_needed")


async def test_a_role_that_an_admin_gives_or_takes_is_told_to_the_person(site: Site) -> None:
    ada = await signed_in(site, "ada")
    assert (await ada.ask("PATCH", "/users/olga", {"more_roles": ["reviewer"]}, **{"if-match": "*"})).status == 200
    assert await happened(site, "user.roles_changed") == [("user.roles_changed", "ada", "olga")]


async def test_no_program_becomes_a_reviewer(site: Site) -> None:
    ada = await signed_in(site, "ada")
    for roles in (["reviewer"], ["admin"]):
        refused = await ada.ask("PATCH", "/users/bot", {"more_roles": roles}, **{"if-match": "*"})
        assert (refused.status, refused.code) == (422, "invalid_account")


async def _bot_token(site: Site, by: Browser) -> tuple[str, str]:
    """A token of the program, made by an admin; and its ID."""
    made = await by.ask("POST", "/tokens", {"account": "bot"})
    assert made.status == 201, made
    site.server.tokens["bots"] = made.json()["secret"]
    return "bots", made.json()["id"]


async def test_a_token_does_what_its_creator_may_do_now(site: Site) -> None:
    await add_user(site.stores, User(id="adam", roles=frozenset({"admin"})), password=PASSWORD)
    ada, adam = await signed_in(site, "ada"), await signed_in(site, "adam")
    bot, _ = await _bot_token(site, adam)
    await site.enqueue("deploy", by=bot, args={"service": "web"})
    change = {"roles": ["viewer"]}
    assert (await ada.ask("PATCH", "/users/adam", change, **{"if-match": "*"})).status == 200
    refused = await site.ask(bot, "POST", "/tasks", {"name": "deploy", "args": {"service": "web"}})
    assert (refused.status, refused.code) == (403, "not_permitted")
    assert (await site.ask(bot, "GET", "/tasks")).status == 200


async def test_a_token_ends_with_its_creator_for_good(site: Site) -> None:
    await add_user(site.stores, User(id="adam", roles=frozenset({"admin"})), password=PASSWORD)
    ada, adam = await signed_in(site, "ada"), await signed_in(site, "adam")
    bot, token_id = await _bot_token(site, adam)
    for is_active in (False, True):
        change = await ada.ask("PATCH", "/users/adam", {"is_active": is_active}, **{"if-match": "*"})
        assert change.status == 200
        assert (await site.ask(bot, "GET", "/tasks")).status == 401
    assert (await ada.ask("GET", f"/tokens/{token_id}")).json()["revoked_at"] is not None


async def test_a_role_that_comes_later_is_not_in_a_token(site: Site) -> None:
    bot, _ = await _bot_token(site, ada := await signed_in(site, "ada"))
    assert (await ada.ask("PATCH", "/users/bot", {"more_roles": ["worker"]}, **{"if-match": "*"})).status == 200
    me = (await site.ask(bot, "GET", "/me")).json()
    assert ("work" in me["user"]["permissions"], "work" in me["permissions"]) == (True, False)


async def test_successors_of_a_token_end_with_it(site: Site) -> None:
    """Over HTTP no token creates another. The same rule applies to a program on the store itself that does."""
    bot, token_id = await _bot_token(site, ada := await signed_in(site, "ada"))
    names = [bot]
    for number in range(3):
        caller = await use_token(site.stores, site.server.tokens[names[-1]])
        secret, _ = await create_token(site.stores, "bot", creator=caller, lasts_ms=60_000 // (number + 1))
        names.append(f"successor {number}")
        site.server.tokens[names[-1]] = secret
        assert (await site.ask(names[-1], "GET", "/tasks")).status == 200
    assert (await ada.ask("DELETE", f"/tokens/{token_id}")).status == 200
    assert [(await site.ask(name, "GET", "/tasks")).status for name in names] == [401] * 4
    assert len(await happened(site, "token.revoked")) == 4


@pytest.mark.parametrize("lasts_ms", [3_600_001, 90 * 86_400_000])
async def test_no_token_creates_one_that_lives_longer(site: Site, lasts_ms: int) -> None:
    caller = await use_token(site.stores, site.server.tokens["bot"])
    with pytest.raises(InvalidToken, match="cannot outlive"):
        await create_token(site.stores, "bot", creator=caller, lasts_ms=lasts_ms)
    secret, _ = await create_token(site.stores, "ada", scopes=frozenset({Permission.READ}))
    narrow = await use_token(site.stores, secret)
    with pytest.raises(InvalidToken, match="does not have the permission"):
        await create_token(site.stores, "bot", creator=narrow, lasts_ms=1_000)


async def test_what_a_stolen_token_of_an_admin_can_still_do(site: Site) -> None:
    """It can deny and disturb, and change the rules; every step is in the log under the admin's name."""
    task = await payment(site)
    if_match = {"if-match": "*"}
    off = await site.server.ask("PATCH", "/api/v1/users/rosa", {"is_active": False}, by="ada", headers=if_match)
    assert off.status == 200
    assert (await site.ask("ada", "DELETE", "/users/rita/sessions")).status == 200
    glass = await site.ask("ada", "POST", f"/approvals/{task}/break-glass", {"reason": "now"})
    assert (glass.status, glass.code) == (403, "reauthentication_needed")
    rules = await site.server.ask("PUT", "/api/v1/policies", {"rules": {}}, by="ada", headers=if_match)
    assert rules.status == 200, rules
    assert [actor for _, actor, _ in await happened(site, "rulebook.changed")][-1] == "ada"
    assert await site.status(task) == "reviewing"
