"""A real server whose wall clock a test can step, by a small library that is loaded before the C library."""

import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.servers.binaries import Binary
from tests.servers.server import PLAIN, Options, Server

MISSING_COMPILER = "the clock of a server cannot be stepped: there is no C compiler (`cc`) on PATH"

# The offset in microseconds is the first number of a file that is mapped into the memory of the server.
_SOURCE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void begin(void) {
    char *path = getenv("STEPPED_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    offset = page == MAP_FAILED ? 0 : page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long total = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + *offset;
        now->tv_sec = total / 1000000;
        now->tv_nsec = total % 1000000 * 1000 + now->tv_nsec % 1000;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec moment;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &moment);
    now->tv_sec = moment.tv_sec;
    now->tv_usec = moment.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec moment;
    clock_gettime(CLOCK_REALTIME, &moment);
    if (result) *result = moment.tv_sec;
    return moment.tv_sec;
}
"""


@cache
def library_or_skip() -> bytes:
    """The compiled library; where that is not possible, the test is skipped with the reason."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip(MISSING_COMPILER)
    with TemporaryDirectory(prefix="ade-stepped-") as folder:
        source, library = Path(folder, "stepped.c"), Path(folder, "stepped.so")
        source.write_text(_SOURCE)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"the clock of a server cannot be stepped: `cc` failed: {done.stderr.strip()[:200]}")
        return library.read_bytes()


class SteppedClock:
    """The wall clock of a server that is not started yet, and that a test can step from then on."""

    def __init__(self, server: Server) -> None:
        library, self._file = server.folder / "stepped.so", server.folder / "offset"
        library.write_bytes(library_or_skip())
        self._offset_us = 0
        self._file.write_bytes(struct.pack("@q", 0))
        server.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(self._file)}

    def step(self, seconds: float) -> None:
        """Set the clock forward or back."""
        self._offset_us += round(seconds * 1_000_000)
        with self._file.open("r+b") as file:  # in place: the server has mapped this file
            file.write(struct.pack("@q", self._offset_us))


class SteppedServer(Server):
    """`with SteppedServer(binary) as server: server.step(60)`: its clock is 60 s ahead from then on."""

    def __init__(self, binary: Binary, options: Options = PLAIN) -> None:
        library_or_skip()
        super().__init__(binary, options)
        self.step = SteppedClock(self).step
