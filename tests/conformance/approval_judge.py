"""Judges approvals by the event log alone, with rules written down a second time: it asks nothing that decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from tests.domain import Event

_VOTES = ("approval.approved", "approval.rejected", "approval.changes_requested")
_OVER = ("approval.revoked", "approval.expired", "task.rejected", "task.cancelled", "task.edited", "task.submitted")
AFTER_THE_FACT = "after the fact"


@dataclass
class Desk:
    """A gate, as the log tells of it."""

    told: dict[str, Any]
    votes: list[dict[str, Any]] = field(default_factory=list)
    early: set[int] = field(default_factory=set)
    state: str = "open"  # open, approved, bypassed, over; denied: after the fact
    decided_at: int = 0
    roles: dict[str, set[str]] = field(default_factory=dict)  # of everybody when it was passed; some came after a vote

    @property
    def policy(self) -> dict[str, Any]:
        policy: dict[str, Any] = self.told["policy"]
        return policy

    @property
    def ends_at(self) -> int:
        return int(self.told["opened_at"]) + int(self.policy["expires_after_ms"])

    def under(self, policy: dict[str, Any]) -> "Desk":
        """The same gate with the same votes, had it been opened under another policy."""
        return replace(self, told={**self.told, "policy": policy})

    def rules_at(self, at: int) -> list[tuple[int, set[str], set[str]]]:
        """Needed, users and roles of each rule, with those that escalations had added by then."""
        due = [
            step
            for number, step in enumerate(self.policy["steps"])
            if number in self.early or at >= self.told["opened_at"] + step["after_ms"]
        ]
        return [
            (
                rule["needed"],
                {*rule["users"]} | _added(rule, due, "users"),
                {*rule["roles"]} | _added(rule, due, "roles"),
            )
            for rule in self.policy["rules"]
        ]


def _added(rule: dict[str, Any], due: Sequence[dict[str, Any]], what: str) -> set[str]:
    """Those whom steps of every policy that the rule stands for add to it."""
    added = [
        {name for step in due if step.get("policy", 0) == number for name in step[what]}
        for number in rule.get("policies") or [0]
    ]
    return set.intersection(*added) if added else set()


@dataclass
class Case:
    """One task."""

    gates: dict[str, Desk] = field(default_factory=dict)
    whole: str = ""  # the newest gate for the task itself
    hands: set[str] = field(default_factory=set)  # who wrote or edited it
    name: str = ""
    claimed: bool = False
    fault: str = ""  # of the run that was claimed, should it begin


class Judge:
    """`persons`: account -> the human behind it; `programs`: account -> who answers for it; `required`: task name ->
    the policy that the rulebook requires for it, whatever the author asks for."""

    def __init__(
        self,
        persons: Mapping[str, str],
        programs: Mapping[str, str],
        required: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    ) -> None:
        self._persons, self._programs, self.required = persons, programs, required
        self._roles: dict[str, set[str]] = {}
        self._active: dict[str, bool] = {}
        self._delegations: dict[str, dict[str, Any]] = {}
        self._cases: dict[str, Case] = {}
        self.complaints: list[str] = []
        self.passed = self.begun = 0

    def hear(self, event: Event) -> None:
        if event.type.startswith(("user.", "delegation.")):
            self._hear_of_people(event)
        if event.task_id is None:
            return
        case = self._cases.setdefault(event.task_id, Case())
        self._hear_of_run(case, event)
        if event.type in ("task.created", "task.edited", "task.replayed"):
            self._hear_of_writers(case, event)
        if event.type == "approval.requested":
            self._open(case, event)
        elif event.type in _VOTES:
            self._vote(case, event)
        elif handle := _HEARD.get(event.type):
            handle(self, case, event)
        if event.type in _OVER:
            self._end(case, event)

    def _hear_of_writers(self, case: Case, event: Event) -> None:
        if event.type == "task.created":
            case.name = str(event.payload["name"])
            if parent := self._cases.get(str(event.payload.get("parent_id"))):
                case.hands |= parent.hands
        if event.actor and event.task_id:
            self.involve(event.task_id, event.actor)

    def involve(self, task_id: str, *accounts: str) -> None:
        """Whoever had a hand in a task must not approve it."""
        case = self._cases.setdefault(task_id, Case())
        for account in (each.casefold() for each in accounts):
            case.hands |= {self._who(account), self._who(self._programs.get(account, account))}

    def _hear_of_people(self, event: Event) -> None:
        told = event.payload
        account = str(told.get("account"))
        if "roles" in told:
            self._roles[account] = {*told["roles"]}  # type: ignore[misc]  # a list, in the log
        if event.type == "user.added":
            self._active[account] = True
        elif "is_active" in told:
            self._active[account] = bool(told["is_active"])
        elif event.type == "delegation.created":
            self._delegations[str(told["delegation"])] = dict(told)
        elif event.type == "delegation.revoked":
            self._delegations.pop(str(told["delegation"]))

    def _hear_of_run(self, case: Case, event: Event) -> None:
        """A run that was claimed has begun, unless the next that is told of it is that it is held."""
        if event.type == "task.claimed":
            desk = case.gates.get(case.whole)
            if desk is not None and desk.state == "open":
                self._complain(event, "it could be claimed while people were asked")
            case.claimed, case.fault = True, self._fault_of_start(case, event)
        elif case.claimed and event.type != "task.reclaimed":
            case.claimed = False
            if event.type != "task.held":
                self.begun += 1
                if case.fault:
                    self._complain(event, f"it ran though {case.fault}")

    def _open(self, case: Case, event: Event) -> None:
        told: dict[str, Any] = event.payload["gate"]  # type: ignore[assignment]  # the whole gate
        if told["id"] in case.gates:
            self._complain(event, "a gate was opened twice")
        if told.get("step") != AFTER_THE_FACT:
            for desk in case.gates.values():
                if desk.told.get("step") != AFTER_THE_FACT and desk.state in ("open", "approved"):
                    desk.state = "over"
            case.whole = told["id"]
        case.gates[told["id"]] = Desk(told)

    def _vote(self, case: Case, event: Event) -> None:
        desk, vote = case.gates[str(event.payload["approval"])], event.payload["vote"]
        assert isinstance(vote, dict)
        voter, chain = vote["voter"], vote.get("chain") or [vote["voter"]]
        faults = {
            "the gate was decided": desk.state != "open",
            "it came too late": event.at >= desk.ends_at,
            "it is about something else": vote["digest"] != desk.told["digest"],
            "it was counted before": vote["seq"] != len(desk.votes) + 1,
            "a program voted": voter in self._programs,
            "the account is switched off": not self._active.get(voter),
            "somebody has a hand in it": any(self._who(each) in case.hands for each in (voter, *chain)),
            "the gate names him": any(self._has_a_hand(desk, each) for each in (voter, *chain)),
            "nobody lets him answer": not self._is_delegated(chain, event.at),
            "it is the same answer again": any(
                (each["voter"], each["decision"], each.get("chain")) == (voter, vote["decision"], vote.get("chain"))
                and not each.get("is_dismissed")
                for each in [*(each for each in desk.votes if each["voter"] == voter)][-1:]
            ),
        }
        for fault in (fault for fault, is_so in faults.items() if is_so):
            self._complain(event, f"a vote of {voter} was taken though {fault}")
        desk.votes.append(dict(vote))
        if desk.told.get("step") == AFTER_THE_FACT and (self._is_denied(desk) or self._is_met(desk)):
            desk.state = "denied" if self._is_denied(desk) else "over"

    def _has_a_hand(self, desk: Desk, account: str) -> bool:
        involved = {self._who(each) for each in desk.told["conflicts"]}
        involved |= {self._who(self._programs[each]) for each in desk.told["conflicts"] if each in self._programs}
        return self._who(account) in involved

    def _who(self, account: str) -> str:
        return self._persons.get(account, account)

    def _is_delegated(self, chain: Sequence[str], at: int) -> bool:
        return all(
            any(
                (one["delegator"], one["delegate"]) == link and one["starts_at"] <= at < one["ends_at"]
                for one in self._delegations.values()
            )
            for link in pairwise(chain)
        )

    def _pass(self, case: Case, event: Event) -> None:
        """Whatever says that a gate has let its task through."""
        desk = case.gates.get(str(event.payload.get("approval")))
        if desk is None or (event.type == "approval.reopened" and "automatic" not in event.payload):
            return
        if event.payload.get("digest") != desk.told["digest"]:
            self._complain(event, "it passed with another digest than that of its gate")
        if desk.state == "over":
            self._complain(event, "it passed a gate that was over")
        if desk.state == "open":
            if self._is_denied(desk):
                self._complain(event, "it passed a gate where somebody had said no")
            elif not self._is_met(desk):
                self._complain(event, "it passed a gate that was not met")
            desk.state, desk.decided_at, desk.roles = "approved", event.at, dict(self._roles)
            self.passed += 1

    def _bypass(self, case: Case, event: Event) -> None:
        case.gates[str(event.payload["approval"])].state = "bypassed"

    def _escalate(self, case: Case, event: Event) -> None:
        if event.payload["is_early"]:
            case.gates[str(event.payload["approval"])].early.add(int(str(event.payload["step"])))

    def _dismiss(self, case: Case, event: Event) -> None:
        for vote in case.gates[str(event.payload["approval"])].votes:
            if vote["voter"] == event.payload["voter"]:
                vote["is_dismissed"] = True

    def _end(self, case: Case, event: Event) -> None:
        """A task that went back and is submitted again may be as it was: its gate is over once there is another."""
        desk = case.gates.get(case.whole)
        ended = ("approved",) if event.type == "task.submitted" else ("open", "approved")
        if desk is not None and desk.state in ended:
            desk.state = "over"

    def _check_revoker(self, case: Case, event: Event) -> None:
        desk, actor = case.gates.get(case.whole), event.actor or ""
        approved = set() if desk is None else {vote["voter"] for vote in desk.votes if vote["decision"] == "approve"}
        if actor not in approved and not self._roles.get(actor, set()) & {"operator", "admin"}:
            self._complain(event, f"{actor} revoked an approval without having given it")

    def _fault_of_start(self, case: Case, event: Event) -> str:
        desk = case.gates.get(case.whole)
        if desk is None:
            return "" if case.name.endswith(":rollback") else "nobody was asked"
        if event.payload.get("digest") != desk.told["digest"]:
            return "the log says that something else ran"
        if desk.state == "bypassed":
            digest, others = desk.told["digest"], case.gates.values()
            is_wrong = any(each.state == "denied" and each.told["digest"] == digest for each in others)
            return "it was found wrong afterwards" if is_wrong else ""
        if desk.state != "approved":
            return f"its gate is {desk.state}"
        if event.at >= desk.decided_at + desk.policy["valid_for_ms"]:
            return "the approval is too old"
        policy = self.required.get(case.name)
        if policy is not None and not self._is_met(desk.under(policy), keeps_roles=True):
            return "the policy that the rules require was not met"
        is_met = self._is_met(desk, keeps_roles=desk.policy["recheck"] != "roles")
        return "" if is_met else "those who approved it may not do so any more"

    def _newest(self, desk: Desk, *, keeps_roles: bool = False) -> dict[str, tuple[dict[str, Any], set[int]]]:
        """The newest vote of each person that counts, and the rules it is good for."""
        counted = {}
        for vote in desk.votes:
            voter, chain = vote["voter"], vote.get("chain") or [vote["voter"]]
            rules = self._rules_of(desk, vote, keeps_roles=keeps_roles)
            has_veto = vote["decision"] == "reject" and self._has_veto(desk, voter)
            stands = self._active.get(voter) and voter not in self._programs and not vote.get("is_dismissed")
            if stands and (rules or has_veto) and not any(self._has_a_hand(desk, each) for each in (voter, *chain)):
                counted[self._who(voter)] = vote, rules
        return self._once_for_each(counted)

    def _once_for_each(self, counted: dict[str, Any]) -> dict[str, tuple[dict[str, Any], set[int]]]:
        """A person who has voted, in whatever name, is not represented; others once, by the newest delegate."""
        found, newest = {}, {}
        for who, (vote, rules) in sorted(counted.items(), key=lambda each: each[1][0]["seq"]):
            owner = self._who((vote.get("chain") or [vote["voter"]])[0])
            if vote["decision"] != "approve" or owner == who:
                found[who] = vote, rules
            elif owner not in counted:
                newest[owner] = who
        return found | {who: counted[who] for who in newest.values()}

    def _rules_of(self, desk: Desk, vote: dict[str, Any], *, keeps_roles: bool) -> set[int]:
        voter, owner = vote["voter"], (vote.get("chain") or [vote["voter"]])[0]
        current = self._roles.get(voter, set())
        own = {*vote.get("roles", ())} | desk.roles.get(voter, set()) if keeps_roles else current
        if not self._active.get(owner):
            return set()
        owners = own if owner == voter else self._roles.get(owner, set())
        return {
            number
            for number, (_, users, roles) in enumerate(desk.rules_at(vote["at"]))
            if owner in users or (roles & owners and roles & own)  # a role does not travel
        }

    def _has_veto(self, desk: Desk, voter: str) -> bool:
        return bool({*desk.policy["veto_roles"]} & self._roles.get(voter, set()))

    def _is_denied(self, desk: Desk) -> bool:
        against = [vote for vote, _ in self._newest(desk).values() if vote["decision"] == "reject"]
        vetoed = any(self._has_veto(desk, vote["voter"]) for vote in against)
        return vetoed or len(against) >= desk.policy["deny_threshold"]

    def _is_met(self, desk: Desk, *, keeps_roles: bool = False) -> bool:
        newest = self._newest(desk, keeps_roles=keeps_roles)
        if any(vote["decision"] == "request_changes" for vote, _ in newest.values()):
            return False
        able = [rules for vote, rules in newest.values() if vote["decision"] == "approve"]
        return _can_seat([rule for rule, (needed, *_) in enumerate(desk.rules_at(0)) for _ in range(needed)], able)

    def _complain(self, event: Event, what: str) -> None:
        self.complaints.append(f"{event.seq} {event.type} of {event.task_id}: {what}")


def _can_seat(places: list[int], able: list[set[int]]) -> bool:
    """Whether every place gets another person, by trying all ways."""
    if not places:
        return True
    return any(
        places[0] in rules and _can_seat(places[1:], [*able[:number], *able[number + 1 :]])
        for number, rules in enumerate(able)
    )


_HEARD: Mapping[str, Callable[[Judge, Case, Event], None]] = {
    "task.approved": Judge._pass,
    "task.queued": Judge._pass,
    "approval.reopened": Judge._pass,
    "approval.bypassed": Judge._bypass,
    "approval.escalated": Judge._escalate,
    "approval.dismissed": Judge._dismiss,
    "approval.revoked": Judge._check_revoker,
}
