"""Signatures by the rules of Standard Webhooks (version 1.0.0, symmetric): HMAC-SHA256 over `id.timestamp.body`.

While a secret is being replaced, a message is signed with the old and the new one, and either is good.
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
SECRET_BYTES = 32  # of a new one
TOLERANCE_S = 300
_FEWEST_BYTES, _MOST_BYTES = 24, 64
_VERSION = "v1"
_MOST_SIGNATURES = 20  # looked at in one header
_MESSAGE_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")  # no full stop: it parts what is signed
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


def secret_of(entropy: bytes) -> str:
    """A secret as it is shown, from random bytes. Raises InvalidWebhook for too few or too many."""
    secret = SECRET_PREFIX + b64encode(entropy).decode()
    key_of(secret)
    return secret


def key_of(secret: str) -> bytes:
    """What is signed with. Raises InvalidWebhook, without the secret in its sentence."""
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not _FEWEST_BYTES <= len(key) <= _MOST_BYTES:
        raise InvalidWebhook(
            f"a webhook's secret is {SECRET_PREFIX} and then {_FEWEST_BYTES} to {_MOST_BYTES} random bytes in base64;"
            " leave it out to have one made"
        )
    return key


def signed_headers(message_id: str, at_s: int, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """The three headers of a message that is sent at this moment (seconds). One signature for each secret, in order."""
    if not _MESSAGE_ID.fullmatch(message_id):
        raise ValueError(f"{message_id[:60]!r} cannot be a message's id")
    if not secrets:
        raise ValueError("a message is signed with one secret at least")
    signatures = (f"{_VERSION},{b64encode(_digest(message_id, at_s, body, secret)).decode()}" for secret in secrets)
    return {ID: message_id, TIMESTAMP: str(at_s), SIGNATURE: " ".join(signatures)}


def verify(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[str], *, now_s: int, tolerance_s: int = TOLERANCE_S
) -> str:
    """The id of a message whose signature holds, for whoever receives one. Raises InvalidSignature.

    The body is that of the request, byte by byte. One message may come more than once: know it by its id.
    """
    given = {name.lower(): value for name, value in headers.items()}
    message_id, at, signature = (given.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    if not _MESSAGE_ID.fullmatch(message_id) or not _SECONDS.fullmatch(at) or not signature:
        raise InvalidSignature(f"the headers {ID}, {TIMESTAMP} and {SIGNATURE} are missing, or not valid")
    at_s = int(at)
    if abs(now_s - at_s) > tolerance_s:
        raise InvalidSignature(f"the message was sent more than {tolerance_s} seconds ago, or the clocks do not agree")
    claimed = _claimed(signature)
    expected = [_digest(message_id, at_s, body, secret) for secret in secrets]
    # All are compared: how long it takes must not tell which one it was.
    if sum(hmac.compare_digest(one, other) for one in claimed for other in expected) == 0:
        raise InvalidSignature("no signature of the message was made with a known secret")
    return message_id


def _claimed(header: str) -> list[bytes]:
    """The signatures that we know how to check; a sender may add others."""
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
