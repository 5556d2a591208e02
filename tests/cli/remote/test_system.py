"""The event log, webhooks, settings, health and the audit copy over a server."""

import re
import signal

import msgspec

from tests.cli.processes import ended, started
from tests.cli.remote.conftest import Shop
from tests.cli.test_maintenance import break_chain
from tests.cli.test_webhooks import OWN, URL, secrets_kept, sent, the_id
from tests.domain import DeliveryResponse, Role

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_the_log_is_read_from_its_end_from_a_seq_and_of_one_task(served: Shop) -> None:
    one, other = (served.local("enqueue", "pack", f"item={item}").out.strip() for item in ("lamp", "sofa"))
    served.local("cancel", one)
    served.token(Role.ADMIN)  # which is an event too

    for options in ([], ["--after", "1"], ["--task", one], ["--task", other[-8:], "--type", "task.*"]):
        served.same("events", "tail", *options)
        served.same("events", "tail", *options, "--json")
    told = served.remote("events", "tail", "--task", one, "--json").json_lines
    assert [event["type"] for event in told] == ["task.created", "task.cancelled"]
    served.same("events", "tail", "--type", "Not A Type", "--json")


def test_moments_in_payloads_are_told_as_moments(served: Shop) -> None:
    later = served.local("enqueue", "pack", "item=lamp", "--delay", "1h").out.strip()

    for told in (served.same("events", "tail", "--task", later, "--json"), served.same("show", later, "--json")):
        [created] = told.json["events"] if "events" in told.out else told.json_lines
        assert RFC3339.fullmatch(created["payload"]["run_after"])
    shown = served.same("events", "tail", "--task", later).out
    assert re.search(r"run_after=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown)


def test_events_are_followed_as_they_happen(served: Shop) -> None:
    first = served.local("enqueue", "pack", "item=lamp").out.strip()
    there = served.environment(Role.VIEWER)
    options = ("--follow", "--type", "task.created", "--type", "task.cancelled", "--json")
    with started(served.elsewhere, "events", "tail", *options, **there) as following:
        assert following.stdout is not None
        seen = [msgspec.json.decode(following.stdout.readline())]
        second = served.local("enqueue", "pack", "item=sofa").out.strip()
        seen.append(msgspec.json.decode(following.stdout.readline()))
        served.local("cancel", first)
        seen.append(msgspec.json.decode(following.stdout.readline()))
        code, _, _ = ended(following, signal.SIGINT)

    assert [(event["type"], event["task_id"]) for event in seen] == [
        ("task.created", first),
        ("task.created", second),
        ("task.cancelled", first),
    ]
    assert code == 130


def test_a_webhook_is_made_changed_switched_and_removed(served: Shop) -> None:
    made = served.remote("webhooks", "create", URL, "--event", "task.*", "--description", "the pager")

    about, secret = made.lines
    assert about.endswith(": active, task.* to https://hooks.example.org")
    assert [secret] == secrets_kept()
    webhook = the_id(served.local)
    served.same("webhooks", "--json")
    served.same("webhooks", "list")
    served.same("webhooks", "show", webhook, "--json")
    assert served.remote("webhooks", "show", webhook, "--json").json["created_by"] == "the-admin"
    seen = served.remote("webhooks", "show", webhook, by=Role.OPERATOR).out
    assert ("s3cret-path" in seen, "https://hooks.example.org" in seen) == (False, True)
    changed = served.remote("webhooks", "change", webhook, "--address", "https://other.example.org/", "--event", "*")
    assert changed.out == f"{webhook}: active, * to https://other.example.org\n"
    fresh = served.remote("webhooks", "rotate-secret", webhook, "--overlap", "2d").lines[-1]
    assert secrets_kept() == [fresh, secret]
    served.remote("webhooks", "rotate-secret", webhook, "--overlap", "0", "--secret-stdin", stdin=OWN)
    assert secrets_kept() == [OWN]
    served.remote("webhooks", "disable", webhook, "--reason", "the pager is broken")
    assert served.same("webhooks", "show", webhook, "--json").json["disabled_why"] == "the pager is broken"
    assert served.remote("webhooks", "enable", webhook, "--json").json["is_active"] is True
    assert served.remote("webhooks", "remove", webhook, "--yes").out == f"{webhook}: removed\n"
    for verb in ("show", "enable", "test", "deliveries"):
        served.same("webhooks", verb, webhook, "--json")


def test_what_a_webhook_was_sent_is_seen_and_sent_again(served: Shop) -> None:
    served.local("webhooks", "create", URL, "--event", "task.*")
    webhook = the_id(served.local)
    assert served.remote("webhooks", "test", webhook).code == 0
    delivery = sent(DeliveryResponse(status=503, excerpt=b"busy", duration_ms=12), DeliveryResponse(status=204))

    # The server tries to send the test too, at its own time.
    for call in (served.local, served.remote):
        listed = call("webhooks", "deliveries", webhook, "--json").json["items"]
        assert delivery in [each["id"] for each in listed]
        assert call("webhooks", "deliveries", webhook, "--state", "failed", "--limit", "500").code == 0
    served.same("webhooks", "delivery", webhook, delivery, "--json")
    task = served.remote("webhooks", "replay", webhook, delivery, "--json").json["id"]
    assert served.local("show", task, "--json").json["name"] == "webhooks:deliver"


def test_settings_and_features_are_changed_for_all_processes(served: Shop) -> None:
    assert served.remote("config", "set", "risk.high", "60").out == "risk.high = 60.0 (store)\n"
    served.same("config", "get", "risk.high", "--json")
    served.same("config", "get", "approval.default_timeout_s")
    shown = served.remote("config", "show", "--origin", "--json").json
    assert shown["risk.high"] == {"value": 60, "origin": "store"}
    assert shown["client.url"] == {"value": served.url, "origin": "ADE_CLIENT__URL"}
    assert served.remote("config", "unset", "risk.high").out == "risk.high = 50.0 (default)\n"
    for words in (["get", "risk.hihg"], ["set", "risk.medium", "99"], ["unset", "nothing"]):
        local, remote = (ade("config", *words, "--json") for ade in (served.local, served.remote))
        assert (remote.code, remote.error) == (local.code, local.error)

    assert served.remote("features", "disable", "deadlock_detection").out == "deadlock_detection: off\n"
    served.same("features")
    served.same("features", "--json")
    assert served.remote("features", "unset", "deadlock_detection").out == "deadlock_detection: on (default)\n"
    served.same("features", "enable", "nothing", "--json")


def test_settings_of_this_machine_are_shown_though_the_server_is_away(served: Shop) -> None:
    served.token(Role.ADMIN)
    served.stop()

    answer = served.remote("config", "show")

    assert (answer.code, "client.url" in answer.out) == (0, True)
    assert "Run-time settings could not be read" in answer.err
    assert served.remote("config", "get", "risk.high", "--json").code == 6


def test_a_server_says_how_it_is(served: Shop) -> None:
    answer = served.remote("doctor", "--json", by=Role.OPERATOR)

    findings = {(finding["check"], finding["verdict"]) for finding in answer.json["findings"]}
    assert answer.code == 0
    assert findings >= {("server", "ok"), ("invariants", "ok"), ("settings", "ok"), ("audit", "ok")}
    assert served.remote("doctor").lines[1].split()[:2] == ["ok", "settings"]


class TestTheAuditCopy:
    def test_it_is_verified_and_exported(self, served: Shop) -> None:
        served.local("enqueue", "pack", "item=lamp")
        served.token(Role.ADMIN)

        served.same("audit", "verify")
        assert served.same("audit", "verify", "--json").json["holds"] is True
        served.same("audit", "export", "--after", "1")
        assert len(served.remote("audit", "export").json_lines) > 1

    def test_a_broken_chain_is_told_of_as_here(self, served: Shop) -> None:
        served.local("enqueue", "pack", "item=lamp")
        served.remote("audit", "verify")
        break_chain(served.here)

        local, remote = (ade("audit", "verify", "--json") for ade in (served.local, served.remote))

        assert (remote.code, remote.error) == (local.code, local.error)
        assert (remote.code, remote.error["code"]) == (1, "audit_broken")

    def test_a_new_one_is_begun_where_the_store_is(self, served: Shop) -> None:
        answer = served.remote("audit", "begin", "--yes", "--json")

        assert (answer.code, answer.error["code"]) == (2, "needs_store")
