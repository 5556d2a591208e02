"""Approvals over a server: who answers is whose token it is, and a high risk takes his password there too."""

import re
from typing import Any

import msgspec
import pytest

from tests.cli.conftest import SHOP, Answer, work
from tests.cli.processes import Terminal
from tests.cli.remote.conftest import Shop

PASSWORD = "correct horse battery staple"
UNDO = """

@pack.rollback
async def unpack(item: str, count: int = 1) -> str:
    return f"{item} is unpacked"
"""
BOOK = """
[criticality]
"db:*" = 100

[risk]
unknown_resources = "low"  # these stories are about people: a task that names nothing is harmless here

[[policy]]
id = "one"
rules = [{ needed = 1, roles = ["reviewer"] }]

[[policy]]
id = "pairs"
rules = [{ needed = 2, roles = ["reviewer"], name = "two reviewers" }]

[[policy]]
id = "dora"
rules = [{ needed = 1, users = ["dora"] }]
"""


@pytest.fixture
def team(served: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop with a rulebook, an author, two reviewers and an admin."""
    monkeypatch.setenv("ADE_USER", "otto")
    (served.here / "shop.py").write_text(SHOP + UNDO)
    (served.here / "rules.toml").write_text(BOOK)
    assert served.local("policies", "apply", "rules.toml").code == 0
    served.person("otto", "operator")
    for name in ("rita", "rob"):
        served.person(name, "reviewer")
    served.person("ada", "admin")
    for name in ("rita", "ada"):
        own = ("users", "password", name, "--password-stdin", "--as", name)
        assert served.local(*own, stdin=f"{PASSWORD}\n").code == 0
    return served


def asked(team: Shop, *more: str, policy: str = "one") -> tuple[str, str]:
    """A task that waits for people: its id and its digest."""
    task_id = team.local("enqueue", "pack", "item=lamp", "--approval", policy, *more).out.strip()
    digest: str = team.remote("approvals", "show", task_id, "--json").json["review"]["gates"][-1]["digest"]
    return task_id, digest


def code_of(answer: Answer) -> tuple[int, str]:
    return answer.code, answer.error["code"]


def undated(answer: Answer) -> str:
    """Without what is another a moment later: `(198 ms ago)`."""
    return re.sub(r" \((in )?[\d.]+ [a-z]+( ago)?\)", "", answer.out)


def waiting(team: Shop, by: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = team.remote("approvals", "--json", by=by).json["items"]
    return listed


def test_what_waits_is_seen_as_beside_the_store(team: Shop) -> None:
    assert team.remote("approvals", by="rita").err == "Nothing waits for rita.\n"
    task_id, digest = asked(team, "--resource", "lamp:1")

    for more in ((), ("--json",)):
        there, here = team.remote("approvals", *more, by="rita"), team.local("approvals", *more, "--as", "rita")
        assert there == here
        team.same("approvals", "list", "--all", *more)
    team.same("approvals", "show", task_id[-12:], "--json")
    show = ("approvals", "show", task_id[-12:])
    assert undated(team.remote(*show)) == undated(team.local(*show))
    [item] = waiting(team, "rita")
    assert (item["task_id"], item["digest"]) == (task_id, digest)
    assert team.remote("approvals", "list", "--json", by="otto").json == {"items": []}
    plain = team.local("enqueue", "pack", "item=cup").out.strip()
    assert code_of(team.remote("approvals", "show", plain, "--json")) == (3, "unknown_approval")


def test_two_agree_from_elsewhere(team: Shop) -> None:
    task_id, digest = asked(team, policy="pairs")
    approve = ("approvals", "approve", task_id[-12:], "--digest")

    assert code_of(team.remote(*approve, "012345678901", "--json", by="rita")) == (4, "digest_mismatch")
    assert team.remote("approvals", "approve", task_id, by="rita").code == 2
    first = team.remote(*approve, digest[:12], "--reason", "fine", by="rita")
    assert first.out == f"{task_id}  reviewing\n"
    assert f"approval {task_id}.1, digest {digest}\n" in first.err  # what the vote is on
    assert first.err.endswith("Still missing: 1 of two reviewers.\n")
    assert team.remote(*approve, digest, "--json", by="rob").json["task"]["status"] == "pending"
    [gate] = team.same("approvals", "show", task_id, "--json").json["review"]["gates"]
    assert [(vote["voter"], vote["reason"]) for vote in gate["votes"]] == [("rita", "fine"), ("rob", "")]
    work()
    assert team.remote("show", task_id, "--json").json["status"] == "completed"


def test_who_may_not_answer_cannot(team: Shop) -> None:
    task_id, digest = asked(team)
    approve = ("approvals", "approve", task_id, "--digest", digest, "--json")

    assert code_of(team.remote(*approve, by="agent")) == (3, "unknown_task")
    assert code_of(team.remote(*approve, by="otto")) == (7, "not_permitted")
    assert code_of(team.remote(*approve, "--as", "rita", by="otto")) == (2, "needs_store")
    assert code_of(team.remote(*approve, "--for", "rob", by="rita")) == (7, "not_eligible")
    assert len(waiting(team, "rita")) == 1


def test_a_high_risk_takes_the_password_of_who_the_token_belongs_to(team: Shop) -> None:
    task_id, digest = asked(team, "--resource", "db:*")
    approve = ("approvals", "approve", task_id, "--digest", digest)

    unasked = team.remote(*approve, "--json", by="rita")
    assert code_of(unasked) == (7, "reauthentication_needed")
    assert "the password of rita" in unasked.error["message"]
    wrong = team.remote(*approve, "--password-stdin", "--json", by="rita", stdin="wrong\n")
    assert code_of(wrong) == (7, "not_authenticated")
    right = team.remote(*approve, "--password-stdin", by="rita", stdin=f"{PASSWORD}\n")
    assert (right.code, right.out) == (0, f"{task_id}  pending\n")


def test_a_no_and_a_request_for_changes(team: Shop) -> None:
    (refused, its_digest), (other, digest) = asked(team), asked(team)
    assert team.remote("approvals", "comment", refused, "why now?", by="rob").out == f"{refused}  reviewing\n"
    reject = team.remote("approvals", "reject", refused, "--digest", its_digest, "--reason", "no", by="rita")
    assert reject.out == f"{refused}  rejected\n"
    changes = ("approvals", "request-changes", other, "--digest", digest, "--reason", "a cup")
    assert team.remote(*changes, by="rita").out == f"{other}  draft\n"

    dismiss = ("approvals", "dismiss", other, "Rita", "--reason", "she is away")
    assert code_of(team.remote(*dismiss, "--json", by="rob")) == (7, "not_permitted")
    assert team.remote(*dismiss, by="ada").out == f"{other}  reviewing\n"


def test_many_are_answered_at_once(team: Shop) -> None:
    (first, its_digest), (second, _), (risky, digest) = asked(team), asked(team), asked(team, "--resource", "db:*")
    pairs = [f"{first[-12:]}:{its_digest[:12]}", f"{second}:012345678901", f"{risky}:{digest}", "ffffff:012345678901"]
    (team.elsewhere / "pairs.txt").write_text("\n".join(pairs))
    answer = team.remote("approvals", "batch", "pairs.txt", "--approve", "--json", by="rita")

    told = answer.json_lines
    assert answer.code == 1
    assert [each["task_id"] for each in told] == [first, second, risky, "ffffff"]
    assert [each["code"] for each in told] == ["", "digest_mismatch", "not_permitted", "unknown_task"]
    batch = ("approvals", "batch", "--reject", f"{risky}.1:{digest}", "--password-stdin")
    assert code_of(team.remote(*batch, "--json", by="rita", stdin="wrong\n")) == (7, "not_authenticated")
    assert team.remote(*batch, by="rita", stdin=f"{PASSWORD}\n").out == f"{risky}  rejected\n"


def test_one_task_is_given_to_somebody_else(team: Shop) -> None:
    team.person("dora", "reviewer")
    own = ("users", "password", "dora", "--password-stdin", "--as", "dora")
    assert team.local(*own, stdin=f"{PASSWORD}\n").code == 0
    task_id, digest = asked(team, policy="dora")
    delegate = ("approvals", "delegate", f"{task_id}.1", "--to", "rita", "--json")
    assert code_of(team.remote(*delegate, by="dora")) == (7, "reauthentication_needed")
    lent = team.remote(*delegate, "--own-password-stdin", by="dora", stdin=f"{PASSWORD}\n").json
    assert (lent["delegator"], lent["delegate"], lent["task_id"]) == ("dora", "rita", task_id)
    other = ("approvals", "delegate", f"{task_id}.7", "--to", "rob", "--json", "--own-password-stdin")
    assert code_of(team.remote(*other, by="dora", stdin=f"{PASSWORD}\n")) == (3, "unknown_approval")

    assert waiting(team, "rita")[0]["for_whom"] == "dora"
    approve = ("approvals", "approve", task_id, "--digest", digest, "--for", "Dora")
    assert team.remote(*approve, by="rita").out == f"{task_id}  pending\n"


def test_an_approved_task_is_started_taken_back_and_undone(team: Shop) -> None:
    task_id = team.local("draft", "pack", "item=lamp", "--approval", "one", "--start", "by_hand").out.strip()
    assert team.local("submit", task_id, "--wait", "--json").json["status"] == "reviewing"
    digest = waiting(team, "rita")[0]["digest"]
    approve = ("approvals", "approve", task_id, "--digest", digest)
    assert team.remote(*approve, by="rita").out == f"{task_id}  approved\n"
    revoke = ("approvals", "revoke", task_id, "--reason", "too early")
    assert code_of(team.remote(*revoke, "--json", by="rob")) == (7, "not_permitted")
    assert team.remote(*revoke, by="rita").out == f"{task_id}  reviewing\n"
    team.remote("approvals", "approve", task_id, "--digest", waiting(team, "rita")[0]["digest"], by="rita")
    assert team.remote("approvals", "start", task_id, by="otto").out == f"{task_id}  pending\n"
    work()

    undone = team.remote("approvals", "roll-back", task_id, "--json", by="otto").json
    assert team.remote("approvals", "roll-back", task_id, "--json", by="otto").json["id"] == undone["id"]
    work()
    assert team.local("show", undone["id"], "--json").json["result"] == "lamp is unpacked"


def test_the_glass_is_broken_in_the_open(team: Shop) -> None:
    task_id, _ = asked(team)
    bypass = ("approvals", "break-glass", task_id, "--reason", "the shop is down")

    assert code_of(team.remote(*bypass, "--json", by="ada")) == (7, "reauthentication_needed")
    shown = ("--password-stdin", "--json")
    assert code_of(team.remote(*bypass, *shown, by="rita", stdin=f"{PASSWORD}\n")) == (7, "not_permitted")
    assert team.remote(*bypass, *shown, by="ada", stdin=f"{PASSWORD}\n").json["status"] == "pending"
    assert "the shop is down" in team.remote("approvals", "show", task_id).out


def test_a_reviewer_amends_what_waits(team: Shop) -> None:
    much = "much " * 20_000  # kept apart, and changed as a whole all the same
    (team.here / "much.json").write_text(msgspec.json.encode({"item": much}).decode())
    task_id, digest = asked(team)
    amend = ("approvals", "amend", task_id, "--digest")
    assert team.remote("approvals", "amend", task_id, "--digest", digest, by="rita").code == 2
    assert code_of(team.remote(*amend, "012345678901", "count=2", "--json", by="rita")) == (4, "digest_mismatch")
    large = ("--args", (team.here / "much.json").read_text(), "--description", "plenty")
    assert team.remote(*amend, digest, *large, by="rita").out == f"{task_id}  reviewing\n"

    [item] = waiting(team, "rob")
    assert team.remote(*amend, item["digest"], "count=2", "--reason", "two", by="rob").code == 0
    assert team.remote("approvals", "show", task_id, "--json").json["args"] == {"item": much, "count": 2}
    assert waiting(team, "rita") == waiting(team, "rob") == []  # both have a hand in it now


def test_an_answer_is_put_off(team: Shop) -> None:
    task_id, _ = asked(team)
    put_off = team.remote("approvals", "snooze", task_id, "--for", "2h", "--json", by="rita").json

    assert (put_off["task_id"], put_off["account"]) == (task_id, "rita")
    assert (waiting(team, "rita"), len(waiting(team, "rob"))) == ([], 1)
    assert team.remote("approvals", "snooze", task_id, "--for", "9d", by="rita").code == 2


def test_figures(team: Shop) -> None:
    task_id, digest = asked(team)
    asked(team)
    team.remote("approvals", "approve", task_id, "--digest", digest, by="rita")

    told = team.remote("approvals", "stats", "--json", by="rita").json
    assert (told["account"], told["pending"], told["approved"]) == ("rita", 1, 1)
    assert team.same("approvals", "stats", "Rita", "--json").json == told
    everybody = team.remote("approvals", "stats", "--all", "--json").json
    assert (everybody["waiting"]["count"], everybody["ended"]["outcomes"]["approved"]) == (1, 1)
    assert "ends within an hour" in team.remote("approvals", "stats", "--all", "--over", "2h").out


@pytest.mark.slow
def test_on_a_terminal_it_is_shown_and_the_password_asked_for(team: Shop) -> None:
    task_id, digest = asked(team, "--resource", "db:*")
    terminal = Terminal(team.elsewhere, "approvals", "approve", task_id, **team.environment("rita"))
    terminal.read_until("Approve exactly this?")
    terminal.answer("y\n")
    terminal.read_until("Password of rita")
    terminal.answer(f"{PASSWORD}\n")

    assert terminal.finish() == 0
    for part in ('pack {"item":"lamp"', digest, "high", "pending"):
        assert part in terminal.seen
    assert PASSWORD not in terminal.seen
