"""Calls that are often mistakes (the security rules of the linter): each one that there is has its reason here."""

import json
import subprocess
import sys

from tests.architecture.repository import ROOT

LEFT_OUT = ["S101", "S311"]  # asserts tell the type checker something; chance spreads delays, and makes no secrets
KNOWN = {
    ("src/ade/agents/processes/supervisor.py", "S302"): "reads what its own launcher has just written to it",
    (
        "src/ade/agents/processes/supervisor.py",
        "S606",
    ): "starts agents as requested, without a shell",
    ("src/ade/agents/processes/process.py", "S603"): "the same",
    ("src/ade/agents/runs/hooks.py", "S108"): "the folder of a socket that only its owner may enter",
    ("src/ade/server/addresses.py", "S104"): "the name of an address that takes a token, and is never the usual one",
    ("src/ade/worker/shared_memory.py", "S108"): "the parents of a directory that only its owner can enter",
    ("src/ade/server/wire_format.py", "S102"): "text made from the names of fields alone",
    ("src/ade/webhooks/signatures.py", "S105"): "the beginning that all secrets have",
}


def test_every_risky_call_is_known() -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "src", "--select", "S", "--ignore", ",".join(LEFT_OUT)]
    told = subprocess.run([*ruff, "--output-format", "json", "--no-cache"], cwd=ROOT, capture_output=True, check=False)
    found = {(each["filename"].removeprefix(f"{ROOT}/"), each["code"]) for each in json.loads(told.stdout)}
    assert found == set(KNOWN)
