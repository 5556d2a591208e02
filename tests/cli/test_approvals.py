"""`ade draft`, `ade submit` and `ade approvals`: from what somebody writes to what others let run."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SHOP, Call, work
from tests.cli.processes import Terminal

PASSWORD = "correct horse battery staple"
DEPLOY = """

from ade import Context, Preview


@ade.task
async def deploy(service: str, version: int = 1) -> str:
    return f"{service} is at {version}"


@ade.task
async def publish(page: str, ctx: Context) -> str:
    response = await ctx.hold("go live", {"page": page}, responses=True)
    return f"{bool(response)} {response.text} {response.args}"


@deploy.preview
async def plan(service: str, version: int = 1) -> Preview:
    if version < 0:
        return Preview(errors=["there is no such version"])
    return Preview(changes=[f"{service} to {version}"], warnings=["a short pause"], versions={service: "7"})


@deploy.rollback
async def undo(service: str, version: int = 1) -> str:
    return f"{service} is back"
"""
BOOK = """
[criticality]
"db:*" = 100

[risk]
unknown_resources = "low"  # these stories are about people: a task that names nothing is harmless here

[[guard]]
name = "send"
when = { address = "nowhere*" }
do = "deny"
reason = "there is no such place"

[[policy]]
id = "pairs"
rules = [{ needed = 2, roles = ["reviewer"], name = "two reviewers" }]

[[policy]]
id = "dora"
resource_types = ["dora"]  # as the preview names it
rules = [{ needed = 1, users = ["dora"] }]

[[policy]]
id = "one"
resource_types = ["one"]
rules = [{ needed = 1, roles = ["reviewer"] }]
"""


@pytest.fixture
def team(shop: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """A shop with deployments, a rulebook, an admin who writes tasks, and reviewers; its worker has been there."""
    monkeypatch.setenv("ADE_USER", "ada")
    (folder / "shop.py").write_text(SHOP + DEPLOY)
    (folder / "rules.toml").write_text(BOOK)
    assert shop("policies", "apply", "rules.toml").code == 0
    shop("users", "add", "ada", "--role", "admin", "--password-stdin", stdin=f"{PASSWORD}\n")
    shop("users", "add", "rita", "--role", "reviewer", "--password-stdin", "--as", "rita", stdin=f"{PASSWORD}\n")
    shop("users", "add", "rob", "--role", "reviewer", "--no-password")
    work()
    return shop


def drafted(team: Call, *more: str, service: str = "web") -> str:
    answer = team("draft", "deploy", f"service={service}", *more)
    assert answer.code == 0, answer.err
    return answer.out.strip()


def asked(team: Call, *more: str, service: str = "web") -> str:
    """The id of a task that waits for people."""
    task_id = drafted(team, *more, service=service)
    assert team("submit", task_id).code == 0
    work()
    assert team("show", task_id, "--json").json["status"] == "reviewing"
    return task_id


def digest_of(team: Call, task_id: str) -> str:
    digest: str = team("approvals", "show", task_id, "--json").json["review"]["gates"][-1]["digest"]
    return digest


def status(team: Call, task_id: str) -> str:
    shown: str = team("show", task_id, "--json").json["status"]
    return shown


def code_of(team: Call, *arguments: str, stdin: str = "") -> tuple[int, str]:
    answer = team(*arguments, "--json", stdin=stdin)
    return answer.code, answer.error["code"]


def test_from_a_draft_to_its_result(team: Call) -> None:
    task_id = drafted(team, "--resource", "service:web", "--description", "the new page")
    assert status(team, task_id) == "draft"
    assert team("draft", "edit", task_id[-12:], "version=3").out == f"{task_id}  changed: args\n"
    assert team("submit", task_id).out == f"{task_id}  submitted\n"
    work()

    [waiting] = team("approvals", "--as", "rita", "--json").json["items"]
    assert (waiting["task_id"], waiting["name"], waiting["for_whom"]) == (task_id, "deploy", "")
    approve = ("approvals", "approve", task_id, "--as", "rita")
    assert code_of(team, *approve, "--digest", "012345678901") == (4, "digest_mismatch")
    assert status(team, task_id) == "reviewing"
    assert team(*approve, "--digest", waiting["digest"][:12], "--reason", "fine").out == f"{task_id}  pending\n"
    work()

    shown = team("show", task_id, "--json").json
    assert (shown["status"], shown["result"]) == ("completed", "web is at 3")
    [gate] = shown["approval"]["review"]["gates"]
    assert (gate["state"], gate["rules"][0]["filled_by"]) == ("consumed", ["rita"])
    assert [(vote["voter"], vote["reason"], vote["via"]) for vote in gate["votes"]] == [("rita", "fine", "cli")]


def test_an_edit_after_the_look_needs_another_look(team: Call) -> None:
    task_id = asked(team)
    looked_at = digest_of(team, task_id)
    team("approvals", "request-changes", task_id, "--digest", looked_at, "--reason", "version 2", "--as", "rita")
    assert "Changes were asked for by rita: version 2" in team("explain", task_id).out
    team("draft", "edit", task_id, "version=2")
    team("submit", task_id)
    work()

    approve = ("approvals", "approve", task_id, "--digest")
    assert code_of(team, *approve, looked_at, "--as", "rita") == (4, "digest_mismatch")
    assert code_of(team, "approvals", "approve", f"{task_id}.1", "--digest", looked_at, "--as", "rita") == (
        4,
        "gate_closed",
    )
    assert team(*approve, digest_of(team, task_id), "--as", "rita").code == 0


def test_a_preview_that_finds_a_mistake_sends_the_draft_back(team: Call) -> None:
    task_id = drafted(team, "version=-1")
    team("submit", task_id)
    work()

    assert status(team, task_id) == "draft"
    assert "there is no such version" in team("explain", task_id).out
    assert "sent back" in team("show", task_id).out


def test_submit_waits_until_it_is_assessed(team: Call) -> None:
    plain = team("draft", "pack", "item=lamp").out.strip()
    assert team("submit", plain, "--wait", "--json").json["status"] == "reviewing"
    previewed = drafted(team)
    assert code_of(team, "submit", previewed, "--timeout", "0.01") == (124, "wait_timeout")


def test_options_may_come_before_the_name_of_a_draft(team: Call) -> None:
    options = ("--priority", "2", "--approval", "pairs", "--rollback", "automatic", "--start", "by_hand")
    window = ("--window", "2040-01-01T00:00Z", "2040-01-02T00:00Z")
    made = team("draft", *options, *window, "--json", "deploy", "--tag", "web", "service=web").json

    assert (made["status"], made["priority"], made["rollback"], made["tags"]) == ("draft", 2, "automatic", ["web"])
    assert made["author_id"] == "ada"
    team("submit", made["id"])
    work()
    shown = team("approvals", "show", made["id"], "--json").json["review"]
    assert (shown["start"], shown["not_before"]) == ("by_hand", "2040-01-01T00:00:00.000Z")
    assert team("draft", "new", "edit", "--json").error["code"] == "unknown_name"


def test_only_drafts_are_edited(team: Call) -> None:
    task_id = team("enqueue", "pack", "item=lamp").out.strip()

    assert code_of(team, "draft", "edit", task_id, "item=sofa") == (4, "illegal_transition")
    assert team("draft", "edit", task_id).code == 2
    draft = drafted(team)
    assert code_of(team, "draft", "edit", draft, "colour=red") == (2, "invalid_arguments")
    team("draft", "edit", draft, "--args", '{"service": "shop"}', "--priority", "1")
    shown = team("show", draft, "--json").json
    assert (shown["args"], shown["priority"]) == ({"service": "shop"}, 1)


def test_whoever_has_a_hand_in_it_cannot_approve(team: Call) -> None:
    task_id = drafted(team)
    team("draft", "edit", task_id, "version=2", "--as", "rob")
    team("submit", task_id)
    work()
    approve = ("approvals", "approve", task_id, "--digest", digest_of(team, task_id))

    assert code_of(team, *approve) == (7, "conflict_of_interest")
    assert code_of(team, *approve, "--as", "rob") == (7, "conflict_of_interest")
    assert code_of(team, *approve, "--as", "nobody") == (7, "not_eligible")
    assert status(team, task_id) == "reviewing"


def test_two_must_agree_where_the_policy_says_so(team: Call) -> None:
    task_id = asked(team, "--approval", "pairs")
    approve = ("approvals", "approve", task_id, "--digest", digest_of(team, task_id))

    first = team(*approve, "--as", "rita")
    assert first.out == f"{task_id}  reviewing\n"
    assert f"approval {task_id}.1, digest {digest_of(team, task_id)}\n" in first.err  # what the vote is on
    assert first.err.endswith("Still missing: 1 of two reviewers.\n")
    again = team(*approve, "--as", "rita")
    assert again.out == first.out
    stats = team("approvals", "show", task_id, "--json").json["stats"]
    assert stats == {"required": 2, "approved": 1, "rejected": 0, "pending": 1, "quorum_reached": False}
    assert team(*approve, "--as", "rob").out == f"{task_id}  pending\n"


def test_what_nobody_can_approve_explains_itself(team: Call) -> None:
    task_id = asked(team, service="dora")

    why = team("explain", task_id, "--json").json
    assert why["reasons"][0]["code"] == "approval_blocked"
    assert "`ade users add dora`" in why["reasons"][0]["advice"]
    assert "`ade users add dora`" in team("explain", task_id).out
    assert team("approvals", "--as", "rita").err == "Nothing waits for rita.\n"
    assert "no one" in team("approvals", "list", "--all").out
    team("users", "add", "dora", "--no-password")
    assert team("explain", task_id, "--json").json["reasons"][0]["code"] == "waits_for_approval"
    assert team("approvals", "approve", task_id, "--digest", digest_of(team, task_id), "--as", "dora").code == 0


def test_without_an_account_everything_is_listed(team: Call) -> None:
    assert "Nothing waits for an answer" in team("approvals", "--as", "stranger").err
    task_id = asked(team)

    listed = team("approvals", "--as", "stranger", "--json").json["items"]
    assert [item["task_id"] for item in listed] == [task_id]
    assert team("approvals", "list", "--mine", "--as", "stranger", "--json").json["items"] == []
    assert team("approvals", "list", "--as", "rita").lines[0].split()[:3] == ["ID", "NAME", "ARGUMENTS"]


def test_without_a_terminal_the_digest_is_demanded(team: Call) -> None:
    task_id = asked(team)
    answer = team("approvals", "approve", task_id, "--as", "rita")

    assert (answer.code, "--digest D" in answer.err) == (2, True)
    assert team("approvals", "approve", task_id, "--as", "rita", "--digest", "abc").code == 2
    plain = team("enqueue", "pack", "item=lamp").out.strip()
    assert code_of(team, "approvals", "approve", plain, "--digest", "012345678901") == (3, "unknown_approval")
    assert code_of(team, "approvals", "show", plain) == (3, "unknown_approval")


def test_a_high_risk_takes_a_password(team: Call) -> None:
    task_id = asked(team, "--resource", "db:*", service="one")
    approve = ("approvals", "approve", task_id, "--digest", digest_of(team, task_id), "--as", "rita")

    assert team("approvals", "--as", "rita", "--json").json["items"][0]["level"] == "high"
    assert code_of(team, *approve) == (7, "reauthentication_needed")
    assert code_of(team, *approve, "--password-stdin", stdin="wrong\n") == (7, "not_authenticated")
    assert status(team, task_id) == "reviewing"
    assert team(*approve, "--password-stdin", stdin=f"{PASSWORD}\n").code == 0


def test_a_no_ends_it(team: Call) -> None:
    task_id = asked(team)
    team("approvals", "comment", task_id, "why now?", "--as", "rob")
    team("approvals", "reject", task_id, "--digest", digest_of(team, task_id), "--reason", "not today", "--as", "rita")

    shown = team("show", task_id).out
    for part in ("rejected", "not today", "rob: why now?", "web to 1", "a short pause", "seen at web 7"):
        assert part in shown
    assert code_of(team, "approvals", "approve", task_id, "--digest", digest_of(team, task_id), "--as", "rob") == (
        4,
        "gate_closed",
    )


def test_many_are_answered_at_once_and_each_by_itself(team: Call, folder: Path) -> None:
    ids = [asked(team) for _ in range(3)]
    risky = asked(team, "--resource", "db:*", service="one")
    pairs = [f"{task_id}:{digest_of(team, task_id)[:12]}" for task_id in (ids[0], ids[1], risky)]
    (folder / "pairs.txt").write_text("\n".join(pairs))
    answer = team("approvals", "batch", "pairs.txt", f"{ids[2]}:012345678901", "--approve", "--as", "rita", "--json")

    told: list[dict[str, Any]] = answer.json_lines
    assert answer.code == 1
    assert [each["task_id"] for each in told] == [ids[0], ids[1], risky, ids[2]]
    assert [each.get("status") for each in told] == ["pending", "pending", None, None]
    assert [each["code"] for each in told] == ["", "", "not_permitted", "digest_mismatch"]
    assert team("approvals", "batch", pairs[0]).code == 2
    assert team("approvals", "batch", "0123:12", "--reject").code == 2
    rest = team("approvals", "batch", f"{ids[2]}:{digest_of(team, ids[2])}", "--reject", "--as", "rita")
    assert (rest.code, rest.out) == (0, f"{ids[2]}  rejected\n")


def test_one_task_is_given_to_somebody_else(team: Call) -> None:
    team("users", "add", "dora", "--role", "viewer", "--no-password")
    task_id, other = asked(team, service="dora"), asked(team, service="dora")
    delegate = ("approvals", "delegate", task_id, "--to", "rita")

    assert code_of(team, *delegate, "--as", "rob") == (7, "not_eligible")
    lent = team(*delegate, "--as", "dora", "--json").json
    assert (lent["delegator"], lent["delegate"], lent["task_id"]) == ("dora", "rita", task_id)
    assert team("delegations", "--json").json["items"][0]["task_id"] == task_id
    [item] = team("approvals", "--as", "rita", "--json").json["items"]
    assert (item["task_id"], item["for_whom"]) == (task_id, "dora")
    assert "you, for dora" in team("approvals", "--as", "rita").out
    approve = ("approvals", "approve", "--as", "rita", "--for", "Dora", "--digest")
    assert code_of(team, *approve, digest_of(team, other), other) == (7, "not_eligible")
    assert team(*approve, digest_of(team, task_id), task_id).code == 0


def test_an_approved_task_waits_for_a_hand(team: Call) -> None:
    task_id = asked(team, "--start", "by_hand")
    approve = ("approvals", "approve", task_id, "--as", "rita", "--digest")
    assert team(*approve, digest_of(team, task_id)).out == f"{task_id}  approved\n"
    assert f"ade approvals start {task_id}" in team("explain", task_id).out
    assert code_of(team, "approvals", "start", task_id, "--as", "rob") == (7, "not_permitted")
    assert (
        team("approvals", "revoke", task_id, "--reason", "too early", "--as", "rita").out == f"{task_id}  reviewing\n"
    )
    team(*approve, digest_of(team, task_id))

    assert team("approvals", "start", task_id).out == f"{task_id}  pending\n"
    work()
    assert status(team, task_id) == "completed"


def test_the_glass_is_broken_in_the_open(team: Call) -> None:
    task_id = asked(team, "--as", "rob")
    bypass = ("approvals", "break-glass", task_id, "--reason", "the shop is down")

    assert code_of(team, *bypass) == (7, "reauthentication_needed")
    assert code_of(team, *bypass, "--as", "rita", "--password-stdin", stdin=f"{PASSWORD}\n") == (7, "not_permitted")
    assert team(*bypass, "--password-stdin", stdin=f"{PASSWORD}\n").out == f"{task_id}  pending\n"
    work()
    assert "the shop is down" in team("show", task_id).out
    [item] = team("approvals", "--as", "rita", "--json").json["items"]
    assert (item["task_id"], item["step"]) == (task_id, "after the fact")
    assert team("approvals", "approve", task_id, "--digest", item["digest"], "--as", "rita").out == (
        f"{task_id}  completed\n"
    )
    assert team("approvals", "--as", "rita", "--json").json["items"] == []


def test_a_request_for_changes_is_dismissed(team: Call) -> None:
    task_id = asked(team, "--as", "rob")
    team("approvals", "request-changes", task_id, "--digest", digest_of(team, task_id), "--reason", "x", "--as", "rita")
    dismiss = ("approvals", "dismiss", task_id, "Rita", "--reason", "she is away")

    assert code_of(team, *dismiss, "--as", "rob") == (7, "not_permitted")
    assert team(*dismiss).out == f"{task_id}  reviewing\n"
    assert "no: it was dismissed" in team("approvals", "show", task_id).out


def test_a_reviewer_amends_it_and_others_answer(team: Call) -> None:
    task_id = asked(team)
    digest = digest_of(team, task_id)
    amended = team("approvals", "amend", task_id, "version=3", "--digest", digest, "--as", "rita")
    assert (amended.code, amended.err) == (0, "")
    work()

    assert team("approvals", "approve", task_id, "--digest", digest, "--as", "rob").code == 4  # another one by now
    digest = digest_of(team, task_id)
    assert team("approvals", "approve", task_id, "--digest", digest, "--as", "rita").code == 7
    assert team("approvals", "approve", task_id, "--digest", digest, "--as", "rob").code == 0
    work()
    assert team("show", task_id, "--json").json["result"] == "web is at 3"


def test_an_answer_is_put_off(team: Call) -> None:
    task_id = asked(team)
    assert team("approvals", "snooze", task_id, "--for", "2h", "--as", "rita").code == 0

    assert team("approvals", "list", "--json", "--as", "rita").json["items"] == []
    assert len(team("approvals", "list", "--json", "--as", "rob").json["items"]) == 1
    assert team("approvals", "snooze", task_id, "--for", "9d", "--as", "rita").code == 2


def test_what_was_done_is_undone(team: Call) -> None:
    task_id = asked(team)
    assert code_of(team, "approvals", "roll-back", task_id) == (4, "illegal_transition")
    team("approvals", "approve", task_id, "--digest", digest_of(team, task_id), "--as", "rita")
    work()

    rollback = team("approvals", "roll-back", task_id, "--json").json
    assert team("approvals", "roll-back", task_id, "--json").json["id"] == rollback["id"]
    work()
    assert team("show", rollback["id"], "--json").json["result"] == "web is back"


def test_what_somebody_has_done_is_told(team: Call) -> None:
    task_id = asked(team)
    asked(team)
    team("approvals", "approve", task_id, "--digest", digest_of(team, task_id), "--as", "rita")

    told = team("approvals", "stats", "Rita", "--json").json
    assert (told["account"], told["pending"], told["approved"], told["rejected"]) == ("rita", 1, 1, 0)
    assert told["last_action"] == "approval.approved"
    assert told["response_ms"] >= 0
    text = team("approvals", "stats", "--as", "rita").out
    assert "approved today" in text
    assert team("approvals", "stats", "rob", "--json").json["approved"] == 0


def test_how_everybody_deals_with_approvals_is_told(team: Call) -> None:
    task_id = asked(team)
    asked(team)
    team("approvals", "approve", task_id, "--digest", digest_of(team, task_id), "--as", "rita")

    told = team("approvals", "stats", "--all", "--json").json
    assert (told["waiting"]["count"], told["ended"]["outcomes"]["approved"]) == (1, 1)
    assert told["ended"]["median_ms"] >= 0
    assert sum(each["waiting"] for each in told["policies"]) == 1
    text = team("approvals", "stats", "--all", "--over", "2h")
    assert "ends within an hour" in text.out
    assert "MEDIAN" in text.out
    assert team("approvals", "stats", "--all", "--over", "soon").code == 2
    assert team("approvals", "stats", "rita", "--all").code == 2


def test_a_task_may_be_enqueued_with_a_policy(team: Call) -> None:
    made = team("enqueue", "pack", "item=lamp", "--approval", "one", "--as", "Rob", "--json").json

    assert (made["status"], made["author_id"]) == ("reviewing", "rob")
    assert made["review"]["gates"][0]["state"] == "open"
    assert [item["task_id"] for item in team("approvals", "--as", "rita", "--json").json["items"]] == [made["id"]]


def test_the_guard_looks_at_files_too(team: Call) -> None:
    lines = (
        '{"name": "pack", "args": {"item": "lamp"}, "approval": "one"}\n'
        '{"name": "send", "args": {"address": "nowhere at all"}}\n'
    )

    assert code_of(team, "enqueue", "send", "address=nowhere at all") == (7, "denied")
    assert code_of(team, "enqueue", "--file", "-", stdin=lines) == (7, "denied")
    first = lines.splitlines()[0]
    [stored] = team("enqueue", "--file", "-", stdin=first).lines
    assert status(team, stored) == "reviewing"


@pytest.mark.slow
def test_on_a_terminal_it_is_shown_what_would_be_approved(team: Call, folder: Path) -> None:
    task_id = asked(team)
    command = ("approvals", "approve", task_id, "--as", "rita", "--store", "sqlite:///shop.db")
    terminal = Terminal(folder, *command)
    terminal.read_until("Approve exactly this?")
    terminal.answer("n\n")

    assert terminal.finish() != 0
    for part in ('deploy {"service":"web"', "web to 1", "a short pause", digest_of(team, task_id), "low"):
        assert part in terminal.seen
    assert status(team, task_id) == "reviewing"
    terminal = Terminal(folder, *command)
    terminal.read_until("Approve exactly this?")
    terminal.answer("y\n")
    assert terminal.finish() == 0
    assert status(team, task_id) == "pending"


@pytest.mark.slow
def test_on_a_terminal_the_password_is_asked_for(team: Call, folder: Path) -> None:
    task_id = asked(team, "--resource", "db:*", service="one")
    digest = digest_of(team, task_id)
    terminal = Terminal(
        folder, "approvals", "approve", task_id, "--digest", digest, "--as", "rita", "--store", "sqlite:///shop.db"
    )
    terminal.read_until("Password of rita")
    terminal.answer(f"{PASSWORD}\n")

    assert terminal.finish() == 0
    assert PASSWORD not in terminal.seen
    assert status(team, task_id) == "pending"


def held(team: Call, page: str = "home") -> str:
    """The id of a task whose run waits at a step."""
    task_id = team("enqueue", "publish", f"page={page}").out.strip()
    work()
    assert status(team, task_id) == "reviewing"
    return task_id


def respond(team: Call, who: str, task_id: str, *more: str, verb: str = "respond") -> Any:
    return team("approvals", verb, task_id, "--digest", digest_of(team, task_id), "--as", who, *more)


def test_a_response_reaches_the_run(team: Call) -> None:
    words, no, edit = held(team), held(team), held(team)
    assert respond(team, "rita", words, "--text", "not before noon").out == f"{words}  pending\n"
    assert respond(team, "rita", no, "--continue", "--reason", "never", verb="reject").out == f"{no}  pending\n"
    edited = respond(team, "rita", edit, "--text", "this one", "--args", '{"page": "test"}')
    assert edited.out == f"{edit}  reviewing\n"
    assert respond(team, "rita", edit, verb="approve").code != 0
    assert respond(team, "rob", edit, verb="approve").out == f"{edit}  pending\n"
    work()

    results = [team("show", task_id, "--json").json for task_id in (words, no, edit)]
    assert [each["result"] for each in results] == [
        "False not before noon None",
        "False never None",
        "True this one {'page': 'test'}",
    ]
    shown = team("approvals", "show", edit).out
    assert "responded" in shown
    assert f"this one; edited: see {edit}.2" in shown


def test_a_response_needs_something_to_say_and_a_run_that_waits(team: Call) -> None:
    task_id = held(team)
    assert "--text or --args" in respond(team, "rita", task_id).err
    assert status(team, task_id) == "reviewing"
    whole = asked(team, "--approval", "one")
    refused = respond(team, "rita", whole, "--text", "hello")
    assert (refused.code != 0, "no run waits at approval" in refused.err) == (True, True)


def test_people_are_shown_with_their_display_names(team: Call) -> None:
    team("users", "change", "ada", "--name", "Ada Lovelace")
    team("users", "change", "rita", "--name", "Rita Levi")
    task_id = asked(team)
    shown = team("approvals", "show", task_id).out
    assert "Ada Lovelace (ada)" in shown
    assert "Rita Levi (rita), rob" in shown
    team("approvals", "reject", task_id, "--as", "rita", "--digest", digest_of(team, task_id), "--reason", "not now")
    assert "Rita Levi (rita)" in team("approvals", "show", task_id).out
    assert "Ada Lovelace (ada)" in team("show", task_id).out


def test_commands_record_the_person_and_not_the_login(team: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rob logs in as `build`, sets ADE_USER, and tries to approve his own request."""
    monkeypatch.setenv("LOGNAME", "build")
    for replay in (("dlq", "replay", "--args", "{}"), ("retry",), ("dlq", "replay", "--name", "wobble", "--yes")):
        task_id = team("enqueue", "wobble", "--approval", "one", "--max-attempts", "1").out.strip()
        team("approvals", "approve", task_id, "--digest", digest_of(team, task_id), "--as", "rita")
        work()
        assert status(team, task_id) == "failed"

        monkeypatch.setenv("ADE_USER", "rob")
        assert team(*replay, *(() if "--name" in replay else (task_id,))).code == 0
        work()
        approve = ("approvals", "approve", task_id, "--digest", digest_of(team, task_id))
        assert code_of(team, *approve) == (7, "conflict_of_interest")
        events = team("show", task_id, "--json").json["events"]
        assert [event["actor"] for event in events if event["type"] == "task.replayed"] == ["rob"]
        monkeypatch.setenv("ADE_USER", "ada")
        assert team(*approve, "--as", "rita").code == 0
        work()


def test_a_login_without_an_account_cannot_ask_for_approval(team: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADE_USER")
    monkeypatch.setenv("LOGNAME", "mallory2")
    assert code_of(team, "enqueue", "deploy", "service=web") == (2, "author_required")
    draft = drafted(team)
    assert code_of(team, "submit", draft) == (2, "author_required")
    assert "ADE_USER" in team("submit", draft).err
    assert status(team, draft) == "draft"
    assert team("enqueue", "pack", "item=lamp").code == 0  # this needs no approval


def test_everything_that_is_signed_is_shown(team: Call) -> None:
    task_id = asked(team, "--resource", "db:main", "--description", "the new page")
    shown = team("approvals", "show", task_id)
    [gate] = team("approvals", "show", task_id, "--json").json["review"]["gates"]
    assert {"args", "queue", "timeout_ms", "max_attempts", "locks", "policy", "start"} <= gate["signed"].keys()
    for name in gate["signed"]:
        assert f"\n{name} " in shown.out
    assert "db:main" in shown.out
    listed = team("approvals", "list", "--all").out
    assert all(part in listed for part in ("ARGUMENTS", '{"service":"web"}', "AUTHOR", "ada", "AGE"))

    digest = digest_of(team, task_id)
    assert team("approvals", "amend", task_id, "version=3", "--digest", digest, "--as", "rita").code == 0
    work()
    changed = team("approvals", "show", task_id).out.partition("CHANGED SINCE THE LAST APPROVAL")[2]
    assert "args.version" in changed.partition("\n\n")[0]
