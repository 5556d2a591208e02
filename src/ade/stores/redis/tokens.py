"""Names for requests whose repetition must be told from another request that asks for the same."""

import os


def new_token() -> str:
    return os.urandom(8).hex()
