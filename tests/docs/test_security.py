"""The pages on misuse and on the security model name tests that exist."""

import re

from docs.generate import DOCS


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", (DOCS / "reference" / "security.md").read_text("utf-8")))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (DOCS.parent / name).is_file()] == []


def test_every_claim_of_the_security_model_is_shown_by_a_test() -> None:
    text = (DOCS / "explanation" / "security-model.md").read_text("utf-8")
    named = set(re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", text))
    assert len(named) > 20
    missing = [
        f"{name}::{test}"
        for name, test in sorted(named)
        if not (DOCS.parent / name).is_file() or f"def {test}" not in (DOCS.parent / name).read_text("utf-8")
    ]
    assert missing == []
