"""The proxy of a plugin's network: one reading of each request, however it arrives, and nothing refused goes on."""

from __future__ import annotations

from plugbay.model import addresses
from plugbay.process.sandbox.egress import dns, request
from plugbay.process.sandbox.egress.decision import Hello, Refusal, read_hello
from plugbay.process.sandbox.egress.request import Chunks, HeadParser, Request, parse_authority
from tests.fuzz.targets import pieces


def check(data: bytes) -> None:
    """The first byte says what the others are, the second how large the pieces are."""
    if len(data) >= 2:
        KINDS[data[0] % len(KINDS)](data[2:], data[1])


def _head(stream: bytes, size: int) -> None:
    whole, rest = _read_head([stream])
    again, piecemeal = _read_head(pieces(stream, size))
    assert again == whole, "the pieces change the request"
    if not isinstance(whole, Request):
        return
    assert piecemeal == rest
    assert addresses.clean_host(whole.host) == whole.host and 0 < whole.port < 65536
    if whole.path is None:
        return
    sent = whole.encoded()
    head, end, more = sent.partition(b"\r\n\r\n")
    assert end and not more and b"\n" not in head.replace(b"\r\n", b""), "a header smuggles another line"
    lines = head.decode("latin-1").split("\r\n")
    named = [line.partition(":")[0].lower() for line in lines[1:]]
    assert named.count("host") == 1 and named.count("connection") == 1
    assert named.count("content-length") + named.count("transfer-encoding") <= 1
    assert not any(name.startswith("proxy-") for name in named)
    assert lines[0].count(" ") == 2, "a server could read another target"


def _read_head(chunks: list[bytes]) -> tuple[Request | Refusal | None, bytes]:
    parser, found = HeadParser(), None
    for chunk in chunks:
        found = parser.feed(chunk)
        assert found is not None or len(parser._buffer) < request.MAX_HEAD
    return found, parser.rest


def _chunks(stream: bytes, size: int) -> None:
    whole, sent = _read_chunks([stream])
    piecemeal, same = _read_chunks(pieces(stream, size))
    assert (piecemeal.done, piecemeal.problem, same) == (whole.done, whole.problem, sent)
    assert not (whole.done and whole.problem)
    if whole.done:
        again, third = _read_chunks([sent])
        assert again.done and third == sent, "the body that goes on is not a body of one reading"


def _read_chunks(chunks: list[bytes]) -> tuple[Chunks, bytes]:
    body = Chunks()
    sent = b"".join(body.feed(chunk) for chunk in chunks)
    return body, sent


def _authority(stream: bytes, size: int) -> None:
    text = stream.decode("latin-1")
    where = parse_authority(text, 80)
    if where is not None:
        assert parse_authority(addresses.pair(*where)) == where, "a host has two readings"
        assert addresses.is_address(where[0]) or addresses.denied(where[0]) == "not an address"
    if addresses.pair_problem(text) is None:
        assert parse_authority(text) is not None


def _hello(stream: bytes, size: int) -> None:
    whole = read_hello(stream)
    for end in range(0, len(stream), max(size, 1)):
        early = read_hello(stream[:end])
        assert early is None or early == whole, "the beginning of a hello is read otherwise than all of it"
    if isinstance(whole, Hello) and whole.name is not None:
        assert whole.name == whole.name.lower() and whole.name.isascii()


def _dns(stream: bytes, size: int) -> None:
    query = dns.read_query(stream)
    if query is None:
        return
    for answer in (query.answer(dns.NO_SUCH_NAME), query.answer(dns.NO_ERROR, "10.0.0.1")):
        assert answer[:2] == stream[:2] and query.question in answer and len(answer) <= dns.MAX_QUERY + 16


KINDS = (_head, _chunks, _authority, _hello, _dns)
