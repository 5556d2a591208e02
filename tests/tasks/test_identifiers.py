"""Ids are UUIDv7: the usual text form, ordered by their millisecond."""

from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain import LAST_MOMENT, is_task_id, uuid7

moments = st.integers(0, LAST_MOMENT)
entropies = st.binary(min_size=10, max_size=10)


def test_time_version_variant_and_chance_have_their_places() -> None:
    """The example of RFC 9562, appendix A.6."""
    assert uuid7(0x017F22E279B0, bytes.fromhex("0cc318c4dc0c0c07398f")) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@given(now_ms=moments, entropy=entropies)
def test_every_id_is_a_uuid_of_version_7(now_ms: int, entropy: bytes) -> None:
    made = uuid7(now_ms, entropy)

    assert is_task_id(made)
    assert str(UUID(made)) == made
    assert (UUID(made).version, UUID(made).variant) == (7, RFC_4122)
    assert UUID(made).int >> 80 == now_ms


@given(earlier=moments, later=moments, chance=st.tuples(entropies, entropies))
def test_ids_sort_by_their_millisecond(earlier: int, later: int, chance: tuple[bytes, bytes]) -> None:
    one, other = uuid7(earlier, chance[0]), uuid7(later, chance[1])

    if earlier != later:
        assert (one < other) == (earlier < later)


@given(now_ms=moments, entropy=entropies, bit=st.integers(0, 79))
def test_every_bit_of_chance_counts_but_for_version_and_variant(now_ms: int, entropy: bytes, bit: int) -> None:
    flipped = (int.from_bytes(entropy, "big") ^ (1 << bit)).to_bytes(10, "big")

    fixed_by_the_format = bit in {62, 63, 76, 77, 78, 79}
    assert (uuid7(now_ms, entropy) == uuid7(now_ms, flipped)) == fixed_by_the_format


@pytest.mark.parametrize(
    "text",
    [
        "",
        "017f22e279b07cc398c4dc0c0c07398f",
        "017F22E2-79B0-7CC3-98C4-DC0C0C07398F",
        "{017f22e2-79b0-7cc3-98c4-dc0c0c07398f}",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f\n",
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398g",
    ],
)
def test_only_the_lower_case_text_form_is_an_id(text: str) -> None:
    assert not is_task_id(text)
