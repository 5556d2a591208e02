"""A certificate for a loopback server, made when it is needed."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MISSING_OPENSSL = "no certificate can be made: the program `openssl` is not on PATH"


class CannotMakeCertificate(AssertionError):
    """The message says what is missing."""


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate for 127.0.0.1 and localhost; it is its own authority."""

    file: Path
    key: Path


def openssl() -> str | None:
    """The program, if there is one."""
    return shutil.which("openssl")


def make_certificate(folder: Path) -> Certificate:
    program = openssl()
    if program is None:
        raise CannotMakeCertificate(MISSING_OPENSSL)
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    # `keyUsage` is there because Python 3.13 checks strictly: an authority must be allowed to sign.
    words = "req -x509 -nodes -days 2 -subj /CN=127.0.0.1 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
    words += " -addext subjectAltName=IP:127.0.0.1,DNS:localhost"
    words += " -addext keyUsage=critical,digitalSignature,keyCertSign"
    answer = subprocess.run(
        [program, *words.split(), "-keyout", str(made.key), "-out", str(made.file)],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise CannotMakeCertificate(f"openssl made no certificate: {answer.stderr}")
    return made
