"""`ade policies`: the rulebook, who must approve what, and what the guard would say."""

import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from ade.cli.findings import show_findings
from ade.cli.identity import as_option
from ade.cli.output import Row, compact
from ade.cli.parsing import JSON_OBJECT
from ade.cli.session import Session
from ade.cli.shared import group, pass_session
from ade.cli.times import local
from ade.core.approvals.refusals import InvalidRulebook
from ade.core.approvals.rulebook import Rulebook
from ade.core.approvals.rulebook_reading import read_rulebook
from ade.core.approvals.rulebook_writing import as_document
from ade.core.errors import StaleWrite
from ade.core.web.raising import ServerProblem
from ade.core.web.statuses import Fault
from ade.insight.reasons import moment

GUARD_HEAD = ("rule", "do", "for", "policy", "reason")
POLICY_HEAD = ("policy", "for", "rules")
_NOT_FOR = ("do", "policy", "reason")
_FOR = ("names", "tags", "resource_types", "from_level")
_NOTHING: dict[str, Any] = {"criticality": {}, "guard": [], "policy": []}
_LARGEST_PAGE = 100


@group("policies", bare="show")
def policies() -> None:
    """The rulebook: guard rules, policies, criticality. `ade policies` alone shows it."""


@policies.command("show")
@pass_session
def show(session: Session) -> None:
    """Show the rulebook in force."""
    session.look(_show(session))


async def _show(session: Session) -> None:
    async with session.api() as api:
        edition = await api.get_rulebook()
    document = _NOTHING | edition.rules
    if session.out.as_json:
        session.out.document({"version": edition.version, **document})
        return
    if edition.version == 0:
        session.out.note(
            "No rulebook is in force: nothing is guarded. `ade policies example` prints one to begin with."
        )
        return
    session.out.line(f"version {edition.version}")
    rules = [_guard_row(number, rule) for number, rule in enumerate(document["guard"], 1)]
    entries: list[Row] = [
        (entry["id"], _told(entry, _FOR) or "those that name it", compact(entry["rules"]))
        for entry in document["policy"]
    ]
    values: list[Row] = [(pattern, str(value)) for pattern, value in document["criticality"].items()]
    for head, rows in ((GUARD_HEAD, rules), (POLICY_HEAD, entries), (("resources", "criticality"), values)):
        if rows:
            session.out.line("")
            session.out.table(head, rows)


def _guard_row(number: int, rule: dict[str, Any]) -> Row:
    conditions = _told(rule, tuple(name for name in rule if name not in _NOT_FOR)) or "everything"
    return (str(number), rule["do"], conditions, rule.get("policy", ""), rule.get("reason", ""))


def _told(document: dict[str, Any], names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {compact(document[name])}" for name in names if name in document)


@policies.command("apply")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Read and check it only.")
@click.option("--seen", type=click.IntRange(0), help="The version it was made from; refused if there is a newer one.")
@as_option
@pass_session
def apply(session: Session, file: str, dry_run: bool, seen: int | None) -> None:
    """Put a rulebook in force, as a whole. FILE is TOML, or JSON if its name ends so; - reads TOML from stdin."""
    rulebook = read_rulebook(_data_of(file))
    if dry_run:
        _tell(session, rulebook, "is valid; nothing was stored")
    else:
        session.run(_apply(session, rulebook, seen))


async def _apply(session: Session, rulebook: Rulebook, seen: int | None) -> None:
    async with session.api(must_exist=False) as api:
        try:
            applied = await api.apply_rulebook(rules=as_document(rulebook), if_match=seen)
        except ServerProblem as problem:
            if problem.code != Fault.PRECONDITION_FAILED:
                raise
            raise StaleWrite(
                f"another rulebook than version {seen} is in force by now; look at it and apply yours again"
            ) from None
    _tell(session, structs.replace(rulebook, version=applied.version), f"is in force as version {applied.version}")


def _tell(session: Session, rulebook: Rulebook, what: str) -> None:
    counts = {"guard": len(rulebook.guard), "policies": len(rulebook.policies)}
    if session.out.as_json:
        session.out.document({"version": rulebook.version or None, **counts})
        return
    session.out.line(f"the rulebook {what} (guard rules: {counts['guard']}, policies: {counts['policies']})")
    unseparated = [entry.policy.id for entry in rulebook.policies if entry.policy.authors_may_vote]
    if unseparated:
        session.out.note(f"Authors may approve their own tasks under: {', '.join(unseparated)}.")


def _data_of(file: str) -> object:
    import tomllib

    import msgspec

    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return msgspec.json.decode(text) if file.endswith(".json") else tomllib.loads(text.decode())
    except OSError as error:
        raise InvalidRulebook(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # bad UTF-8, TOML or JSON
        raise InvalidRulebook(f"{file} is not well-formed: {error}") from None


@policies.command("example")
@pass_session
def example(session: Session) -> None:
    """Print a rulebook to begin with, as TOML with comments."""
    text = files("ade.cli").joinpath("example_rulebook.toml").read_text("utf-8")
    session.out.line(text.rstrip("\n"))


@policies.command("history")
@pass_session
def history(session: Session) -> None:
    """List every version there was, the newest first; with --json also what each of them said."""
    session.look(_history(session))


async def _history(session: Session) -> None:
    async with session.api() as api:
        editions = [one async for one in api.every(api.list_rulebook_versions, limit=_LARGEST_PAGE)]
    if session.out.as_json:
        told = [
            {"version": one.version, "at": moment(one.at), "by": one.by, "digest": one.digest, "rules": one.rules}
            for one in editions
        ]
        session.out.document({"versions": told})
        return
    rows: list[Row] = [(str(one.version), local(one.at), one.by or "", one.digest[:12]) for one in editions]
    session.out.table(("version", "applied", "by", "digest"), rows)
    if not editions:
        session.out.note("No rulebook was ever applied. `ade policies apply FILE` does that.")


@policies.command("check")
@click.argument("name")
@click.option("--args", "arguments", type=JSON_OBJECT, default="{}", help="The arguments, as a JSON object.")
@click.option("--resource", "resources", multiple=True, metavar="TYPE:ID", help="A resource it uses; may be repeated.")
@click.option("--tag", "tags", multiple=True, help="A tag it has; may be repeated.")
@click.option("--tool", help="The tool that an agent would call.")
@click.option("--score", type=click.FloatRange(0, 100), help="The risk; otherwise it is assessed as far as known.")
@click.option("--rulebook", "file", type=click.Path(exists=True, dir_okay=False), help="Try this file instead.")
@pass_session
def check_rules(session: Session, /, name: str, file: str | None, **about: Any) -> None:
    """Say what the rules make of a task: allowed, denied, or who would have to approve it. Nothing is stored."""
    rules = None if file is None else as_document(read_rulebook(_data_of(file)))
    session.look(_check(session, name=name, rules=rules, **about))


async def _check(session: Session, *, arguments: dict[str, Any], **about: Any) -> None:
    async with session.api() as api:
        findings = await api.check_policies(args=arguments, **about)
    show_findings(session.out, findings)
