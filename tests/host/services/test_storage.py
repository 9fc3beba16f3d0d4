"""Values survive a restart, belong to one plugin, and are bounded."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugbay.host.disk.sqlite_files import IN_MEMORY
from plugbay.host.services.storage import PluginStorage
from plugbay.model.errors import CallFailed, Code, PlugbayError
from plugbay.model.gate import MAX_KEY, MAX_KEYS, MAX_LISTED, MAX_STORED, MAX_VALUE
from tests.support.loops import Run, run_on
from tests.support.requirements import requirement

Story = Callable[[PluginStorage], Awaitable[None]]


def with_storage(run: Run, story: Story, path: Path | str = IN_MEMORY, **limits: int) -> None:
    async def main() -> None:
        async with PluginStorage(path, **limits) as storage:
            await story(storage)

    run(main)


async def refusal(asked: Awaitable[Any]) -> tuple[str, str]:
    with pytest.raises(CallFailed) as caught:
        await asked
    return caught.value.code, caught.value.failure.message


@requirement("kaged:host-storage")
@pytest.mark.parametrize(
    "value", [None, False, 0, 2**64 - 1, -1.5, "", "é\0\u2028", [], {"a": {"b": [None, 1]}}], ids=repr
)
def test_a_value_comes_back_as_it_was(run: Run, value: Any) -> None:
    async def story(storage: PluginStorage) -> None:
        assert await storage.get("p", "k") == (False, None)
        await storage.set("p", "k", value)
        found, got = await storage.get("p", "k")
        assert (found, got, type(got)) == (True, value, type(value))

    with_storage(run, story)


def test_a_key_holds_one_value_until_it_is_deleted(run: Run) -> None:
    async def story(storage: PluginStorage) -> None:
        await storage.set("p", "k", 1)
        await storage.set("p", "k", 2)
        assert await storage.get("p", "k") == (True, 2)
        assert await storage.keys("p") == ["k"]
        assert await storage.delete("p", "k") is True
        assert await storage.delete("p", "k") is False
        assert await storage.get("p", "k") == (False, None)

    with_storage(run, story)


@requirement("kaged:host-storage")
def test_values_survive_a_restart(run: Run, tmp_path: Path) -> None:
    async def first(storage: PluginStorage) -> None:
        await storage.set("p", "k", {"n": 1})

    async def second(storage: PluginStorage) -> None:
        assert await storage.get("p", "k") == (True, {"n": 1})

    path = tmp_path / "deep" / "storage.db"
    with_storage(run, first, path)
    with_storage(run, second, path)
    assert path.stat().st_mode & 0o077 == 0


@requirement("kaged:host-storage-isolation")
@pytest.mark.parametrize("other", ["q", "", "P", "p ", "p' OR '1'='1", "%", "p\0"])
def test_no_plugin_sees_changes_or_deletes_values_of_another(run: Run, other: str) -> None:
    async def story(storage: PluginStorage) -> None:
        await storage.set("p", "k", "secret")
        assert await storage.get(other, "k") == (False, None)
        assert await storage.keys(other) == []
        assert await storage.delete(other, "k") is False
        await storage.set(other, "k", "mine")
        assert await storage.get("p", "k") == (True, "secret")
        assert await storage.get(other, "k") == (True, "mine")

    with_storage(run, story)


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("", ["%", "A", "a", "a%b", "a*", "a_b", "aXb", "ab", "é", "\U0010ffff"]),
        ("a", ["a", "a%b", "a*", "aXb", "a_b", "ab"]),
        ("a%", ["a%b"]),
        ("a_", ["a_b"]),
        ("%", ["%"]),
        ("a*", ["a*"]),
        ("é", ["é"]),
        ("b", []),
        ("a' OR 1=1 --", []),
    ],
)
def test_a_prefix_is_taken_letter_by_letter_and_the_keys_are_sorted(run: Run, prefix: str, found: list[str]) -> None:
    async def story(storage: PluginStorage) -> None:
        for key in ("ab", "a%b", "é", "a_b", "aXb", "a", "A", "%", "a*", "\U0010ffff"):
            await storage.set("p", key, 0)
        assert await storage.keys("p", prefix) == sorted(found)
        assert await storage.keys("p", prefix, 2) == sorted(found)[:2]

    with_storage(run, story)


@settings(max_examples=30)
@given(st.sets(st.text(min_size=1, max_size=8), max_size=12), st.text(max_size=3))
def test_any_keys_are_found_by_any_prefix(keys: set[str], prefix: str) -> None:
    async def story(storage: PluginStorage) -> None:
        for key in keys:
            await storage.set("p", key, key)
        wanted = [key for key in keys if key.startswith(prefix)]
        assert await storage.keys("p", prefix) == sorted(wanted, key=str.encode)

    with_storage(run_on("asyncio"), story)


def test_a_list_has_at_most_as_many_keys_as_an_answer_may(run: Run) -> None:
    async def story(storage: PluginStorage) -> None:
        for number in range(MAX_LISTED + 1):
            await storage.set("p", f"{number:05}", 0)
        assert len(await storage.keys("p", "", 10**9)) == MAX_LISTED
        assert await storage.keys("p", "", 0) == await storage.keys("p", "", -1) == []

    with_storage(run, story)


@pytest.mark.parametrize("key", ["", "x" * (MAX_KEY + 1), "é" * (MAX_KEY // 2 + 1), "\ud800"])
def test_a_key_is_a_short_text(run: Run, key: str) -> None:
    async def story(storage: PluginStorage) -> None:
        for asked in (storage.get("p", key), storage.set("p", key, 1), storage.delete("p", key)):
            assert (await refusal(asked))[0] == Code.INVALID_INPUT
        longest = "é" * (MAX_KEY // 2)
        await storage.set("p", longest, 1)
        assert await storage.keys("p", longest) == [longest]

    with_storage(run, story)


@requirement("kaged:host-storage-quota")
def test_a_value_is_bounded_and_json(run: Run) -> None:
    async def story(storage: PluginStorage) -> None:
        await storage.set("p", "k", "x" * (MAX_VALUE - 2))
        assert (await refusal(storage.set("p", "k", "x" * (MAX_VALUE - 1))))[0] == Code.INVALID_INPUT
        deep: Any = 0
        for _ in range(70):
            deep = [deep]
        for value in (float("nan"), object(), {1: 2}, "\ud800", deep):
            code, message = await refusal(storage.set("p", "k", value))
            assert (code, "no JSON form" in message) == (Code.INVALID_INPUT, True)
        found, kept = await storage.get("p", "k")
        assert (found, len(kept)) == (True, MAX_VALUE - 2)

    with_storage(run, story)


@requirement("kaged:host-storage-quota")
def test_a_full_storage_takes_nothing_new_until_something_is_deleted(run: Run) -> None:
    async def story(storage: PluginStorage) -> None:
        await storage.set("p", "a", "x" * 60)
        code, message = await refusal(storage.set("p", "b", "x" * 60))
        assert (code, "100 are allowed" in message) == (Code.UNAVAILABLE, True)
        assert await storage.keys("p") == ["a"]
        await storage.set("p", "a", "y" * 90)
        await storage.set("q", "b", "x" * 60)
        await storage.delete("p", "a")
        await storage.set("p", "b", "x" * 60)

    with_storage(run, story, max_total=100)


@requirement("kaged:host-storage-quota")
def test_the_number_of_keys_is_bounded(run: Run) -> None:
    async def story(storage: PluginStorage) -> None:
        for key in "abc":
            await storage.set("p", key, 1)
        assert (await refusal(storage.set("p", "d", 1)))[0] == Code.UNAVAILABLE
        await storage.set("p", "c", 2)
        await storage.set("q", "d", 1)

    with_storage(run, story, max_keys=3)


def test_the_limits_are_those_that_were_promised() -> None:
    assert (MAX_STORED, MAX_VALUE, MAX_KEYS) == (64 << 20, 1 << 20, 10_000)


def test_writes_at_once_never_pass_the_quota_together(run: Run) -> None:
    async def story(storage: PluginStorage) -> None:
        writes = [storage.set("p", str(number), 1) for number in range(20)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(isinstance(result, CallFailed) for result in results) == 15
        assert len(await storage.keys("p")) == 5

    with_storage(run, story, max_keys=5)


def test_another_kind_of_file_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (x)")
    other.close()

    async def main() -> None:
        with pytest.raises(PlugbayError, match="not a database of this kind"):
            await PluginStorage(path).open()

    run(main)


def test_a_storage_that_is_closed_says_so(run: Run) -> None:
    async def main() -> None:
        storage = PluginStorage(IN_MEMORY)
        assert (await refusal(storage.get("p", "k")))[0] == Code.UNAVAILABLE
        await storage.open()
        await storage.close()
        assert (await refusal(storage.set("p", "k", 1)))[0] == Code.UNAVAILABLE

    run(main)
