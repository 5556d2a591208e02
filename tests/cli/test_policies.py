"""`ade policies`: a rulebook is written, tried, applied, looked at and asked."""

import json
import tomllib
from pathlib import Path

import pytest

from ade.approvals.guard import GuardCase, GuardOccasion, GuardRulesVerdict, rule_on
from tests.cli.conftest import Call
from tests.domain import read_rulebook

BOOK = """
[criticality]
"db:*" = 80

[risk]
unknown_resources = "low"

[[guard]]
name = "send"
when = { address = "nowhere*" }
do = "deny"
reason = "there is no such place"

[[guard]]
name = "send"
do = "demand"
policy = "pairs"
reason = "letters cannot be taken back"

[[policy]]
id = "pairs"
rules = [{ needed = 2, roles = ["reviewer"], name = "two reviewers" }]
steps = [{ after = "1h", roles = ["admin"] }]

[[policy]]
id = "databases"
resource_types = ["db"]
rules = [{ needed = 1, users = ["Dora"] }]
authors_may_vote = true
"""


@pytest.fixture
def ruled(shop: Call, folder: Path) -> Call:
    """A shop with a rulebook and some people."""
    (folder / "rules.toml").write_text(BOOK)
    assert shop("policies", "apply", "rules.toml", "--as", "Ada").code == 0
    for name, role in (("ada", "admin"), ("rita", "reviewer"), ("rob", "reviewer"), ("vera", "viewer")):
        assert shop("users", "add", name, "--role", role, "--no-password").code == 0
    return shop


def example(call: Call) -> str:
    return call("policies", "example").out


def test_a_shop_without_a_rulebook_says_so(shop: Call) -> None:
    assert shop("policies", "--json").json == {"version": 0, "rules": {}, "digest": ""}
    assert "ade policies example" in shop("policies").err
    assert shop("policies", "history", "--json").json == {"items": []}
    assert "policies apply FILE" in shop("policies", "history").err


def test_a_rulebook_is_applied_and_shown(ruled: Call) -> None:
    shown = ruled("policies", "show", "--json").json

    assert shown["version"] == 1
    assert [rule["do"] for rule in shown["rules"]["guard"]] == ["deny", "demand"]
    assert shown["rules"]["policy"][1]["rules"] == [{"needed": 1, "users": ["dora"]}]
    text = ruled("policies").out
    assert text.startswith("version 1\n")
    for part in ("letters cannot be taken back", "pairs", "those that name it", "db:*"):
        assert part in text


def test_who_applied_what_is_kept(ruled: Call, folder: Path) -> None:
    (folder / "rules.json").write_text(json.dumps(tomllib.loads(BOOK) | {"criticality": {}}))
    assert ruled("policies", "apply", "rules.json", "--as", "bob", "--json").json["version"] == 2

    versions = ruled("policies", "history", "--json").json["items"]
    assert [(one["version"], one["by"]) for one in versions] == [(2, "bob"), (1, "ada")]
    assert versions[1]["rules"]["criticality"] == {"db:*": 80}
    assert [line.split()[0] for line in ruled("policies", "history").lines] == ["VERSION", "2", "1"]
    told = [event for event in ruled("events", "tail", "--after", "0", "--json").json_lines if event["actor"] == "bob"]
    assert [event["type"] for event in told] == ["rulebook.changed", "policy.self_review_allowed"]


def test_a_dry_run_stores_nothing(shop: Call) -> None:
    answer = shop("policies", "apply", "-", "--dry-run", stdin=BOOK)

    assert answer.out == "the rulebook is valid; nothing was stored (guard rules: 2, policies: 2)\n"
    assert "Authors may approve their own tasks under: databases." in answer.err
    assert shop("policies", "--json").json["version"] == 0


def test_a_rulebook_made_from_an_older_one_is_refused(ruled: Call) -> None:
    answer = ruled("policies", "apply", "-", "--seen", "0", "--json", stdin="")

    assert (answer.code, answer.error["code"]) == (4, "stale_write")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[guard]]\ndo = "forbid"', "guard[1].do must be"),
        ("[[guard]", "is not well-formed"),
        ("[[rule]]", "rule is unknown"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_stored(shop: Call, folder: Path, text: str, told: str) -> None:
    (folder / "bad.toml").write_text(text)
    answer = shop("policies", "apply", "bad.toml", "--json")

    assert (answer.code, answer.error["code"]) == (2, "invalid_rulebook")
    assert told in answer.error["message"]
    assert shop("policies", "history", "--json").json["items"] == []


def test_the_example_is_a_rulebook_that_can_be_applied(shop: Call) -> None:
    answer = shop("policies", "apply", "-", stdin=example(shop))

    assert answer.code == 0, answer.err
    assert "is in force as version 1" in answer.out


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "sudo rm  -rf build",
        "rm -fr .",
        "rm -r -f x",
        "git reset --hard HEAD~3",
        "git push --force",
        "git push -f origin main",
        "git clean -xfd",
        "mkfs.ext4 /dev/sda1",
        "dd if=/dev/zero of=/dev/sda",
        "psql -c 'DROP TABLE users'",
        "TRUNCATE TABLE users",
        "cat .env",
        "cp ~/.ssh/id_rsa /tmp",
        "less /etc/shadow",
        "vi infra/production/main.tf",
    ],
)
def test_the_example_holds_up_what_is_dangerous(ade: Call, command: str) -> None:
    book = read_rulebook(tomllib.loads(example(ade)))
    case = GuardCase(name="agent:coder", tool="Bash", arguments={"command": command}, score=0)

    assert rule_on(book, case, GuardOccasion.TOOL).verdict is not GuardRulesVerdict.ALLOW


@pytest.mark.parametrize("command", ["ls -l", "git status", "make check", "rm build/x.o", "select * from users"])
def test_the_example_lets_everyday_work_alone(ade: Call, command: str) -> None:
    book = read_rulebook(tomllib.loads(example(ade)))
    case = GuardCase(name="agent:coder", tool="Bash", arguments={"command": command}, score=0)

    assert rule_on(book, case, GuardOccasion.TOOL).verdict is GuardRulesVerdict.ALLOW


def test_what_the_rules_say_is_explained(ruled: Call) -> None:
    told = ruled("policies", "check", "send", "--args", '{"address": "here"}', "--json").json

    assert {ruling["verdict"] for ruling in told["rulings"].values()} == {"demand"}
    assert told["rulings"]["enqueue"]["rule"] == 2
    assert told["chosen"]["ids"] == ["pairs"]
    assert told["candidates"]["rules"][0]["accounts"] == ["rita", "rob"]
    assert told["candidates"]["rules"][0]["later"] == ["ada"]
    assert told["candidates"]["missing"] == 0
    text = ruled("policies", "check", "send", "--args", '{"address": "nowhere else"}').out
    assert "there is no such place" in text
    assert "usual" in text


def test_it_is_told_when_nobody_could_approve(ruled: Call) -> None:
    told = ruled("policies", "check", "send", "--resource", "db:main", "--json").json

    assert told["chosen"]["policy"]["id"] == "pairs+databases"
    assert told["chosen"]["why"][1] == "policy databases: it has the resource type db"
    assert told["risk"]["criticality"] == 80
    assert told["candidates"]["missing"] == 1
    assert "missing: 1 more" in ruled("policies", "check", "send", "--resource", "db:main").out


def test_another_rulebook_can_be_tried_with_another_risk(ruled: Call, folder: Path) -> None:
    (folder / "try.toml").write_text('[[guard]]\nfrom_score = 70\ntool = "Bash"\ndo = "deny"\nreason = "too much"\n')
    ask = ("policies", "check", "pack", "--rulebook", "try.toml", "--tool", "Bash", "--json")

    assert ruled(*ask, "--score", "80").json["rulings"]["tool"]["verdict"] == "deny"
    assert ruled(*ask, "--score", "60").json["rulings"]["tool"]["verdict"] == "allow"
    assert ruled(*ask, "--score", "80").json["risk"]["level"] == "critical"
    assert "80 as given" in ruled(*ask[:-1], "--score", "80").out
