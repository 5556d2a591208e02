"""How deep lists and objects may lie in one another in what an inbox keeps."""

DEEPEST = 100  # whoever reads deeper ones may come to the end of his stack, and then nobody can read the inbox any more


def is_too_deep(value: object) -> bool:
    """Of plain JSON that has an end, and is small."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
