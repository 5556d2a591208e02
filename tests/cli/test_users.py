"""`ade users`, `ade tokens` and `ade delegations`: what an administrator does about people and programs."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ade.accounts.sessions import SignInConditions, check_password, use_link
from tests.cli.conftest import Call, with_stores
from tests.cli.processes import Terminal
from tests.domain import NotAuthenticated, Stores, use_token

pytestmark = pytest.mark.usefixtures("cheap_passwords")

PASSWORD = "correct horse battery staple"


@pytest.fixture
def staff(shop: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """An admin, two reviewers and a program."""
    monkeypatch.setenv("ADE_USER", "Ada")
    shop("users", "add", "ada", "--role", "admin", "--name", "Ada L.", "--no-password")
    shop("users", "add", "bob", "--role", "reviewer", "--password-stdin", "--as", "bob", stdin=f"{PASSWORD}\n")
    shop("users", "add", "cyd", "--role", "reviewer", "--role", "dba", "--no-password")
    shop("users", "add", "bot", "--agent", "--owner", "ada", "--role", "agent")
    return shop


def signs_in(name: str, password: str) -> bool:
    async def tried(stores: Stores) -> bool:
        try:
            await check_password(stores, name, password)
        except Exception:
            return False
        return True

    return with_stores(tried)


def events(ade: Call) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ade("events", "tail", "--after", "0", "--json").json_lines
    return found


def test_accounts_are_listed_without_their_passwords(staff: Call) -> None:
    answer = staff("users", "--json")
    listed = {user["id"]: user for user in answer.json["items"]}

    assert list(listed) == ["ada", "bob", "bot", "cyd"]
    assert (listed["bob"]["has_password"], listed["cyd"]["has_password"]) == (True, False)
    assert (listed["bot"]["owner"], listed["bot"]["permissions"]) == ("ada", ["enqueue", "read", "read_payloads"])
    assert "scrypt" not in answer.out
    assert staff("users").lines[0].split()[:3] == ["ACCOUNT", "STATE", "ROLES"]


def test_a_store_without_accounts_says_how_to_make_one(shop: Call) -> None:
    assert "ade users add NAME --role admin" in shop("users").err


def test_the_first_account_may_be_made_before_anything_else(new_shop: Call) -> None:
    assert new_shop("users", "add", "ada", "--role", "admin", "--no-password").out == "ada: active, admin\n"


def test_a_password_comes_from_stdin_and_ends_up_nowhere(staff: Call, folder: Path) -> None:
    assert signs_in("bob", PASSWORD)
    staff("users", "password", "bob", "--password-stdin", stdin="another long password\nnot this\n")

    assert (signs_in("bob", PASSWORD), signs_in("bob", "another long password")) == (False, True)
    assert PASSWORD not in str(events(staff))
    assert PASSWORD.encode() not in (folder / "shop.db").read_bytes()
    assert staff("users", "password", "bob", "--no-password", "--json").json["has_password"] is False


def test_without_anybody_to_ask_a_password_must_come_from_somewhere(staff: Call) -> None:
    answer = staff("users", "add", "dan")

    assert (answer.code, "--password-stdin" in answer.err) == (2, True)
    assert staff("users", "add", "dan", "--no-password", "--password-stdin", stdin=PASSWORD).code == 2
    assert staff("users", "add", "dan", "--password-stdin", "--json", stdin="short\n").error["code"] == "weak_password"


@pytest.mark.slow
def test_a_password_is_asked_for_twice_and_never_shown(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "users", "add", "ada", "--role", "admin", "--store", "sqlite:///people.db")
    terminal.read_until("Password for ada")
    terminal.answer(f"{PASSWORD}\n")
    terminal.read_until("Repeat the password")
    terminal.answer("something quite different\n")
    terminal.finish()

    assert "differ" in terminal.seen
    assert PASSWORD not in terminal.seen


def test_an_account_changes_and_the_log_tells_by_whom(staff: Call) -> None:
    answer = staff(
        "users", "change", "BOB", "--add-role", "dba", "--remove-role", "reviewer", "--name", "Bob", "--json"
    )

    assert (answer.json["roles"], answer.json["display_name"]) == (["dba"], "Bob")
    assert staff("users", "change", "bob", "--role", "viewer", "--as", "CYD").out == "bob: active, viewer\n"
    told = [(event["type"], event["actor"]) for event in events(staff)][4:]
    assert told == [(kind, actor) for actor in ("ada", "cyd") for kind in ("user.changed", "user.roles_changed")]


def test_the_log_has_the_login_name_beside_the_account_that_was_named(
    staff: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "Grace")
    staff("users", "add", "dan", "--role", "viewer", "--no-password", "--as", "ada")
    staff("users", "change", "dan", "--add-role", "operator")
    staff("users", "password", "dan", "--password-stdin", stdin=f"{PASSWORD}\n")
    staff("users", "login-link", "dan")
    staff("tokens", "create", "dan")

    told = {event["type"]: (event["actor"], event["payload"].get("login")) for event in events(staff)[4:]}
    changes = ["user.added", "user.changed", "user.roles_changed", "user.password_set_by_other"]
    assert told == dict.fromkeys([*changes, "login_link.created", "token.created"], ("ada", "Grace"))


def test_a_password_that_somebody_else_set_is_to_be_changed(staff: Call) -> None:
    staff("users", "password", "bob", "--password-stdin", stdin="chosen by ada for bob\n")
    assert "to be changed" in staff("users").out
    delegate = ("delegations", "create", "--to", "cyd", "--ends", "1d", "--as", "bob")
    refused = staff(*delegate, "--json")
    assert (refused.code, refused.error["code"]) == (7, "password_change_needed")
    staff("users", "password", "bob", "--password-stdin", "--as", "bob", stdin=f"{PASSWORD}\n")
    assert "to be changed" not in staff("users").out
    assert staff(*delegate).code == 0


def test_ones_own_password_is_for_a_server(staff: Call) -> None:
    answer = staff("tokens", "create", "bot", "--own-password-stdin", stdin=f"{PASSWORD}\n")
    assert (answer.code, "is for a server" in answer.err) == (2, True)


def test_the_login_name_acts_where_nobody_else_is_named(shop: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "Grace")
    monkeypatch.delenv("ADE_USER", raising=False)
    shop("users", "add", "ada", "--no-password")

    assert [event["actor"] for event in events(shop)] == ["grace"]


def test_an_account_is_switched_off_and_on(staff: Call) -> None:
    secret = staff("tokens", "create", "bot").out.strip()

    assert staff("users", "deactivate", "bot").out == "bot: deactivated, agent; reads its own tasks\n"
    assert staff("users", "activate", "bot").out == "bot: active, agent; reads its own tasks\n"

    async def used(stores: Stores) -> object:
        return await asyncio.gather(use_token(stores, secret), return_exceptions=True)

    assert "revoked" in str(with_stores(used))
    assert staff("users", "sign-out", "bob", "--json").json == {"account": "bob", "ended": 0}


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("users", "deactivate", "ada"), 4, "last_admin"),
        (("users", "change", "ada", "--role", "viewer"), 4, "last_admin"),
        (("users", "add", "BOB", "--no-password"), 4, "account_exists"),
        (("users", "add", "two words", "--no-password"), 2, "invalid_account"),
        (("users", "add", "bot2", "--agent"), 2, "invalid_account"),
        (("users", "change", "nobody", "--name", "x"), 3, "unknown_account"),
        (("users", "change", "bob", "--name", "x", "--as", "a b"), 2, "invalid_account"),
        (("tokens", "create", "nobody"), 3, "unknown_account"),
        (("tokens", "create", "bot", "--scope", "vote"), 2, "invalid_token"),
        (("tokens", "create", "bot", "--expires", "400d"), 2, "invalid_token"),
        (("tokens", "revoke", "nonsense"), 3, "unknown_token"),
        (("delegations", "create", "--to", "ada", "--ends", "91d", "--from", "bob"), 2, "invalid_delegation"),
        (("delegations", "create", "--to", "bot", "--ends", "1d", "--from", "bob"), 2, "invalid_delegation"),
        (("delegations", "create", "--to", "cyd", "--ends", "1d", "--as", "bob", "--from", "ada"), 7, "not_permitted"),
        (("delegations", "revoke", "nonsense"), 3, "unknown_delegation"),
    ],
)
def test_what_cannot_be_is_refused(staff: Call, arguments: tuple[str, ...], code: int, error: str) -> None:
    before = len(events(staff))
    answer = staff(*arguments, "--json")

    assert (answer.code, answer.error["code"]) == (code, error)
    assert len(events(staff)) == before


def test_a_token_is_shown_once(staff: Call) -> None:
    made = staff("tokens", "create", "bot", "--scope", "read", "--expires", "1d", "--label", "ci", "--json").json

    listed = staff("tokens", "list", "--account", "BOT", "--json")
    assert [(token["id"], token["scopes"], token["label"]) for token in listed.json["items"]] == [
        (made["id"], ["read"], "ci")
    ]
    assert made["secret"].startswith("ade_")
    assert made["secret"] not in listed.out + str(events(staff))
    assert staff("tokens", "list", "--account", "bob", "--json").json["items"] == []
    assert staff("tokens", "revoke", made["id"]).out == f"{made['id']}: revoked, was for bot\n"
    assert staff("tokens").lines[1].split()[3] == "revoked"
    plain = staff("tokens", "create", "bot")
    assert plain.out.strip().startswith("ade_")
    assert "not shown again" in plain.err


def test_somebody_lets_another_answer(staff: Call) -> None:
    wanted = ("--name", "deploy*", "--tag", "web", "--to-level", "medium")
    made = staff("delegations", "create", "--to", "cyd", "--ends", "14d", *wanted, "--as", "bob", "--json").json

    assert (made["delegator"], made["delegate"]) == ("bob", "cyd")
    assert (made["names"], made["tags"], made["to_level"]) == (["deploy*"], ["web"], "medium")
    assert staff("delegations").lines[1].endswith("names deploy*; tags web; to_level medium")
    later = staff("delegations", "create", "--to", "ada", "--starts", "20d", "--ends", "1d", "--from", "bob", "--json")
    assert later.json["starts_at"] > made["starts_at"]
    assert "to come" in staff("delegations").out
    assert [each["id"] for each in staff("delegations", "list", "--account", "CYD", "--json").json["items"]] == [
        made["id"]
    ]
    assert staff("delegations", "revoke", made["id"]).out == f"{made['id']}: revoked\n"
    assert staff("delegations", "--json").json["items"][0]["is_revoked"] is True


def test_a_store_without_tokens_or_delegations_says_how_to_make_one(shop: Call) -> None:
    assert "ade tokens create ACCOUNT" in shop("tokens").err
    assert "ade delegations create --to NAME --ends 14d" in shop("delegations").err


def test_a_link_lets_somebody_in_once(staff: Call) -> None:
    answer = staff("users", "login-link", "CYD")
    address, _, secret = answer.out.strip().partition("#")

    async def used(stores: Stores) -> str:
        _, session = await use_link(stores, secret, SignInConditions())
        return session.account

    assert address == "http://127.0.0.1:8411/login"
    assert "within ten minutes" in answer.err
    assert with_stores(used) == "cyd"
    with pytest.raises(NotAuthenticated):
        with_stores(used)
    assert secret not in str(events(staff))


def test_a_link_leads_to_where_the_server_listens(staff: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADE_HTTP__HOST", "::1")
    monkeypatch.setenv("ADE_HTTP__PORT", "9000")

    shown = staff("users", "login-link", "ada", "--json").json
    assert shown["url"] == f"http://[::1]:9000/login#{shown['secret']}"
    assert (shown["account"], shown["expires_at"][-1]) == ("ada", "Z")
    assert staff("users", "login-link", "bot", "--json").error["code"] == "invalid_account"
    assert staff("users", "login-link", "nobody", "--json").error["code"] == "unknown_account"
