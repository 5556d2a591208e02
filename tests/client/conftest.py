"""Stores and servers of the neighbours."""

from tests.http.conftest import house, small_house
from tests.net.test_bad_servers import contexts
from tests.operations.conftest import desk

__all__ = ["contexts", "desk", "house", "small_house"]
