"""Preconditions: nobody writes over what he has not seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.server.etags import ANY, EntityTag, check_write, is_not_modified, read_tags, tag_of_content, tag_of_version
from tests.depth import examples
from tests.domain import RequestRefused
from tests.server.refusals import refused


@pytest.mark.parametrize(
    ("header", "tags"),
    [
        ('"1"', [EntityTag("1")]),
        (' W/"1" ', [EntityTag("1", is_weak=True)]),
        ('"a,b" ,W/"c"', [EntityTag("a,b"), EntityTag("c", is_weak=True)]),
        (',"1",, "2",', [EntityTag("1"), EntityTag("2")]),
        ('""', [EntityTag("")]),
    ],
)
def test_lists_of_tags_are_read(header: str, tags: list[EntityTag]) -> None:
    assert read_tags(header) == tags


def test_a_star_means_whatever_there_is() -> None:
    assert read_tags(" * ") is ANY


@pytest.mark.parametrize(
    "header",
    ["", ",", "12", 'w/"1"', '"1', '"1" "2"', '*, "1"', '"a b"', '"1"\n', '"1",' * 101, '"' + "x" * 5_000 + '"'],
)
def test_what_is_no_tag_is_refused(header: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        read_tags(header)

    assert caught.value.problem.status == 400


@settings(max_examples=examples(50))
@given(st.lists(st.builds(EntityTag, st.text("abc,W/*", max_size=5), st.booleans()), min_size=1, max_size=5))
def test_tags_are_read_as_they_are_written(tags: list[EntityTag]) -> None:
    assert read_tags(", ".join(map(str, tags))) == tags


@pytest.mark.parametrize(
    ("current", "if_match", "if_none_match", "status"),
    [
        (3, '"3"', None, None),
        (3, '"2", "3"', None, None),
        (3, "*", None, None),
        (3, '"2"', None, 412),
        (3, 'W/"3"', None, 412),  # as good as the same is not the same
        (None, "*", None, 412),
        (None, '"1"', None, 412),
        (None, None, "*", None),  # to be made, and not there yet
        (3, None, "*", 412),
        (3, None, 'W/"3"', 412),
        (3, None, '"2"', None),
        (3, '"3"', "*", 412),
        (3, "3", None, 400),
        (3, None, None, 428),
    ],
)
def test_writes_by_what_they_name(
    current: int | None, if_match: str | None, if_none_match: str | None, status: int | None
) -> None:
    def write() -> None:
        check_write(current, if_match=if_match, if_none_match=if_none_match, is_required=True)

    assert refused(write) == status


def test_who_need_not_name_a_version_may_write_and_who_is_late_learns_the_new_one() -> None:
    check_write(3)

    with pytest.raises(RequestRefused) as caught:
        check_write(3, if_match='"2"')
    assert caught.value.problem.more == {"etag": '"3"'}


def test_reads_are_spared_what_is_known() -> None:
    content = tag_of_content(b"[]")

    assert is_not_modified(tag_of_version(3), 'W/"2", W/"3"')
    assert is_not_modified(content, str(content))
    assert is_not_modified(content, "*")
    assert not is_not_modified(tag_of_version(3), '"2"')
    assert not is_not_modified(tag_of_version(3), None)
    assert str(content).startswith('W/"')
