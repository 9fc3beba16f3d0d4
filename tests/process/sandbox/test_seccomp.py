"""The shipped filters: whole, loaded by the real kernel, deadly to attacks and harmless to real programs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from plugbay.model.errors import Code
from plugbay.process.diagnose import SandboxUnavailable
from plugbay.process.sandbox import seccomp
from plugbay.process.sandbox.filters import HASHES
from plugbay.process.sandbox.seccomp import FOLDER, program
from scripts.filters.build import build
from scripts.filters.syscalls import MACHINES
from tests.process.sandbox import call_table as calls
from tests.process.sandbox import runtimes
from tests.process.sandbox.call_table import Call
from tests.support.tiers import first_alone

MACHINE = platform.machine()
PROBE = (sys.executable, "-I", "-S", str(Path(__file__).with_name("call_probe.py")))
SECONDS = 50

VARIANTS = [(machine, network) for machine in MACHINES for network in (True, False)]


@pytest.mark.parametrize(("machine", "network"), VARIANTS)
def test_the_shipped_filter_is_the_one_the_rules_make(machine: str, network: bool) -> None:
    assert program(machine, network=network) == build(machine, network=network)


def test_without_a_name_it_is_the_filter_of_this_machine() -> None:
    assert program(network=True) == program(MACHINE, network=True)
    assert program(network=False) == program(MACHINE, network=False) != program(network=True)


@pytest.mark.parametrize("machine", ["riscv64", "i686", "armv7l", "", "X86_64", "../filters/x86_64", "x86_64-offline"])
def test_a_machine_without_a_filter_confines_nothing(machine: str) -> None:
    with pytest.raises(SandboxUnavailable, match="no system call filter for the machine") as caught:
        program(machine, network=False)
    assert caught.value.code == Code.SANDBOX_UNAVAILABLE
    assert caught.value.detail == {"machine": machine}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "filters"))


def test_a_filter_in_another_folder_is_as_good(folder: Path) -> None:
    assert program("x86_64", network=True, folder=folder) == program("x86_64", network=True)


@pytest.mark.parametrize("change", ["one bit", "cut", "longer", "empty", "the other variant", "allows everything"])
def test_a_filter_that_was_changed_is_refused(folder: Path, change: str) -> None:
    file = folder / "x86_64-offline.bpf"
    code = file.read_bytes()
    changed = {
        "one bit": code[:100] + bytes([code[100] ^ 1]) + code[101:],
        "cut": code[:-8],
        "longer": code + code[-8:],
        "empty": b"",
        "the other variant": (folder / "x86_64.bpf").read_bytes(),
        "allows everything": bytes.fromhex("06000000 0000ff7f"),
    }[change]
    file.write_bytes(changed)
    with pytest.raises(SandboxUnavailable, match=r"x86_64-offline\.bpf is not the one that was shipped"):
        program("x86_64", network=False, folder=folder)


def test_a_filter_that_is_changed_after_it_was_read_changes_nothing(folder: Path) -> None:
    before = program("x86_64", network=False, folder=folder)
    (folder / "x86_64-offline.bpf").write_bytes(b"")
    assert program("x86_64", network=False, folder=folder) == before


def test_a_filter_that_is_missing_is_refused(folder: Path) -> None:
    (folder / "aarch64.bpf").unlink()
    with pytest.raises(SandboxUnavailable, match=r"aarch64\.bpf cannot be read: No such file"):
        program("aarch64", network=True, folder=folder)


def test_there_is_a_hash_for_every_filter_and_for_nothing_else() -> None:
    assert set(HASHES) == {path.name for path in FOLDER.glob("*.bpf")}
    assert set(HASHES) == {seccomp.file_name(machine, network=network) for machine, network in VARIANTS}


# What follows asks the real kernel.


def probe(ask: object, *command: str, pass_fds: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=json.dumps(ask), stdout=subprocess.PIPE, text=True, timeout=SECONDS, pass_fds=pass_fds
    )


def outcomes(made: Sequence[Call], *command: str, pass_fds: Sequence[int] = ()) -> dict[str, int]:
    """How each call ended in one run of the probe."""
    done = probe([[call.number, call.words] for call in made], *command, pass_fds=pass_fds)
    assert done.returncode == 0
    return dict(zip(map(str, made), json.loads(done.stdout), strict=True))


def filter_file(*, network: bool) -> str:
    return str(FOLDER / seccomp.file_name(MACHINE, network=network))


def expected(made: Sequence[Call]) -> dict[str, int]:
    return {str(call): call.error for call in made}


class Confined:
    """Runs commands under a filter, loaded by bubblewrap as the sandbox does it; nothing else confines them."""

    def __init__(self, network: bool) -> None:
        self.network = network
        self.fd = os.memfd_create("filter")

    @property
    def prefix(self) -> tuple[str, ...]:
        os.pwrite(self.fd, program(network=self.network), 0)
        os.lseek(self.fd, 0, os.SEEK_SET)
        return ("bwrap", "--dev-bind", "/", "/", "--seccomp", str(self.fd), "--")

    def output(self, *command: str) -> str:
        return output(*self.prefix, *command, pass_fds=[self.fd])


def output(*command: str, pass_fds: Sequence[int] = ()) -> str:
    """All that a command says."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        pass_fds=pass_fds,
    )
    return done.stdout


@pytest.fixture(params=[True, False], ids=["network", "offline"])
def confined(request: pytest.FixtureRequest) -> Iterator[Confined]:
    confined = Confined(request.param)
    yield confined
    os.close(confined.fd)


def test_the_kernel_refuses_every_dangerous_call() -> None:
    assert len(calls.EVERYWHERE) >= 45
    assert outcomes(calls.EVERYWHERE, *PROBE, filter_file(network=True)) == expected(calls.EVERYWHERE)


def test_without_network_the_kernel_refuses_named_sockets_and_datagram_pairs_as_well() -> None:
    made = calls.EVERYWHERE + calls.REFUSED_OFFLINE
    assert outcomes(made, *PROBE, filter_file(network=False)) == expected(made)
    online = outcomes(calls.REFUSED_OFFLINE, *PROBE, filter_file(network=True))
    assert online == dict.fromkeys(online, 0)


@pytest.mark.parametrize("network", [True, False])
def test_the_kernel_allows_the_same_calls_with_harmless_arguments(network: bool) -> None:
    assert outcomes(calls.ALLOWED, *PROBE, filter_file(network=network)) == expected(calls.ALLOWED)


def test_without_the_filter_the_kernel_answers_otherwise() -> None:
    made = [call for call in calls.EVERYWHERE + calls.REFUSED_OFFLINE if calls.tells_apart(call)]
    assert len(made) >= 45
    bare = outcomes(made, *PROBE)
    assert [f"{call}: {bare[str(call)]}" for call in made if bare[str(call)] == call.error] == []
    assert outcomes(calls.ALLOWED, *PROBE) == expected(calls.ALLOWED)


def test_bubblewrap_loads_the_filter_to_the_same_effect(confined: Confined) -> None:
    made = calls.EVERYWHERE + calls.ALLOWED + ([] if confined.network else calls.REFUSED_OFFLINE)
    assert outcomes(made, *confined.prefix, *PROBE, pass_fds=[confined.fd]) == expected(made)


def test_what_bubblewrap_starts_has_one_filter_more_than_we_have(confined: Confined) -> None:
    def filters(status: str) -> int:
        return int(status.partition("Seccomp_filters:")[2].split()[0])

    assert filters(confined.output("cat", "/proc/self/status")) == filters(output("cat", "/proc/self/status")) + 1


@pytest.mark.skipif(MACHINE != "x86_64", reason="only x86-64 makes 32-bit calls in a way of their own")
def test_a_call_made_in_the_32_bit_way_kills() -> None:
    bare = probe("32 bit", *PROBE)
    assert (bare.returncode, bare.stdout) == (0, "true"), "without the filter it is made"
    killed = probe("32 bit", *PROBE, filter_file(network=True))
    assert (killed.returncode, killed.stdout) == (-signal.SIGSYS, "")


@pytest.mark.parametrize("machine", [machine for machine in MACHINES if machine != MACHINE])
def test_the_filter_of_another_machine_lets_nothing_run(machine: str) -> None:
    killed = probe([], *PROBE, str(FOLDER / f"{machine}.bpf"))
    assert killed.returncode == -signal.SIGSYS


RECONNECT = """
import socket, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, getattr(socket, sys.argv[2]))
ours.connect(sys.argv[1])
ours.send(b"out")
print("sent")
"""


@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_RAW"])
def test_without_network_no_pair_can_be_turned_towards_a_named_socket(
    confined: Confined, kind: str, tmp_path: Path
) -> None:
    """The socket of a service of the host, in a folder that the plugin sees."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.settimeout(SECONDS)
        service.bind(str(tmp_path / "service"))
        said = confined.output(sys.executable, "-c", RECONNECT, str(tmp_path / "service"), kind)
        if confined.network:
            assert (said, service.recv(10)) == ("sent\n", b"out"), "what the stricter filter is there to prevent"
        else:
            assert "Operation not permitted" in said


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_SEQPACKET"])
def test_the_pairs_that_are_left_cannot_be_turned(confined: Confined, kind: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, getattr(socket, kind)) as service:
        service.bind(str(tmp_path / "service"))
        service.listen()
        said = confined.output(sys.executable, "-c", RECONNECT, str(tmp_path / "service"), kind)
        assert "already connected" in said


@pytest.mark.parametrize("python", first_alone([sys.executable, "/usr/bin/python3"]))
def test_python_works_under_the_filter(confined: Confined, python: str, tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(runtimes.PYTHON)
    more = ["uvloop"] if python == sys.executable else []
    assert confined.output(python, str(script), *more) == "fine\n"


FORKSERVER = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        print(pool.apply(abs, [-42]))
"""


def test_what_listens_on_a_named_socket_needs_network(confined: Confined, tmp_path: Path) -> None:
    """The price of the stricter filter, told by the program itself."""
    script = tmp_path / "main.py"
    script.write_text(FORKSERVER)
    said = confined.output(sys.executable, str(script))
    assert said == "42\n" if confined.network else "Address family not supported" in said


def test_node_works_under_the_filter(confined: Confined, tmp_path: Path) -> None:
    script = tmp_path / "main.js"
    script.write_text(runtimes.NODE)
    assert confined.output("node", str(script)) == "fine\n"


def test_perl_works_under_the_filter(confined: Confined) -> None:
    assert confined.output("perl", "-e", runtimes.PERL) == "fine\n"


def test_shells_work_under_the_filter(confined: Confined) -> None:
    assert confined.output("sh", "-c", runtimes.SHELL) == "fine\n"


def test_a_program_that_breaks_under_the_filter_would_be_seen(confined: Confined) -> None:
    broken = "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW); print('fine')"
    assert "Address family not supported" in confined.output(sys.executable, "-c", broken)
    assert output(sys.executable, "-c", broken) == "fine\n"
