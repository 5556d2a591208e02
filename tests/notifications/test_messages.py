"""What each channel is sent: untrusted text mentions no one, adds no link, breaks no format, and exceeds no limit."""

import html
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from ade.errors import InvalidNotification, InvalidWebhook
from tests.notifications.domain import (
    LARGEST_JSON,
    Channel,
    ChannelKind,
    Message,
    Notification,
    NotificationDelivery,
    NotificationKind,
    Outbox,
    Preferences,
    RiskLevel,
    SmtpSettings,
    arguments_line,
    check_channel,
    compose,
    delivery_to,
    dispatched,
    html_of,
    http_body,
    mail_of,
    merged,
    ntfy_address,
    plain,
    text_of,
)

WISHES = Preferences(account="rita", time_zone="Europe/Berlin")
EVIL = "<!channel> <https://evil.example|Approve> @everyone <@U123> **now** [x](https://evil.example) & </td><script>"
SMTP = SmtpSettings(host="localhost", sender="ade@example.org")


def channel(kind: ChannelKind, target: str = "https://hooks.example.org/topic", secret: str | None = None) -> Channel:
    return Channel(id="ch_0123456789abcdef", kind=kind, target=target, secret=secret)


def request(**fields: Any) -> Notification:
    known: dict[str, Any] = {
        "kind": NotificationKind.REVIEW,
        "at": 1_768_000_000_000,
        "seq": 7,
        "task_id": "019aaaaa-aaaa-7aaa-8aaa-aaaaaaaaaaaa",
        "approval": "019aaaaa-aaaa-7aaa-8aaa-aaaaaaaaaaaa.1",
        "name": "pay",
        "description": EVIL,
        "author": "ada",
        "author_name": "Ada",
        "level": RiskLevel.HIGH,
        "due_at": 1_768_050_000_000,
        "reason": EVIL,
    }
    return Notification(**(known | fields))


def written(*notifications: Notification, **options: Any) -> Message:
    return compose(notifications or (request(),), WISHES, **options)


def sent(kind: ChannelKind, message: Message, *notifications: Notification) -> Any:
    where = channel(kind)
    delivery = delivery_to("rita", where, notifications or (request(),), more=0, now=1_768_000_000_000)
    return json.loads(http_body(where, message, delivery))


def test_a_message_has_what_who_risk_due_and_where() -> None:
    text = text_of(written(public_url="https://ade.example.org/"))
    for part in (
        "Approval needed: pay",
        "Requested by: Ada (ada)",
        "Risk: high",
        "Due: 2026-01-10 14:00 CET",
        "Review: https://ade.example.org/api/v1/approvals/019aaaaa-aaaa-7aaa-8aaa-aaaaaaaaaaaa",
    ):
        assert part in text
    assert "Review: ade approvals show 019aaaaa" in text_of(written())


def test_slack_gets_no_mention_and_no_link_but_ours() -> None:
    body = sent(ChannelKind.SLACK, written(public_url="https://ade.example.org"))
    text = json.dumps(body)
    assert re.findall(r"<[^>]*>", text) == [
        "<https://ade.example.org/api/v1/approvals/019aaaaa-aaaa-7aaa-8aaa-aaaaaaaaaaaa|Review>"
    ]
    assert "&lt;!channel&gt;" in text
    assert (body["unfurl_links"], body["unfurl_media"]) == (False, False)
    assert {block["text"]["type"] for block in body["blocks"] if block["type"] == "section"} == {"plain_text"}


def test_teams_gets_an_adaptive_card_whose_texts_are_not_parsed() -> None:
    body = sent(ChannelKind.TEAMS, written(public_url="https://ade.example.org"))
    [attachment] = body["attachments"]
    card = attachment["content"]
    assert (body["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert {run["type"] for block in card["body"] for run in block["inlines"]} == {"TextRun"}
    assert [(action["type"], action["title"]) for action in card["actions"]] == [("Action.OpenUrl", "Review")]


def test_discord_gets_no_mention_and_no_formatting() -> None:
    body = sent(ChannelKind.DISCORD, written())
    assert body["allowed_mentions"] == {"parse": []}
    [embed] = body["embeds"]
    [description] = [field["value"] for field in embed["fields"] if field["name"] == "Description"]
    assert re.search(r"(?<!\\)[*_`<\[@]", description) is None


def test_ntfy_gets_its_topic_a_priority_and_what_to_open() -> None:
    body = sent(ChannelKind.NTFY, written(public_url="https://ade.example.org"))
    assert (body["topic"], body["priority"], body["title"]) == ("topic", 4, "Approval needed: pay")
    assert body["click"].startswith("https://ade.example.org/api/v1/approvals/")
    urgent = sent(ChannelKind.NTFY, written(request(level=RiskLevel.LOW, is_urgent=True)))
    assert urgent["priority"] == 5
    assert ntfy_address("https://ntfy.example.org/base/topic?auth=x") == "https://ntfy.example.org/base/"


def test_a_program_gets_json_with_ids_and_times() -> None:
    body = sent(ChannelKind.WEBHOOK, written())
    [item] = body["data"]["items"]
    assert (body["type"], body["data"]["account"]) == ("notification", "rita")
    assert (item["kind"], item["level"], item["due_at"]) == ("review", "high", "2026-01-10T13:00:00.000Z")
    assert item["approval"].endswith(".1")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def test_the_html_of_a_mail_contains_no_tag_of_an_author() -> None:
    parser = _Tags()
    page = html_of(written(public_url="https://ade.example.org"))
    parser.feed(page)
    assert set(parser.tags) == {"html", "body", "h3", "table", "tr", "th", "td", "p", "a"}
    assert html.escape("</td><script>") in page


def test_a_name_with_a_line_break_adds_no_header_to_a_mail() -> None:
    item = request(name="pay\r\nBcc: mallory@example.org", author_name="Ada\nX-Evil: 1")
    delivery = delivery_to("rita", channel(ChannelKind.EMAIL, "rita@example.org"), [item], more=0, now=0)
    mail = mail_of(channel(ChannelKind.EMAIL, "rita@example.org"), written(item), delivery, SMTP)
    headers = mail.as_bytes().partition(b"\r\n\r\n")[0].lower()
    assert b"\r\nbcc:" not in headers
    assert b"\r\nx-evil:" not in headers
    assert mail["To"] == "rita@example.org"
    assert mail["Subject"] == "[ADE] Approval needed: pay Bcc: mallory@example.org"
    assert mail["Message-ID"] == f"<{delivery.id}@example.org>"
    assert mail["Auto-Submitted"] == "auto-generated"


@given(st.text(max_size=3_000), st.text(max_size=3_000), st.integers(1, 60))
def test_no_text_breaks_a_format_or_its_limits(name: str, reason: str, count: int) -> None:
    items = [request(name=name, description=reason, reason=reason, seq=number) for number in range(count)]
    message = written(*items)
    for kind in (ChannelKind.SLACK, ChannelKind.TEAMS, ChannelKind.DISCORD, ChannelKind.NTFY, ChannelKind.WEBHOOK):
        body = sent(kind, message, *items)
        text = json.dumps(body)
        match kind:
            case ChannelKind.SLACK:
                assert len(body["blocks"]) <= 50
                assert all(len(block["text"]["text"]) <= 3_000 for block in body["blocks"] if "text" in block)
                assert not re.search(r"<[^|>]*\|?[^>]*>", text)
            case ChannelKind.DISCORD:
                assert len(body["content"]) <= 2_000
                assert len(body["embeds"]) <= 10
                size = 0
                for embed in body["embeds"]:
                    assert len(embed["title"]) <= 256
                    assert all(0 < len(field["value"]) <= 1_024 for field in embed["fields"])
                    size += len(embed["title"]) + len(embed.get("description", ""))
                    size += sum(len(field["name"]) + len(field["value"]) for field in embed["fields"])
                assert size <= 6_000
            case ChannelKind.WEBHOOK:
                assert len(text.encode()) <= 2 * LARGEST_JSON
                assert len(body["data"]["items"]) + body["data"]["more"] == count
            case _:
                assert text
    where = channel(ChannelKind.EMAIL, "rita@example.org")
    delivery: NotificationDelivery = delivery_to("rita", where, items, more=0, now=0)
    head = mail_of(where, message, delivery, SMTP).as_bytes().partition(b"\r\n\r\n")[0]
    assert head.lower().count(b"\r\nto:") == 1


@given(st.text(max_size=500))
def test_text_is_one_printable_line(text: str) -> None:
    line = plain(text, 100)
    assert len(line) <= 100
    assert line.isprintable()


def test_secrets_in_texts_and_arguments_are_masked() -> None:
    assert "ghp_" not in plain("use ghp_0123456789012345678901234567890123456789", 200)
    line = arguments_line(Raw(b'{"password":"x","nested":[{"api_key":12345}],"to":"ada"}'))
    assert line == '{"nested":[{"api_key":"[hidden]"}],"password":"[hidden]","to":"ada"}'
    assert arguments_line(Raw(b"{}")) == arguments_line(None) == arguments_line(Raw(b"not json")) == ""


@pytest.mark.parametrize(
    "target",
    [
        "rita",
        "rita@example",
        "rita@example.org, mallory@example.org",
        "Rita <rita@example.org>",
        "rita@example.org\r\nBcc: mallory@example.org",
        '"a b"@example.org',
        "@example.org",
        "a" * 250 + "@example.org",
    ],
)
def test_what_is_no_single_email_address_is_rejected(target: str) -> None:
    with pytest.raises(InvalidNotification):
        check_channel(channel(ChannelKind.EMAIL, target))


@pytest.mark.parametrize(
    ("kind", "target", "secret"),
    [
        (ChannelKind.SLACK, "http://hooks.slack.com/services/x", None),
        (ChannelKind.SLACK, "https://169.254.169.254/latest", None),
        (ChannelKind.DISCORD, "https://localhost/hook", None),
        (ChannelKind.TEAMS, "https://user:pw@example.org/", None),
        (ChannelKind.NTFY, "https://ntfy.example.org/", None),
        (ChannelKind.NTFY, "https://ntfy.example.org/top ic", None),
        (ChannelKind.NTFY, "https://ntfy.example.org/topic", "two words"),
        (ChannelKind.SLACK, "https://hooks.slack.com/services/x", "secret"),
        (ChannelKind.WEBHOOK, "https://example.org/", "whsec_short"),
        (ChannelKind.WEBHOOK, "https://example.org/", None),
    ],
)
def test_urls_and_secrets_that_cannot_be_used_are_rejected(kind: ChannelKind, target: str, secret: str | None) -> None:
    with pytest.raises((InvalidNotification, InvalidWebhook)) as refused:
        check_channel(channel(kind, target, secret))
    assert "services/x" not in str(refused.value)


# A flood must not hide a change of the account.

PREFERENCES_CHANGED = "The notification preferences of your account were changed"


def change(outcome: str, seq: int = 1, **fields: Any) -> Notification:
    known = {"about": "rita", "actor": "rita", "is_urgent": True, **fields}
    return Notification(kind=NotificationKind.ACCOUNT, at=1_768_000_000_000, seq=seq, outcome=outcome, **known)


def sent_to(kind: ChannelKind, items: list[Notification]) -> list[tuple[NotificationDelivery, str]]:
    """Each message that a channel receives, and its text as it goes over the network."""
    where = channel(kind)
    wishes = Preferences(account="rita", channels=(where,))
    moved = dispatched(Outbox(account="rita").with_pending(items), wishes, now=1_768_000_000_000)
    assert moved is not None
    return [
        (each, http_body(where, compose(each.notifications, wishes, more=each.more), each).decode().replace("\\", ""))
        for each in moved[1]
    ]


HTTP_KINDS = [kind for kind in ChannelKind if kind is not ChannelKind.EMAIL]


@pytest.mark.parametrize("kind", HTTP_KINDS)
def test_changes_of_the_account_share_no_message_with_requests_and_come_first(kind: ChannelKind) -> None:
    flood = [request(is_urgent=True, seq=number) for number in range(2, 62)]
    first, *others = sent_to(kind, [*flood, change("The password of your account was changed", 62)])
    assert [each.kind for each in first[0].notifications] == [NotificationKind.ACCOUNT]
    assert "The password of your account was changed" in first[1]
    assert all(each.kind is NotificationKind.REVIEW for delivery, _ in others for each in delivery.notifications)


@pytest.mark.parametrize("kind", HTTP_KINDS)
@pytest.mark.parametrize("reason", ["digest_every_s", "*" * 600])
def test_repeated_changes_are_counted_and_different_ones_are_all_shown(kind: ChannelKind, reason: str) -> None:
    flood = [change(PREFERENCES_CHANGED, number, reason=reason) for number in range(1, 41)]
    different = [change(f"Change {number} of your account", 41 + number, reason=reason) for number in range(20)]
    text = "\n".join(text for _, text in sent_to(kind, [*flood, *different]))
    assert f"{PREFERENCES_CHANGED} (40 times)" in text.replace("\\", "")
    for number in range(20):
        assert f"Change {number} of your account" in text
    assert "more" not in text.replace('"more":0', "")


def test_too_many_different_changes_are_merged_by_kind_with_the_newest_details_first() -> None:
    delegated = "The vote of your account was delegated"
    flood = [change(delegated, number, reason=f"bob{number} can vote") for number in range(1, 400)]
    owned = [
        change("A token was created for your account", 400 + number, about=f"bot{number}", is_owned=True)
        for number in range(50)
    ]
    found = merged([*flood, *owned, change(PREFERENCES_CHANGED, 500)])
    assert [each.count for each in found] == [399, 50, 1]
    text = text_of(written(*found))
    assert f"{delegated} (399 times)" in text
    assert "Reason: bob399 can vote; bob398 can vote" in text
    assert "A token was created for bot49; bot48" in text
    assert "450 account changes" in written(*found).title


def test_the_same_change_of_two_accounts_is_two_changes() -> None:
    found = merged([change("Your account was changed", 1), change("Your account was changed", 2, about="rita-ops")])
    assert [(each.about, each.count) for each in found] == [("rita", 1), ("rita-ops", 1)]


def test_a_full_outbox_drops_no_change_of_the_account() -> None:
    outbox = Outbox(account="rita").with_pending([change("The password of your account was changed")])
    outbox = outbox.with_pending([request(seq=number) for number in range(2, 702)])
    outbox = outbox.with_pending([change(PREFERENCES_CHANGED, number) for number in range(702, 1_400)])
    changes = [(each.outcome, each.count) for each in outbox.pending if each.kind is NotificationKind.ACCOUNT]
    assert changes == [("The password of your account was changed", 1), (PREFERENCES_CHANGED, 698)]
    assert (len(outbox.pending), outbox.more) == (500, 202)


def test_the_hint_names_where_to_find_what_was_cut() -> None:
    requests = [request(seq=number) for number in range(25)]
    decisions = [request(kind=NotificationKind.DECISION, outcome="approved", seq=number) for number in range(25)]
    assert text_of(written(*requests)).endswith("And 5 more. `ade approvals` lists all that wait for you.\n")
    assert text_of(written(*decisions)).endswith("And 5 more. `ade tasks` lists decided tasks.\n")
    assert "`ade approvals` lists" in text_of(written(*requests, *decisions))
    assert "`ade tasks` lists" in text_of(written(*requests, *decisions))
