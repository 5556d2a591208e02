"""Accounts, tokens, delegations and the rulebook over a server: the same as beside the store."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from ade.accounts.sessions import SignInConditions, check_password, list_sessions, use_link
from tests.cli.conftest import Answer, with_stores
from tests.cli.remote.conftest import Shop
from tests.domain import NotAuthenticated, Stores, set_password, use_token

PASSWORD, OWN = "correct horse battery staple", "the admin's very own"
BOOK = """
[criticality]
"db:*" = 80

[risk]
unknown_resources = "low"  # these stories are about people: a task that names nothing is harmless here

[[guard]]
name = "send"
do = "demand"
policy = "pairs"
reason = "letters cannot be taken back"

[[policy]]
id = "pairs"
rules = [{ needed = 2, roles = ["reviewer"], name = "two reviewers" }]
authors_may_vote = true
"""


def code_of(answer: Answer) -> tuple[int, str]:
    return answer.code, answer.error["code"]


def account_of(secret: str) -> Callable[[Stores], Awaitable[str]]:
    async def used(stores: Stores) -> str:
        return (await use_token(stores, secret)).user.id

    return used


def signed_in(served: Shop, *arguments: str, by: str = "admin", stdin: str = "") -> Answer:
    """A command of the admin, or of another person with that password, who gives the own password."""
    if by not in served.tokens:
        served.token(by)
        with_stores(lambda stores: set_password(stores, f"the-{by}", OWN))
    return served.remote(*arguments, "--own-password-stdin", by=by, stdin=f"{OWN}\n{stdin}")


def test_accounts_are_made_changed_and_switched_off(served: Shop) -> None:
    added = signed_in(served, "users", "add", "Bob", "--role", "reviewer", "--password-stdin", stdin=f"{PASSWORD}\n")
    assert (added.code, added.out, added.err) == (0, "bob: active, reviewer\n", "")
    with_stores(lambda stores: check_password(stores, "bob", PASSWORD))
    changed = signed_in(served, "users", "change", "BOB", "--add-role", "dba", "--name", "Bob B.", "--json").json
    assert (changed["roles"], changed["display_name"]) == (["dba", "reviewer"], "Bob B.")
    assert signed_in(served, "users", "password", "bob", "--no-password", "--json").json["has_password"] is False
    assert served.remote("users", "sign-out", "bob").out == "bob: 0 sessions ended\n"
    assert signed_in(served, "users", "add", "bot", "--agent", "--owner", "bob", "--role", "agent").code == 0
    assert served.remote("users", "deactivate", "bot").out == "bot: deactivated, agent; reads its own tasks\n"
    assert signed_in(served, "users", "activate", "bot").out == "bot: active, agent; reads its own tasks\n"
    assert with_stores(list_sessions) == [], "every command has signed out"

    served.same("users")
    served.same("users", "list", "--json")
    told = served.local("events", "tail", "--after", "0", "--json").json_lines
    assert {event["actor"] for event in told if event["payload"].get("account") == "bob"} == {"the-admin"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("users", "add", "the-admin", "--no-password"), "account_exists"),
        (("users", "add", "two words", "--no-password"), "invalid_account"),
        (("users", "change", "nobody", "--name", "x"), "unknown_account"),
        (("users", "login-link", "nobody"), "unknown_account"),
        (("tokens", "create", "nobody"), "unknown_account"),
        (("tokens", "revoke", "nonsense"), "unknown_token"),
        (("delegations", "revoke", "nonsense"), "unknown_delegation"),
        (("delegations", "create", "--to", "the-admin", "--ends", "91d", "--from", "the-admin"), "invalid_delegation"),
        (("policies", "apply", "-", "--seen", "7"), "stale_write"),
    ],
)
def test_what_cannot_be_is_refused_alike(
    served: Shop, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], error: str
) -> None:
    monkeypatch.setenv("ADE_USER", "the-admin")
    remote_call = signed_in if arguments[1] in ("add", "change", "login-link", "create") else Shop.remote
    served.token("admin")
    with_stores(lambda stores: set_password(stores, "the-admin", OWN))
    local, remote = served.local(*arguments, "--json"), remote_call(served, *arguments, "--json")

    assert remote.error["code"] == error
    assert (remote.code, remote.error["code"]) == code_of(local)


def test_whoever_may_not_is_told_so(served: Shop) -> None:
    assert code_of(served.remote("users", "add", "eve", "--no-password", "--json", by="reviewer")) == (
        7,
        "not_permitted",
    )
    assert code_of(served.remote("tokens", "create", "the-reviewer", "--json", by="reviewer")) == (7, "not_permitted")
    assert [token["account"] for token in served.remote("tokens", "--json", by="reviewer").json["items"]] == [
        "the-reviewer"
    ]


def test_nobody_acts_as_somebody_else_at_a_server(served: Shop) -> None:
    answer = served.remote("users", "add", "eve", "--no-password", "--as", "ada", "--json")

    assert code_of(answer) == (2, "needs_store")
    assert "the token decides who you are" in answer.error["message"]


def test_a_password_is_as_good_as_beside_the_store(served: Shop) -> None:
    add = ("users", "add", "dan", "--password-stdin", "--json")

    assert code_of(signed_in(served, *add, stdin="short\n")) == (2, "weak_password")
    assert "--password-stdin" in served.remote("users", "add", "dan").err


def test_ones_own_password_takes_the_old_one_and_is_then_no_longer_that_of_the_admin(served: Shop) -> None:
    served.person("rita", "reviewer")
    signed_in(served, "users", "password", "rita", "--password-stdin", stdin="chosen by the admin\n")
    assert served.remote("whoami", "--json", by="rita").json["user"]["must_change_password"] is True
    change = ("users", "password", "RITA", "--password-stdin", "--own-password-stdin")
    wrong = served.remote(*change, "--json", by="rita", stdin=f"not this one\n{PASSWORD}\n")
    assert code_of(wrong) == (7, "not_authenticated")
    unasked = served.remote("users", "password", "rita", "--password-stdin", "--json", by="rita", stdin=PASSWORD)
    assert code_of(unasked) == (7, "reauthentication_needed")
    right = served.remote(*change, by="rita", stdin=f"chosen by the admin\n{PASSWORD}\n")
    assert (right.code, right.out) == (0, "rita: active, reviewer\n")
    assert served.remote("whoami", "--json", by="rita").json["user"]["must_change_password"] is False
    with_stores(lambda stores: check_password(stores, "rita", PASSWORD))
    gone = signed_in(served, "users", "password", "the-admin", "--no-password")  # which ends the session itself
    assert (gone.code, gone.out) == (0, "the-admin: active, admin\n")


def test_a_token_alone_gives_nobody_access_and_the_command_says_what_does(served: Shop) -> None:
    served.person("bob", "reviewer")
    served.token("admin")
    with_stores(lambda stores: set_password(stores, "the-admin", OWN))
    for arguments in (
        ("users", "add", "eve", "--no-password"),
        ("users", "change", "bob", "--add-role", "admin"),
        ("users", "password", "bob", "--no-password"),
        ("users", "login-link", "bob"),
        ("tokens", "create", "bob"),
        ("delegations", "create", "--from", "bob", "--to", "the-admin", "--ends", "1d"),
        ("delegations", "create", "--to", "bob", "--ends", "1d"),
        ("notify", "channels", "add", "email", "thief@example.org", "--user", "bob"),
        ("notify", "channels", "add", "email", "thief@example.org"),
        ("notify", "preferences", "--quiet-hours", "00:00-23:59"),
    ):
        refused = served.remote(*arguments, "--json")
        assert code_of(refused) == (7, "reauthentication_needed"), arguments
        assert "--own-password-stdin" in str(refused.error), arguments
    wrong = served.remote("tokens", "create", "bob", "--own-password-stdin", "--json", stdin="wrong password\n")
    assert code_of(wrong) == (7, "not_authenticated")


def test_a_link_leads_to_the_server_that_made_it(served: Shop) -> None:
    served.person("cyd", "reviewer")
    answer = signed_in(served, "users", "login-link", "CYD")
    address, _, secret = answer.out.strip().partition("#")

    async def used(stores: Stores) -> str:
        _, session = await use_link(stores, secret, SignInConditions())
        return session.account

    assert address == f"{served.url}/login"
    assert answer.err == "Valid once, for cyd, within ten minutes.\n"
    assert with_stores(used) == "cyd"
    with pytest.raises(NotAuthenticated):
        with_stores(used)


def test_tokens_are_made_listed_and_taken_back(served: Shop) -> None:
    served.person("ada", "operator")
    signed_in(served, "users", "add", "bot", "--agent", "--owner", "ada", "--role", "agent")
    made = signed_in(
        served, "tokens", "create", "bot", "--scope", "read", "--expires", "1d", "--label", "ci", "--json"
    ).json
    assert "never" in served.remote("tokens", "list", "--account", "bot").out
    assert with_stores(account_of(made["secret"])) == "bot"
    assert (made["scopes"], made["label"]) == (["read"], "ci")
    assert made["secret"] not in served.same("tokens", "list", "--account", "BOT", "--json").out

    revoked = served.remote("tokens", "revoke", made["id"])
    assert revoked.out == f"{made['id']}: revoked, was for bot\n"
    with pytest.raises(NotAuthenticated):
        with_stores(account_of(made["secret"]))
    plain = signed_in(served, "tokens", "create", "bot")
    assert with_stores(account_of(plain.out.strip())) == "bot"
    assert "not shown again" in plain.err


def test_somebody_lets_another_answer(served: Shop) -> None:
    for name in ("bob", "cyd"):
        served.person(name, "reviewer")
        with_stores(partial(set_password, account=name, password=OWN))
    served.token("reviewer")
    wanted = ("--name", "deploy*", "--tag", "web", "--to-level", "medium")
    create = ("delegations", "create", "--to", "cyd", "--ends", "14d", *wanted, "--json")
    assert code_of(served.remote(*create, by="bob")) == (7, "reauthentication_needed")
    made = signed_in(served, *create, by="bob").json
    assert (made["delegator"], made["delegate"]) == ("bob", "cyd")
    assert (made["names"], made["tags"], made["to_level"]) == (["deploy*"], ["web"], "medium")
    by_date = ("--starts", "2000-01-01", "--ends", made["ends_at"])
    assert signed_in(served, "delegations", "create", "--to", "the-reviewer", *by_date, by="cyd").code == 0

    served.same("delegations")
    served.same("delegations", "list", "--account", "CYD", "--json")
    others = ("delegations", "create", "--to", "cyd", "--ends", "1d", "--from", "bob", "--json")
    assert code_of(served.remote(*others, by="cyd")) == (7, "not_permitted")
    assert code_of(served.remote("delegations", "revoke", made["id"], "--json", by="cyd")) == (3, "unknown_delegation")
    assert served.remote("delegations", "revoke", made["id"], by="bob").out == f"{made['id']}: revoked\n"
    assert served.remote("delegations", "--json").json["items"][0]["is_revoked"] is True


def test_ones_own_notifications_are_changed_with_the_password(served: Shop) -> None:
    added = signed_in(served, "notify", "channels", "add", "email", "admin@example.org", "--json").json
    assert signed_in(served, "notify", "preferences", "--quiet-hours", "22:00-07:00").code == 0
    assert "22:00-07:00" in served.remote("notify", "preferences").out, "to look takes no password"
    removed = signed_in(served, "notify", "channels", "remove", added["id"], "--yes")
    assert removed.out == f"{added['id']}: removed\n"


def test_a_rulebook_is_applied_looked_at_and_asked(served: Shop) -> None:
    served.token("admin")
    served.same("policies")
    served.same("policies", "--json")
    (served.elsewhere / "rules.toml").write_text(BOOK)
    (served.here / "rules.toml").write_text(BOOK)
    valid = served.remote("policies", "apply", "rules.toml", "--dry-run")
    assert "is valid; nothing was stored" in valid.out
    applied = served.remote("policies", "apply", "rules.toml", "--seen", "0")
    assert applied.out == "the rulebook is in force as version 1 (guard rules: 1, policies: 1)\n"
    assert applied.err == "Authors may approve their own tasks under: pairs.\n"
    assert served.remote("policies", "apply", "rules.toml", "--json").json["version"] == 1

    served.same("policies")
    served.same("policies", "show", "--json")
    served.same("policies", "history")
    [edition] = served.same("policies", "history", "--json").json["items"]
    assert edition["by"] == "the-admin"
    ask = ("policies", "check", "send", "--args", '{"address": "here"}', "--resource", "db:main", "--tag", "web")
    served.same(*ask)
    assert served.same(*ask, "--json").json["rulings"]["enqueue"]["verdict"] == "demand"
    (served.elsewhere / "try.toml").write_text('[[guard]]\ndo = "deny"\nreason = "no"\n')
    tried = ("policies", "check", "pack", "--rulebook", "try.toml", "--tool", "Bash", "--score", "80", "--json")
    assert served.remote(*tried).json["rulings"]["tool"]["verdict"] == "deny"
    assert code_of(served.remote("policies", "apply", "rules.toml", "--json", by="reviewer")) == (7, "not_permitted")


def test_who_one_is(served: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    served.person("rita", "reviewer")
    told = served.remote("whoami", "--json", by="rita").json
    assert (told["account"], told["user"]["id"], told["user"]["roles"]) == ("rita", "rita", ["reviewer"])
    assert told["permissions"] == ["read", "vote"]
    assert told["token"]["account"] == "rita"
    text = served.remote("whoami", by="rita").out
    for part in ("rita", "reviewer", "read, vote", served.url, told["token"]["id"]):
        assert part in text

    here = served.local("whoami", "--as", "Rita", "--json").json
    assert (here["account"], here["user"]) == (told["account"], told["user"])
    monkeypatch.setenv("ADE_USER", "stranger")
    assert served.local("whoami", "--json").json == {"account": "stranger", "user": None, "permissions": []}
    stranger = served.local("whoami")
    assert (stranger.out, "`ade users add stranger`" in stranger.err) == ("account  stranger\n", True)


def test_a_token_that_is_none_is_told_of(served: Shop) -> None:
    served.tokens["nobody"] = "ade_nothing"

    assert code_of(served.remote("whoami", "--json", by="nobody")) == (7, "not_authenticated")
