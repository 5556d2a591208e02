"""Servers of the neighbors."""

from tests.common.http.test_bad_servers import contexts
from tests.server.conftest import house, small_house

__all__ = ["contexts", "house", "small_house"]
