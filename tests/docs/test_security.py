"""The page on misuse names tests that exist."""

import re

from docs.generate import DOCS


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", (DOCS / "reference" / "security.md").read_text("utf-8")))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (DOCS.parent / name).is_file()] == []
