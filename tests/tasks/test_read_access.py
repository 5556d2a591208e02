"""The rules of read access: scopes, bindings, and masks over payloads."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.errors import NotPermitted
from ade.tasks.read_access import MASKED, MaskRules, PayloadMask, bound_names, bound_queues, has_mask, has_secrets

SCHEMA = {
    "properties": {
        "password": {"type": "string", "x-secret": True},
        "cards": {"type": "array", "items": {"$ref": "#/$defs/Card"}},
        "either": {"anyOf": [{"$ref": "#/$defs/Card"}, {"type": "null"}]},
        "open": {"additionalProperties": {"x-secret": True}},
        "pair": {"prefixItems": [{"type": "string"}, {"x-secret": True}]},
        "tree": {"$ref": "#/$defs/Tree"},
    },
    "$defs": {
        "Card": {"properties": {"number": {"x-secret": True}, "name": {"type": "string"}}},
        "Tree": {"anyOf": [{"$ref": "#/$defs/Tree"}], "properties": {"next": {"$ref": "#/$defs/Tree"}}},
    },
}


def masked(args: object, *, fields: tuple[str, ...] = (), patterns: tuple[str, ...] = ()) -> object:
    mask = PayloadMask(MaskRules(fields, patterns), SCHEMA, args)
    assert mask.args == msgspec.json.decode(mask.raw_arguments(msgspec.Raw(msgspec.json.encode(args))))
    return mask.args


def test_a_schema_declares_secrets_at_any_depth() -> None:
    card = {"number": 4111111111111111, "name": "Ada"}
    shown = {"number": MASKED, "name": "Ada"}
    assert masked({"password": "p", "to": "rent"}) == {"password": MASKED, "to": "rent"}
    assert masked({"cards": [card, card], "either": card}) == {"cards": [shown, shown], "either": shown}
    assert masked({"open": {"any": {"thing": 1}}, "pair": ["a", "b", "c"]}) == {
        "open": {"any": MASKED},
        "pair": ["a", MASKED, "c"],
    }
    assert masked({"password": None, "tree": {"next": {"next": {}}}}) == {
        "password": None,
        "tree": {"next": {"next": {}}},
    }
    assert has_secrets(SCHEMA)
    assert not has_secrets({"properties": {"x-secret": {"type": "string"}}})  # an argument of that name is none
    assert not has_secrets(None)


def test_the_paths_of_masked_arguments_are_told() -> None:
    mask = PayloadMask(MaskRules(("*token*",)), SCHEMA, {"password": "p", "cards": [{"number": 1}], "Api_Token": "x"})
    assert mask.paths == ["password", "cards[0].number", "Api_Token"]
    assert mask.at("cards[0].number", 7) == MASKED
    assert mask.at("cards", [{"number": 7, "name": "Ada"}]) == [{"number": MASKED, "name": "Ada"}]
    assert mask.at("to", "rent") == "rent"


def test_settings_name_fields_and_patterns() -> None:
    assert masked({"API_TOKEN": "abc", "to": "sk-1 and sk-2"}, fields=("*token*",), patterns=(r"sk-\d",)) == {
        "API_TOKEN": MASKED,
        "to": f"{MASKED} and {MASKED}",
    }


@given(st.text(min_size=4, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_a_secret_argument_is_found_in_any_text(secret: str, before: str, behind: str) -> None:
    mask = PayloadMask(MaskRules(), SCHEMA, {"password": secret})
    shown = mask.value({"result": [before + secret + behind, {"error": secret}], "count": 3, "is_done": True})
    assert secret not in shown["result"][0].replace(MASKED, "") or secret in MASKED
    assert shown["result"][1] == {"error": MASKED}
    assert (shown["count"], shown["is_done"]) == (3, True)


def test_masks_in_new_arguments_are_found() -> None:
    assert has_mask({"a": [{"b": MASKED}]})
    assert not has_mask({"a": [{"b": "not masked"}]})


def test_a_bound_account_claims_what_it_is_bound_to() -> None:
    assert bound_names("w", (), ["a", "b"]) == {"a", "b"}
    assert bound_names("w", ("b", "c"), ["a", "b"]) == {"b"}
    with pytest.raises(NotPermitted, match="w is bound to the tasks b, c and cannot claim a"):
        bound_names("w", ("b", "c"), ["a"])
    assert bound_queues("w", (), ["x"]) == ("x",)
    assert bound_queues("w", ("x", "y"), []) == ("x", "y")
    assert bound_queues("w", ("x", "y"), ["z", "y"]) == ("y",)
    with pytest.raises(NotPermitted, match="w is bound to the queues x, y and cannot claim from z"):
        bound_queues("w", ("x", "y"), ["z"])
