"""Reads a gzipped tar that a stranger has made: regular files and nothing else, within limits, in little memory.

Owns the grammar: which headers mean a file, and that everything else is refused by name before a byte of it is kept.
The reader of the standard library also understands links, devices, sparse files and headers of any size; a package has
no use for them. Writes nothing; see `unpack`.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, NoReturn

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import Limits, Names

AGAIN = "get the package from its publisher again; if it is your own, pack it again"

BLOCK = 512
CHUNK = 64 << 10
"""Bytes read or inflated at a time."""

MAX_EXTENDED = 16 << 10
"""Bytes of a header that only carries a longer name; names have 500."""

_GZIP = 16 + zlib.MAX_WBITS

_LINKS = {b"1": "a hard link", b"2": "a symbolic link"}
_SPECIAL = {b"3": "a device", b"4": "a device", b"6": "a pipe", b"7": "a contiguous file", b"S": "a sparse file"}
_HARMLESS = frozenset("path atime charset comment ctime gid gname mtime uid uname".split())
_VENDORS = ("LIBARCHIVE.", "SCHILY.")
"""What a longer header may say; only the path is used. A size or a link's target would change what a file is."""


class Member(NamedTuple):
    """One file of an archive. Its body is read before the next member is asked for, or skipped."""

    name: str
    size: int
    executable: bool
    body: Iterator[bytes]


class Archive:
    """The files of one archive, in its order. Iterated once; then `digest` and `size` are those of the packed bytes."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self._stream = _Inflated(file, limits)
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
            kind, size = header[156:157], _number(header[124:136])
            if kind in b"xgL":
                found = self._extended(kind, size)
                if found and longer:
                    _broken(f"a file has two names, {longer!r} and {found!r}")
                longer = found or longer
                continue
            name, longer = longer or _plain_name(header), ""
            member = self._member(kind, name, size, executable=bool(_number(header[100:108]) & 0o111))
            if member is not None:
                yield member
                for _ in member.body:  # whatever the caller left of it
                    pass
        if longer:
            _broken(f"a name, {longer!r}, without a file")
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
        if self._entries > self._limits.files * 2:  # each may have a header for its longer name
            self._too_many()

    def _too_many(self) -> NoReturn:
        text = f"the archive has more than {self._limits.files:,} files"
        raise PackageRefused(Reason.TOO_MANY_FILES, text, limit=self._limits.files)

    def _member(self, kind: bytes, name: str, size: int, *, executable: bool) -> Member | None:
        """The file that a header announces; None for a folder."""
        if kind in _LINKS or kind in _SPECIAL:
            what, reason = (_LINKS[kind], Reason.LINK) if kind in _LINKS else (_SPECIAL[kind], Reason.SPECIAL_FILE)
            raise PackageRefused(reason, f"{name!r} is {what}; a package has only files", file=name)
        if kind not in {b"0", b"\0", b"5"}:
            _broken(f"{name!r} is of an unknown kind, {kind!r}")
        is_folder = kind == b"5" or name.endswith("/")
        if is_folder and size:
            _broken(f"the folder {name!r} has contents")
        # `tar` names what it finds in `.` beginning with `./`.
        name = name.removeprefix("./").rstrip("/") if is_folder else name.removeprefix("./")
        if len(self._names) >= self._limits.files:
            self._too_many()
        if is_folder:
            if name not in {"", "."}:
                self._names.add_folder(name)
            return None
        self._names.add(name)
        return Member(name, size, executable, self._body(size))

    def _body(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            data = self._stream.take(min(left, CHUNK))
            left -= len(data)
            yield data
        self._stream.take(-size % BLOCK)

    def _extended(self, kind: bytes, size: int) -> str:
        """The name that the next header could not hold; empty when this one says nothing about it."""
        if size > MAX_EXTENDED:
            _broken(f"a header has {size:,} bytes; names have at most 500")
        data = b"".join(self._body(size))
        if kind == b"L":
            return _text(data.rstrip(b"\0"))
        records = list(_records(data))
        found = dict(records)
        if len(found) < len(records):
            _broken("a header says something twice")
        odd = [key for key in found if key not in _HARMLESS and not key.startswith(_VENDORS)]
        if odd or (kind == b"g" and "path" in found):
            _broken(f"a header sets {', '.join(odd) or 'one path for all files'}, which a package has no use for")
        return found.get("path", "")


class _Inflated:
    """The bytes inside a gzip file; counted, and the packed ones hashed, as they come."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self._file = file
        self._limits = limits
        self._inflater = zlib.decompressobj(_GZIP)
        self._ready = bytearray()
        self.hash = hashlib.sha256()
        self.packed = 0
        self._inflated = 0

    def take(self, size: int) -> bytes:
        """Exactly so many bytes; raises when the archive ends before."""
        while len(self._ready) < size:
            if not self._more():
                _broken("it ends in the middle")
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def expect_only_zeros(self) -> None:
        """To the end of the file, so that its digest is that of everything in it."""
        while True:
            if self._ready.strip(b"\0"):
                _broken("something follows its end")
            self._ready.clear()
            if not self._more():
                break
        if self._inflater.unused_data or self._read():
            _broken("something follows its end")

    def _more(self) -> bool:
        """Inflate a little; False at the end of the stream."""
        if self._inflater.eof:
            return False
        data = self._inflater.unconsumed_tail or self._read()
        try:
            piece = self._inflater.decompress(data, CHUNK)
        except zlib.error as error:
            text = "the archive is no gzip file, or is damaged"
            raise PackageRefused(Reason.BAD_ARCHIVE, text, hint=AGAIN) from error
        if not data and not piece and not self._inflater.eof:
            _broken("it ends in the middle")
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


def _number(field: bytes) -> int:
    """An octal number as tar writes it. Its binary form is for sizes beyond any package's."""
    digits = field.strip(b" \0") or b"0"
    if not all(0x30 <= digit <= 0x37 for digit in digits):
        _broken(f"{field!r} is no number")
    return int(digits, 8)


def _plain_name(header: bytes) -> str:
    name = header[:100].split(b"\0")[0]
    # GNU's own headers keep times where POSIX keeps the beginning of a long name.
    prefix = header[345:500].split(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise PackageRefused(Reason.UNSAFE_NAME, f"the name {name!r} is not UTF-8") from None


def _records(data: bytes) -> Iterator[tuple[str, str]]:
    """The records of a longer header: `27 path=a/longer/name\\n`, the number counting all of it."""
    while data:
        length, space, _ = data.partition(b" ")
        size = int(length) if length.isdigit() and len(length) < 6 else 0
        record, data = data[:size], data[size:]
        key, equals, value = record[len(length) + 1 :].partition(b"=")
        if not (space and equals and record.endswith(b"\n")):
            _broken("a header has a record that cannot be read")
        yield _text(key), _text(value[:-1])


def _broken(text: str) -> NoReturn:
    raise PackageRefused(Reason.BAD_ARCHIVE, f"the archive cannot be read: {text}", hint=AGAIN)
