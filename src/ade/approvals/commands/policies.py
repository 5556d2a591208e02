"""The `ade policies` commands: show, apply, and check the rulebook."""

import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from ade.approvals.errors import InvalidRulebook
from ade.approvals.gates import RuleCandidates
from ade.approvals.guard import GuardRulesVerdict, GuardRuling
from ade.approvals.policy_check import Findings
from ade.approvals.repository import RulebookVersion
from ade.approvals.rulebook import Rulebook
from ade.approvals.rulebook_document import as_document, read_rulebook
from ade.cli.command import group
from ade.cli.identity import as_option
from ade.cli.interaction import interruptible
from ade.cli.output import Cell, CommandOutput, Row, compact
from ade.cli.parameters import JSON_OBJECT, local
from ade.errors import StaleWrite
from ade.server.problems import HttpFault, ServerProblem
from ade.tasks.reasons import short_span

if TYPE_CHECKING:
    from ade.cli.session import Session


# Output of policy checks.


_STYLES = {GuardRulesVerdict.ALLOW: "green", GuardRulesVerdict.DENY: "bold red", GuardRulesVerdict.DEMAND: "yellow"}


def show_findings(out: CommandOutput, findings: Findings) -> None:
    """Print the result of a policy check."""
    if out.as_json:
        out.document(findings)
        return
    out.table(
        ("occasion", "ruling", "rule", "reason"),
        [_ruling_row(str(occasion), ruling) for occasion, ruling in findings.rulings.items()],
    )
    out.line("")
    out.facts([("risk", _risk(findings))])
    out.line("")
    if findings.has_preview:
        out.line(f"Tasks of this name are previewed and submitted for approval, under {findings.chosen.policy.id}:")
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
        out.line(f"up to a {findings.chosen.auto_approve} risk, no approval is needed")
    if findings.candidates.missing:
        out.line(f"missing: {findings.candidates.missing} more people who can answer; it could never be approved")


def _ruling_row(occasion: str, ruling: GuardRuling) -> Row:
    number = "" if ruling.rule is None else str(ruling.rule)
    return (occasion, Cell(str(ruling.verdict), _STYLES[ruling.verdict]), number, ruling.reason)


def _risk(findings: Findings) -> str:
    risk = findings.risk
    if not findings.is_assessed:
        return f"{risk.level}, {risk.score:g} as given"
    return (
        f"{risk.level}, {risk.score:g} of 100 (criticality {risk.criticality:g}, resources {risk.blast_radius:g}, "
        f"failures {risk.failure_rate:g}; what it would change is unknown without a preview)"
    )


def _rule_row(one: RuleCandidates) -> Row:
    people = [*sorted(one.rule.users), *(f"role {role}" for role in sorted(one.rule.roles))]
    named = one.rule.name or ", ".join(people)
    return (str(one.rule.needed), named, ", ".join(one.accounts) or "no one", ", ".join(one.later))


GUARD_HEAD = ("rule", "do", "for", "policy", "reason")
POLICY_HEAD = ("policy", "for", "rules")
RESOURCE_HEAD = ("resource", "in the argument", "of tasks")
_NOT_FOR = ("do", "policy", "reason")
_FOR = ("names", "tags", "resource_types", "from_level")
_NOTHING: dict[str, Any] = {"criticality": {}, "guard": [], "policy": [], "resource": [], "risk": {}}
_LARGEST_PAGE = 100


@group("policies", bare="show")
def policies() -> None:
    """The rulebook: guard rules, policies, resources, risk. `ade policies` alone shows it."""


@policies.command("show", reads=True)
async def show(session: "Session") -> None:
    """Show the rulebook in force."""
    async with session.api() as api:
        edition = await api.get_rulebook()
    if session.out.as_json:
        session.out.document(edition)
        return
    if edition.version == 0:
        session.out.note(
            "No rulebook is in force: nothing is guarded. `ade policies example` prints one to start with."
        )
        return
    session.out.line(f"version {edition.version}")
    document = _NOTHING | edition.rules
    rules = [_guard_row(number, rule) for number, rule in enumerate(document["guard"], 1)]
    entries: list[Row] = [
        (entry["id"], _shown(entry, _FOR) or "those that name it", compact(entry["rules"]))
        for entry in document["policy"]
    ]
    values: list[Row] = [(pattern, str(value)) for pattern, value in document["criticality"].items()]
    found: list[Row] = [
        (each["resource"], each["argument"], ", ".join(each.get("names", ())) or "all") for each in document["resource"]
    ]
    risk: list[Row] = [(name, str(value)) for name, value in document["risk"].items()]
    for head, rows in (
        (GUARD_HEAD, rules),
        (POLICY_HEAD, entries),
        (("resources", "criticality"), values),
        (RESOURCE_HEAD, found),
        (("risk", "value"), risk),
    ):
        if rows:
            session.out.line("")
            session.out.table(head, rows)


def _guard_row(number: int, rule: dict[str, Any]) -> Row:
    conditions = _shown(rule, tuple(name for name in rule if name not in _NOT_FOR)) or "everything"
    return (str(number), rule["do"], conditions, rule.get("policy", ""), rule.get("reason", ""))


def _shown(document: dict[str, Any], names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {compact(document[name])}" for name in names if name in document)


@policies.command("apply")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Only check it.")
@click.option("--seen", type=click.IntRange(0), help="The version it is based on; rejected if there is a newer one.")
@as_option
async def apply(session: "Session", file: str, dry_run: bool, seen: int | None) -> None:
    """Replace the rulebook. FILE is TOML, or JSON if its name ends in .json; - reads TOML from stdin."""
    rulebook = read_rulebook(_data_of(file))
    if dry_run:
        _print_applied(session, rulebook, None)
        return
    async with session.api(must_exist=False) as api:
        try:
            applied = await api.apply_rulebook(rules=as_document(rulebook), if_match=seen)
        except ServerProblem as problem:
            if problem.code != HttpFault.PRECONDITION_FAILED:
                raise
            raise StaleWrite(
                f"another rulebook than version {seen} is now in force; look at it and apply yours again"
            ) from None
    _print_applied(session, rulebook, applied)


def _print_applied(session: "Session", rulebook: Rulebook, edition: RulebookVersion | None) -> None:
    """`edition` is None after a dry run."""
    if session.out.as_json:
        session.out.document({"rules": as_document(rulebook)} if edition is None else edition)
        return
    what = "is valid; nothing was stored" if edition is None else f"is in force as version {edition.version}"
    counts = f"guard rules: {len(rulebook.guard)}, policies: {len(rulebook.policies)}"
    session.out.line(f"the rulebook {what} ({counts})")
    unseparated = [entry.policy.id for entry in rulebook.policies if entry.policy.authors_may_vote]
    if unseparated:
        session.out.note(f"Authors may approve their own tasks under: {', '.join(unseparated)}.")


def _data_of(file: str) -> object:
    import tomllib  # slow to import, and needed only here

    try:
        with interruptible():
            text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return msgspec.json.decode(text) if file.endswith(".json") else tomllib.loads(text.decode())
    except OSError as error:
        raise InvalidRulebook(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # bad UTF-8, TOML or JSON
        raise InvalidRulebook(f"{file} is not well-formed: {error}") from None


@policies.command("example")
def example(session: "Session") -> None:
    """Print a rulebook to start with, as TOML with comments."""
    text = files("ade.approvals").joinpath("example_rulebook.toml").read_text("utf-8")
    session.out.line(text.rstrip("\n"))


@policies.command("history", reads=True)
async def history(session: "Session") -> None:
    """List all versions, newest first; with --json, including their content."""
    async with session.api() as api:
        editions = [one async for one in api.every(api.list_rulebook_versions, limit=_LARGEST_PAGE)]
    if session.out.as_json:
        session.out.items(editions)
        return
    rows: list[Row] = [(str(one.version), local(one.at), one.by or "", one.digest[:12]) for one in editions]
    session.out.table(("version", "applied", "by", "digest"), rows)
    if not editions:
        session.out.note("No rulebook was ever applied. `ade policies apply FILE` does that.")


@policies.command("check", reads=True)
@click.argument("name")
@click.option("--args", "arguments", type=JSON_OBJECT, default="{}", help="The arguments, as a JSON object.")
@click.option("--resource", "resources", multiple=True, metavar="TYPE:ID", help="A resource it uses; repeatable.")
@click.option("--tag", "tags", multiple=True, help="A tag it has; repeatable.")
@click.option("--tool", help="The tool that an agent would call.")
@click.option(
    "--score", type=click.FloatRange(0, 100), help="The risk score; otherwise it is assessed from stored data."
)
@click.option("--rulebook", "file", type=click.Path(exists=True, dir_okay=False), help="Try this file instead.")
async def check_rules(
    session: "Session", /, name: str, arguments: dict[str, Any], file: str | None, **about: Any
) -> None:
    """Show what the rules decide about a task: allowed, denied, or who must approve it. Nothing is stored."""
    rules = None if file is None else as_document(read_rulebook(_data_of(file)))
    async with session.api() as api:
        findings = await api.check_policies(name=name, args=arguments, rules=rules, **about)
    show_findings(session.out, findings)
