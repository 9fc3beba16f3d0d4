"""Networks that wait for programs: each is for one, has nothing but loopback, and the thread is out of it again."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest

from plugbay.process.sandbox import network
from plugbay.process.sandbox.network import Networks
from tests.process.helpers import open_fds
from tests.process.sandbox.test_mounts import on_a_thread
from tests.support.machine import needs_root
from tests.support.patience import PATIENCE


def here() -> int:
    """The network of the calling thread."""
    return os.stat("/proc/thread-self/ns/net").st_ino


@needs_root
def test_a_thread_is_in_a_network_of_its_own_and_then_where_it_was() -> None:
    host = here()

    def work() -> None:
        with Networks().enter_new():
            assert here() != host
            assert network.namespace_of("self") == host, "no other thread is in it"
        assert here() == host

    on_a_thread(work)


@needs_root
def test_what_is_started_there_stays_there_and_no_network_is_used_twice() -> None:
    networks = Networks()

    def work() -> None:
        with networks.enter_new():
            first = subprocess.Popen(["sleep", "600"])
        try:
            networks.prepare_next()
            with networks.enter_new():
                assert here() != network.namespace_of(first.pid)
            assert network.namespace_of(first.pid) not in (0, here())
        finally:
            first.kill()
            first.wait(PATIENCE)

    on_a_thread(work)


@needs_root
def test_a_prepared_network_is_used_by_the_next_program_and_only_once() -> None:
    networks = Networks()
    host = here()

    def work() -> None:
        with networks.enter_new():
            assert networks._waiting == []
            assert here() == waiting

    on_a_thread(networks.prepare_next)
    networks.prepare_next()
    (waiting,) = (os.fstat(each.fd).st_ino for each in networks._waiting)
    on_a_thread(work)
    assert here() == host != waiting


@needs_root
def test_a_failure_inside_brings_the_thread_back_and_uses_the_network_up() -> None:
    networks = Networks()
    host = here()

    def work() -> None:
        networks.prepare_next()
        with pytest.raises(RuntimeError, match="no program"), networks.enter_new():
            raise RuntimeError("no program")
        assert here() == host
        assert networks._waiting == []

    on_a_thread(work)


@needs_root
def test_there_is_loopback_and_nothing_else() -> None:
    def work() -> None:
        with Networks().enter_new():
            assert [name for _, name in socket.if_nameindex()] == ["lo"]
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname(), PATIENCE).close()
            with pytest.raises(OSError, match="unreachable"):
                socket.create_connection(("192.0.2.1", 80), PATIENCE)

    on_a_thread(work)


@needs_root
def test_nothing_stays_open_but_the_one_that_waits_until_it_is_closed() -> None:
    networks = Networks()
    before = open_fds()

    def work() -> None:
        with networks.enter_new():
            pass
        networks.prepare_next()

    on_a_thread(work)
    assert open_fds() == before + 1
    networks.close()
    assert open_fds() == before


def test_where_no_network_can_be_made_the_next_start_says_so_and_not_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "CLONE_NEWNET", -1)
    networks = Networks()
    networks.prepare_next()
    with pytest.raises(OSError, match="unshare"), networks.enter_new():
        pass


def test_a_process_that_is_gone_is_in_no_network() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        assert network.namespace_of(process.pid) == network.namespace_of("self") == here()
        process.kill()
    assert network.namespace_of(process.pid) == 0
