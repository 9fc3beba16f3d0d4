"""Unpacks untrusted archives: regular files only, within limits, in little memory, hashed while they are written.

`Archive` parses the gzipped tar and refuses everything but files and folders before a byte is written; the standard
library would accept links, devices, sparse files and headers of any size. Files belong to the unpacking user. A file is
executable if its contents are a program: a signature covers names and contents, and so it covers that right as well.
No signature covers the modes in the archive, so they are ignored.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

import msgspec

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import DEFAULT_LIMITS, Limits, Names

AGAIN = "get the package from its publisher again; if it is your own, pack it again"

BLOCK = 512
CHUNK = 64 << 10
"""Bytes read or inflated at a time."""

MAX_EXTENDED = 16 << 10
"""Bytes of an extended header; a name has at most 500."""

_GZIP = 16 + zlib.MAX_WBITS

_LINKS = {b"1": "a hard link", b"2": "a symbolic link"}
_SPECIAL = {b"3": "a device", b"4": "a device", b"6": "a pipe", b"7": "a contiguous file", b"S": "a sparse file"}
_ALLOWED_KEYS = frozenset("path atime charset comment ctime gid gname mtime uid uname".split())
_ALLOWED_PREFIXES = ("LIBARCHIVE.", "SCHILY.")
"""Keys allowed in extended headers; only the path is used. A size or link target would change the meaning of a file."""

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ARCHIVE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


PROGRAMS = (
    b"#!",
    b"\x7fELF",
    *(magic.to_bytes(4, order) for magic in (0xFEEDFACE, 0xFEEDFACF, 0xCAFEBABE) for order in ("big", "little")),
)
"""First bytes of the files that a kernel executes: scripts, and programs of Linux (ELF) and macOS (Mach-O)."""


def is_program(head: bytes) -> bool:
    """Whether a file that begins with these bytes can be executed."""
    return head.startswith(PROGRAMS)


class Member(NamedTuple):
    """One file of an archive. Read its body before the next member; the rest is skipped."""

    name: str
    size: int
    body: Iterator[bytes]


class Archive:
    """Iterates once over the files of an archive; afterwards `digest` and `size` are those of the packed bytes."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self._stream = _Inflater(file, limits)
        self._limits = limits
        self._names = Names()
        self._entries = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._stream.hash.hexdigest()}"

    @property
    def size(self) -> int:
        return self._stream.packed

    def __iter__(self) -> Iterator[Member]:
        longer = ""
        while header := self._header():
            _check_numbers(header)
            kind, size = header[156:157], _number(header[124:136])
            if kind in b"xgL":
                found = self._extended(kind, size)
                if found and longer:
                    _broken(f"a file has two names, {longer!r} and {found!r}")
                longer = found or longer
                continue
            name, longer = longer or _plain_name(header), ""
            member = self._member(kind, name, size)
            if member is not None:
                yield member
                for _ in member.body:  # skip what the caller did not read
                    pass
        if longer:
            _broken(f"the name {longer!r}, without a file")
        self._stream.expect_only_zeros()

    def _header(self) -> bytes:
        """The next header; empty at the end of the archive."""
        header = self._stream.take(BLOCK)
        if not header.strip(b"\0"):
            return b""
        self._count()
        stated = _number(header[148:156])
        if stated != sum(header[:148]) + sum(b" " * 8) + sum(header[156:]):
            _broken("the checksum of a header is wrong")
        return header

    def _count(self) -> None:
        self._entries += 1
        if self._entries > self._limits.files * 2:  # each file may have an extended header
            self._too_many()

    def _too_many(self) -> NoReturn:
        text = f"the archive has more than {self._limits.files:,} files"
        raise PackageRefused(Reason.TOO_MANY_FILES, text, limit=self._limits.files)

    def _member(self, kind: bytes, name: str, size: int) -> Member | None:
        """The file of a header; None for a folder."""
        if kind in _LINKS or kind in _SPECIAL:
            what, reason = (_LINKS[kind], Reason.LINK) if kind in _LINKS else (_SPECIAL[kind], Reason.SPECIAL_FILE)
            raise PackageRefused(reason, f"{name!r} is {what}; a package has only files", file=name)
        if kind not in {b"0", b"\0", b"5"}:
            _broken(f"{name!r} has the unknown type {kind!r}")
        is_folder = kind == b"5" or (kind == b"\0" and name.endswith("/"))
        if kind == b"0" and name.endswith("/"):
            _broken(f"the file entry {name!r} has the name of a folder")
        if is_folder and size:
            _broken(f"the folder entry {name!r} has data")
        # `tar` writes names below `.` with the prefix `./`.
        name = name.removeprefix("./").rstrip("/") if is_folder else name.removeprefix("./")
        if len(self._names) >= self._limits.files:
            self._too_many()
        if is_folder:
            if name not in {"", "."}:
                self._names.add_folder(name)
            return None
        self._names.add(name)
        return Member(name, size, self._body(size))

    def _body(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            data = self._stream.take(min(left, CHUNK))
            left -= len(data)
            yield data
        self._stream.take(-size % BLOCK)

    def _extended(self, kind: bytes, size: int) -> str:
        """The long name in an extended header; empty when it has none."""
        if size > MAX_EXTENDED:
            _broken(f"a header has {size:,} bytes; names have at most 500")
        data = self._stream.take(size)
        if self._stream.take(-size % BLOCK).strip(b"\0"):
            _broken("a header has bytes behind its end")  # some readers see them
        if kind == b"L":
            name, end, _ = data.partition(b"\0")
            if not (name and end):
                _broken("a header has a long name without a beginning or an end")
            return _text(name)
        records = list(_records(data))
        found = dict(records)
        if len(found) < len(records):
            _broken("a header contains a key twice")
        odd = [key for key in found if key not in _ALLOWED_KEYS and not key.startswith(_ALLOWED_PREFIXES)]
        if odd or (kind == b"g" and "path" in found):
            _broken(f"a header sets {', '.join(odd) or 'one path for all files'}, which is not allowed in a package")
        return found.get("path", "")


class _Inflater:
    """Inflates a gzip file; counts its bytes and hashes the packed ones."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self._file = file
        self._limits = limits
        self._inflater = zlib.decompressobj(_GZIP)
        self._ready = bytearray()
        self.hash = hashlib.sha256()
        self.packed = 0
        self._inflated = 0

    def take(self, size: int) -> bytes:
        """Return exactly `size` bytes; raises when the archive ends before."""
        while len(self._ready) < size:
            if not self._more():
                _broken("it is truncated")
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def expect_only_zeros(self) -> None:
        """Read to the end of the file, so that the digest covers all of it."""
        while True:
            if self._ready.strip(b"\0"):
                _broken("it has data after its end")
            self._ready.clear()
            if not self._more():
                break
        if self._inflater.unused_data or self._read():
            _broken("it has data after its end")

    def _more(self) -> bool:
        """Inflate one chunk; False at the end of the stream."""
        if self._inflater.eof:
            return False
        data = self._inflater.unconsumed_tail or self._read()
        try:
            piece = self._inflater.decompress(data, CHUNK)
        except zlib.error as error:
            text = "the archive is not a gzip file, or is damaged"
            raise PackageRefused(Reason.BAD_ARCHIVE, text, hint=AGAIN) from error
        if not data and not piece and not self._inflater.eof:
            _broken("it is truncated")
        self._inflated += len(piece)
        self._ready += piece
        self._check()
        return True

    def _read(self) -> bytes:
        data = self._file.read(CHUNK)
        self.packed += len(data)
        self.hash.update(data)
        return data

    def _check(self) -> None:
        limits = self._limits
        if self.packed > limits.packed:
            text = f"the archive has more than {limits.packed:,} bytes"
            raise PackageRefused(Reason.TOO_LARGE, text, limit=limits.packed)
        if self._inflated > limits.unjudged and self._inflated > limits.ratio * self.packed:
            text = f"the archive inflates to more than {limits.ratio} times its size"
            raise PackageRefused(Reason.BOMB, text, limit=limits.ratio)
        if self._inflated > limits.unpacked:
            text = f"the archive has more than {limits.unpacked:,} bytes when it is unpacked"
            raise PackageRefused(Reason.TOO_LARGE, text, limit=limits.unpacked)


OTHER_NUMBERS = ((100, 108), (108, 116), (116, 124), (136, 148), (329, 337), (337, 345))
"""Mode, user, group, time and device in a header. Nothing depends on them here, but other readers end at a bad one."""
BINARY = (b"\x80", b"\xff")
"""The first byte of a number in binary form."""


def _check_numbers(header: bytes) -> None:
    for start, end in OTHER_NUMBERS:
        field = header[start:end].split(b"\0")[0]
        if header[start : start + 1] not in BINARY:
            _number(field)


def _number(field: bytes) -> int:
    """An octal number of a tar header. The binary form is only for sizes beyond our limits."""
    digits = field.strip(b" \0") or b"0"
    if not all(0x30 <= digit <= 0x37 for digit in digits):
        _broken(f"{field!r} is not a number")
    return int(digits, 8)


def _plain_name(header: bytes) -> str:
    name, prefix = (field.split(b"\0")[0] for field in (header[:100], header[345:500]))
    if prefix and header[257:263] != b"ustar\0":
        # Only POSIX headers have the prefix of a long name; GNU headers may have times there. Readers differ.
        _broken(f"the header of {name!r} has a prefix for its name, and is no POSIX header")
    return _text(prefix + b"/" + name if prefix else name)


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise PackageRefused(Reason.UNSAFE_NAME, f"the name {name!r} is not UTF-8") from None


def _records(data: bytes) -> Iterator[tuple[str, str]]:
    """Records of an extended header: `27 path=a/longer/name\\n`; the number is the length of the record."""
    while data:
        length, space, _ = data.partition(b" ")
        size = int(length) if length.isdigit() and len(length) < 6 else 0
        record, data = data[:size], data[size:]
        key, equals, value = record[len(length) + 1 :].partition(b"=")
        if not (space and equals and len(record) == size and record.endswith(b"\n")):
            _broken("a header has a record that cannot be read")
        yield _text(key), _text(value[:-1])


def _broken(text: str) -> NoReturn:
    raise PackageRefused(Reason.BAD_ARCHIVE, f"the archive cannot be read: {text}", hint=AGAIN)


class Unpacked(msgspec.Struct, frozen=True):
    """Digest, size and files of an unpacked archive."""

    digest: str
    """Digest of the archive: `sha256:…`."""
    size: int
    files: dict[str, str]
    """SHA-256 in hex by name."""


def unpack_file(
    archive: Path, into: Path, limits: Limits = DEFAULT_LIMITS, wrote: Callable[[str], None] = lambda name: None
) -> Unpacked:
    """`unpack` for a file on disk."""
    try:
        with open(os.open(archive, _ARCHIVE), "rb") as file:
            return unpack(file, into, limits, wrote)
    except FileNotFoundError:
        raise PackageRefused(Reason.NOT_FOUND, f"there is no file {archive}") from None
    except IsADirectoryError:
        hint = f"make a package of it with: plugbay pack {archive}"
        raise PackageRefused(Reason.BAD_ARCHIVE, f"{archive} is a folder, not a package", hint=hint) from None


def unpack(
    file: BinaryIO, into: Path, limits: Limits = DEFAULT_LIMITS, wrote: Callable[[str], None] = lambda name: None
) -> Unpacked:
    """Write the files of an archive below `into`, which must not exist yet.

    After `PackageRefused` the caller removes the folder.
    """
    _make_folder(into)
    archive = Archive(file, limits)
    made, files = {into}, {}
    for member in archive:
        path = into / member.name
        for folder in reversed(path.parents):
            # We created all parent folders, so none of them can be a link.
            if folder not in made and into in folder.parents:
                _make_folder(folder)
                made.add(folder)
        files[member.name] = _write(path, member)
        wrote(member.name)
    return Unpacked(archive.digest, archive.size, files)


def _make_folder(path: Path) -> None:
    os.mkdir(path, 0o755)
    os.chmod(path, 0o755)  # despite the umask: another user may run a plugin that root installs


def _write(path: Path, member: Member) -> str:
    digest, head = hashlib.sha256(), b""
    with open(os.open(path, _NEW_FILE, 0o644), "wb") as file:
        for data in member.body:
            head = head or data
            digest.update(data)
            file.write(data)
        os.fchmod(file.fileno(), 0o755 if is_program(head) else 0o644)
    return digest.hexdigest()
