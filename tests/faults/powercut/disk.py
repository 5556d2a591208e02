"""A disk that keeps its promises and no more: what was synced stays, what was not is up to the cut."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.faults.powercut.recording import ROOT, Change, Event, Recording, Rename, Sync, Truncate, Write

Names = dict[str, int]
Files = Mapping[str, bytes]  # by path, from the root folder on


class Disk:
    """Files and folders are nodes. A folder is safe when it was synced, quite apart from the files it names."""

    def __init__(self, folders: frozenset[int]) -> None:
        self._folders = folders
        self._names: dict[int, Names] = {}
        self._contents: dict[int, bytearray] = {}
        self._unsafe: list[tuple[int, Change]] = []
        self.syncs_that_mattered = 0  # tells whether what is safe has changed

    def take(self, number: int, event: Event) -> None:
        """The next event of a recording."""
        if isinstance(event, Write | Truncate | Rename):
            self._unsafe.append((number, event))
        elif isinstance(event, Sync):
            self._make_safe(event)

    def _make_safe(self, sync: Sync) -> None:
        covered = [change for number, change in self._unsafe if change.node == sync.node and number < sync.began]
        if covered:
            self.syncs_that_mattered += 1
            self._unsafe = [
                (number, change) for number, change in self._unsafe if change.node != sync.node or number >= sync.began
            ]
            _apply(covered, self._names, self._contents)

    def unsafe(self) -> list[Change]:
        """What a cut may or may not leave, in the order it was done."""
        return [change for _, change in self._unsafe]

    def after_cut(self, kept: Sequence[Change]) -> Files:
        """Every file there is, if of the unsafe changes these were kept."""
        names, contents = self._names.copy(), self._contents.copy()
        for node in {change.node for change in kept}:
            names[node] = names.get(node, {}).copy()
            contents[node] = contents.get(node, bytearray()).copy()
        _apply(kept, names, contents)
        return dict(self._walk(ROOT, "", names, contents))

    def _walk(
        self, folder: int, path: str, names: Mapping[int, Names], contents: Mapping[int, bytearray]
    ) -> Iterator[tuple[str, bytes]]:
        for name, node in names.get(folder, {}).items():
            if node in self._folders:
                yield from self._walk(node, f"{path}{name}/", names, contents)
            else:
                yield path + name, bytes(contents.get(node, b""))


def _apply(changes: Iterable[Change], names: dict[int, Names], contents: dict[int, bytearray]) -> None:
    for change in changes:
        match change:
            case Write(node, offset, content):
                file = contents.setdefault(node, bytearray())
                if len(file) < offset:
                    file.extend(bytes(offset - len(file)))
                file[offset : offset + len(content)] = content
            case Truncate(node, size):
                file = contents.setdefault(node, bytearray())
                del file[size:]
                file.extend(bytes(size - len(file)))
            case Rename(node, entries):
                folder = names.setdefault(node, {})
                for name, target in entries:
                    if target is None:
                        folder.pop(name, None)
                    else:
                        folder[name] = target


def as_the_program_left_it(recording: Recording) -> Files:
    """Every file at the end, had there been no cut."""
    disk = Disk(recording.folders)
    for number, event in enumerate(recording.events):
        disk.take(number, event)
    return disk.after_cut(disk.unsafe())
