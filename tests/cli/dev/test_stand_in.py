"""The stand-in process alone; `test_rendezvous` tests it with a plugin."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from plugbay.cli.dev import stand_in
from tests.support.patience import PATIENCE


def test_it_hands_over_its_pipes_and_leaves_with_the_status_it_is_reported(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        argv = [sys.executable, "-I", "-S", stand_in.__file__, str(tmp_path / "socket")]
        big = "x" * 100_000
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            env={"A": "1", "BIG": big, "PLUGBAY_HOST": "x"},
        )
        line, _ = listening.accept()
        said, pipes, _, _ = socket.recv_fds(line, 65536, 2)
        while not said.endswith(b"\n"):
            said += line.recv(65536)
        hello = json.loads(said)
        assert hello["stand_in"] == "t0ken" and hello["cwd"] == str(tmp_path.resolve())
        assert hello["env"]["A"] == "1" and hello["env"]["BIG"] == big and "PLUGBAY_HOST" not in hello["env"]
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"from the host")
        process.stdin.close()
        assert os.read(pipes[0], 100) == b"from the host"
        for pipe in pipes:
            os.close(pipe)
        # No process holds the other end: the stand-in has closed its own copies.
        assert process.stdout.read() == b""
        process.stdout.close()
        line.sendall(b'{"left": 7}\n')
        line.close()
        assert process.wait(PATIENCE) == 7


def test_a_plugin_that_goes_without_a_word_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t0ken")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        argv = [sys.executable, "-I", "-S", stand_in.__file__, str(tmp_path / "socket")]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={})
        line, _ = listening.accept()
        line.recv(65536)
        line.close()
        assert process.wait(PATIENCE) == stand_in.GONE
