"""Untrusted archives: valid ones of any tool are read, and every attack has its reason."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import DEFAULT_LIMITS, Limits, name_problem
from plugbay.packages.unpack import Archive, unpack, unpack_file
from tests.packages.builders import entry, tarball
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive


def read(data: bytes, limits: Limits = DEFAULT_LIMITS) -> dict[str, bytes]:
    return {member.name: b"".join(member.body) for member in Archive(io.BytesIO(data), limits)}


def reason_of(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Reason:
    with pytest.raises(PackageRefused) as caught:
        read(data, limits)
    return caught.value.reason


LONG = "/".join(["folder" * 5] * 9) + "/été.txt"


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_the_standard_library_are_read(format: int) -> None:
    files = {"a": b"", "bin/plugin": b"x" * 1025, "été.txt": "été".encode()}
    if format != tarfile.USTAR_FORMAT:
        files[LONG] = b"deep"
    assert read(tarball(*files.items(), format=format)) == files


def test_archives_of_gnu_tar_are_read(tmp_path: Path) -> None:
    (tmp_path / "in" / "bin").mkdir(parents=True)
    (tmp_path / "in" / "bin" / "plugin").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "in" / ("n" * 120)).write_bytes(b"long")
    subprocess.run(["tar", "czf", "out.tgz", "-C", "in", "."], cwd=tmp_path, check=True)
    assert read((tmp_path / "out.tgz").read_bytes()) == {"bin/plugin": b"#!/bin/sh\n", "n" * 120: b"long"}


def test_the_digest_and_size_are_those_of_the_packed_bytes() -> None:
    data = tarball(entry("run", tarfile.REGTYPE, mode=0o4711), ("text", b"t"))
    archive = Archive(io.BytesIO(data), DEFAULT_LIMITS)
    assert [member.name for member in archive] == ["run", "text"]
    assert (archive.digest, archive.size) == (f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))


@requirement("vai:package-no-links")
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_is_refused(kind: bytes) -> None:
    assert reason_of(tarball(("a", b"x"), entry("b", kind, linkname="/etc/passwd"))) is Reason.LINK


@requirement("vai:package-no-devices")
@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, b"S"])
def test_a_special_file_is_refused(kind: bytes) -> None:
    assert reason_of(tarball(entry("b", kind))) is Reason.SPECIAL_FILE


@requirement("vai:package-unsafe-names")
@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a\\..\\x", "a\tb"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    assert reason_of(tarball((name, b"x"))) is Reason.UNSAFE_NAME


def test_a_name_that_leads_elsewhere_is_refused_in_a_longer_header_too() -> None:
    info = tarfile.TarInfo("innocent")
    info.pax_headers = {"path": "../../outside"}
    assert reason_of(tarball(info, format=tarfile.PAX_FORMAT)) is Reason.UNSAFE_NAME
    deep = "x/" * 60 + "../" * 61 + "outside"
    assert reason_of(tarball((deep, b""), format=tarfile.GNU_FORMAT)) is Reason.UNSAFE_NAME


@pytest.mark.parametrize("magic", [b"\0" * 8, b"ustar  \0"])
def test_a_prefix_that_only_some_readers_put_before_the_name_is_refused(magic: bytes) -> None:
    header = bytearray(entry("name", tarfile.REGTYPE).tobuf(tarfile.USTAR_FORMAT))
    header[257:265], header[345:351], header[148:156] = magic, b"prefix", b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    packed = gzip.compress(bytes(header) + bytes(1024), mtime=0)
    with tarfile.open(fileobj=io.BytesIO(packed)) as another:
        assert another.getnames() == ["prefix/name"]
    assert reason_of(packed) is Reason.BAD_ARCHIVE


def test_a_file_with_the_name_of_a_folder_is_refused() -> None:
    assert reason_of(tarball(entry("folder/", tarfile.REGTYPE))) is Reason.BAD_ARCHIVE
    assert read(tarball(entry("folder/", tarfile.AREGTYPE), ("folder/a", b"x"))) == {"folder/a": b"x"}


@pytest.mark.parametrize(
    ("kind", "data", "padding"),
    [
        (tarfile.GNUTYPE_LONGNAME, b"\0name\0", b""),
        (tarfile.GNUTYPE_LONGNAME, b"name", b"longer"),
        (tarfile.GNUTYPE_LONGNAME, b"name", b""),
        (tarfile.XHDTYPE, b"13 path=name\n", b"15 path=longer\n"),
    ],
)
def test_a_header_that_readers_read_to_different_ends_is_refused(kind: bytes, data: bytes, padding: bytes) -> None:
    header = entry("long", kind, size=len(data)).tobuf(tarfile.USTAR_FORMAT) + (data + padding).ljust(512, b"\0")
    file = entry("a", tarfile.REGTYPE).tobuf(tarfile.USTAR_FORMAT)
    assert reason_of(gzip.compress(header + file + bytes(1024), mtime=0)) is Reason.BAD_ARCHIVE


@pytest.mark.parametrize("pair", [("a", "a"), ("a", "A"), ("caf\u00e9", "cafe\u0301")])
def test_two_files_with_one_name_are_refused(pair: tuple[str, str]) -> None:
    assert reason_of(tarball(*((name, b"x") for name in pair))) is Reason.DUPLICATE_NAME


@requirement("vai:package-bomb")
def test_a_bomb_is_refused_before_it_has_inflated() -> None:
    header = entry("zeros", tarfile.REGTYPE, size=100 << 20).tobuf(tarfile.USTAR_FORMAT)
    for data in (gzip.compress(bytes(64 << 20), mtime=0), gzip.compress(header + bytes(64 << 20), mtime=0)):
        tracemalloc.start()
        try:
            assert reason_of(data) is Reason.BOMB
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


def test_the_same_archive_is_read_when_the_ratio_is_allowed() -> None:
    data = tarball(("zeros", bytes(3 << 20)))
    assert reason_of(data) is Reason.BOMB
    assert len(read(data, Limits(ratio=2000))["zeros"]) == 3 << 20


@requirement("vai:package-limits")
def test_more_files_bytes_or_packed_bytes_than_allowed_are_refused() -> None:
    import random

    noise = random.Random(1).randbytes(200_000)
    assert reason_of(tarball(("a", noise)), Limits(packed=100_000)) is Reason.TOO_LARGE
    assert reason_of(tarball(("a", noise)), Limits(unpacked=100_000)) is Reason.TOO_LARGE
    four = tarball(*((str(number), b"") for number in range(4)))
    assert reason_of(four, Limits(files=3)) is Reason.TOO_MANY_FILES
    assert len(read(four, Limits(files=4))) == 4


@exhaustive
@requirement("vai:package-limits")
def test_a_hundred_thousand_files_are_refused_early() -> None:
    def blocks() -> Iterator[bytes]:
        for number in range(100_000):
            yield entry(f"f{number}", tarfile.REGTYPE).tobuf(tarfile.USTAR_FORMAT)

    data = gzip.compress(b"".join(blocks()) + bytes(1024), compresslevel=1, mtime=0)
    seen = 0
    with pytest.raises(PackageRefused) as caught:
        for _ in Archive(io.BytesIO(data), DEFAULT_LIMITS):
            seen += 1
    assert (caught.value.reason, seen) == (Reason.TOO_MANY_FILES, DEFAULT_LIMITS.files)


def test_a_folder_listed_forever_is_refused() -> None:
    folder = entry("f", tarfile.DIRTYPE).tobuf(tarfile.USTAR_FORMAT)
    assert reason_of(gzip.compress(folder * 9 + bytes(1024)), Limits(files=3)) is Reason.TOO_MANY_FILES


GOOD = tarball(("a", b"hello"), ("b", bytes(700)))


BROKEN = {
    "nothing": b"",
    "a zip": b"PK\x03\x04 a zip",
    "an empty gzip": gzip.compress(b""),
    "a gzip of text": gzip.compress(b"x" * 512),
    "all but the checksum": GOOD[:-9],
    "half": GOOD[: len(GOOD) // 2],
    "more": GOOD + b"more",
    "two": GOOD + GOOD,
    "more inside": gzip.compress(gzip.decompress(GOOD) + b"after the end"),
    "only a header": gzip.compress(gzip.decompress(GOOD)[:512]),
    "an unknown kind": tarball(entry("a", b"Z")),
    "a folder with contents": tarball(entry("f", tarfile.DIRTYPE, size=3)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_archive_or_half_of_one_is_refused(name: str) -> None:
    assert reason_of(BROKEN[name]) is Reason.BAD_ARCHIVE


def raw(header: bytes, body: bytes = b"") -> bytes:
    return gzip.compress(header + body.ljust(-len(body) % 512 + len(body), b"\0") + bytes(1024))


def with_field(start: int, value: bytes, checked: bool = True) -> bytes:
    """A header with bytes replaced and a correct checksum."""
    header = bytearray(entry("a", tarfile.REGTYPE).tobuf(tarfile.USTAR_FORMAT)[:512])
    header[start : start + len(value)] = value
    if checked:
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize(
    "header",
    [
        with_field(0, b"b", checked=False),
        with_field(124, b"\x80\0\0\0\0\0\0\0\0\0\0\x05"),
        with_field(124, b"-0000000001\0"),
        with_field(124, b"0x000000001\0"),
    ],
)
def test_a_header_that_lies_is_refused(header: bytes) -> None:
    assert reason_of(raw(header)) is Reason.BAD_ARCHIVE


def test_a_name_that_is_no_utf8_is_refused() -> None:
    assert reason_of(raw(with_field(0, b"\xff\xfe"))) is Reason.UNSAFE_NAME


@pytest.mark.parametrize(
    "record",
    [
        b"11 size=99\n",
        b"18 linkpath=/etc/x\n"[:19],
        b"22 GNU.sparse.major=1\n",
        b"nonsense",
        b"99999999 path=a\n",
        b"5 a=\n",
        b"7 path\n",
    ],
)
def test_an_extended_header_that_changes_the_type_of_a_file_is_refused(record: bytes) -> None:
    header = entry("p", tarfile.XHDTYPE, size=len(record)).tobuf(tarfile.USTAR_FORMAT)
    assert reason_of(raw(header, record)) is Reason.BAD_ARCHIVE


def longer(kind: bytes, body: bytes) -> bytes:
    """An extended header."""
    header = entry("p", kind, size=len(body)).tobuf(tarfile.USTAR_FORMAT)
    return header + body.ljust(-len(body) % 512 + len(body), b"\0")


A_FILE = entry("a", tarfile.REGTYPE).tobuf(tarfile.USTAR_FORMAT)
ONE, TWO = longer(b"x", b"12 path=one\n"), longer(b"L", b"two\0")


@pytest.mark.parametrize(
    "blocks",
    [
        [ONE, ONE, A_FILE],
        [ONE, TWO, A_FILE],
        [TWO, ONE, A_FILE],
        [longer(b"x", b"12 path=one\n12 path=two\n"), A_FILE],
        [longer(b"x", b"13 path=one\n"), A_FILE],
        [A_FILE, ONE],
    ],
)
def test_a_name_that_other_programs_would_read_as_another_is_refused(blocks: list[bytes]) -> None:
    assert reason_of(gzip.compress(b"".join(blocks) + bytes(1024))) is Reason.BAD_ARCHIVE


def test_one_longer_name_for_one_file_is_fine() -> None:
    other = entry("b", tarfile.REGTYPE).tobuf(tarfile.USTAR_FORMAT)
    data = gzip.compress(b"".join([ONE, A_FILE, TWO, other, A_FILE]) + bytes(1024))
    assert set(read(data)) == {"one", "two", "a"}


def test_a_longer_header_of_a_megabyte_is_refused_unread() -> None:
    header = entry("p", tarfile.XHDTYPE, size=1 << 20).tobuf(tarfile.USTAR_FORMAT)
    assert reason_of(raw(header)) is Reason.BAD_ARCHIVE


def test_every_prefix_of_an_archive_is_refused() -> None:
    for length in range(len(GOOD)):
        with pytest.raises(PackageRefused):
            read(GOOD[:length])
    assert set(read(GOOD)) == {"a", "b"}


TAR = gzip.decompress(tarball(("a", b"hello"), (LONG, b"deep"), entry("d", tarfile.DIRTYPE), format=tarfile.PAX_FORMAT))


@given(st.lists(st.tuples(st.integers(0, len(TAR) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_whatever_is_changed_in_an_archive_it_is_read_or_refused_with_safe_names(
    changes: list[tuple[int, int]],
) -> None:
    data = bytearray(TAR)
    for position, value in changes:
        data[position] = value
    try:
        names = list(read(gzip.compress(bytes(data), compresslevel=1)))
    except PackageRefused:
        return
    assert [name for name in names if name_problem(name)] == []


@given(st.binary(max_size=3000))
def test_whatever_bytes_come_they_are_refused_in_words(data: bytes) -> None:
    for packed in (data, gzip.compress(data, compresslevel=1)):
        try:
            read(packed)
        except PackageRefused:
            pass


def test_files_are_written_with_plain_modes_whatever_the_archive_and_the_umask_say(tmp_path: Path) -> None:
    data = tarball(
        entry("data", tarfile.REGTYPE, mode=0o6711, uid=1234, size=2),
        ("a/b/text", b"text"),
        ("bin/run", b"#!/bin/sh\n"),
        ("bin/program", b"\x7fELF..."),
        entry("e", tarfile.DIRTYPE),
    )
    before = os.umask(0o077)
    try:
        unpacked = unpack(io.BytesIO(data), tmp_path / "out")
    finally:
        os.umask(before)
    modes = {str(p.relative_to(tmp_path)): p.stat().st_mode & 0o7777 for p in tmp_path.rglob("*")}
    assert modes == {
        "out": 0o755,
        "out/data": 0o644,
        "out/bin": 0o755,
        "out/bin/run": 0o755,
        "out/bin/program": 0o755,
        "out/a": 0o755,
        "out/a/b": 0o755,
        "out/a/b/text": 0o644,
    }
    assert (tmp_path / "out/data").stat().st_uid == os.getuid()
    assert unpacked.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert unpacked.size == len(data)
    assert unpacked.files["a/b/text"] == hashlib.sha256(b"text").hexdigest()


def test_a_folder_that_is_there_already_is_never_unpacked_into(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError):
        unpack(io.BytesIO(tarball(("a", b"x"))), tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        unpack(io.BytesIO(tarball(("a", b"x"))), tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


ESCAPES = {
    "dots": tarball(("../canary", b"x")),
    "dots-inside": tarball(("a/../../canary", b"x")),
    "link-then-through-it": tarball(entry("d", tarfile.SYMTYPE, linkname=".."), ("d/canary", b"x")),
    "hard-link-then-through-it": tarball(entry("d", tarfile.LNKTYPE, linkname="../secret"), ("d", b"x")),
}


@requirement("vai:package-unsafe-names", "vai:package-no-links")
@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(PackageRefused):
        unpack(io.BytesIO(ESCAPES[name]), tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["out", "secret"]
    assert (tmp_path / "secret").read_text() == "secret"


@pytest.mark.parametrize("name", ["dots", "link-then-through-it"])
def test_the_same_archives_do_escape_from_an_extractor_that_trusts_them(tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    with tarfile.open(fileobj=io.BytesIO(ESCAPES[name])) as tar:
        tar.extraction_filter = lambda member, _: member  # before Python 3.11.4 there were no filters
        tar.extractall(tmp_path / "out")
    assert (tmp_path / "canary").exists()


def test_a_missing_file_or_a_folder_is_reported_in_words(tmp_path: Path) -> None:
    with pytest.raises(PackageRefused, match="no file") as caught:
        unpack_file(tmp_path / "gone.tgz", tmp_path / "out")
    assert caught.value.reason is Reason.NOT_FOUND
    with pytest.raises(PackageRefused, match="plugbay pack"):
        unpack_file(tmp_path, tmp_path / "out")


def test_a_pipe_in_the_place_of_an_archive_does_not_hold_us_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PackageRefused):
        unpack_file(tmp_path / "pipe", tmp_path / "out")


def test_limits_hold_and_each_file_is_reported(tmp_path: Path) -> None:
    told: list[str] = []
    data = tarball(("a", b"x"), ("b", b"y"), ("c", b"z"))
    with pytest.raises(PackageRefused):
        unpack(io.BytesIO(data), tmp_path / "out", Limits(files=2), told.append)
    assert told == ["a", "b"]
