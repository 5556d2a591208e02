"""Message signatures by Standard Webhooks (version 1.0.0, symmetric): HMAC-SHA256 over `id.timestamp.body`.

During a secret rotation, a message is signed with the old and the new secret, and either signature is valid.
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence

from ade.errors import InvalidSignature, InvalidWebhook

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32  # of a new secret
TOLERANCE_S = 300
_FEWEST_BYTES, _MOST_BYTES = 24, 64
_VERSION = "v1"
_MOST_SIGNATURES = 20  # checked per header
_MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")  # no period, because it separates the signed parts
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


def secret_of(entropy: bytes) -> str:
    """Encode random bytes as a secret. Raises InvalidWebhook for too few or too many bytes."""
    secret = SECRET_PREFIX + b64encode(entropy).decode()
    key_of(secret)
    return secret


def key_of(secret: str) -> bytes:
    """Decode the signing key of a secret. Raises InvalidWebhook; its message does not contain the secret."""
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not _FEWEST_BYTES <= len(key) <= _MOST_BYTES:
        raise InvalidWebhook(
            f"a webhook's secret is {SECRET_PREFIX} and then {_FEWEST_BYTES} to {_MOST_BYTES} random bytes in base64;"
            " omit it to generate one"
        )
    return key


def signed_headers(message_id: str, at_s: int, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """Return the three headers of a message sent at `at_s` (seconds), with one signature per secret, in order."""
    if not _MESSAGE_ID.fullmatch(message_id):
        raise ValueError(f"{message_id[:60]!r} cannot be a message's id")
    if not secrets:
        raise ValueError("a message is signed with at least one secret")
    signatures = (f"{_VERSION},{b64encode(_digest(message_id, at_s, body, secret)).decode()}" for secret in secrets)
    return {ID: message_id, TIMESTAMP: str(at_s), SIGNATURE: " ".join(signatures)}


def verify(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now_s: int, tolerance_s: int = TOLERANCE_S
) -> str:
    """Verify a received message and return its ID. Raises InvalidSignature.

    `body` is the request body, byte by byte. A message can arrive more than once: deduplicate by its ID.
    """
    received = {name.lower(): value for name, value in headers.items()}
    message_id, at, signature = (received.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    if not _MESSAGE_ID.fullmatch(message_id) or not _SECONDS.fullmatch(at) or not signature:
        raise InvalidSignature(f"the headers {ID}, {TIMESTAMP} and {SIGNATURE} are missing, or not valid")
    at_s = int(at)
    if abs(now_s - at_s) > tolerance_s:
        raise InvalidSignature(f"the message was sent more than {tolerance_s} seconds ago, or the clocks do not agree")
    claimed = _claimed(signature)
    expected = [_digest(message_id, at_s, body, secret) for secret in secrets]
    # Compare all pairs, so that the duration does not reveal which one matched.
    if sum(hmac.compare_digest(one, other) for one in claimed for other in expected) == 0:
        raise InvalidSignature("no signature of the message was made with a known secret")
    return message_id


def _claimed(header: str) -> list[bytes]:
    """Return the signatures in a supported version. A sender can add others."""
    found = []
    for part in header.split(" ")[:_MOST_SIGNATURES]:
        version, _, encoded = part.partition(",")
        if version == _VERSION:
            try:
                found.append(b64decode(encoded, validate=True))
            except (binascii.Error, ValueError):
                continue
    return found


def _digest(message_id: str, at_s: int, body: bytes, secret: str) -> bytes:
    return hmac.digest(key_of(secret), f"{message_id}.{at_s}.".encode() + body, hashlib.sha256)
