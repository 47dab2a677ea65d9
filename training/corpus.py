"""The text the tiny models learn: the documentation of Python 3.11, as Debian packages it.

Source: Debian's package python3.11-doc, the reStructuredText below `_sources/`. Licence: PSF License Agreement
(LICENSE-python-docs.txt, the package's own copyright file). Every twentieth file is held out.

Limit: another version of the package is another text, and gives other checkpoints; `fingerprint` tells them apart.
"""

import hashlib
import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

PACKAGE = "python3.11-doc"
SOURCES = "usr/share/doc/python3.11/html/_sources/"
LEFT_OUT = ("license.rst.txt", "contents.rst.txt")  # the licence, and a list of the other files
AR_MAGIC, AR_HEADER = b"!<arch>\n", 60  # a .deb is an ar archive: a magic, then headers of 60 bytes before each part


def fetch_package() -> bytes:
    """The .deb, as `apt-get download` brings it from the mirror this machine is set up for.

    Raises:
        ValueError: no apt-get, no network, or no such package.
    """
    advice = f"run this on Debian 12, or give the file: make checkpoints DOC=path/to/{PACKAGE}.deb"
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise ValueError(f"needs the Debian package {PACKAGE}; found no apt-get here; {advice}.") from error
        found = sorted(Path(folder).glob(f"{PACKAGE}_*.deb"))
        if done.returncode != 0 or not found:
            said = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            raise ValueError(f"needs the Debian package {PACKAGE}; found that apt-get says {said!r}; {advice}.")
        return found[-1].read_bytes()


def read_package(package: bytes) -> list[str]:
    """The cleaned documents of a .deb, in the order of their paths.

    Raises:
        ValueError: the bytes are no Debian package, or one without this documentation.
    """
    documents = {}
    with tarfile.open(fileobj=io.BytesIO(_data_part(package))) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if (
                member.isfile()
                and SOURCES in member.name
                and path.name.endswith(".rst.txt")
                and path.name not in LEFT_OUT
            ):
                file = archive.extractfile(member)
                documents[path] = clean(file.read().decode("utf-8")) if file else ""
    if not documents:
        raise ValueError(f"needs the package {PACKAGE}; found no file below {SOURCES}; give that package.")
    return [documents[path] for path in sorted(documents)]


def clean(text: str) -> str:
    """Lighter reStructuredText: :role:`x` becomes x, no labels or author lines, short rules, at most one blank line."""
    text = re.sub(r":[a-zA-Z0-9:+_-]+:`([^`<]*?)\s*<[^`>]*>`", r"\1", text)
    text = re.sub(r":[a-zA-Z0-9:+_-]+:`[~!]?([^`]*)`", r"\1", text)
    text = re.sub(r"(?m)^\s*\.\. (_.*:.*|index::.*|\w*author::.*|highlight::.*)\n", "", text)
    text = re.sub(r"([=\-~^*#\"+.])\1{3,}", r"\1\1\1", text.replace("``", "`")).replace("\t", "    ")
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def is_held_out(document: int) -> bool:
    """Whether the document of this number is kept for measuring: every twentieth."""
    return document % 20 == 7


def fingerprint(documents: Sequence[str]) -> str:
    """Twelve hexadecimal digits that tell one corpus from another."""
    return hashlib.sha256("\0".join(documents).encode()).hexdigest()[:12]


def _data_part(package: bytes) -> bytes:
    """The compressed tar archive with the package's files."""
    start = len(AR_MAGIC)
    while package.startswith(AR_MAGIC) and start + AR_HEADER <= len(package):
        header = package[start : start + AR_HEADER]
        name, size = header[:16].decode("ascii").strip(), int(header[48:58])
        start += AR_HEADER
        if name.startswith("data.tar"):
            return package[start : start + size]
        start += size + size % 2
    raise ValueError("needs a Debian package; found no data archive in the file; give a .deb.")
