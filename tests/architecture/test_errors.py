"""Every error that a user can see has a code of its own and a line in the reference."""

import importlib
import pkgutil
import re
from collections import Counter

import ade
from ade.errors import AdeError
from tests.architecture.repository import ROOT

PAGE = ROOT / "docs" / "reference" / "errors.md"
ROW = re.compile(r"^\| `(?P<code>\w+)` \| (?P<meaning>\S.*) \|$", re.MULTILINE)


def all_errors() -> list[type[AdeError]]:
    """Every error class of the package; all modules are imported so that none is missed."""
    for module in pkgutil.walk_packages(ade.__path__, "ade."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def family(error: type[AdeError]) -> list[type[AdeError]]:
        return [error, *(heir for child in error.__subclasses__() for heir in family(child))]

    # dict: a class with two parents is found twice
    return [error for error in dict.fromkeys(family(AdeError)) if error.__module__.startswith("ade.")]


def test_no_two_errors_share_a_code() -> None:
    codes = Counter(error.code for error in all_errors())

    assert [code for code, count in codes.items() if count > 1] == []


def test_every_error_says_something_by_itself() -> None:
    assert [error.__name__ for error in all_errors() if not (error.__doc__ or "").strip()] == []


def test_the_reference_lists_exactly_the_codes_there_are() -> None:
    listed = [row["code"] for row in ROW.finditer(PAGE.read_text())]
    known = {error.code for error in all_errors()}

    assert sorted(known - set(listed)) == [], "add a line to docs/reference/errors.md for these"
    assert sorted(set(listed) - known) == [], "docs/reference/errors.md lists codes that do not exist"
    assert listed == sorted(listed), "the lines of docs/reference/errors.md are in order of their codes"
