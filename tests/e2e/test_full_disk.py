"""Servers whose disk is full, fails or loses what was written: real file systems in mount namespaces of their own."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx2

from tests.support.disks import failing_disk, losing_disk
from tests.support.machine import needs_root
from tests.support.packaged import Publisher
from tests.support.patience import PATIENCE, until_blocking
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

pytestmark = exhaustive

MOUNT = 'mount -t tmpfs -o size=48m none "$0" && mkdir "$0/data" && exec "$@"'


@contextmanager
def served_on_a_small_disk(folder: Path) -> Iterator[tuple[httpx2.Client, Path]]:
    """The operator's client of a server, and its disk."""
    disk = folder / "disk"
    disk.mkdir()
    around = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(disk)]
    with served(folder, disk / "data", around) as (client, pid):
        yield client, Path(f"/proc/{pid}/root{disk}")


@contextmanager
def served(folder: Path, data: Path, around: Sequence[str] = ()) -> Iterator[tuple[httpx2.Client, int]]:
    """The operator's client of a server, and its pid. `around`: words before its command, which end in an exec."""
    words = [sys.executable, "-m", "plugbay", "serve", "--listen", "127.0.0.1:0", "--json", "--data", str(data)]
    homes = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "DATA", "CONFIG", "CACHE")}
    command = [*around, *words]
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, **homes}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as server:
        try:
            assert server.stdout is not None and server.stderr is not None
            line = server.stdout.readline()
            assert line, server.stderr.read()
            facts = json.loads(line)
            headers = {"authorization": f"Bearer {facts['token']}"}
            with httpx2.Client(base_url=facts["url"], headers=headers, timeout=PATIENCE) as client:
                yield client, server.pid
        finally:
            server.kill()


def fill(disk: Path) -> Path:
    """A file that takes all the room."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 16)):
            continue
    return filler


@requirement("vai:control-full-disk")
def test_a_full_disk_is_not_ready_and_refuses_with_a_reason_until_there_is_room(tmp_path: Path) -> None:
    with served_on_a_small_disk(tmp_path) as (client, disk):
        assert client.get("/readyz").json()["checks"]["disk"] == "ok"
        publisher = Publisher(disk / "data", tmp_path)
        packed = publisher.pack(f"PADDING = {secrets.token_hex(1 << 19)!r}")
        archive = packed.path.read_bytes()
        headers = {"content-type": "application/gzip", **publisher.header(packed)}

        def upload() -> httpx2.Response:
            return client.post("/v1/plugin-packages", content=archive, headers=headers)

        filler = fill(disk)
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert "No space left on device" in ready.json()["checks"]["disk"]
        refused = upload()
        assert refused.status_code == 503, refused.text
        error = refused.json()["error"]
        assert error["code"] in ("disk.full", "store.unavailable") and error["retryable"] is True
        assert int(refused.headers["retry-after"]) >= 1
        filler.unlink()
        assert client.get("/readyz").json()["checks"]["disk"] == "ok"
        assert upload().status_code == 201


def test_a_package_for_which_the_disk_has_no_room_is_refused_on_its_page_and_taken_when_there_is_room(
    tmp_path: Path,
) -> None:
    with served_on_a_small_disk(tmp_path) as (client, disk):
        publisher = Publisher(disk / "data", tmp_path)
        packed = publisher.pack(f"PADDING = {secrets.token_hex(1 << 19)!r}")
        page = client.get(client.post("/api/v1/dashboard-links").json()["url"], follow_redirects=True)
        (form_key,) = set(re.findall(r'name="form_key" value="([^"]+)"', page.text))
        files = {"archive": packed.path.read_bytes(), "signature": publisher.sign(packed)}

        def upload() -> httpx2.Response:
            headers = {"origin": str(client.base_url).rstrip("/")}
            return client.post("/installed", data={"form_key": form_key}, files=files, headers=headers)

        filler = fill(disk)
        refused = upload()
        assert refused.status_code == 503 and "The disk of the server is full" in refused.text
        assert list((disk / "data" / "installing").iterdir()) == []
        filler.unlink()
        shown = upload()
        assert shown.status_code == 303, shown.text
        assert packed.digest in client.get(shown.headers["location"]).text


@requirement("vai:control-full-disk")
def test_a_disk_that_fails_is_not_ready_and_refuses_until_it_works_again(tmp_path: Path) -> None:
    """SQLite reports an input or output error here (`SQLITE_IOERR`), and no full disk."""
    with served(tmp_path, tmp_path / "data") as (client, pid):

        def add(name: str) -> httpx2.Response:
            return client.post("/v1/orgs", json={"name": name})

        before = [add(name).json()["id"] for name in ("one", "two")]
        with failing_disk(pid):
            for name in ("three", "four"):
                refused = add(name)
                assert refused.status_code == 503, refused.text
                error = refused.json()["error"]
                assert (error["code"], error["retryable"]) == ("store.unavailable", True)
                assert "SQLITE_IOERR" in error["message"]
                assert int(refused.headers["retry-after"]) >= 1
            assert client.get("/readyz").status_code == 503
            assert client.get("/livez").status_code == 200
        assert client.get("/readyz").json()["ready"] is True
        after = add("five")
        assert after.status_code == 201
        stored = [org["id"] for org in client.get("/v1/orgs").json()["items"]]
        assert sorted({*before, after.json()["id"]}) == sorted(set(stored) - {"org_default"}), stored


@needs_root
@requirement("vai:control-full-disk")
def test_of_a_disk_that_loses_writes_a_server_has_acknowledged_nothing_that_is_lost(tmp_path: Path) -> None:
    """A write succeeds, into memory, and fsync fails: then the record is refused, and later ones are kept."""
    with losing_disk(tmp_path) as disk:
        with served(tmp_path, disk.path / "data", disk.around) as (client, _):
            acknowledged: list[str] = []

            def add() -> httpx2.Response:
                answer = client.post("/v1/orgs", json={"name": "acme"})
                acknowledged.extend([answer.json()["id"]] if answer.status_code == 201 else [])
                return answer

            assert add().status_code == 201
            with disk.full():
                # Blocks that the device has already can still be written.
                refused = next(answer for answer in (add() for _ in range(200)) if answer.status_code != 201)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"], error["retryable"]) == (503, "store.unavailable", True)
            assert "SQLITE_IOERR_FSYNC" in error["message"], error
            until_blocking(lambda: add().status_code == 201)  # the device reports each lost block once
            assert add().status_code == 201
        disk.remount()
        copied = shutil.copytree(disk.inside / "data", tmp_path / "copied")  # SQLite would look in this namespace
        with closing(sqlite3.connect(copied / "plugbay.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            stored = {id for (id,) in database.execute("SELECT id FROM orgs")}
        assert {*acknowledged} <= stored
