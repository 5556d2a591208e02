"""Rewrite from the code what is generated: blocks of these pages, the client's methods, the description of HTTP.

`python -m docs.generate` writes them; with `--check` it only says which are out of date and exits with 1.
A block stands between `<!-- generated:NAME -->` and `<!-- /generated -->`; NAME is a key of BLOCKS.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from docs.generators import (
    client,
    command_line,
    events,
    explain,
    lifecycle,
    metrics,
    openapi,
    schema,
    settings,
    structure,
)
from docs.generators.http import HTTP_BLOCKS
from docs.generators.python_api import API_BLOCKS
from docs.generators.redis_store import REDIS_BLOCKS
from docs.generators.tables import Block

DOCS = Path(__file__).resolve().parent

BLOCKS: Mapping[str, Block] = {
    "statuses": lifecycle.statuses,
    "verbs": lifecycle.verbs,
    "state-diagram": lifecycle.state_diagram,
    "failures": lifecycle.failures,
    "backoff": lifecycle.backoff,
    "settings": settings.settings_tables,
    "run-time-settings": settings.run_time_tables,
    "event-types": events.event_types,
    "event-fields": events.event_fields,
    "reasons": explain.reasons,
    "metrics": metrics.metrics,
    "metric-buckets": metrics.metric_buckets,
    "import-rule": structure.import_rule,
    "schema-tables": schema.schema_tables,
    "schema-indexes": schema.schema_indexes,
    "store-pragmas": schema.store_pragmas,
    "store-invariants": schema.store_invariants,
    "commands": command_line.commands,
    "command-options": command_line.everywhere,
    "exit-codes": command_line.exit_codes,
    **API_BLOCKS,
    **HTTP_BLOCKS,
    **REDIS_BLOCKS,
}
OPENING = re.compile(r"<!-- generated:(?P<name>[\w-]+) -->")
BLOCK = re.compile(OPENING.pattern + r"\n(?:(?!<!-- generated:).)*?<!-- /generated -->", re.DOTALL)


class BadBlock(Exception):
    """A block of a page names nothing that can be generated, or does not end."""


def regenerated(text: str) -> str:
    """The page with all its blocks as the code has them now."""
    names = [opening["name"] for opening in OPENING.finditer(text)]
    if unknown := [name for name in names if name not in BLOCKS]:
        raise BadBlock(f"nothing generates {', '.join(unknown)}; known are {', '.join(BLOCKS)}")
    if names != [block["name"] for block in BLOCK.finditer(text)]:
        raise BadBlock("a generated block does not end; close it with <!-- /generated --> on a line of its own")

    def fresh(block: re.Match[str]) -> str:
        return f"<!-- generated:{block['name']} -->\n{BLOCKS[block['name']]()}\n<!-- /generated -->"

    return BLOCK.sub(fresh, text)


def stale_pages(folder: Path) -> Iterator[tuple[Path, str]]:
    """Pages that are out of date, each with the text it should have."""
    for page in sorted(folder.rglob("*.md")):
        text = page.read_text("utf-8")
        try:
            fresh = regenerated(text)
        except BadBlock as problem:
            raise BadBlock(f"{page.relative_to(folder)}: {problem}") from None
        if fresh != text:
            yield page, fresh


def main(arguments: Sequence[str] | None = None, *, folder: Path = DOCS) -> int:
    parser = argparse.ArgumentParser(description="Rewrite what is generated from the code.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a page is out of date")
    check = parser.parse_args(arguments).check
    try:
        stale = [*stale_pages(folder)]
        if folder == DOCS:
            stale += [*client.stale_modules(), *openapi.stale_description(folder), *structure.stale_diagrams(folder)]
    except (BadBlock, client.BadOperation) as problem:
        print(problem, file=sys.stderr)
        return 2
    for page, fresh in stale:
        name = page.relative_to(folder if page.is_relative_to(folder) else DOCS.parent)
        print(f"{name}: {'out of date; run `python -m docs.generate`' if check else 'written'}")
        if not check:
            page.write_text(fresh, "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
