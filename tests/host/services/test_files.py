"""Files that plugins may look at: what is granted is read, and nothing else, whatever is done to the path meanwhile."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugbay.host.services import files as module
from plugbay.host.services.files import MAX_ENTRIES, MAX_FILE, MAX_TRIES, Files, Outside
from plugbay.model.errors import CallFailed, Code
from plugbay.model.gate import MAX_PATH
from plugbay.model.protected import Entry, Protected
from tests.support.loops import Run
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import first_alone

SECRET = b"outside"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """`granted/a/b.txt` may be read; `private/secret.txt` may not."""
    (tmp_path / "granted" / "a").mkdir(parents=True)
    (tmp_path / "granted" / "a" / "b.txt").write_bytes(b"inside")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret.txt").write_bytes(SECRET)
    return tmp_path


def read(path: Path | str, *roots: Path | str) -> bytes:
    async def main() -> bytes:
        return await Files().read(str(path), [str(root) for root in roots])

    return asyncio.run(main())


def refusal(path: Path | str, *roots: Path | str) -> str:
    with pytest.raises(CallFailed) as caught:
        read(path, *roots)
    assert caught.value.code == Code.INVALID_INPUT
    return caught.value.failure.message


# Inside.


@requirement("ainb:host-files-read")
def test_a_file_in_a_granted_folder_is_read(run: Run, tree: Path) -> None:
    async def main() -> None:
        files = Files()
        roots = [str(tree / "elsewhere"), str(tree / "granted")]
        assert await files.read(str(tree / "granted/a/b.txt"), roots) == b"inside"
        assert await files.read(str(tree / "granted//a/./b.txt"), roots) == b"inside"
        assert await files.read(str(tree / "granted/a/b.txt"), [str(tree / "granted/a/b.txt")]) == b"inside"

    run(main)


@requirement("ainb:host-files-list")
def test_a_folder_is_listed_with_kinds_and_sizes_and_links_are_not_followed(run: Run, tree: Path) -> None:
    (tree / "granted" / "link").symlink_to(tree / "private")
    (tree / "granted" / "c.txt").write_bytes(b"123")
    (tree / "granted" / os.fsdecode(b"bad\xff")).write_bytes(b"")

    async def main() -> None:
        files = Files()
        listed = await files.entries(str(tree / "granted"), [str(tree / "granted")])
        found = {entry["name"]: (entry["is_dir"], entry["size"]) for entry in listed}
        assert found.pop("link")[0] is False
        assert found == {"a": (True, 0), "c.txt": (False, 3), "bad\N{REPLACEMENT CHARACTER}": (False, 0)}
        with pytest.raises(CallFailed, match="Not a directory"):
            await files.entries(str(tree / "granted/c.txt"), [str(tree / "granted")])
        with pytest.raises(Outside):
            await files.entries(str(tree / "granted/link"), [str(tree / "granted")])

    run(main)


@requirement("ainb:host-files-home")
def test_the_home_is_named_in_grants_and_not_in_paths(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree))
    assert read(tree / "granted/a/b.txt", "~/granted") == b"inside"
    assert "absolute" in refusal("~/granted/a/b.txt", "~/granted")


@requirement("ainb:host-files-links")
def test_a_link_that_stays_inside_and_a_grant_that_is_a_link_are_followed(tree: Path) -> None:
    (tree / "granted" / "inner").symlink_to("a")
    (tree / "alias").symlink_to(tree / "granted")
    assert read(tree / "granted/inner/b.txt", tree / "granted") == b"inside"
    assert read(tree / "alias/a/b.txt", tree / "alias") == b"inside"
    assert read(tree / "alias/a/b.txt", tree / "granted") == b"inside"
    assert read(tree / "granted/a/b.txt", tree / "alias") == b"inside"


# Outside.

ESCAPES: dict[str, Callable[[Path], str]] = {
    "dots": lambda tree: f"{tree}/granted/../private/secret.txt",
    "dots behind a name that is not there": lambda tree: f"{tree}/granted/none/../../private/secret.txt",
    "dots at the end": lambda tree: f"{tree}/granted/..",
    "absolute": lambda tree: f"{tree}/private/secret.txt",
    "link to a file": lambda tree: f"{tree}/granted/to_file",
    "link to a folder": lambda tree: f"{tree}/granted/to_folder/secret.txt",
    "link to a link": lambda tree: f"{tree}/granted/to_link/secret.txt",
    "link through dots": lambda tree: f"{tree}/granted/to_dots/secret.txt",
    "nothing behind a link": lambda tree: f"{tree}/granted/to_folder/none.txt",
    "a name that begins alike": lambda tree: f"{tree}/grantedness/x.txt",
    "magic link to the root": lambda tree: f"/proc/self/root{tree}/private/secret.txt",
    "magic link to the folder": lambda tree: f"/proc/{os.getpid()}/cwd/secret.txt",
    "link to a magic link": lambda tree: f"{tree}/granted/to_proc/environ",
}


@requirement("ainb:host-files-guard")
@pytest.mark.parametrize("way", list(ESCAPES))
def test_no_path_leads_out(tree: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree / "private")
    granted = tree / "granted"
    (granted / "to_file").symlink_to(tree / "private/secret.txt")
    (granted / "to_folder").symlink_to(tree / "private")
    (granted / "to_link").symlink_to(granted / "to_folder")
    (granted / "to_dots").symlink_to("../private")
    (granted / "to_proc").symlink_to("/proc/self")
    (tree / "grantedness").mkdir()
    (tree / "grantedness" / "x.txt").write_bytes(SECRET)
    path = ESCAPES[way](tree)
    with pytest.raises(Outside):
        read(path, granted)
    if os.path.isfile(path):
        assert Path(path).read_bytes(), "what the guard keeps is there to be read without it"


@requirement("ainb:host-files-guard")
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(parts=st.lists(st.sampled_from(["..", ".", "a", "b.txt", "to_folder", "secret.txt", "private", "granted", ""])))
def test_no_path_of_any_parts_leads_out(tree: Path, parts: list[str]) -> None:
    granted = tree / "granted"
    if not (granted / "to_folder").is_symlink():
        (granted / "to_folder").symlink_to(tree / "private")
    try:
        assert read("/".join([str(granted), *parts]), granted) == b"inside"
    except (Outside, CallFailed):
        return


def test_a_grant_of_everything_is_no_grant_of_the_machines_insides(tree: Path) -> None:
    assert read(tree / "granted/a/b.txt", "/") == b"inside"
    for path in ("/proc/self/environ", "/proc/1/environ", "/sys/kernel/notes", "/dev/null"):
        with pytest.raises(Outside):
            read(path, "/")
    assert Path("/proc/self/environ").read_bytes()


def test_a_protected_path_is_not_opened_whatever_is_granted(tree: Path) -> None:
    (tree / "granted" / "data" / "own").mkdir(parents=True)
    for name in ("key", "own/note"):
        (tree / "granted" / "data" / name).write_bytes(SECRET)
    (tree / "granted" / "way").symlink_to("data/key")
    data = Entry(str(tree / "granted" / "data"), "the host's data")
    known = Protected((data,), own=(str(tree / "granted" / "data" / "own"),))

    async def main() -> None:
        files, roots = Files(), [str(tree / "granted"), str(tree / "granted" / "data" / "key")]
        for name in ("data/key", "way", "a/../data/key"):
            with pytest.raises(Outside) as caught:
                await files.read(str(tree / "granted" / name), roots, known)
            assert caught.value.entry == data
            assert await files.read(str(tree / "granted" / name), roots) == SECRET
        with pytest.raises(Outside):
            await files.entries(str(tree / "granted" / "data"), roots, known)
        assert await files.read(str(tree / "granted/data/own/note"), roots, known) == SECRET
        assert await files.read(str(tree / "granted/a/b.txt"), roots, known) == b"inside"

    asyncio.run(main())


def test_a_grant_that_is_no_absolute_path_grants_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    for root in ("granted", "", "."):
        with pytest.raises(Outside):
            read(tree / "granted/a/b.txt", root)


# The race.

RACER = """
import os, sys, threading
folder, aside, link = sys.argv[1:]
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
print("racing", flush=True)
while True:
    os.rename(folder, aside)
    os.rename(link, folder)
    os.rename(folder, link)
    os.rename(aside, folder)
"""


@pytest.fixture
def racing(tree: Path) -> Iterator[Path]:
    """`granted/a` is a folder and then a link to the private one, in turns, as fast as a process can swap them."""
    (tree / "private" / "b.txt").write_bytes(SECRET)
    (tree / "link").symlink_to(tree / "private")
    argv = [sys.executable, "-c", RACER, str(tree / "granted/a"), str(tree / "aside"), str(tree / "link")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as racer:
        assert racer.stdout is not None and racer.stdout.readline() == b"racing\n"
        yield tree
        racer.kill()


def naive(path: str, root: str) -> bytes:
    """Judge, then open: what the guard must not be."""
    if not os.path.realpath(path).startswith(root + "/"):
        raise Outside(path)
    return Path(path).read_bytes()


@requirement("ainb:host-files-race")
@pytest.mark.parametrize("times", first_alone([500, 3000]))
def test_a_folder_that_is_swapped_for_a_link_meanwhile_leads_nowhere(racing: Path, times: int) -> None:
    path, root = str(racing / "granted/a/b.txt"), str(racing / "granted")
    seen: set[bytes] = set()

    async def main() -> None:
        files = Files()
        for _ in range(times):
            try:
                seen.add(await files.read(path, [root]))
            except (Outside, CallFailed):
                continue

    asyncio.run(main())
    assert seen == {b"inside"}


def test_the_same_race_is_won_against_a_guard_that_judges_and_then_opens(racing: Path) -> None:
    path, root = str(racing / "granted/a/b.txt"), str(racing / "granted")
    seen = b""
    while seen != SECRET:
        try:
            seen = naive(path, root)
        except (Outside, OSError):
            continue


@pytest.fixture
def swapped(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`granted/a` becomes a link to the private folder at the worst moment: right after it was judged."""
    folder, judged = tree / "granted/a", os.path.realpath
    (tree / "private" / "b.txt").write_bytes(SECRET)

    def swapping(path: str) -> str:
        real = judged(path)
        if real == str(folder / "b.txt"):
            folder.rename(tree / "aside")
            folder.symlink_to(tree / "private")
        return real

    monkeypatch.setattr(os.path, "realpath", swapping)
    return tree


@requirement("ainb:host-files-race")
def test_a_swap_right_after_the_judgement_is_noticed_and_judged_again(swapped: Path) -> None:
    with pytest.raises(Outside):
        read(swapped / "granted/a/b.txt", swapped / "granted")


def test_the_same_swap_deceives_a_guard_that_judges_and_then_opens(swapped: Path) -> None:
    assert naive(str(swapped / "granted/a/b.txt"), str(swapped / "granted")) == SECRET


def test_a_path_that_never_holds_still_is_given_up(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def changed(folder: str, path: str, flags: int) -> int:
        tried.append(path)
        raise OSError(errno.ELOOP, "Too many levels of symbolic links")

    monkeypatch.setattr(module, "open_beneath", changed)
    assert "symbolic links" in refusal(tree / "granted/a/b.txt", tree / "granted")
    assert len(tried) == MAX_TRIES


# What is not a file.


@requirement("ainb:host-files-os-reason")
def test_a_file_that_is_not_there_has_the_reason_of_the_system_also_below_a_grant_that_is_a_link(tree: Path) -> None:
    (tree / "alias").symlink_to(tree / "granted")
    path = tree / "alias/none/none.txt"
    assert refusal(path, tree / "alias") == f"read {path}: No such file or directory"
    assert refusal(tree / "granted/a", tree / "granted").endswith("Is a directory")


@requirement("ainb:host-files-regular")
def test_a_special_file_is_refused_without_waiting_for_it(tree: Path) -> None:
    os.mkfifo(tree / "granted/fifo")
    (tree / "granted/loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tree / "granted/socket"))
        assert refusal(tree / "granted/fifo", tree / "granted").endswith("not a regular file")
        assert "read " in refusal(tree / "granted/socket", tree / "granted")
    assert "symbolic links" in refusal(tree / "granted/loop", tree / "granted")


@requirement("ainb:host-files-size")
def test_a_file_that_fits_no_answer_is_refused_and_one_that_just_fits_is_not(tree: Path) -> None:
    large = tree / "granted/large"
    large.touch()
    os.truncate(large, MAX_FILE)
    assert len(read(large, tree / "granted")) == MAX_FILE
    os.truncate(large, MAX_FILE + 1)
    assert "more than 12,500,000 bytes" in refusal(large, tree / "granted")
    os.truncate(large, 1 << 40)
    assert "more than 12,500,000 bytes" in refusal(large, tree / "granted")


def test_a_file_that_grows_while_it_is_read_is_bounded_too(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = tree / "granted/growing"
    growing.write_bytes(b"x")

    def grown(fd: int, size: int) -> bytes:
        return bytes(size)

    monkeypatch.setattr(os, "read", grown)
    assert "more than" in refusal(growing, tree / "granted")


def test_a_folder_with_too_many_entries_is_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    for name in "abc":
        (tree / "private" / name).touch()

    async def main() -> None:
        files = Files()
        with pytest.raises(CallFailed, match="more than 3 entries"):
            await files.entries(str(tree / "private"), [str(tree)])
        (tree / "private/a").unlink()
        assert len(await files.entries(str(tree / "private"), [str(tree)])) == 3

    asyncio.run(main())
    assert MAX_ENTRIES * 255 * 6 < 16 << 20


@pytest.mark.parametrize("path", ["", "a", "./a", "~", "/a\0b", "/" + "x" * MAX_PATH, "/\ud800"])
def test_an_invalid_path_is_refused(path: str) -> None:
    assert "path" in refusal(path, "/")


# Threads.


def test_a_slow_disk_blocks_neither_the_loop_nor_a_reader_for_ever(
    run: Run, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()
    path, roots = str(tree / "granted/a/b.txt"), [str(tree)]

    def hanging(*_: object) -> int:
        stuck.wait()
        raise FileNotFoundError

    async def main() -> None:
        files = Files()
        with monkeypatch.context() as patch:
            patch.setattr(module, "open_beneath", hanging)
            patch.setattr(module, "READ_SECONDS", 0.05)
            patch.setattr(module, "THREADS", 1)
            files.close()
            with pytest.raises(CallFailed) as caught:
                await files.read(path, roots)
            assert caught.value.code == Code.TIMEOUT
            with pytest.raises(CallFailed) as caught:  # its one thread is still busy
                await files.read(path, roots)
            assert caught.value.code == Code.TIMEOUT
        stuck.set()
        assert await files.read(path, roots) == b"inside"

    run(main)


HANGING = """
import asyncio, time
from plugbay.host.services import files
from plugbay.model.errors import CallFailed

def hang(*_):
    time.sleep(3600)

async def main():
    files.open_beneath, files.READ_SECONDS = hang, 0.05
    try:
        await files.Files().read("/etc/passwd", ["/"])
    except CallFailed as error:
        print(error.failure.code)

asyncio.run(main())
"""


def test_a_disk_that_never_answers_does_not_keep_the_program_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, timeout=PATIENCE, check=True)
    assert done.stdout == b"timeout\n"
