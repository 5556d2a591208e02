"""`NamedTuple` without the module `typing`, which would take more of the guardian's memory than all of ADE in it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

    class _FromAnnotations(type):
        def __new__(mcs, name, bases, space):
            if not bases:
                return super().__new__(mcs, name, bases, space)
            fields = space.pop("__annotations__", {})
            defaults = [space.pop(field) for field in fields if field in space]
            return type(name, (namedtuple(name, fields, defaults=defaults),), {**space, "__slots__": ()})

    class NamedTuple(metaclass=_FromAnnotations):
        """Fields as annotations, as with `typing.NamedTuple`."""


__all__ = ["NamedTuple"]
