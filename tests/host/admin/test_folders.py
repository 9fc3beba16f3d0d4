"""A running host follows its folders: `plan` decides, `FolderWatch` does it."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.host.admin import folders, operating
from plugbay.host.admin.folders import FolderWatch, Plan, plan
from plugbay.host.config import config
from plugbay.host.discovery.folders import Found, scan
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed, PlugbayError, Problem
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import write_manifest, write_plugin


def found_in(root: Path, *ids: str) -> list[Found]:
    for plugin_id in ids:
        write_plugin(root, plugin_id)
    return scan([root])


def outcome(steps: Plan) -> tuple[list[str], list[str]]:
    """Ids that go and come."""
    return list(steps.removed), [item.spec.id for item in steps.added if item.spec]


def usable(steps: Plan) -> list[str]:
    return sorted(item.spec.id for item in steps.found if item.spec)


def test_the_same_plugins_need_no_step(tmp_path: Path) -> None:
    found = found_in(tmp_path, "a", "b")
    assert outcome(plan(found, scan([tmp_path]))) == ([], [])


def test_a_plugin_that_came_is_added_and_one_that_is_gone_is_removed(tmp_path: Path) -> None:
    found = found_in(tmp_path, "a", "b")
    shutil.rmtree(tmp_path / "a")
    steps = plan(found, found_in(tmp_path, "c"))
    assert outcome(steps) == (["a"], ["c"])
    assert usable(steps) == ["b", "c"]


def test_a_newcomer_with_the_id_of_a_hosted_plugin_is_refused_until_that_one_is_gone(tmp_path: Path) -> None:
    found = found_in(tmp_path, "a")
    shutil.copytree(tmp_path / "a", tmp_path / "again")
    steps = plan(found, scan([tmp_path]))
    assert outcome(steps) == ([], [])
    (refused,) = [item for item in steps.found if item.spec is None]
    assert refused.root == tmp_path / "again" and refused.errors[0].code == "duplicate_id"
    shutil.rmtree(tmp_path / "a")
    assert outcome(plan(steps.found, scan([tmp_path]))) == (["a"], ["a"])


def test_two_newcomers_with_one_id_are_both_refused(tmp_path: Path) -> None:
    fresh = found_in(tmp_path, "a")
    shutil.copytree(tmp_path / "a", tmp_path / "again")
    assert outcome(plan([], fresh)) == ([], ["a"])
    assert outcome(plan([], scan([tmp_path]))) == ([], [])


def test_a_hosted_plugin_whose_manifest_breaks_stays_and_is_listed(tmp_path: Path) -> None:
    found = found_in(tmp_path, "a")
    (tmp_path / "a" / "rterm-plugin.json").write_text("{")
    steps = plan(found, scan([tmp_path]))
    assert outcome(steps) == ([], []) and usable(steps) == ["a"]
    assert [item.root for item in steps.found if item.errors] == [tmp_path / "a"]


def test_a_folder_that_holds_another_plugin_now_is_that_plugin(tmp_path: Path) -> None:
    found = found_in(tmp_path, "a")
    write_manifest(tmp_path / "a", "b", {"command": "./run.sh"})
    assert outcome(plan(found, scan([tmp_path]))) == (["a"], ["b"])


def test_a_broken_folder_that_was_repaired_is_added(tmp_path: Path) -> None:
    found = found_in(tmp_path, "a")
    broken = [replace(found[0], spec=None, problems=(Problem("parse_error", "", "no JSON"),))]
    assert outcome(plan(broken, found)) == ([], ["a"])


def test_a_folder_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    found = found_in(tmp_path, "a")
    unreadable = Found(tmp_path, "", None, (Problem("unreadable", "", "Input/output error"),))
    assert outcome(plan(found, [unreadable])) == ([], [])
    gone = Found(tmp_path, "", None, (Problem("not_found", "", "No such file or directory"),))
    assert outcome(plan(found, [gone])) == (["a"], [])


def test_plugins_from_elsewhere_stay(tmp_path: Path) -> None:
    found = found_in(tmp_path, "a", "b")
    assert outcome(plan(found, [], elsewhere=found[:1])) == (["b"], [])
    broken = replace(found[0], spec=None, problems=(Problem("not_found", "", "no such program"),))
    steps = plan([broken, found[1]], [], elsewhere=[broken])
    assert outcome(steps) == (["b"], []) and steps.found == [broken], "its problem is listed still"


# With a running host.


@asynccontextmanager
async def watching(folder: Path, **options: Any) -> AsyncIterator[Host]:
    async with Host(scan([folder]), unconfined=True, **options) as host:
        following = asyncio.ensure_future(FolderWatch(host, [folder]).run())
        try:
            yield host
        finally:
            following.cancel()


def ids(host: Host) -> list[str]:
    return [status.spec.id for status in host.plugins()]


def test_a_plugin_that_is_put_into_an_empty_folder_waits_for_its_grants(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with watching(tmp_path) as host:
            write_plugin(tmp_path, "p", capabilities=["tool.execute"])
            await until(lambda: ids(host) == ["p"])
            (status,) = host.plugins()
            assert (status.state, status.missing) == ("pending", ("tool.execute",))
            assert [note.kind for note in host.journal.recent("p")][-1] == "added"

    run(main)


def test_it_is_called_like_any_other_and_goes_with_its_folder(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with watching(tmp_path, grant_all=True) as host, host.subscribe("plugin.catalog.changed") as events:
            write_plugin(tmp_path, "p")
            await until(lambda: ids(host) == ["p"])
            assert await host.call("t", {"a": 1}) is not None
            shutil.rmtree(tmp_path / "p")
            await until(lambda: ids(host) == [])
            with pytest.raises(CallFailed, match="nothing here is called 't'"):
                await host.call("t", {})
            heard = [await anext(events) for _ in range(2)]
            assert [(event.payload["added"], event.payload["removed"]) for event in heard] == [
                (["p/t"], []),
                ([], ["p/t"]),
            ]

    run(main)


def test_a_plugin_that_was_changed_and_reloaded_goes_with_its_folder(tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path, "p")

    async def main() -> None:
        async with watching(tmp_path) as host:
            write_plugin(tmp_path, "p", description="Another one.")
            await operating.reload(host, "p")
            assert host.plugins()[0].spec.description == "Another one."
            shutil.rmtree(tmp_path / "p")
            await until(lambda: ids(host) == [])

    run(main)


def test_running_calls_of_a_plugin_whose_folder_is_gone_finish(tmp_path: Path, run: Run) -> None:
    answer = '{{"jsonrpc":"2.0","id":1,"result":1}}'
    script = f"""echo '{{hello}}'
while read -r line; do
    touch "$PLUGBAY_TEST/called"
    while [ ! -e "$PLUGBAY_TEST/go" ]; do sleep 0.02; done
    echo '{answer}'
done
"""
    folder, marks = tmp_path / "plugins", tmp_path / "marks"
    marks.mkdir()

    async def main() -> None:
        write_plugin(folder, "p", script=script.replace("$PLUGBAY_TEST", str(marks)))
        async with watching(folder, grant_all=True) as host:
            call = asyncio.ensure_future(host.attempt("t", {}))
            await until(lambda: (marks / "called").exists())
            shutil.rmtree(folder / "p")
            await until(lambda: ids(host) == [])
            assert not call.done()
            (marks / "go").touch()
            await call

    run(main)


def test_a_manifest_that_is_repaired_in_place_is_noticed(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        manifest = write_plugin(tmp_path, "p") / "rterm-plugin.json"
        good = manifest.read_text()
        manifest.write_text("{")
        async with watching(tmp_path, grant_all=True) as host:
            assert ids(host) == [] and len(host.problems) == 1
            manifest.write_text(good)
            await until(lambda: ids(host) == ["p"])
            assert host.problems == []

    run(main)


def test_a_plugin_whose_stores_cannot_be_opened_is_listed_and_tried_again(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with Host([], unconfined=True) as host:
            watch = FolderWatch(host, [tmp_path])
            write_plugin(tmp_path, "p")

            async def fail(spec: object) -> None:
                raise PlugbayError("the disk is full")

            with monkeypatch.context() as broken:
                broken.setattr(host, "prepare", fail)
                await watch.rescan()
            (item,) = host.problems
            assert (ids(host), item.errors[0].message) == ([], "the disk is full")
            await watch.rescan()
            assert (ids(host), host.problems) == (["p"], [])

    run(main)


def test_a_server_of_plugbay_toml_stays_although_its_folder_is_watched(tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path, "p")
    file = tmp_path / "plugbay.toml"
    file.write_text('[mcp.srv]\ncommand = ["/bin/true"]\n[mcp.none]\nurl = "http://none.example"\n')

    async def main() -> None:
        async with Host(scan([tmp_path]), config.load(file), unconfined=True) as host:
            watch = FolderWatch(host, [tmp_path])
            found_in(tmp_path, "q")
            assert outcome(await watch.rescan()) == ([], ["q"])
            assert sorted(ids(host)) == ["p", "q", "srv"]
            assert [item.entry for item in host.problems if item.errors] == ["none"]

    run(main)


def test_a_scan_begins_when_the_one_before_it_has_ended(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a scan that was slow would let go of a plugin that a later scan has found."""
    steps: list[str] = []
    ready = threading.Event()

    def slow(paths: Sequence[Path]) -> list[Found]:
        steps.append("begin")
        found = scan(paths)
        if steps == ["begin"]:
            ready.wait()
        steps.append("end")
        return found

    async def main() -> None:
        async with Host([], unconfined=True) as host:
            watch = FolderWatch(host, [tmp_path])
            first = asyncio.ensure_future(watch.rescan())
            await until(lambda: steps == ["begin"])
            write_plugin(tmp_path, "p")
            second = asyncio.ensure_future(watch.rescan())
            for _ in range(100):
                await asyncio.sleep(0)
            ready.set()
            await asyncio.gather(first, second)
            assert steps == ["begin", "end"] * 2 and ids(host) == ["p"]

    monkeypatch.setattr(folders, "scan", slow)
    run(main)
