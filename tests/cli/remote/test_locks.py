"""Locks over a server: a command under a lock that is lent, and what an operator sees of it and does about it."""

import msgspec
import pytest

from ade import write
from tests.cli.processes import call, eventually, started
from tests.cli.remote.conftest import Shop
from tests.cli.remote.test_resources import same
from tests.cli.test_locks import cross, is_alive, number_in, take
from tests.domain import Role

REPO, DB = "repo:app", "database:main"
ACQUIRE = ("locks", "acquire")


def test_what_is_locked_is_seen_and_taken_away(served: Shop) -> None:
    for name in ("a", "b"):
        take(name, write(REPO))
    take("d", write(DB))

    listed = {lock["resource"]: lock for lock in same(served, "locks")["items"]}
    assert [one["owner"] for one in listed[REPO]["waiters"]] == ["agent-b"]
    assert len(same(served, "locks", "list", "--type", "repo", "--owner", "agent-b")["items"]) == 1
    assert [one["owner"] for one in same(served, "locks", "show", REPO)["holders"]] == ["agent-a"]
    served.same("locks", "show", "repo:other")
    served.same("locks", "graph")
    served.same("locks", "graph", "--json")
    taken = served.remote("locks", "release", "a", "--force", "--reason", "hangs", by=Role.OPERATOR)
    assert taken.out == f"{REPO}: taken away from agent-a\n"
    [lost] = served.same("events", "tail", "--after", "0", "--type", "lock.lost", "--json").json_lines
    assert (lost["payload"]["reason"], lost["payload"]["by"]) == ("hangs", "the-operator")
    served.same("locks", "release", "a", "--force", "--reason", "hangs", "--json")


def test_a_ring_across_namespaces_is_the_same_over_the_server(served: Shop) -> None:
    cross()
    served.same("locks", "graph")
    assert len(same(served, "locks", "graph", "--namespace", "build")["rings"]) == 1


def test_a_command_has_the_token_and_its_exit_code_counts(served: Shop) -> None:
    script = "echo $ADE_LOCK_TOKEN; exit 7"
    told = call(served.elsewhere, *ACQUIRE, "--write", REPO, "--", "sh", "-c", script, **served.environment())
    tokens = ("printenv", "ADE_LOCK_TOKENS")
    several = call(
        served.elsewhere, *ACQUIRE, "--write", REPO, "--read", DB, "--", *tokens, **served.environment(Role.AGENT)
    )

    assert (told.returncode, told.stderr, int(told.stdout) > 0) == (7, "", True)
    assert sorted(msgspec.json.decode(several.stdout)) == [DB, REPO]
    assert served.local("locks", "--json").json == {"items": []}


def test_somebody_who_must_not_wait_hears_so(served: Shop) -> None:
    take("a", write(REPO))

    def asked(*options: str) -> tuple[int, str]:
        done = call(served.elsewhere, *ACQUIRE, *options, "--json", "--", "true", **served.environment())
        return done.returncode, msgspec.json.decode(done.stderr)["error"]["code"]

    assert asked("--write", REPO, "--wait", "0") == (124, "lock_timeout")
    assert asked("--write", "a{b}") == (2, "invalid_lock")
    assert [one["owner"] for one in same(served, "locks", "show", REPO)["holders"]] == ["agent-a"]
    assert same(served, "locks", "show", REPO)["waiters"] == []


@pytest.mark.realtime
def test_who_waits_is_let_in_when_the_lock_is_free(served: Shop) -> None:
    take("a", write(REPO))
    there = served.environment()
    with started(served.elsewhere, *ACQUIRE, "--write", REPO, "--owner", "ci", "--", "echo", "mine", **there) as waits:
        eventually(lambda: waiting_for(served, REPO) == ["the-admin/ci"], "its place in line")
        served.local("locks", "release", "a", "--force", "--reason", "test")
        out, err = waits.communicate(timeout=90)

    assert (waits.returncode, out, err) == (0, "mine\n", "")


@pytest.mark.long
@pytest.mark.realtime
def test_a_command_is_ended_with_all_it_started_when_the_lock_is_lost(served: Shop) -> None:
    script, child = "trap '' TERM; sleep 300 & echo $! > child; wait; sleep 300", served.elsewhere / "child"
    options = ("--write", REPO, "--ttl", "6", "--", "sh", "-c", script)
    with started(served.elsewhere, *ACQUIRE, *options, **served.environment()) as running:
        eventually(lambda: number_in(child) > 0, "the start of its child")
        [holder] = served.local("locks", "show", REPO, "--json").json["holders"]
        eventually(lambda: beats(served) > 1, "its renewal")
        served.local("locks", "release", holder["request_id"], "--force", "--reason", "test")
        _, complaint = running.communicate(timeout=90)

    assert (running.returncode, "lock_lost" in complaint) == (4, True)
    eventually(lambda: not is_alive(number_in(child)), "the end of the command")


@pytest.mark.realtime
def test_a_command_does_not_go_on_without_the_server(served: Shop) -> None:
    """The lock may be somebody else's by then."""
    child = served.elsewhere / "child"
    options = ("--write", REPO, "--ttl", "6", "--", "sh", "-c", "echo $$ > child; exec sleep 300")
    with started(served.elsewhere, *ACQUIRE, *options, **served.environment()) as running:
        eventually(lambda: number_in(child) > 0, "its start")
        served.stop()
        _, complaint = running.communicate(timeout=90)

    assert (running.returncode, "lock_lost" in complaint) == (4, True)
    eventually(lambda: not is_alive(number_in(child)), "the end of the command")


def beats(shop: Shop) -> int:
    [holder] = shop.local("locks", "show", REPO, "--json").json["holders"]
    count: int = holder["heartbeats"]
    return count


def waiting_for(shop: Shop, resource: str) -> list[str]:
    return [one["owner"] for one in shop.local("locks", "show", resource, "--json").json["waiters"]]
