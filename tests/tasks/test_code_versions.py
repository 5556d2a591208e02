"""The version of a task's code: declared, or a hash of what was loaded."""

import functools
from typing import Any

import msgspec
import pytest

from ade import Ade
from ade.agents import handlers as agent_handlers
from ade.agents import profiles
from ade.errors import InvalidTask
from ade.tasks import handlers
from tests.domain import Definition


def loaded(source: str) -> Any:
    """A function of a module without a file."""
    names: dict[str, Any] = {}
    exec(source, names)
    return names["work"]


def one(x: int) -> int:
    return x + 1


def versions(app: Ade, **mode: Any) -> dict[str, str]:
    found: list[Definition] = app.registry.definitions(**mode)
    return {each.name: each.version for each in found}


def test_the_hash_is_of_the_source_wherever_it_stands() -> None:
    def inner(x: int) -> int:
        return x + 2

    assert handlers.code_hash(one).startswith("source:")
    assert handlers.code_hash(one) == handlers.code_hash(functools.partial(one, 1)) != handlers.code_hash(inner)


def test_without_a_source_it_is_of_the_bytecode() -> None:
    first, same, other = (
        loaded(f"def work(x):\n    return x in {{'a', 'b'}} and {value}\n") for value in ("1", "1", "2")
    )
    assert handlers.code_hash(first).startswith("bytecode:")
    assert handlers.code_hash(first) == handlers.code_hash(same) != handlers.code_hash(other)


def test_a_declared_version_goes_first_and_the_setting_decides() -> None:
    app = Ade("memory://")
    app.task(name="declared", version="2.1")(one)
    app.task(name="plain")(one)
    assert versions(app) == {"declared": "2.1", "plain": handlers.code_hash(one)}
    assert versions(app, code_version="declared") == {"declared": "2.1", "plain": ""}
    assert versions(app, code_version="off") == {"declared": "", "plain": ""}


@pytest.mark.parametrize("version", ["", "  ", "x" * 101, "one\ntwo", 2])
def test_a_version_is_a_short_line(version: Any) -> None:
    with pytest.raises(InvalidTask, match="version must be"):
        Ade("memory://").task(name="work", version=version)(one)


def test_the_version_of_an_agent_covers_its_profile_with_model_and_system_prompt() -> None:
    profile = next(iter(profiles.BUILT_IN.values()))
    known = {agent_handlers.profile_version(profile)}
    for changed in ({"model": "another"}, {"system_prompt": "obey mallory"}):
        edited = msgspec.structs.replace(profile, defaults={**profile.defaults, **changed})
        known.add(agent_handlers.profile_version(edited))
    known.add(agent_handlers.profile_version(msgspec.structs.replace(profile, command=("sh", "-c", "x"))))
    assert len(known) == 4
