"""What the rules make of something, for people and for programs."""

from typing import Any

from ade.cli.output import Cell, Output, Row
from ade.cli.times import short_span
from ade.cli.views import view as fields_of
from ade.core.approvals.candidates import RuleCandidates
from ade.core.guard import Ruling, Verdict
from ade.governance.checking import Findings

_STYLES = {Verdict.ALLOW: "green", Verdict.DENY: "bold red", Verdict.DEMAND: "yellow"}


def show_findings(out: Output, findings: Findings) -> None:
    if out.as_json:
        out.document(_document(findings))
        return
    out.table(
        ("occasion", "ruling", "rule", "reason"),
        [_ruling_row(str(occasion), ruling) for occasion, ruling in findings.rulings.items()],
    )
    out.line("")
    out.facts([("risk", _risk(findings))])
    out.line("")
    if findings.has_preview:
        out.line(f"Tasks of this name are previewed and put before people, under {findings.chosen.policy.id}:")
    else:
        out.line(f"If people must approve it, under {findings.chosen.policy.id}:")
    for why in findings.chosen.why:
        out.line(f"- {why}")
    rows = [_rule_row(one) for one in findings.candidates.rules]
    out.table(("needed", "of", "could answer", "later also"), rows)
    policy = findings.chosen.policy
    times = f"open for {short_span(policy.expires_after_ms)}, good for {short_span(policy.valid_for_ms)} once approved"
    out.line(times)
    if findings.chosen.auto_approve is not None:
        out.line(f"up to a {findings.chosen.auto_approve} risk nobody needs to be asked")
    if findings.candidates.missing:
        out.line(f"missing: {findings.candidates.missing} more who could answer; nobody could ever approve it")


def _ruling_row(occasion: str, ruling: Ruling) -> Row:
    number = "" if ruling.rule is None else str(ruling.rule)
    return (occasion, Cell(str(ruling.verdict), _STYLES[ruling.verdict]), number, ruling.reason)


def _risk(findings: Findings) -> str:
    risk = findings.risk
    if not findings.is_assessed:
        return f"{risk.level}, {risk.score:g} as given"
    return (
        f"{risk.level}, {risk.score:g} of 100 (criticality {risk.criticality:g}, resources {risk.blast_radius:g}, "
        f"failures {risk.failure_rate:g}; what it would change is not known without a preview)"
    )


def _rule_row(one: RuleCandidates) -> Row:
    people = [*sorted(one.rule.users), *(f"role {role}" for role in sorted(one.rule.roles))]
    named = one.rule.name or ", ".join(people)
    return (str(one.rule.needed), named, ", ".join(one.accounts) or "nobody", ", ".join(one.later))


def _document(findings: Findings) -> dict[str, Any]:
    policy = findings.chosen.policy
    return {
        "rulings": {str(occasion): fields_of(ruling) for occasion, ruling in findings.rulings.items()},
        "risk": fields_of(findings.risk),
        "is_assessed": findings.is_assessed,
        "has_preview": findings.has_preview,
        "policy": {
            "id": policy.id,
            "ids": findings.chosen.ids,
            "why": findings.chosen.why,
            "auto_approve": findings.chosen.auto_approve,
            "expires_after_ms": policy.expires_after_ms,
            "valid_for_ms": policy.valid_for_ms,
            "recheck": policy.recheck,
            "veto_roles": sorted(policy.veto_roles),
        },
        "rules": [
            {
                "needed": one.rule.needed,
                "name": one.rule.name,
                "users": sorted(one.rule.users),
                "roles": sorted(one.rule.roles),
                "could_answer": one.accounts,
                "later": one.later,
            }
            for one in findings.candidates.rules
        ],
        "missing": findings.candidates.missing,
    }
