"""Secrets that are shown once, and of which only the hash is kept."""

import hashlib
import os
from base64 import urlsafe_b64encode

_BYTES = 32  # too many to be guessed, so one quick hash is enough


def new_secret(prefix: str = "") -> str:
    return prefix + urlsafe_b64encode(os.urandom(_BYTES)).rstrip(b"=").decode()


def fingerprint(secret: str) -> str:
    """What a secret is found by. Whoever sees it, or how long a search took, knows nothing about the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
