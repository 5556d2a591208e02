"""`NamedTuple` without the module `typing`, which would take more of the guardian's memory than all of ADE in it."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

    _ANNOTATIONS = ("__annotations__", "__annotate__", "__annotate_func__")  # where versions of Python keep them

    class _FromAnnotations(type):
        def __new__(mcs, name, bases, space):
            if not bases:
                return super().__new__(mcs, name, bases, space)
            fields = type(name, (), dict(space)).__annotations__  # from Python 3.14 on they are not in `space` itself
            defaults = [space[field] for field in fields if field in space]
            rest = {key: value for key, value in space.items() if key not in fields and key not in _ANNOTATIONS}
            return type(name, (namedtuple(name, fields, defaults=defaults),), {**rest, "__slots__": ()})

    class NamedTuple(metaclass=_FromAnnotations):
        """Fields as annotations, as with `typing.NamedTuple`."""


__all__ = ["NamedTuple"]
