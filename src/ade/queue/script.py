"""Notices a script whose main part runs when a child process imports it for one of its functions."""

from collections.abc import Iterator
from contextlib import contextmanager

from ade.core.errors import UnguardedMain


class _Import:
    """Whether a script is being imported in this process, and whether it tried to do more than define things."""

    is_going_on = False
    was_refused = False


def refuse_while_imported() -> None:
    """Called before an app is used. Raises UnguardedMain while the process only imports the script."""
    if _Import.is_going_on:
        _Import.was_refused = True
        raise UnguardedMain


@contextmanager
def being_imported() -> Iterator[None]:
    """A script is imported inside; if it tried to use its app, UnguardedMain, whatever it made of the refusal."""
    _Import.is_going_on, _Import.was_refused = True, False
    try:
        yield
    except BaseException as error:
        if _Import.was_refused and not isinstance(error, UnguardedMain):
            raise UnguardedMain from error
        raise
    finally:
        _Import.is_going_on = False
    if _Import.was_refused:
        raise UnguardedMain
