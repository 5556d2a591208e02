"""Signatures: what others make by the same rules, we make too, and nothing that was touched is believed."""

from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.errors import InvalidSignature, InvalidWebhook
from ade.webhooks.signatures import SIGNATURE, TIMESTAMP, key_of, secret_of, signed_headers, verify
from tests.depth import examples

OLD, NEW = secret_of(b"old key of at least 24 bytes"), secret_of(b"new key of at least 24 bytes")
NOW = 1_674_087_231
BODY = b'{"type":"task.failed"}'


def test_a_known_message_has_its_known_signature() -> None:
    """HMAC-SHA256 computed apart, with `openssl dgst -sha256 -mac HMAC`, over `msg_1.1674087231.{...}`."""
    secret = "whsec_" + b64encode(bytes(range(32))).decode()

    headers = signed_headers("msg_1", NOW, BODY, [secret])

    assert headers == {
        "webhook-id": "msg_1",
        "webhook-timestamp": "1674087231",
        "webhook-signature": "v1,mDps8bgldhk3sIWVIw5SRPQf4REm2I6o5k1eh1/1BQM=",
    }


def test_while_a_secret_is_replaced_both_are_good() -> None:
    headers = signed_headers("msg_1", NOW, BODY, [NEW, OLD])

    assert headers[SIGNATURE].count("v1,") == 2
    for secret in (OLD, NEW):
        assert verify(headers, BODY, [secret], now_s=NOW) == "msg_1"
    with pytest.raises(InvalidSignature):
        verify(signed_headers("msg_1", NOW, BODY, [NEW]), BODY, [OLD], now_s=NOW)


@pytest.mark.parametrize("late", [-301, 301])
def test_what_is_too_old_or_from_the_future_is_refused(late: int) -> None:
    headers = signed_headers("msg_1", NOW, BODY, [OLD])

    assert verify(headers, BODY, [OLD], now_s=NOW + (300 if late > 0 else -300))
    with pytest.raises(InvalidSignature, match="300 seconds"):
        verify(headers, BODY, [OLD], now_s=NOW + late)


@given(st.binary(max_size=50), st.binary(max_size=50))
@settings(max_examples=examples(30))
def test_only_the_very_same_body_is_believed(body: bytes, other: bytes) -> None:
    headers = signed_headers("msg_1", NOW, body, [OLD])

    assert verify({name.upper(): value for name, value in headers.items()}, body, [NEW, OLD], now_s=NOW) == "msg_1"
    if other != body:
        with pytest.raises(InvalidSignature):
            verify(headers, other, [OLD], now_s=NOW)


@pytest.mark.parametrize(
    "spoiled",
    [
        {"webhook-id": "msg_2"},
        {"webhook-id": "msg_1.1"},
        {"webhook-id": ""},
        {TIMESTAMP: str(NOW + 1)},
        {TIMESTAMP: "soon"},
        {TIMESTAMP: "\u0661\u0662"},
        {TIMESTAMP: "9" * 5_000},
        {SIGNATURE: ""},
        {SIGNATURE: "v1,"},
        {SIGNATURE: "v1,\u00e9"},
        {SIGNATURE: "v1,not base64!"},
        {SIGNATURE: "v1a," + "A" * 88},
    ],
)
def test_headers_that_were_touched_are_refused(spoiled: dict[str, str]) -> None:
    with pytest.raises(InvalidSignature):
        verify(signed_headers("msg_1", NOW, BODY, [OLD]) | spoiled, BODY, [OLD], now_s=NOW)


def test_signatures_of_other_kinds_are_passed_over() -> None:
    headers = signed_headers("msg_1", NOW, BODY, [OLD])
    headers[SIGNATURE] = f"v1a,AAAA v2 {headers[SIGNATURE]}"

    assert verify(headers, BODY, [OLD], now_s=NOW) == "msg_1"


@pytest.mark.parametrize("secret", ["", "whsec_", OLD.removeprefix("whsec_"), "whsec_AAAA", "whsec_?" + OLD[7:]])
def test_what_is_no_secret_is_refused_and_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidWebhook) as refused:
        key_of(secret)
    assert len(secret) < 10 or secret not in refused.value.detail


@given(st.binary(max_size=80))
@settings(max_examples=examples(30))
def test_secrets_have_24_to_64_bytes(entropy: bytes) -> None:
    if 24 <= len(entropy) <= 64:
        assert key_of(secret_of(entropy)) == entropy
    else:
        with pytest.raises(InvalidWebhook):
            secret_of(entropy)


def test_an_id_with_a_full_stop_is_never_signed() -> None:
    with pytest.raises(ValueError, match="id"):
        signed_headers("msg.1", NOW, BODY, [OLD])
    with pytest.raises(ValueError, match="secret"):
        signed_headers("msg_1", NOW, BODY, [])
