"""What the repository says: links that lead somewhere, and nothing about one machine."""

import re
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, shown, written_files

PAGES = [path for path in written_files() if path.suffix == ".md"]
LINK = re.compile(r"\]\((?P<target>[^)\s]+)(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
# Put together here, so that this file does not find itself.
HOSTS = re.compile(
    "|".join(("py" + r"pi\.org", "python" + r"hosted\.", "artifact" + "ory", "dev" + r"pi\b")), re.IGNORECASE
)
PLACES = re.compile(r"(?<![\w.~*/-])/(?:work|root|home|tmp/brief|opt/pypi)(?![\w-])")


def targets(page: Path) -> list[str]:
    prose = CODE.sub("", page.read_text())
    return [link["target"].partition("#")[0] for link in LINK.finditer(prose)]


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    local = [target for target in targets(page) if target and "://" not in target and not target.startswith("mailto:")]

    assert [target for target in local if not (page.parent / target).exists()] == []


def test_no_text_names_a_package_registry_or_a_place_on_one_machine() -> None:
    found = []
    for path in written_files():
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{shown(path)}:{number}"
            for number, line in enumerate(lines, 1)
            if HOSTS.search(line) or PLACES.search(line)
        ]

    assert found == []


def test_the_root_holds_what_a_newcomer_looks_for() -> None:
    expected = (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Makefile",
        ".ci/run",
        "docs/README.md",
        "docs/glossary.md",
    )

    assert [name for name in expected if not (ROOT / name).is_file()] == []
