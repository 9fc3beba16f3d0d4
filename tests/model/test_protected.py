"""Which paths are out of a plugin's reach, by the letters."""

from __future__ import annotations

import pytest

from plugbay.model.protected import DATABASE, Entry, Protected, is_within, protecting

DATA = {"/srv/data", "/srv/data/packages/b", "/srv/plugbay.toml"}


@pytest.mark.parametrize(
    ("path", "folder", "within"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
    ],
)
def test_a_folder_holds_itself_and_what_lies_below(path: str, folder: str, within: bool) -> None:
    assert is_within(path, folder) is within


@pytest.mark.parametrize(
    ("path", "own", "entry"),
    [
        ("/srv/data", (), "/srv/data"),
        ("/srv/data/plugbay.db", (), "/srv/data"),
        ("/srv/plugbay.toml", (), "/srv/plugbay.toml"),
        ("/srv/plugbay.toml.old", (), None),
        ("/srv", (), None),
        ("/", (), None),
        ("/srv/data/packages/a/program", ("/srv/data/packages/a",), None),
        ("/srv/data/packages/a", ("/srv/data/packages/a",), None),
        ("/srv/data/packages/ab", ("/srv/data/packages/a",), "/srv/data"),
        ("/srv/data/packages/b/program", ("/srv/data/packages",), "/srv/data/packages/b"),
        ("/srv/data", ("/srv/data",), None),
    ],
)
def test_the_deepest_folder_decides_whose_a_path_is(path: str, own: tuple[str, ...], entry: str | None) -> None:
    assert protecting(path, DATA, own) == entry


def test_the_root_itself_can_be_protected() -> None:
    assert protecting("/a/b", {"/"}) == "/"


def test_an_entry_tells_what_it_is() -> None:
    state = Entry("/srv/state", "the host's state folder")
    known = Protected((state, Entry("/srv/db", "the memory", DATABASE)), own=("/srv/state/plugins/p",))
    assert known.around("/srv/state/secrets") == state
    assert known.around("/srv/state/plugins/p/kept") is None
    assert known.around("/srv") is None


def test_only_the_outermost_entries_of_a_folder_count() -> None:
    state, inner, other = Entry("/srv/state", "s"), Entry("/srv/state/db", "d", DATABASE), Entry("/other", "o")
    known = Protected((state, inner, other))
    assert known.below("/srv") == [state]
    assert known.below("/srv/state") == [inner]
    assert known.below("/") == [state, other]
