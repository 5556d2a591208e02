"""`ade locks`: who holds what, a command under a lock, and what an operator may do."""

from pathlib import Path

import msgspec
import pytest

from ade import read, write
from tests.cli.conftest import Call, with_stores
from tests.cli.processes import call, eventually, started
from tests.domain import LockLimits, LockSpec, Stores, validate_request

REPO, DB = "repo:app", "database:main"


def take(name: str, *wanted: LockSpec) -> None:
    """An agent asks, and stays in line if need be."""

    async def asking(stores: Stores) -> None:
        request = validate_request(id=name, owner=f"agent-{name}", scope=name, wanted=wanted, purpose="to test")
        await stores.locks.acquire(request, wait_ms=None, limits=LockLimits())

    with_stores(asking)


@pytest.fixture
def busy(shop: Call) -> Call:
    """A writer holds the repository; a reader and a second writer wait; the database has a reader."""
    shop("enqueue", "pack", "item=lamp")
    take("a", write(REPO))
    take("b", read(REPO))
    take("c", write(REPO))
    take("d", read(DB))
    return shop


def test_what_is_locked_is_listed_with_holder_and_waiters(busy: Call) -> None:
    listed = {lock["resource"]: lock for lock in busy("locks", "--json").json["items"]}

    assert [one["owner"] for one in listed[REPO]["holders"]] == ["agent-a"]
    assert [one["owner"] for one in listed[REPO]["waiters"]] == ["agent-b", "agent-c"]
    assert listed[DB]["holders"][0]["mode"] == "shared"
    assert [lock["resource"] for lock in busy("locks", "list", "--type", "repo", "--json").json["items"]] == [REPO]
    assert [lock["resource"] for lock in busy("locks", "list", "--owner", "agent-d", "--json").json["items"]] == [DB]
    assert busy("locks").lines[0].split()[:3] == ["RESOURCE", "MODE", "OWNER"]


def test_what_an_owner_has_is_listed_with_everybody_else_who_stands_there(busy: Call) -> None:
    listed = busy("locks", "list", "--owner", "agent-b", "--type", "repo", "--json").json["items"]

    assert [lock["resource"] for lock in listed] == [REPO]
    assert [one["owner"] for one in listed[0]["holders"]] == ["agent-a"]
    assert [one["owner"] for one in listed[0]["waiters"]] == ["agent-b", "agent-c"]
    assert busy("locks", "list", "--owner", "agent-b", "--type", "database", "--json").json["items"] == []


def test_the_line_of_one_resource_is_shown(busy: Call) -> None:
    places = [line.split()[:2] for line in busy("locks", "show", REPO).lines[1:]]

    assert places == [["holds", "agent-a"], ["1", "agent-b"], ["2", "agent-c"]]
    assert busy("locks", "show", "repo:other").out == ""


def test_an_operator_takes_a_lock_away_and_says_why(busy: Call) -> None:
    assert busy("locks", "release", "a", "--reason", "hangs").code == 2, "not without --force"
    answer = busy("locks", "release", "a", "--force", "--reason", "hangs")

    assert answer.out == f"{REPO}: taken away from agent-a\n"
    told = busy("events", "tail", "--after", "0", "--json").json_lines
    [lost] = [event for event in told if event["type"] == "lock.lost"]
    assert lost["payload"]["reason"] == "hangs"
    assert lost["payload"]["by"].startswith("cli:")
    again = busy("locks", "release", "a", "--force", "--reason", "hangs", "--json")
    assert (again.code, again.error["code"]) == (4, "lock_lost")


def test_the_events_of_one_lock_are_shown_alone(busy: Call) -> None:
    told = busy("events", "tail", "--after", "0", "--lock", DB, "--json").json_lines
    named = [[item["resource"] for item in event["payload"]["items"]] for event in told]
    assert named
    assert all(DB in resources for resources in named)
    assert busy("events", "tail", "--lock", "repo:nothing").out == ""
    assert busy("events", "tail", "--lock", DB, "--type", "lock.deadlock").out == ""
    assert busy("events", "tail", "--lock", "{x}").code == 2


def test_who_waits_for_whom_is_drawn(busy: Call, folder: Path) -> None:
    lines = busy("locks", "graph").lines

    assert f"agent-b --waits for--> agent-a   {REPO} (shared)" in lines
    assert f"agent-c --stands behind--> agent-b   {REPO} (exclusive)" in lines
    take("a2", write(DB))
    assert busy("locks", "graph", "--svg", "graph.svg").code == 0
    drawing = (folder / "graph.svg").read_text()
    assert drawing.startswith("<svg")
    assert "agent-c" in drawing
    assert busy("locks", "graph", "--svg", "no/such/folder.svg").code == 2


def test_a_ring_is_named(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp")

    async def crossing(stores: Stores) -> None:
        for number, (scope, name) in enumerate([("x", REPO), ("y", DB), ("x", DB), ("y", REPO)]):
            request = validate_request(id=str(number), owner=f"agent-{scope}", scope=scope, wanted=[write(name)])
            await stores.locks.acquire(request, wait_ms=None, limits=LockLimits())

    with_stores(crossing)

    assert "ring: agent-x -> agent-y -> agent-x" in shop("locks", "graph").lines
    graph = shop("locks", "graph", "--json").json
    [ring] = graph["rings"]
    assert [graph["requests"][edge["waiter"]]["owner"] for edge in ring] == ["agent-x", "agent-y"]


def cross() -> None:
    """Two agents hold a lock in one namespace each, and want the other's."""

    async def crossing(stores: Stores) -> None:
        for number, (scope, namespace) in enumerate(
            [("x", "default"), ("y", "build"), ("x", "build"), ("y", "default")]
        ):
            request = validate_request(
                id=str(number), owner=f"agent-{scope}", scope=scope, wanted=[write(REPO)], namespace=namespace
            )
            await stores.locks.acquire(request, wait_ms=None, limits=LockLimits())

    with_stores(crossing)


def test_a_ring_across_namespaces_is_named_from_both(shop: Call, folder: Path) -> None:
    shop("enqueue", "pack", "item=lamp")
    cross()
    for namespace in ("default", "build"):
        assert shop("locks", "graph", "--namespace", namespace).lines == [
            f"agent-x --waits for--> agent-y   {REPO} (namespace build) (exclusive)",
            f"agent-y --waits for--> agent-x   {REPO} (exclusive)",
            "ring: agent-x -> agent-y -> agent-x",
        ]
    shop("locks", "graph", "--svg", "graph.svg")
    assert f"{REPO} (namespace build)" in (folder / "graph.svg").read_text()


class TestACommandUnderALock:
    def test_it_has_the_token_and_its_exit_code_counts(self, shop: Call, folder: Path) -> None:
        told = call(folder, *ACQUIRE, "--write", REPO, "--", "sh", "-c", "echo $ADE_LOCK_TOKEN; exit 7")
        several = call(folder, *ACQUIRE, "--write", REPO, "--read", DB, "--", "printenv", "ADE_LOCK_TOKENS")

        assert (told.returncode, int(told.stdout) > 0) == (7, True)
        assert sorted(msgspec.json.decode(several.stdout)) == [DB, REPO]

    def test_what_cannot_be_is_told_before_anything_runs(self, shop: Call, folder: Path) -> None:
        assert call(folder, *ACQUIRE, "--", "true").returncode == 2
        assert call(folder, *ACQUIRE, "--write", REPO, "--", "no-such-program").returncode == 2
        assert call(folder, *ACQUIRE, "--write", "a{b}", "--", "true").returncode == 2

    def test_who_asks_more_often_than_the_settings_allow_is_refused(self, shop: Call, folder: Path) -> None:
        (folder / "ade.toml").write_text('[locks]\nacquire_rate = "1/h"\n')
        asked = (*ACQUIRE, "--write", REPO, "--owner", "ada", "--", "true")

        assert call(folder, *asked).returncode == 0
        refused = call(folder, *asked)

        assert (refused.returncode, "lock_rate_limited" in refused.stderr) == (5, True)

    def test_an_account_that_the_rulebook_does_not_name_is_refused(self, shop: Call, folder: Path) -> None:
        (folder / "rules.toml").write_text('[[locks]]\nnames = ["prod:*"]\naccounts = ["olga"]\n')
        assert shop("policies", "apply", "rules.toml").code == 0
        asked = (*ACQUIRE, "--write", "prod:db", "--", "true")

        refused = call(folder, *asked, ADE_USER="rita")
        allowed = call(folder, *asked, ADE_USER="olga")

        assert (refused.returncode, "lock_not_permitted" in refused.stderr) == (7, True), refused.stderr
        assert allowed.returncode == 0, allowed.stderr

    def test_somebody_who_must_not_wait_hears_so(self, busy: Call, folder: Path) -> None:
        refused = call(folder, *ACQUIRE, "--write", REPO, "--wait", "0", "--", "true")

        assert (refused.returncode, "lock_timeout" in refused.stderr) == (124, True)

    @pytest.mark.realtime
    def test_it_is_ended_with_all_it_started_when_the_lock_is_lost(self, busy: Call, folder: Path) -> None:
        script = "trap '' TERM; sleep 300 & echo $! > child; wait; sleep 300"
        with started(folder, *ACQUIRE, "--write", "repo:x", "--ttl", "6", "--", "sh", "-c", script) as running:
            eventually(lambda: number_in(folder / "child") > 0, "the start of its child")
            child = number_in(folder / "child")
            [lock] = [lock for lock in busy("locks", "--json").json["items"] if lock["resource"] == "repo:x"]
            busy("locks", "release", lock["holders"][0]["request_id"], "--force", "--reason", "test")
            _, complaint = running.communicate(timeout=90)

        assert (running.returncode, "lock_lost" in complaint) == (4, True)
        eventually(lambda: not is_alive(child), "the end of the command")

    @pytest.mark.realtime
    def test_nothing_goes_on_when_ade_itself_is_killed(self, shop: Call, folder: Path) -> None:
        script = "echo $$ > pid; exec sleep 300"
        with started(folder, *ACQUIRE, "--write", "repo:x", "--", "sh", "-c", script) as running:
            eventually(lambda: number_in(folder / "pid") > 0, "its start")
            child = number_in(folder / "pid")
            assert is_alive(child)
            running.kill()
            running.wait(10)

        eventually(lambda: not is_alive(child), "the end of the command")


ACQUIRE = ("--store", "sqlite:///shop.db", "locks", "acquire")


def number_in(file: Path) -> int:
    text = file.read_text().strip() if file.exists() else ""
    return int(text) if text else 0


def is_alive(pid: int) -> bool:
    """A process that has ended and waits to be noticed is not."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
