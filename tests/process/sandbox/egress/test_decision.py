"""Where a plugin may connect to: the whole corpus of tricks, without a socket."""

from __future__ import annotations

import pytest

from plugbay.model import addresses
from plugbay.process.sandbox.egress.client_hello import Hello
from plugbay.process.sandbox.egress.decision import Refusal, check_address, check_grant, check_server_name
from plugbay.process.sandbox.egress.request import HeadParser
from plugbay.process.sandbox.policy import Endpoint, Network, Reach
from tests.process.sandbox.egress.corpus import LISTED, NAMES, ROWS, Row


def outcome(row: Row) -> str:
    """What becomes of a request, and where it goes."""
    asked = HeadParser().feed(row.head)
    assert asked is not None, "the head is not complete"
    if isinstance(asked, Refusal):
        return str(asked.status)
    found = [asked.host] if addresses.is_address(asked.host) else NAMES.get(asked.host, [])
    refusal = check_grant(row.network, asked.host, asked.port)
    refusal = refusal or check_address(row.network, asked.host, asked.port, found, ())
    return str(refusal.status) if refusal else addresses.pair(asked.host, asked.port)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ascii(row.head[:60]))
def test_each_request_of_the_corpus_gets_where_it_may_and_nowhere_else(row: Row) -> None:
    assert outcome(row) == row.outcome


def test_the_corpus_is_large_and_goes_both_ways() -> None:
    refused = [row for row in ROWS if row.outcome.isdigit()]
    assert len(refused) >= 120
    assert len(ROWS) - len(refused) >= 25


@pytest.mark.parametrize(
    ("closed", "advice"),
    [
        ((), 'add "a.test:2" to network in the plugin\'s sandbox settings in plugbay.toml'),
        (((Endpoint("a.test", 3), "net:a.test:3"),), 'add "a.test:2" to network'),
        (((Endpoint("a.test", 2), "net:a.test:2"), (None, "net:*")), "grant net:a.test:2"),
        (((Endpoint("a.test"), "network=a.test"),), "grant network=a.test"),
        (((Endpoint("b.test"), "network=b.test"), (None, "network")), "grant network"),
    ],
)
def test_what_would_open_a_host_is_named_in_the_words_of_the_plugins_own_contract(
    closed: tuple[tuple[Endpoint | None, str], ...], advice: str
) -> None:
    refusal = check_grant(Network(Reach.LISTED, (Endpoint("a.test", 1),), closed=closed), "a.test", 2)
    assert refusal is not None and refusal.status == 403
    assert refusal.why.startswith(f"the network is not granted for a.test, port 2; {advice}")


def test_an_address_that_the_operator_opened_is_open_on_that_port_alone() -> None:
    network = Network(Reach.LISTED, LISTED.doors, ("10.0.0.5:443", "[::1]:80"))
    found = ["10.0.0.5"]
    assert check_address(network, "inside.example.com", 443, found, ()) is None
    assert check_address(network, "inside.example.com", 444, found, ()) is not None
    assert check_address(network, "inside.example.com", 443, [*found, "10.0.0.6"], ()) is not None
    assert check_address(network, "localhost", 80, ["::1"], ()) is None


def test_an_address_of_this_machine_is_not_public_unless_the_operator_opened_it() -> None:
    found, ours = ["8.8.8.8", "8.8.4.4"], frozenset({"8.8.4.4"})
    assert check_address(Network(Reach.ANY), "a.test", 443, found, ()) is None
    refusal = check_address(Network(Reach.ANY), "a.test", 443, found, ours)
    assert refusal is not None and "(this machine)" in refusal.why
    assert check_address(Network(Reach.ANY, private=("8.8.4.4:443",)), "a.test", 443, found, ours) is None


@pytest.mark.parametrize("address", ["10.0.0.5", "64:ff9b::a00:5", "fd00:ec2::254", "::ffff:10.0.0.5"])
def test_the_operator_sees_a_private_address_and_the_plugin_does_not(address: str) -> None:
    refusal = check_address(LISTED, "inside.example.com", 443, [address], ())
    assert refusal is not None
    assert refusal.address == address
    assert address not in refusal.why and "10.0.0.5" not in refusal.why
    assert "allow_private" in refusal.why


@pytest.mark.parametrize(
    ("hello", "host", "allowed"),
    [
        (Hello("a.test"), "a.test", True),
        (Hello("b.test"), "a.test", False),
        (Hello("a.test."), "a.test", False),
        (Hello("x.a.test"), "a.test", False),
        (Hello(None), "a.test", False),
        (Hello("a.test", hidden=True), "a.test", False),
        (Hello(None), "8.8.8.8", True),
        (Hello("8.8.8.8"), "8.8.8.8", False),
        (Hello("a.test"), "8.8.8.8", False),
        (Hello(None, hidden=True), "2606:4700::1", False),
    ],
)
def test_a_tunnel_asks_by_tls_for_the_name_it_was_opened_for(hello: Hello, host: str, allowed: bool) -> None:
    refusal = check_server_name(hello, host)
    assert (refusal is None) is allowed
    assert refusal is None or "b.test" not in refusal.why  # a name that nobody has read strictly is not repeated
