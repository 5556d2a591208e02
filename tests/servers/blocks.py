"""What is started at the beginning of a `with` block and closed at its end, also when the start fails."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Startable(ABC):
    """`with Server(...) as server: ...`"""

    @abstractmethod
    def start(self) -> Self:
        """Up and ready when this returns."""

    @abstractmethod
    def close(self) -> None:
        """End it; what never started is closed as well."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
