"""The list of components says what the locks say, and is the same whenever and wherever it is made."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from ade import VERSION
from tests.architecture.repository import ROOT
from tests.architecture.test_locks import pins

SERIAL = re.compile(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def written(file: Path, **environment: str) -> bytes:
    inherited = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run(
        [sys.executable, str(ROOT / "requirements" / "sbom.py"), str(file)],
        env={**inherited, **environment},
        check=True,
        capture_output=True,
    )
    return file.read_bytes()


def bill(folder: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(written(folder / "ade.cdx.json"))
    return made


def hashes(name: str) -> set[str]:
    """Of one package, as the lock of the tools has it, which holds all the others."""
    text = (ROOT / "requirements" / "dev.txt").read_text()
    [entry] = re.findall(rf"^{re.escape(name)}==[^#]*", text, re.MULTILINE)
    return set(re.findall(r"sha256:([0-9a-f]{64})", entry))


def test_it_is_a_list_of_the_kind_it_says(tmp_path: Path) -> None:
    made = bill(tmp_path)

    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
    assert SERIAL.fullmatch(made["serialNumber"])
    assert made["metadata"]["component"]["version"] == VERSION
    assert "timestamp" not in made["metadata"]
    names = [each["name"] for each in made["components"]]
    assert names == sorted(set(names))


def test_it_names_what_the_locks_name(tmp_path: Path) -> None:
    made, locked = bill(tmp_path), pins("dev.txt")

    required = {each["name"]: each["version"] for each in made["components"] if each["scope"] == "required"}
    optional = {each["name"]: each["version"] for each in made["components"] if each["scope"] == "optional"}
    assert required == pins("runtime.txt")
    assert optional.items() <= locked.items()
    assert {"opentelemetry-sdk", "psycopg", "psycopg-binary"} <= optional.keys()
    for each in made["components"]:
        assert each["purl"] == each["bom-ref"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert {one["content"] for one in each["hashes"]} == hashes(each["name"])
        assert each["licenses"], f"{each['name']} has no licence"


def test_it_tells_who_needs_whom(tmp_path: Path) -> None:
    made = bill(tmp_path)
    own = made["metadata"]["component"]["bom-ref"]
    needs = {each["ref"]: set(each["dependsOn"]) for each in made["dependencies"]}
    reached, waiting = {own}, [own]
    while waiting:
        for each in needs[waiting.pop()] - reached:
            reached.add(each)
            waiting.append(each)

    assert reached == {own, *(each["bom-ref"] for each in made["components"])}
    assert reached == needs.keys()


def test_it_is_reproducible(tmp_path: Path) -> None:
    first = written(tmp_path / "1", PYTHONHASHSEED="1")
    second = written(tmp_path / "2", PYTHONHASHSEED="2", TZ="Asia/Tokyo")
    dated = json.loads(written(tmp_path / "3", SOURCE_DATE_EPOCH="1767225600"))

    assert first == second
    assert dated["metadata"].pop("timestamp") == "2026-01-01T00:00:00Z"
    assert dated["serialNumber"] != json.loads(first)["serialNumber"]
