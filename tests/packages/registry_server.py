"""A real OCI registry on a free port: Debian's `docker-registry`, with its own folder, stopped after the test."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE


@contextmanager
def serve(folder: Path, **sections: Any) -> Iterator[str]:
    """`127.0.0.1:port` of a registry with its files in `folder`; `sections` are added to its configuration."""
    config = {
        "version": 0.1,
        "log": {"level": "info", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "blobs")}},
        "http": {"addr": "127.0.0.1:0", "secret": "of this test"},
        **sections,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    log = folder / "log"
    with open(log, "wb") as file:
        command = ["docker-registry", "serve", str(folder / "config.yml")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield _address(log, process)
    finally:
        process.kill()
        process.wait(PATIENCE)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    """The port from the log."""
    import time

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = re.search(r"listening on ([0-9.]+:[0-9]+)", log.read_text("utf-8", "replace"))
        if found:
            return found[1]
        assert process.poll() is None, log.read_text("utf-8", "replace")
        time.sleep(0.01)
    raise TimeoutError(log.read_text("utf-8", "replace"))
