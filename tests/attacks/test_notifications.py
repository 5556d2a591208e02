"""Notifications of a real site: a server, a worker, a mail server, and a chat service, all on loopback."""

import json
from collections.abc import AsyncIterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from functools import partial
from pathlib import Path

import pytest

from tests.attacks.site import Site, open_site
from tests.attacks.test_an_admins_token import signed_in
from tests.common.http.servers import Server, Visit, answer, serving
from tests.domain import Role, UserChanges, change_user, set_password
from tests.notifications.mail_server import Mailbox, mail_server
from tests.waiting import eventually

GUARD = {"do": "demand", "name": "pay", "reason": "money"}
INJECTED = "rent\r\nBcc: mallory@example.org <!channel> <https://evil.example|ok>"


async def accept(server: Server, visit: Visit) -> None:
    server.asked.append(await visit.request())
    await visit.say(answer(b"ok"))


class Post:
    """The site, and what its mail server and its chat service received."""

    def __init__(self, site: Site, box: Mailbox, chat: Server) -> None:
        self.site, self.box, self.chat = site, box, chat

    async def channel(self, account: str, kind: str = "email", target: str = "") -> str:
        body = {"kind": kind, "target": target or f"{account}@example.org"}
        added = await (await signed_in(self.site, account)).ask("POST", "/notifications/channels", body)
        assert added.status == 201, added
        return str(added.json()["id"])

    def subjects(self, account: str) -> list[str]:
        return [str(mail["subject"]) for to, mail in self.mails() if to == [f"{account}@example.org"]]

    def mails(self) -> list[tuple[list[str], EmailMessage]]:
        """The recipients of each mail, and the mail itself."""
        found = []
        for envelope in self.box.mails:
            assert isinstance(envelope.content, bytes)
            found.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=policy.default)))
        return found

    async def chatted(self, text: str) -> bytes | None:
        """A request to the chat service with this text."""
        return next((each for each in self.chat.asked if text.encode() in each), None)

    async def until(self, account: str, subject: str) -> list[str]:
        """Wait for a mail to this account. Returns its subject, and that of others like it."""

        async def look() -> list[str]:
            return [each for each in self.subjects(account) if subject in each]

        return await eventually(look)


@pytest.fixture(params=["sqlite", "valkey"])
async def post(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Post]:
    box = Mailbox()
    async with mail_server(box) as port, serving(accept) as chat:
        flags = {
            "smtp.host": "127.0.0.1",
            "smtp.port": port,
            "smtp.tls": "none",
            "smtp.sender": "ade@example.org",
            "webhooks.allow_http": True,
            "webhooks.allowed_networks": ["127.0.0.0/8"],
            "notifications.public_url": "https://ade.example.org",
        }
        async with open_site(request.param, tmp_path, queues=["default", "webhooks"], **flags) as site:
            await site.rules(guard=[GUARD])
            yield Post(site, box, chat)


async def test_reviewers_are_notified_and_the_author_learns_the_decision(post: Post) -> None:
    for name in ("rita", "mallory"):
        await post.channel(name)
    await post.channel("rob", "slack", f"{post.chat.url}/services/s3cret")
    task = await post.site.enqueue("pay", args={"to": "mallory"}, description=INJECTED)
    await post.until("rita", "Approval needed: pay")

    text = (await eventually(partial(post.chatted, "Approval needed"))).partition(b"\r\n\r\n")[2].decode()
    assert json.loads(text)["blocks"]
    assert "<!channel>" not in text
    assert "<https://evil" not in text
    assert f"https://ade.example.org/api/v1/approvals/{task['id']}" in text
    assert '"to"' not in text, "arguments are left out"
    assert all(len(to) == 1 and mail["bcc"] is None for to, mail in post.mails())

    await post.site.vote("rita", task["id"])
    await post.until("mallory", "Approved: pay")
    assert not [each for each in post.subjects("mallory") if "Approval needed" in each], "the owner cannot vote"


async def test_a_test_message_reports_what_the_server_said(post: Post) -> None:
    await post.channel("rita")
    post.box.rejection = "550 no such user"
    started = (await post.site.ask("rita", "POST", "/notifications/test", {})).json()
    [sent] = started["items"]
    assert (await post.site.until(sent["task_id"], "completed", "failed")).status == "completed"
    found = (await post.site.ask("rita", "GET", f"/notifications/deliveries/{sent['delivery']}")).json()
    assert (found["state"], found["attempts"][0]["status"], found["attempts"][0]["excerpt"]) == (
        "failed",
        550,
        "no such user",
    )


@pytest.mark.parametrize("thief", ["ada", "rita"])
async def test_a_stolen_token_changes_no_ones_notifications(post: Post, thief: str) -> None:
    """Neither that of an admin, nor that of the person."""
    channel = await post.channel("rita")
    body = {"kind": "email", "target": "thief@example.org", "account": "rita"}
    for method, path, form in (
        ("POST", "/notifications/channels", body),
        ("DELETE", f"/notifications/channels/{channel}", None),
        ("PATCH", "/notifications/preferences", {"account": "rita", "quiet_hours": "00:00-23:59"}),
    ):
        refused = await post.site.ask(thief, method, path, form)
        assert (refused.status, refused.code) == (403, "reauthentication_needed"), refused
    [kept] = (await post.site.ask("rita", "GET", "/notifications/channels")).json()["items"]
    assert (kept["id"], kept["is_active"]) == (channel, True)


async def test_an_admin_cannot_redirect_the_notifications_of_another_unnoticed(post: Post) -> None:
    await post.channel("rita")
    ada = await signed_in(post.site, "ada")
    body = {"kind": "email", "target": "ada@example.org", "account": "rita"}
    assert (await ada.ask("POST", "/notifications/channels", body)).status == 201

    assert await post.until("rita", "A notification channel was added to your account")


async def test_an_admin_removes_the_only_channel_and_takes_the_account_over(post: Post) -> None:
    """The news reaches the channel that was there before."""
    channel = await post.channel("rita")
    ada = await signed_in(post.site, "ada")
    assert (await ada.ask("DELETE", f"/notifications/channels/{channel}")).status == 204
    changed = await ada.ask("PUT", "/users/rita/password", {"password": "a password that ada chose"})
    assert changed.status == 200

    assert await post.until("rita", "A notification channel was removed from your account")
    assert await post.until("rita", "The password of your account was set by another account")
    await post.site.enqueue("pay", args={"to": "mallory"})
    await ada.ask("PATCH", "/users/rita", {"roles": ["viewer"]}, **{"if-match": "*"})
    assert await post.until("rita", "The roles of your account were changed")
    assert not [each for each in post.subjects("rita") if "Approval needed" in each], "the channel was removed"


async def test_a_thief_of_the_password_cannot_silence_the_owner(post: Post) -> None:
    """Not with quiet hours, nor with another channel in place of the owner's."""
    hook = f"{post.chat.url}/services/s3cret"
    channel = await post.channel("rita", "slack", hook)
    thief = await signed_in(post.site, "rita")
    muted = {"quiet_hours": "00:00-23:59", "break_through": "never", "digest_every_s": 604_800}
    assert (await thief.ask("PATCH", "/notifications/preferences", muted)).status == 200
    own = {"kind": "email", "target": "thief@example.org"}
    assert (await thief.ask("POST", "/notifications/channels", own)).status == 201
    assert (await thief.ask("DELETE", f"/notifications/channels/{channel}")).status == 204
    assert (await thief.ask("POST", "/delegations", {"delegate": "rob", "ends": 3600})).status == 201
    assert (await thief.ask("POST", "/me/tokens", {"scopes": ["read"]})).status == 201

    for text in (
        "The notification preferences of your account were changed",
        "A notification channel was added to your account",
        "A notification channel was removed from your account",
        "The vote of your account was delegated",
        "An access token was created for your account",
    ):
        await eventually(partial(post.chatted, text))


async def test_roles_and_passwords_that_an_admin_sets_are_reported_to_their_owner(post: Post) -> None:
    await post.channel("rita")
    changes = UserChanges(roles=frozenset({Role.VIEWER}))
    await change_user(post.site.stores, "rita", changes, actor="ada")

    assert await post.until("rita", "The roles of your account were changed")
    await set_password(post.site.stores, "rita", "a password that ada chose", actor="ada")
    assert await post.until("rita", "The password of your account was set by another account")
    await set_password(post.site.stores, "rita", "and one that ada chose as rita", actor="rita")
    assert await post.until("rita", "The password of your account was changed")


async def test_an_agent_cannot_enqueue_a_message_of_its_own(post: Post) -> None:
    await post.channel("rita")
    for by in ("bot", "olga", "ada"):
        body = {"name": "notifications:deliver", "queue": "webhooks", "args": {"account": "rita", "delivery": "msg_1"}}
        refused = await post.site.ask(by, "POST", "/tasks", body)
        assert refused.status == 422, refused


async def test_a_flood_of_urgent_requests_hides_no_change_of_the_account(post: Post) -> None:
    await post.channel("rita")
    await post.until("rita", "channel was added")
    ada = await signed_in(post.site, "ada")
    flood = {"tasks": [{"name": "pay", "args": {"to": f"x{number}"}, "priority": 0} for number in range(60)]}
    assert (await post.site.ask("bot", "POST", "/tasks/bulk", flood)).status in (200, 201)
    changed = await ada.ask("PUT", "/users/rita/password", {"password": "a password that ada chose"})
    assert changed.status == 200

    assert await post.until("rita", "The password of your account was set by another account")


async def test_a_flood_of_changes_hides_no_different_one(post: Post) -> None:
    """A thief of the password changes the preferences again and again, and then what counts."""
    await post.channel("rita")
    await post.until("rita", "channel was added")
    thief = await signed_in(post.site, "rita")
    for number in range(24):
        body = {"digest_every_s": 3600 + 60 * number}
        assert (await thief.ask("PATCH", "/notifications/preferences", body)).status == 200
    assert (await thief.ask("POST", "/delegations", {"delegate": "mallory", "ends": 3600})).status == 201
    assert (await thief.ask("POST", "/me/tokens", {"scopes": ["read", "vote"]})).status == 201

    assert await post.until("rita", "The vote of your account was delegated")
    assert await post.until("rita", "An access token was created for your account")


@pytest.mark.parametrize("thief", ["ada", "olga"])
async def test_no_one_cancels_the_notification_of_a_takeover(post: Post, thief: str) -> None:
    """Pausing the queue only delays it."""
    site = post.site
    await post.channel("rita")
    await post.until("rita", "channel was added")
    assert (await site.ask(thief, "POST", "/queues/webhooks/pause", {})).status == 200
    ada = await signed_in(site, "ada")
    changed = await ada.ask("PUT", "/users/rita/password", {"password": "a password that ada chose"})
    assert changed.status == 200

    async def waiting() -> list[str]:
        page = (await site.ask(thief, "GET", "/tasks?queue=webhooks&status=pending")).json()
        return [each["id"] for each in page["items"]]

    [task_id] = await eventually(waiting)
    refused = await site.ask(thief, "POST", f"/tasks/{task_id}/cancel", {})
    assert (refused.status, refused.code) == (422, "invalid_task"), refused
    everything = {"action": "cancel", "filter": {"queue": "webhooks"}}
    report = (await site.ask(thief, "POST", "/bulk-actions", everything)).json()
    assert (report["changed"], report["refused"][0]["code"], report["refused"][0]["count"]) == ([], "invalid_task", 1)
    assert await site.status(task_id) == "pending"
    assert (await site.ask(thief, "POST", "/queues/webhooks/resume", {})).status == 200

    assert await post.until("rita", "The password of your account was set by another account")
