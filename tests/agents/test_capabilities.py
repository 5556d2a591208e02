"""Words for what workers can do and tasks ask for: which may stand there, and when they are met."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.agents.model import Agent, check_capabilities, check_type, registration
from ade.errors import InvalidAgent, InvalidTask
from ade.tasks.decisions import edit
from ade.tasks.model import MOST_CAPABILITIES, Task, are_met, as_text, capabilities_of
from tests.domain import admit

ID = "0199c82c-c000-7000-8000-000000000000"
words = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,49}", fullmatch=True)


@given(st.lists(words, max_size=MOST_CAPABILITIES))
def test_words_are_kept_sorted_and_once(given_words: list[str]) -> None:
    kept = capabilities_of(given_words, "needs", InvalidTask)

    assert kept == tuple(sorted(set(given_words)))
    assert capabilities_of(kept, "needs", InvalidTask) == kept


@given(needs=st.sets(words, max_size=4), can=st.sets(words, max_size=6))
def test_who_has_all_that_is_asked_for_may_have_it(needs: set[str], can: set[str]) -> None:
    assert are_met(as_text(sorted(needs)), can) == (needs <= can)


@pytest.mark.parametrize("word", ["", "GPU", "a b", "a,b", "a+b", "-a", ".a", "ä", "a" * 51, "a\n"])
def test_no_other_word_is_a_capability(word: str) -> None:
    with pytest.raises(InvalidTask, match=r"needs: .* is not a valid capability"):
        admit(Task(id=ID, name="f", needs=(word,)), now=0)
    with pytest.raises(InvalidAgent, match="agent coder: "):
        check_capabilities("coder", [word])


def test_nobody_has_very_many() -> None:
    most = [f"c{number}" for number in range(MOST_CAPABILITIES)]

    assert len(admit(Task(id=ID, name="f", needs=tuple(most)), now=0).needs) == MOST_CAPABILITIES
    with pytest.raises(InvalidTask, match="needs: 33 capabilities are too many; 32 are the most"):
        admit(Task(id=ID, name="f", needs=(*most, "more")), now=0)


def test_a_task_is_stored_with_its_needs_in_order() -> None:
    task = admit(Task(id=ID, name="f", needs=("net", "gpu", "net")), now=0)

    assert task.needs == ("gpu", "net")


def test_what_a_draft_needs_is_checked_when_it_is_edited() -> None:
    draft = admit(Task(id=ID, name="f", status="draft"), now=0)  # type: ignore[arg-type]  # the word is the status

    assert edit(draft, now=1, needs=["net", "gpu"]).after.needs == ("gpu", "net")
    with pytest.raises(InvalidTask):
        edit(draft, now=1, needs=["No"])


@pytest.mark.parametrize("kind", ["", "a b", "x" * 51, "a/b"])
def test_a_type_is_a_word(kind: str) -> None:
    with pytest.raises(InvalidAgent, match="not a valid type"):
        check_type(kind)


def test_a_registration_tells_what_was_said() -> None:
    bare = registration(Agent(id="a", max_tasks=1), at=5)
    full = registration(Agent(id="a", max_tasks=1, type="coder", capabilities=("gpu",)), at=5, actor="ada")

    assert bare.payload == {"agent": "a", "max_tasks": 1}
    assert full.payload == {"agent": "a", "max_tasks": 1, "type": "coder", "capabilities": ["gpu"]}
