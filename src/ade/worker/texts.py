"""Text from handlers, made fit for every store: a lone surrogate, as in a badly decoded file name, has no UTF-8."""


def storable(text: str) -> str:
    """The text, with what cannot be written as UTF-8 spelled out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
