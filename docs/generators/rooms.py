"""The import rule, as the linter checks it."""

import tomllib
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def import_rule() -> str:
    """Rows of rooms, highest first. Parentheses mark rooms that may come later; here all are shown."""
    contracts = tomllib.loads(_PROJECT.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [rule] = [contract for contract in contracts if contract["id"] == "rooms"]
    rows = [row.replace("(", "").replace(")", "") for row in rule["layers"]]
    return "\n".join(["```text", *rows, "```"])
