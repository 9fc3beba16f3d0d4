"""Sockets of the host in a network without any other way out: real namespaces, entered as root and without."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from plugbay.process.sandbox.egress import listener, netlink
from plugbay.process.sandbox.egress.listener import DIRECT_PORT, ENVIRONMENT, PORT, Sockets, open_inside
from plugbay.process.sandbox.egress.netlink import forwarding
from plugbay.process.sandbox.egress.proxy import Proxy
from plugbay.process.sandbox.policy import Endpoint, Network, Reach
from tests.process.helpers import Run
from tests.process.sandbox.egress.helpers import certificate, names, server_context, serving
from tests.support.machine import AS_ROOT, needs_low_ports
from tests.support.patience import PATIENCE

NOBODY = 2_000_000_123
"""A user that owns nothing, in the range that plugins run as."""

AS_NOBODY = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups" if AS_ROOT else ""
"""Root becomes that user; another user is as good, and has no rights to drop."""
DROP = f"setpriv {AS_NOBODY} --no-new-privs {'--inh-caps=-all --bounding-set=-all' if AS_ROOT else ''} --"
BWRAP = "bwrap --unshare-user --unshare-pid --unshare-ipc --ro-bind / / --proc /proc --dev /dev --die-with-parent"

LOOK_AROUND = """
import json, socket, sys
def reach(host, port, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.settimeout(5)
        try:
            probe.connect((host, port))
            return "".join(iter(lambda: probe.recv(100).decode(), "")) if kind is socket.SOCK_STREAM else "sent"
        except OSError as error:
            return type(error).__name__ if error.errno != 101 else "unreachable"
listening = [line.split()[1] for name in ("tcp", "tcp6", "udp", "udp6", "raw") for line in open(f"/proc/net/{name}")
             if line.split()[3] in ("0A", "07")]
print(json.dumps({"door": reach("127.0.0.1", 3128), "host": reach("127.0.0.1", int(sys.argv[1])),
    "far": reach("192.0.2.1", 80), "dns": reach("192.0.2.1", 53, socket.SOCK_DGRAM),
    "listening": sorted(listening)}))
"""

ROOTLESS = """
import json, os, re, socket, subprocess, sys
sys.path.insert(0, sys.argv[1])
import door, netlink
said, say = os.pipe(); held, hold = os.pipe()
os.set_inheritable(hold, False)
words = [*sys.argv[2].split(), "--json-status-fd", str(say), "--block-fd", str(held), "--"]
child = subprocess.Popen([*words, "/usr/bin/python3", "-c", sys.argv[3], sys.argv[4]], pass_fds=(say, held),
    stdout=subprocess.PIPE)
os.close(say); os.close(held)
status = b""
while not status.endswith(b"}\\n"):
    status += os.read(said, 4096)
pid = int(re.search(rb'"child-pid": ([0-9]+)', status)[1])
try:
    sockets = door.open_inside(pid, netlink.forwarding(door.DIRECT_PORT, ()) if sys.argv[5] == "forwarding" else ())
    os.write(hold, b".")
    for listening, word in ((sockets.proxy, b"welcome"), (sockets.direct, b"direct")):
        if listening is not None:
            client, _ = listening.accept()
            with client:
                client.sendall(word)
    print(child.communicate()[0].decode())
except OSError as error:
    os.kill(pid, 9); child.communicate()
    print(json.dumps({"refused": str(error)}))
print(json.dumps([os.geteuid(), os.readlink("/proc/self/ns/net")]))
"""


@contextmanager
def held_back(*argv: str, options: str = "--unshare-net", env: dict[str, str] | None = None) -> Iterator[Held]:
    """A confined program that has not begun."""
    said, say = os.pipe()
    held, hold = os.pipe()
    command = [*DROP.split(), *BWRAP.split(), *options.split(), "--json-status-fd", str(say), "--block-fd", str(held)]
    program = subprocess.Popen(
        [*command, "--", *argv],
        pass_fds=(say, held),
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", **(env or {})},
    )
    os.close(say)
    os.close(held)
    status, first = b"", 0
    with program:
        try:
            while not status.endswith(b"}\n"):
                said_now = os.read(said, 4096)
                assert said_now, "the program did not start"
                status += said_now
            found = re.search(rb'"child-pid": ([0-9]+)', status)
            assert found is not None
            first = int(found[1])
            yield Held(program, first, hold)
        finally:
            with suppress(ProcessLookupError):  # one that is held back does not die with its monitor
                os.kill(first if first and program.poll() is None else program.pid, signal.SIGKILL)
            program.kill()
            os.close(said)
            os.close(hold)


class Held:
    def __init__(self, program: subprocess.Popen[bytes], child_pid: int, hold: int) -> None:
        self.child_pid = child_pid
        self._program = program
        self._hold = hold

    def finish(self) -> str:
        """Let it run; what it prints."""
        os.write(self._hold, b".")
        return self._program.communicate(timeout=PATIENCE)[0].decode().strip()


@contextmanager
def service_of_the_host() -> Iterator[int]:
    """A server on the host's loopback, as databases and docker daemons are; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_greet, args=(server, b"secret"), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def _greet(server: socket.socket, word: bytes) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            client.sendall(word)


@contextmanager
def greeting(listening: socket.socket, word: bytes) -> Iterator[None]:
    thread = threading.Thread(target=_greet, args=(listening, word), daemon=True)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


INSIDE = {
    "door": "welcome",
    "host": "ConnectionRefusedError",
    "far": "unreachable",
    "dns": "unreachable",
    "listening": ["0100007F:0C38"],
}
"""127.0.0.1:3128 as the kernel writes it, and nothing else."""
INSIDE_FORWARDED = {
    **INSIDE,
    "far": "direct",
    "dns": "sent",
    "listening": ["00000000000000000000000000000000:0C39", "00000000:0035", "0100007F:0C38"],
}


def test_inside_only_the_proxy_can_be_reached() -> None:
    with service_of_the_host() as port, held_back("/usr/bin/python3", "-c", LOOK_AROUND, str(port)) as held:
        before = os.stat("/proc/thread-self/ns/net")
        with closing(open_inside(held.child_pid)) as sockets:
            assert os.path.samestat(before, os.stat("/proc/thread-self/ns/net"))
            assert (sockets.direct, sockets.dns, sockets.proxy.get_inheritable()) == (None, None, False)
            with greeting(sockets.proxy, b"welcome"):
                assert json.loads(held.finish()) == INSIDE


@contextmanager
def looking_around(make_settings: Callable[[int], Sequence[netlink.Batch]]) -> Iterator[tuple[Held, Sockets]]:
    """A program that looks around, with the sockets for these settings; they may depend on a port of the host."""
    with (
        service_of_the_host() as port,
        held_back("/usr/bin/python3", "-c", LOOK_AROUND, str(port)) as held,
        closing(open_inside(held.child_pid, make_settings(port))) as sockets,
        greeting(sockets.proxy, b"welcome"),
    ):
        yield held, sockets


def test_connections_to_every_address_arrive_at_one_socket() -> None:
    with looking_around(lambda port: forwarding(DIRECT_PORT, ())) as (held, sockets):
        assert sockets.why == "" and sockets.direct is not None
        assert not any(each.get_inheritable() for each in sockets.all())
        with greeting(sockets.direct, b"direct"):
            assert json.loads(held.finish()) == INSIDE_FORWARDED


def test_a_granted_loopback_endpoint_is_not_the_plugins_own() -> None:
    with looking_around(lambda port: forwarding(DIRECT_PORT, [("127.0.0.1", port), ("::1", port)])) as (held, sockets):
        assert sockets.direct is not None
        with greeting(sockets.direct, b"direct"):
            assert json.loads(held.finish()) == {**INSIDE_FORWARDED, "host": "direct"}


def test_where_the_kernel_does_not_forward_there_is_the_proxy_and_a_reason() -> None:
    (rules, *rest) = forwarding(DIRECT_PORT, ())
    unknown = rules._replace(data=rules.data.replace(b"tproxy\0", b"nosuch\0"))
    with looking_around(lambda port: [unknown, *rest]) as (held, sockets):
        assert (sockets.direct, sockets.dns) == (None, None)
        assert "cannot forward connections (nf_tables with tproxy)" in sockets.why
        assert json.loads(held.finish()) == INSIDE


def test_a_setting_that_is_not_required_may_be_refused() -> None:
    refused = forwarding(DIRECT_PORT, ())[-1]._replace(data=b"\x14\0\0\0\x18\0\5\4\1\0\0\0\0\0\0\0\x63\0\0\0")
    assert not refused.required
    with held_back("/usr/bin/true") as held:
        sockets = open_inside(held.child_pid, [*forwarding(DIRECT_PORT, ())[:-1], refused])
        assert sockets.direct is not None
        sockets.close()
    with held_back("/usr/bin/true") as held:
        sockets = open_inside(held.child_pid, [refused._replace(required=True)])
        assert sockets.direct is None and sockets.why
        sockets.close()


def test_without_a_network_of_its_own_a_program_reaches_the_services_of_the_host() -> None:
    """The control: it is the namespace that keeps a program from them."""
    look = ("/usr/bin/python3", "-c", LOOK_AROUND)
    with service_of_the_host() as port, held_back(*look, str(port), options="--share-net") as held:
        assert json.loads(held.finish())["host"] == "secret"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that every user can read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def rootless(folder: Path, options: str, port: int, forwarded: str = "") -> list[object]:
    """What a host that is not root sees."""
    shutil.copy(listener.__file__, folder / "door.py")
    shutil.copy(netlink.__file__, folder / "netlink.py")
    words = f"{f'setpriv {AS_NOBODY} --' if AS_ROOT else ''} /usr/bin/python3 -c"
    command = [*words.split(), ROOTLESS, str(folder), f"{BWRAP} {options}", LOOK_AROUND, str(port), forwarded]
    done = subprocess.run(
        command, cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def test_without_root_the_listener_is_the_same(open_folder: Path) -> None:
    with service_of_the_host() as port:
        seen, ends = rootless(open_folder, "--unshare-net", port)
    assert seen == INSIDE
    assert ends == [NOBODY if AS_ROOT else os.geteuid(), os.readlink("/proc/self/ns/net")]


def test_without_root_connections_are_forwarded_as_well(open_folder: Path) -> None:
    with service_of_the_host() as port:
        seen, _ = rootless(open_folder, "--unshare-net", port, "forwarding")
    assert seen == INSIDE_FORWARDED


def test_a_user_namespace_below_the_one_that_owns_the_network_makes_no_difference(open_folder: Path) -> None:
    with service_of_the_host() as port:
        seen, _ = rootless(open_folder, "--unshare-net --disable-userns --uid 65534 --gid 65534", port)
    assert seen == INSIDE


def test_no_listener_is_opened_in_the_network_of_the_host(open_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    refused = pytest.raises(OSError, match="no network namespace of its own")
    with held_back("/usr/bin/true", options="--share-net") as held, refused:
        open_inside(held.child_pid, port=port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    seen, _ = rootless(open_folder, "--share-net", port)
    assert "no network namespace of its own" in str(seen)


def test_a_process_that_has_ended_has_no_listener() -> None:
    with held_back("/usr/bin/true") as held:
        assert held.finish() == ""
    with pytest.raises(OSError) as failed:
        open_inside(held.child_pid)
    assert failed.value.errno in (errno.ENOENT, errno.ESRCH)


class Early(socket.socket):
    """A socket in a network whose loopback is not there the first few times: a moment too short to be made."""

    refusals = 3

    def bind(self, address: Any) -> None:
        self.refusals -= 1
        if self.refusals >= 0:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        super().bind(address)


def test_a_listener_waits_until_loopback_is_up() -> None:
    with Early() as listening:
        listener._bind(listening, 0)
        assert listening.getsockname()[0] == "127.0.0.1" and listening.refusals == -1


def test_a_listener_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LOOPBACK_SECONDS", -1.0)
    with Early() as listening, pytest.raises(OSError) as failed:
        listener._bind(listening, 0)
    assert failed.value.errno == errno.EADDRNOTAVAIL


def test_a_port_that_is_taken_is_an_error_of_the_thread_that_asked() -> None:
    with held_back("/usr/bin/true") as held, closing(open_inside(held.child_pid)):
        with pytest.raises(OSError, match="Address already in use"):
            open_inside(held.child_pid)
        open_inside(held.child_pid, port=PORT + 1).close()
    assert not [thread for thread in threading.enumerate() if thread.name == "plugbay-listen"]


def helper_of(script: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have the host use a helper, and this one."""
    path = folder / "helper.py"
    path.write_text(script)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    monkeypatch.setattr(listener, "__file__", str(path))


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; sys.exit('not today')", "cannot be opened: not today"),
        ("pass", "returned no sockets"),
        ("import signal; signal.pause()", "did not answer"),
    ],
)
def test_a_helper_that_fails_opens_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    monkeypatch.setattr(listener, "HELPER_SECONDS", 0.5 if "pause" in script else 10.0)
    with held_back("/usr/bin/true") as held:
        helper_of(script, monkeypatch, tmp_path)
        with pytest.raises(OSError, match=words):
            open_inside(held.child_pid)


def test_the_variables_name_the_proxy_and_no_exception() -> None:
    assert ENVIRONMENT["https_proxy"] == ENVIRONMENT["HTTP_PROXY"] == f"http://127.0.0.1:{PORT}"
    assert ENVIRONMENT["NO_PROXY"] == ENVIRONMENT["no_proxy"] == ""
    assert "ALL_PROXY" not in ENVIRONMENT


FETCH = """
import json, os, ssl, sys, urllib.request
trust = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=os.environ["TRUSTED"]))
def fetch(url):
    try:
        with urllib.request.build_opener(trust).open(url, timeout=60) as answer:
            return answer.read().decode()
    except OSError as error:
        return str(error)
print(json.dumps([fetch(url) for url in sys.argv[1:]]))
"""

NODE = """
const http = require("http");
const url = process.argv[1];
const direct = fetch(url).then(answer => answer.text()).catch(() => "no network");
const asked = new Promise(done => http.get({port: 3128, path: url, headers: {Host: new URL(url).host}}, answer => {
    let text = ""; answer.on("data", data => text += data); answer.on("end", () => done(text)); }));
Promise.all([direct, asked]).then(found => console.log(JSON.stringify(found)));
"""


@needs_low_ports
def test_a_confined_program_reaches_granted_hosts_with_common_libraries(run: Run, tmp_path: Path) -> None:
    """Python's use the variables; `fetch` of Node.js does not, and connects directly."""
    env = {**ENVIRONMENT, "TRUSTED": certificate("secure.test")[1]}

    async def main() -> None:
        async with serving(443, trust=server_context(tmp_path, ["secure.test"])) as secure, serving(80) as plain:
            network = Network(
                Reach.LISTED, (Endpoint("secure.test", 443), Endpoint("plain.test", 80)), (*secure.pairs, *plain.pairs)
            )
            table = {"secure.test": [secure.address], "plain.test": [plain.address], "evil.test": [plain.address]}
            urls = ["https://secure.test/", "http://plain.test/", "https://evil.test/", "http://evil.test/"]
            python = ["/usr/bin/python3", "-c", FETCH, *urls]
            node = [shutil.which("node") or "node", "-e", NODE, "http://plain.test/"]
            found = [await _run_inside(network, table, argv, env) for argv in (python, node)]
            assert found[0][:2] == ["hello", "hello"]
            assert "403 the network is not granted for evil.test, port 443" in found[0][2]
            assert "403" in found[0][3]
            assert found[1] == ["hello", "hello"]
            assert len(plain.seen) == 3

    run(main())


async def _run_inside(network: Network, table: dict[str, list[str]], argv: list[str], env: dict[str, str]) -> list[str]:
    with held_back(*argv, env=env) as held:
        sockets = await asyncio.to_thread(open_inside, held.child_pid, forwarding(DIRECT_PORT, network.loopback))
        proxy = Proxy(asyncio.get_running_loop(), sockets, network, "test", resolver=names(table))
        try:
            found: list[str] = json.loads(await asyncio.to_thread(held.finish))
            return found
        finally:
            proxy.close()
            await asyncio.sleep(0)


def test_the_helper_needs_nothing_but_the_standard_library() -> None:
    code = (
        f"import runpy, sys; runpy.run_path({listener.__file__!r}); print([n for n in sys.modules if 'plugbay' in n])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
