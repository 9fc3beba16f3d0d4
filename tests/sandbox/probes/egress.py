"""Ways past the list of hosts. `good.test` with one port is granted, and what it serves says so."""

from __future__ import annotations

import os
import re
import socket
import ssl

from .tools import World, found

SECONDS = 10


def _dial() -> socket.socket:
    host, _, port = os.environ["HTTP_PROXY"].removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def _all(connection: socket.socket) -> bytes:
    said = b""
    try:
        while piece := connection.recv(65536):
            said += piece
    except ConnectionResetError:
        pass
    return said


def _ask(request: bytes, world: World) -> str | None:
    """Success when the answer is that of the service that was not granted."""
    with _dial() as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        said = _all(connection)
    return None if world["canary"].encode() in said else _status(said)


def _status(said: bytes) -> str:
    return " ".join(line.decode() for line in re.findall(rb"HTTP/1\.\d (\d{3})", said)) or "closed"


def _get(authority: str, world: World, headers: str = "") -> str | None:
    return _ask(f"GET http://{authority}/ HTTP/1.1\r\n{headers}\r\n".encode("utf-8", "surrogateescape"), world)


def _through(authority: str, world: World) -> str | None:
    """By a tunnel."""
    inner = b"GET / HTTP/1.1\r\n\r\n"
    return _ask(f"CONNECT {authority} HTTP/1.1\r\n\r\n".encode("utf-8", "surrogateescape") + inner, world)


def other_host(world: World) -> str | None:
    """A host that is not on the list."""
    return _get(f"other.test:{world['inner']}", world)


def other_host_by_tunnel(world: World) -> str | None:
    return _through(f"other.test:{world['inner']}", world)


def other_port(world: World) -> str | None:
    """A granted host, another port."""
    return _get(f"good.test:{world['inner']}", world)


def host_below(world: World) -> str | None:
    """A name that ends like a granted one."""
    return _get(f"evil.good.test:{world['good']}", world)


def host_beyond(world: World) -> str | None:
    """A name that begins like a granted one."""
    return _get(f"good.test.evil.test:{world['good']}", world)


def loopback_of_host(world: World) -> str | None:
    return _get(f"127.0.0.1:{world['inner']}", world)


def localhost(world: World) -> str | None:
    return _through(f"localhost:{world['inner']}", world)


def nul_in_name(world: World) -> str | None:
    """A name that ends early for whoever reads it as C does."""
    return _get(f"other.test\0.good.test:{world['good']}", world)


def nul_in_tunnel(world: World) -> str | None:
    return _through(f"other.test:{world['inner']}\0.good.test:{world['good']}", world)


def user_in_name(world: World) -> str | None:
    """A granted name in front of the `@`, the real host behind it."""
    return _get(f"good.test:{world['good']}@other.test:{world['inner']}", world)


def fragment_in_name(world: World) -> str | None:
    return _get(f"other.test:{world['inner']}#good.test:{world['good']}", world)


def backslash_in_name(world: World) -> str | None:
    return _get(f"other.test:{world['inner']}\\@good.test:{world['good']}", world)


def encoded_name(world: World) -> str | None:
    """Percent signs, which some decode and some do not."""
    return _get(f"other.test%2egood.test:{world['good']}", world)


def wide_dots(world: World) -> str | None:
    """A full stop of another alphabet."""
    return _get(f"good。test:{world['inner']}", world)


def empty_name(world: World) -> str | None:
    return _get(f":{world['inner']}", world)


def two_lines(world: World) -> str | None:
    """A line end within the name begins another request."""
    return _through(f"good.test:{world['good']}\rCONNECT other.test:{world['inner']}", world)


def other_host_header(world: World) -> str | None:
    """A granted host in the first line, another one in the header that servers go by."""
    return _get(f"good.test:{world['good']}", world, f"Host: other.test:{world['inner']}\r\n")


def two_host_headers(world: World) -> str | None:
    headers = f"Host: good.test:{world['good']}\r\nHost: other.test:{world['inner']}\r\n"
    return _get(f"good.test:{world['good']}", world, headers)


def two_lengths(world: World) -> str | None:
    """A body with two ends: what comes after the first may be another request."""
    hidden = f"GET http://other.test:{world['inner']}/ HTTP/1.1\r\n\r\n"
    request = f"POST http://good.test:{world['good']}/ HTTP/1.1\r\nContent-Length: {len(hidden) + 5}\r\n"
    return _ask(f"{request}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}".encode(), world)


def second_request(world: World) -> str | None:
    """A granted request, then another one over the same connection."""
    with _dial() as connection:
        connection.sendall(f"GET http://good.test:{world['good']}/ HTTP/1.1\r\nConnection: keep-alive\r\n\r\n".encode())
        said = connection.recv(65536)
        try:
            connection.sendall(f"GET http://other.test:{world['inner']}/ HTTP/1.1\r\n\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            said += _all(connection)
        except OSError:
            pass
    return None if world["canary"].encode() in said else _status(said)


def second_request_at_once(world: World) -> str | None:
    """The same, in one piece."""
    first = f"GET http://good.test:{world['good']}/ HTTP/1.1\r\n\r\n"
    return _ask(f"{first}GET http://other.test:{world['inner']}/ HTTP/1.1\r\n\r\n".encode(), world)


def redirect(world: World) -> str | None:
    """A granted host that sends its client elsewhere."""
    with _dial() as connection:
        connection.sendall(f"GET http://good.test:{world['good']}/away HTTP/1.1\r\n\r\n".encode())
        connection.shutdown(socket.SHUT_WR)
        said = _all(connection)
    where = re.search(rb"Location: http://(\S+)/\r\n", said)
    return _get(where[1].decode(), world) if where else "no redirect"


def rebinding(world: World) -> str | None:
    """A granted name that means a granted address when it is judged, and this machine a moment later."""
    seen = [_get(f"rebind.test:{world['good']}", world) for _ in range(2)]
    return None if None in seen else " ".join(str(each) for each in seen)


def _hello(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def _greet(name: str | None, world: World) -> str | None:
    """TLS through a tunnel to a granted host: does the first message arrive there?"""
    with _dial() as connection:
        connection.sendall(f"CONNECT good.test:{world['good']} HTTP/1.1\r\n\r\n".encode())
        connection.recv(65536)
        connection.sendall(_hello(name))
        said = _all(connection)
    return None if b"heard" in said else f"alert {said[-1]}" if said[:1] == b"\x15" else _status(said)


def other_name_by_tls(world: World) -> str | None:
    """A tunnel to a granted host, in which another site of the same server is asked for."""
    return _greet("other.test", world)


def no_name_by_tls(world: World) -> str | None:
    return _greet(None, world)


def direct(world: World) -> str | None:
    """To a granted host, but past the proxy."""
    with socket.create_connection((world["address"], int(world["good"])), SECONDS) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        return found("HTTP", _all(connection))


def direct_loopback(world: World) -> str | None:
    with socket.create_connection(("127.0.0.1", int(world["inner"])), SECONDS) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        return found(world["canary"], _all(connection))


def direct_datagram(world: World) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.settimeout(SECONDS)
        ours.connect(("127.0.0.1", int(world["udp"])))
        ours.send(b"?")
        return found("!", ours.recv(10))


def abstract_socket(world: World) -> None:
    """With a network, sockets of the machine are not forbidden as such: this one is in another network."""
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(f"\0{world['abstract']}")


def path_socket(world: World) -> None:
    """And this one in a folder that is not shown."""
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(f"{world['services']}/docker.sock")
