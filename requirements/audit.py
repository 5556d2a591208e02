"""Look up whether anything that ADE is made of has known weaknesses, as far as a service for that can be reached.

Run through `make audit`. Looked up is what users get: the requirements that run and build ADE, and those of its extras.
Whoever cannot be asked finds nothing, so that is said, and is no failure unless `--demand` makes it one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from sbom import ROOT, Pin, parts_of, pins_of

SERVICES = ("pypi", "osv")  # as pip-audit calls them
PATIENCE_S, LONGEST_S = 5, 60  # for one question, and for all
# Weaknesses that do not concern ADE, each with its reason: they are told, and are no failure.
KNOWN: dict[str, str] = {}


def pins() -> dict[str, Pin]:
    """What is looked up."""
    folder = ROOT / "requirements"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tools = pins_of(folder / "dev.txt")
    extras = {name: tools[name] for name in parts_of(project)}
    return dict(sorted({**extras, **pins_of(folder / "build.txt"), **pins_of(folder / "runtime.txt")}.items()))


def asked(service: str, names: dict[str, Pin]) -> list[dict[str, Any]] | str:
    """What a service answers for each package; a sentence where it answers nothing."""
    lines = (
        f"{name}=={pin.version} {' '.join(f'--hash=sha256:{each}' for each in pin.hashes)}\n"
        for name, pin in names.items()
    )
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "lock.txt")
        lock.write_text("".join(lines))
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--requirement", str(lock)]
        options = ["--vulnerability-service", service, "--timeout", str(PATIENCE_S), "--format", "json"]
        cache = ["--cache-dir", str(Path(folder, "cache")), "--progress-spinner", "off"]
        try:
            answer = subprocess.run(
                [*command, *options, *cache], capture_output=True, text=True, check=False, timeout=LONGEST_S
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {LONGEST_S} s"
    try:
        found: list[dict[str, Any]] = json.loads(answer.stdout)["dependencies"]
    except (ValueError, KeyError):
        return (answer.stderr.strip().splitlines() or ["no answer"])[-1][:300]
    judged = [each for each in found if "skip_reason" not in each]
    return judged or f"it knows none of the {len(found)} packages"


def told(found: list[dict[str, Any]], names: dict[str, Pin], service: str) -> int:
    """Every weakness, and how many count."""
    weak = [(each, weakness) for each in found for weakness in each["vulns"]]
    for each, weakness in weak:
        mended = ", ".join(weakness["fix_versions"]) or "no version yet"
        known = f" (known: {KNOWN[weakness['id']]})" if weakness["id"] in KNOWN else ""
        print(f"audit: {each['name']} {each['version']}: {weakness['id']}, mended in {mended}{known}")
    unknown = sorted(names.keys() - {each["name"] for each in found})
    if unknown:
        print(f"audit: {service} does not know {', '.join(unknown)}")
    print(f"audit: {len(found)} packages looked up at {service}, {len(weak)} known weaknesses")
    return sum(weakness["id"] not in KNOWN for _, weakness in weak)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make audit ARGS=...", description=__doc__)
    parser.add_argument("--demand", action="store_true", help="fail where no service can be reached")
    is_demanded: bool = parser.parse_args().demand
    names = pins()
    for service in SERVICES:
        found = asked(service, names)
        if not isinstance(found, str):
            return 1 if told(found, names, service) else 0
        print(f"audit: {service} cannot be asked: {found}")
    print("audit: NOT LOOKED UP: no service for known weaknesses can be reached from here")
    return 1 if is_demanded else 0


if __name__ == "__main__":
    sys.exit(main())
