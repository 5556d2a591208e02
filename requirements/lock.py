"""Write the lock files: pinned names, versions and hashes, and no word about where they came from.

Run through `make lock`. The files are compiled on the oldest supported Python, because only there
every back-port that some version needs is seen.
"""

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OLDEST = (3, 11)
# pip-compile knows files, not dependency groups, so a group is piped in and this is how it then calls it.
PIPED = "-r -"


def members(groups: dict[str, list[str | dict[str, str]]], name: str) -> list[str]:
    """The requirements of a dependency group, those of the groups it includes among them."""
    found: list[str] = []
    for entry in groups[name]:
        found += [entry] if isinstance(entry, str) else members(groups, entry["include-group"])
    return found


def compile_lock(name: str, *sources: str, group: list[str], options: list[str]) -> None:
    """Write requirements/<name>.txt from these files and the members of a group."""
    target = HERE / f"{name}.txt"
    command = [
        *(sys.executable, "-m", "piptools", "compile", "--quiet", "--generate-hashes", "--allow-unsafe"),
        *("--strip-extras", "--no-emit-options", "--no-emit-index-url", "--no-emit-find-links"),
        *("--no-emit-trusted-host", "--output-file", str(target.relative_to(ROOT))),
        *(options + [*sources] + (["-"] if group else [])),
    ]
    environment = {**os.environ, "CUSTOM_COMPILE_COMMAND": "make lock"}
    subprocess.run(command, cwd=ROOT, env=environment, input="\n".join(group), text=True, check=True)
    target.write_text(target.read_text().replace(PIPED, f"the {name} group of pyproject.toml"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take newer versions than the pinned ones")
    options = ["--upgrade"] if parser.parse_args().upgrade else []
    if sys.version_info[:2] != OLDEST:
        sys.exit(f"Lock files are made on Python {OLDEST[0]}.{OLDEST[1]}, this is {sys.version.split()[0]}.")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    compile_lock("dev", "pyproject.toml", group=members(groups, "dev"), options=options)
    # The smaller locks follow the large one, so that installing one over another changes nothing.
    follow = [*options, "--constraint", "requirements/dev.txt"]
    compile_lock("runtime", "pyproject.toml", group=[], options=follow)
    for name in ("build", "fuzz", "audit"):
        compile_lock(name, group=members(groups, name), options=follow)


if __name__ == "__main__":
    main()
