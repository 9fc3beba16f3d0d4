"""Connections on behalf of API callers: every address is checked, and only a checked address is connected to."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable

import httpcore2
import pytest

from plugbay.model import addresses
from plugbay.packages import checked_transport
from plugbay.packages.checked_transport import CheckedBackend
from plugbay.packages.connection import Connection
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.reference import parse
from tests.packages import lying_registry
from tests.packages.lying_registry import Answer
from tests.support.requirements import requirement

DATA = b"some bytes"
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
BLOB = f"/v2/some/thing/blobs/{DIGEST}"


def resolving(names: dict[str, list[str]], asked: list[str]) -> Callable[[str, int], list[str]]:
    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return names[host]

    return resolve


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "::ffff:127.0.0.1", "127.1", "2130706433", "0x7f.1", "a b"],
)
def test_an_address_that_is_not_public_is_not_connected_to(host: str) -> None:
    with pytest.raises(httpcore2.ConnectError):
        CheckedBackend(()).connect_tcp(host, 443, 0.01)


def test_a_name_is_resolved_once_and_the_checked_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved: list[str] = []
    names = {"registry.test": ["127.0.0.1"], "mixed.test": ["127.0.0.1", "10.0.0.5"]}
    monkeypatch.setattr(checked_transport, "_resolve", resolving(names, resolved))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        opened = CheckedBackend({f"127.0.0.1:{port}"})
        opened.connect_tcp("registry.test", port, 10).close()
        listener.accept()[0].close()
        assert resolved == ["registry.test"]
        with pytest.raises(httpcore2.ConnectError, match=r"mixed.test is at 10.0.0.5.*allow_private") as closed:
            opened.connect_tcp("mixed.test", port, 10)
        assert "(private)" in str(closed.value)
        with pytest.raises(httpcore2.ConnectError, match="loopback"):
            CheckedBackend(()).connect_tcp("registry.test", port, 10)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


ADDRESSES = ["10.0.0.5", "100.64.0.1", "192.168.1.1", "172.16.0.1", "fd00::1", "fe80::1", "169.254.169.254", "::1"]
ADDRESSES += ["::ffff:10.0.0.5", "64:ff9b::a00:5", "2002:a00:5::1", "168.63.129.16", "0.0.0.0", "224.0.0.1"]


@requirement("vai:control-package-addresses")
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_name_that_resolves_to_an_address_that_is_not_public_is_not_connected_to(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_transport, "_resolve", lambda host, port: ["93.184.216.34", address])
    with pytest.raises(httpcore2.ConnectError, match="is not a public address"):
        CheckedBackend(()).connect_tcp("registry.test", 443, 0.01)


@requirement("vai:control-package-addresses")
def test_a_name_that_the_operator_allows_may_be_private_and_never_a_metadata_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[str] = ["127.0.0.1"]
    monkeypatch.setattr(checked_transport, "_resolve", lambda host, port: found)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        named = CheckedBackend((), {f"registry.test:{port}"})
        named.connect_tcp("registry.test", port, 10).close()
        for host, other in (("other.test", port), ("registry.test", port + 1), ("127.0.0.1", port)):
            with pytest.raises(httpcore2.ConnectError, match=r"\[registries"):
                named.connect_tcp(host, other, 0.01)
        for address in ("169.254.169.254", "168.63.129.16", "fe80::1", "::ffff:127.0.0.1"):
            found[:] = [address]
            with pytest.raises(httpcore2.ConnectError, match="is not a public address"):
                named.connect_tcp("registry.test", port, 0.01)


def test_a_public_address_of_this_machine_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "denied", lambda address: None)  # as if loopback were public
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(httpcore2.ConnectError, match="this machine"):
            CheckedBackend(()).connect_tcp("127.0.0.1", port, 10)
        CheckedBackend({f"127.0.0.1:{port}"}).connect_tcp("127.0.0.1", port, 10).close()


def asked(connection: Connection) -> Reason | None:
    """Request a blob; returns why it was refused."""
    try:
        with connection, connection.blob(DIGEST):
            return None
    except PackageRefused as refused:
        return refused.reason


@pytest.mark.parametrize(
    ("status", "header", "value", "without_rules"),
    [(307, "location", "{}", None), (401, "www-authenticate", 'Bearer realm="{}"', Reason.UNAUTHORIZED)],
    ids=["redirect", "token service"],
)
def test_a_registry_leads_to_no_other_server_of_a_private_network(
    status: int, header: str, value: str, without_rules: Reason | None
) -> None:
    answers: dict[str, Answer] = {}
    with (
        lying_registry.serve({"/there": Answer(DATA)}) as (other, seen_there),
        lying_registry.serve(answers) as (address, seen),
    ):
        answers[BLOB] = Answer(b"", status, ((header, value.format(f"http://{other}/there")),))
        place = parse(f"{address}/some/thing")
        assert asked(Connection(place, plain_http=True, opened={address})) is Reason.REGISTRY_FAILED
        assert len(seen) == 1 and not seen_there
        assert asked(Connection(place, plain_http=True)) is without_rules, "the operator's own command goes there"
        assert len(seen_there) == 1


def test_no_proxy_of_the_environment_carries_a_request_past_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    with lying_registry.serve({}) as (proxy, seen):
        for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://{proxy}")
        monkeypatch.setattr(checked_transport, "_resolve", resolving({"inside.test": ["10.0.0.5"]}, []))
        with (
            Connection(parse("inside.test/a"), opened={proxy}) as connection,
            pytest.raises(PackageRefused, match=r"10\.0\.0\.5"),
        ):
            connection.has_blob(DIGEST)
        assert seen == []
