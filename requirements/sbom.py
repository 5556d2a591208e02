"""Write what ADE is made of: a CycloneDX 1.6 list of its requirements, those of its extras among them.

Run through `make sbom`. Names, versions and hashes are those of the lock files, licences and who needs whom are from
the installed packages. The same locks give the same bytes: there is a time in it only if SOURCE_DATE_EPOCH sets one.
"""

import argparse
import json
import os
import re
import sys
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageMetadata, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
# What the locks are made for; another machine that writes the list must not write another one.
PLACE = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.0",
    "python_version": "3.11",
    "sys_platform": "linux",
}
_PIN = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_LONGEST_NAME = 80  # of a licence: some give its whole text


class Pin(NamedTuple):
    version: str
    hashes: tuple[str, ...]


class Part(NamedTuple):
    """A package: which ones it needs, by name, and whether ADE runs without it."""

    needs: tuple[str, ...]
    is_optional: bool


def pins_of(lock: Path) -> dict[str, Pin]:
    """The packages of a lock file."""
    entries = re.split(r"\n(?=\S)", lock.read_text())
    found = ((pin, _HASH.findall(entry)) for entry in entries if (pin := _PIN.match(entry)))
    return {canonicalize_name(pin["name"]): Pin(pin["version"], tuple(hashes)) for pin, hashes in found}


def parts_of(project: Mapping[str, Any]) -> dict[str, Part]:
    """All that ADE needs to run, and all that its extras need, by what the installed packages say of themselves."""
    found: dict[str, Part] = {}
    for requirement in map(Requirement, project["dependencies"]):
        _add(requirement, found, is_optional=False)
    for extra in project["optional-dependencies"].values():
        for requirement in map(Requirement, extra):
            _add(requirement, found, is_optional=True)
    return found


def _add(requirement: Requirement, found: dict[str, Part], *, is_optional: bool) -> None:
    name = canonicalize_name(requirement.name)
    needed = _needed(name, requirement.extras)
    before = found.get(name)
    needs = {*(before.needs if before else ()), *(canonicalize_name(each.name) for each in needed)}
    part = Part(tuple(sorted(needs)), is_optional and (before is None or before.is_optional))
    if part != before:
        found[name] = part
        for each in needed:
            _add(each, found, is_optional=is_optional)


def _needed(name: str, extras: Iterable[str]) -> list[Requirement]:
    try:
        told = distribution(name).requires or []
    except PackageNotFoundError:
        sys.exit(f"{name} is not installed; `make sbom` installs what the list is made from")
    requirements = [Requirement(text) for text in told]
    places: list[dict[str, str]] = [{**PLACE, "extra": extra} for extra in ("", *sorted(extras))]
    return [each for each in requirements if each.marker is None or any(map(each.marker.evaluate, places))]


def component_of(name: str, pin: Pin, part: Part) -> dict[str, Any]:
    """One package. Its hashes are those of every file of this version that may be installed."""
    installed = distribution(name)
    if installed.version != pin.version:
        sys.exit(f"{name} {installed.version} is installed, and {pin.version} is locked; run `make sbom` anew")
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": _reference(name, pin),
        "name": name,
        "version": pin.version,
        "scope": "optional" if part.is_optional else "required",
        "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes],
        "purl": _reference(name, pin),
    }
    licences = licences_of(installed.metadata)
    return {**component, "licenses": licences} if licences else component


def licences_of(metadata: PackageMetadata) -> list[dict[str, Any]]:
    """What a package says: an SPDX expression, or else the names that it gives."""
    for expression in metadata.get_all("License-Expression") or ():
        return [{"expression": expression}]
    classifiers = [each for each in metadata.get_all("Classifier") or () if each.startswith("License ::")]
    names = [each.rpartition(" :: ")[2] for each in classifiers if not each.endswith("OSI Approved")]
    if not names:
        told = [each.strip() for each in metadata.get_all("License") or ()]
        names = [each for each in told if 0 < len(each) <= _LONGEST_NAME and each.isprintable()]
    return [{"license": {"name": name}} for name in names]


def _reference(name: str, pin: Pin) -> str:
    return f"pkg:pypi/{name}@{pin.version}"


def bill(epoch: int | None = None) -> dict[str, Any]:
    """The whole list, as plain data."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # What runs is in the lock of its own, with the same versions; what extras need is among the tools.
    pins = {**pins_of(ROOT / "requirements" / "dev.txt"), **pins_of(ROOT / "requirements" / "runtime.txt")}
    parts = dict(sorted(parts_of(project).items()))
    own = Pin(project["version"], ())
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    direct: list[str] = sorted({canonicalize_name(Requirement(text).name) for text in wanted})
    needs: dict[str, list[str]] = {project["name"]: direct, **{name: list(part.needs) for name, part in parts.items()}}
    references = {project["name"]: _reference(project["name"], own)}
    references |= {name: _reference(name, pins[name]) for name in parts}
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": references[project["name"]],
                "name": project["name"],
                "version": own.version,
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
                "purl": references[project["name"]],
            }
        },
        "components": [component_of(name, pins[name], part) for name, part in parts.items()],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[each] for each in needed)}
            for name, needed in needs.items()
        ],
    }
    if epoch is not None:
        document["metadata"]["timestamp"] = f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%dT%H:%M:%SZ}"
    # A name for this very list: another one has another.
    name = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{name}", **document}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "file", type=Path, nargs="?", help="where to write it; dist/<name>-<version>.cdx.json otherwise"
    )
    given: Path | None = parser.parse_args().file
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    made = bill(None if epoch is None else int(epoch))
    own = made["metadata"]["component"]
    file = given or ROOT / "dist" / f"{own['name']}-{own['version']}.cdx.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", "utf-8")
    print(f"{len(made['components'])} components in {file}")


if __name__ == "__main__":
    main()
