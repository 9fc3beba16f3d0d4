"""Requests that try to get somewhere, and what comes of them: data for the tests of `request`, `verdict` and `proxy`.

`outcome` is `host:port` for a request that is let through, or the status it is refused with. Both kinds stand side by
side, so that no rule can pass by refusing everything.
"""

from __future__ import annotations

from typing import NamedTuple

from plugbay.process.sandbox.policy import Endpoint, Network, Reach

LISTED = Network(
    Reach.LISTED,
    (
        Endpoint("example.com", 443),
        Endpoint("example.com", 80),
        Endpoint("api.example.com"),
        Endpoint("xn--bcher-kva.example", 443),
        Endpoint("inside.example.com"),
        Endpoint("mixed.example.com"),
        Endpoint("mapped.example.com"),
        Endpoint("zone.example.com"),
        Endpoint("nowhere.example.com"),
        Endpoint("localhost"),
        Endpoint("127.0.0.1"),
        Endpoint("169.254.169.254", 80),
        Endpoint("*.wild.example"),
    ),
)
ANY = Network(Reach.ANY)
NONE = Network(Reach.NONE, (Endpoint("example.com", 443),))

PUBLIC = "93.184.216.34"
NAMES = {
    "example.com": [PUBLIC, "2606:2800:220:1::1"],
    "api.example.com": [PUBLIC],
    "xn--bcher-kva.example": [PUBLIC],
    "inside.example.com": ["10.0.0.5"],
    "mixed.example.com": [PUBLIC, "192.168.1.1"],
    "mapped.example.com": ["::ffff:169.254.169.254"],
    "zone.example.com": ["fe80::1%eth0"],
    "nowhere.example.com": [],
    "localhost": ["127.0.0.1", "::1"],
    "metadata.google.internal": ["169.254.169.254"],
    "instance-data.ec2.internal": ["fd00:ec2::254"],
    "rebind.test": ["127.0.0.1"],
    "deadbeef.test": [PUBLIC],
}


class Row(NamedTuple):
    head: bytes
    outcome: str
    network: Network = LISTED


def connect(target: str, *headers: str) -> bytes:
    return _head(f"CONNECT {target} HTTP/1.1", headers)


def get(url: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    return _head(f"{method} {url} HTTP/{version}", headers)


def _head(first: str, headers: tuple[str, ...]) -> bytes:
    return "\r\n".join([first, *headers, "", ""]).encode("latin-1")


def _through() -> list[Row]:
    """What is let through."""
    return [
        Row(connect("example.com:443"), "example.com:443"),
        Row(connect("EXAMPLE.com:443", "Host: example.COM:443"), "example.com:443"),
        Row(connect("example.com:443", "Host: example.com"), "example.com:443"),
        Row(connect("example.com:443", "Content-Length: 0"), "example.com:443"),
        Row(connect("example.com:443", "Proxy-Connection: keep-alive", "User-Agent: x"), "example.com:443"),
        Row(b"CONNECT example.com:443 HTTP/1.0\r\n\r\n", "example.com:443"),
        Row(connect("example.com:80"), "example.com:80"),
        Row(connect("api.example.com:443"), "api.example.com:443"),
        Row(connect("api.example.com:1"), "api.example.com:1"),
        Row(connect("api.example.com:65535"), "api.example.com:65535"),
        Row(connect("xn--bcher-kva.example:443"), "xn--bcher-kva.example:443"),
        Row(get("http://example.com/"), "example.com:80"),
        Row(get("http://example.com"), "example.com:80"),
        Row(get("http://example.com?q=http://evil.test/"), "example.com:80"),
        Row(get("http://example.com/@evil.test/"), "example.com:80"),
        Row(get("http://example.com/%0d%0aHost:%20evil.test"), "example.com:80"),
        Row(get("HTTP://Example.Com:80/", "Host: example.com"), "example.com:80"),
        Row(get("http://example.com/", "Host: example.com:80"), "example.com:80"),
        Row(get("http://api.example.com:8080/x", "Host: api.example.com:8080"), "api.example.com:8080"),
        Row(get("http://example.com/", method="POST"), "example.com:80"),
        Row(get("http://example.com/", "Content-Length: 0", method="POST"), "example.com:80"),
        Row(get("http://example.com/", "Expect: 100-continue", method="PUT"), "example.com:80"),
        Row(get("http://example.com/", "X-Empty:", "X-Tab: a\tb"), "example.com:80"),
        Row(get("http://example.com/", version="1.0"), "example.com:80"),
        Row(connect("deadbeef.test:22"), "deadbeef.test:22", ANY),
        Row(connect("8.8.8.8:53"), "8.8.8.8:53", ANY),
        Row(connect("[2606:4700:4700::1111]:443"), "[2606:4700:4700::1111]:443", ANY),
        Row(connect("[2606:4700:4700:0:0:0:0:1111]:443"), "[2606:4700:4700::1111]:443", ANY),
        Row(connect("[64:ff9b::808:808]:443"), "[64:ff9b::808:808]:443", ANY),
        Row(get("http://8.8.8.8/"), "8.8.8.8:80", ANY),
    ]


def _not_granted() -> list[Row]:
    """Well-formed, and not for this plugin."""
    hosts = """evil.test evilexample.com example.com.evil.test xexample.com example.co example.comm sub.example.com
        a.wild.example wild.example evil.api.example.com api-example.com 8.8.8.8 93.184.216.34 [2606:2800:220:1::1]
        metadata.google.internal xn--80ak6aa92e.com rebind.test ffff 0x7f.example""".split()
    rows = [Row(connect(f"{host}:443"), "403") for host in hosts]
    rows += [Row(get(f"http://{host}/"), "403") for host in hosts]
    rows += [Row(connect(f"example.com:{port}"), "403") for port in (22, 81, 444, 4430, 8443)]
    rows += [Row(get("http://example.com:443/"), "example.com:443"), Row(get("http://example.com:8080/"), "403")]
    rows += [Row(connect("example.com:443"), "403", NONE), Row(connect("example.com:443"), "403", Network())]
    rows += [Row(connect("example.com:443"), "403", Network(Reach.LISTED))]
    rows += [Row(connect("example.com:443"), "403", Network(Reach.HOST, (Endpoint("example.com"),)))]
    return rows


def _not_public() -> list[Row]:
    """Granted, but at an address that nobody is connected to."""
    names = "inside.example.com mixed.example.com mapped.example.com zone.example.com localhost 127.0.0.1".split()
    rows = [Row(connect(f"{name}:443"), "403") for name in names]
    rows += [Row(get(f"http://{name}/"), "403") for name in names]
    rows += [Row(get("http://169.254.169.254/latest/meta-data/"), "403"), Row(connect("nowhere.example.com:1"), "502")]
    anywhere = """127.0.0.1 127.9.9.9 0.0.0.0 10.0.0.1 172.16.0.1 172.31.255.255 192.168.0.1 100.64.0.1 169.254.169.254
        100.100.100.200 168.63.129.16 192.0.0.1 192.0.2.1 192.88.99.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
        239.255.255.255 240.0.0.1 255.255.255.255 [::] [::1] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1]
        [::FFFF:10.0.0.1] [::127.0.0.1] [::ffff:0:127.0.0.1] [64:ff9b::7f00:1] [64:ff9b::169.254.169.254]
        [64:ff9b:1::1] [2002:7f00:1::] [2002:a9fe:a9fe::1] [2001:0:53aa:64c:0:7ffe:80ff:fffe] [2001:db8::1] [3fff::1]
        [5f00::1] [100::1] [fc00::1] [fd00:ec2::254] [fe80::1] [fec0::1] [ff02::1] [2606:4700::5efe:7f00:1]
        [2606:4700::200:5efe:10.0.0.1] [4000::1] localhost LOCALHOST metadata.google.internal
        instance-data.ec2.internal rebind.test mixed.example.com""".split()
    return rows + [Row(connect(f"{host}:443"), "403", ANY) for host in anywhere]


def _odd_hosts() -> list[Row]:
    """Hosts with two readings, or none."""
    hosts = """0x7f.1 0x7f000001 0x7f.0.0.1 2130706433 127.1 127.0.1 0177.0.0.1 017700000001 127.0.0.01 127.0.0.1.
        127.0.0.256 1.2.3.4.5 0 0x 1 example.com. example.com.. .example.com example..com -example.com example-.com
        exa_mple.com *.example.com * example.com%2e example%2ecom example%00.com evil.test%00.example.com
        user@example.com user:pw@example.com evil.test@example.com example.com@evil.test example.com#.evil.test
        example.com\\.evil.test example.com\\@evil.test example.com/evil.test example.com,evil.test
        example.com;evil.test evil.test?.example.com b\u00fccher.example ex\u00e1mple.com 127\xb70\xb70\xb71
        [fe80::1%eth0] [fe80::1%25eth0] [::1 ::1] ::1 [127.0.0.1] [example.com] [] [:::] [::1]x x[::1]
        [::ffff:127.1] example.com:443 """.split()
    hosts += ["a" * 64 + ".com", ".".join(["a" * 60] * 5), ""]
    rows = [Row(connect(f"{host}:443"), "400", ANY) for host in hosts]
    in_urls = "0x7f.1 2130706433 127.1 example.com. evil.test@example.com example.com@evil.test example.com\\.evil.test"
    return rows + [Row(get(f"http://{host}/"), "400", ANY) for host in in_urls.split()]


def _odd_ports() -> list[Row]:
    ports = "0 00 0443 65536 99999 443443 -1 +443 4e2 0x1bb 443.0 443/ 443:80 443@evil.test \uff14\uff14\uff13".split()
    rows = [Row(f"CONNECT api.example.com:{port} HTTP/1.1\r\n\r\n".encode(), "400") for port in ports]
    rows += [Row(connect("example.com"), "400"), Row(connect("example.com:"), "400"), Row(connect(":443"), "400")]
    return [*rows, Row(get("http://api.example.com:0/"), "400"), Row(get("http://api.example.com:/"), "400")]


def _odd_forms() -> list[Row]:
    """Not a tunnel and not a whole URL, or not HTTP/1.1 at all."""
    targets = """/ * example.com //example.com/ https://example.com/ ftp://example.com/ file:///etc/passwd ws://example.com/
        gopher://example.com/ http:/example.com/ http:example.com http:///x http:// http://example.com/#@evil.test
        http://example.com#x http://example.com/a\\b http://example.com/<x> unix:/run/docker.sock""".split()
    rows = [Row(get(target), "400") for target in targets]
    rows += [Row(connect(f"http://example.com:443{end}"), "400") for end in ("", "/")]
    lines = [
        b"GET http://example.com/ HTTP/2.0", b"GET http://example.com/ HTTP/0.9", b"GET http://example.com/",
        b"GET http://example.com/ HTTP/1.1 ", b" GET http://example.com/ HTTP/1.1", b"get http://example.com/ HTTP/1.1",
        b"GET  http://example.com/ HTTP/1.1", b"GET\thttp://example.com/\tHTTP/1.1", b"", b"PRI * HTTP/2.0",
        b"GET http://example.com/ http/1.1", b"GET http://example.com/a b HTTP/1.1", b"\x16\x03\x01\x02\x00",
        b"G\0T http://example.com/ HTTP/1.1", b"CONNECT example.com\0.evil.test:443 HTTP/1.1",
        b"CONNECT evil.test\0.example.com:443 HTTP/1.1", b"CONNECT example.com:443\0 HTTP/1.1",
        b"CONNECT example.com:443\rX HTTP/1.1", b"GET http://example.com/\xff HTTP/1.1", b"\x05\x01\x00",
    ]  # fmt: skip
    return rows + [Row(line + b"\r\n\r\n", "400") for line in lines]


def _odd_headers() -> list[Row]:
    """Lines that another parser could read differently, and bodies whose end is not certain."""
    first = b"POST http://example.com/ HTTP/1.1\r\n"
    blocks = [
        b"X: a\n\r\n", b"X: a\rY: b\r\n\r\n", b"X: a\0b\r\n\r\n", b"X: a\r\n b\r\n\r\n", b"X: a\r\n\tb\r\n\r\n",
        b" X: a\r\n\r\n", b"X : a\r\n\r\n", b"X\r\n\r\n", b": a\r\n\r\n", b"X(: a\r\n\r\n", b"X: \x7f\r\n\r\n",
        b"X: \x1b[2J\r\n\r\n", b"\r\r\n\r\n", b"X: a\r\r\n\r\n", b"\n", b"X\xff: a\r\n\r\n",
    ]  # fmt: skip
    rows = [Row(first + block, "400") for block in blocks]
    headers = [
        ("Host: evil.test",), ("Host: example.com", "Host: example.com"), ("Host: example.com", "host: evil.test"),
        ("Host: example.com:8080",), ("Host: example.com@evil.test",), ("Host:",), ("Host: example.com, evil.test",),
        ("Host: example.com.",), ("Content-Length: 5", "Content-Length: 5"), ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 5, 5",), ("Content-Length: +5",), ("Content-Length: -5",), ("Content-Length: 0x5",),
        ("Content-Length: 5 5",), ("Content-Length:",), ("Content-Length: 1_0",), ("Content-Length: \xb2",),
        ("Content-Length: 1000000000000000",), ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 0"), ("Transfer-Encoding: chunked",) * 2,
        ("Transfer-Encoding: gzip, chunked",), ("Transfer-Encoding: identity",), ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked, identity",), ("Transfer-Encoding: \x0bchunked",), ("Transfer-Encoding:",),
        ("Transfer-Encoding : chunked",), ("Expect: 200-ok",), ("Expect: 100-continue", "Expect: 100-continue"),
    ]  # fmt: skip
    rows += [Row(get("http://example.com/", *lines, method="POST"), "400") for lines in headers]
    rows += [Row(get("http://example.com/", "Transfer-Encoding: chunked", version="1.0"), "400")]
    tunnels = ("Content-Length: 5", "Transfer-Encoding: chunked", "Host: evil.test:443", "Host: example.com:80")
    return rows + [Row(connect("example.com:443", line), "400") for line in tunnels]


def _too_large() -> list[Row]:
    many = [f"X-{number}: a" for number in range(101)]
    return [
        Row(get("http://example.com/", *many), "431"),
        Row(get("http://example.com/", *many[:100]), "example.com:80"),
        Row(get("http://example.com/" + "a" * (16 << 10)), "431"),
        Row(get("http://example.com/", "X: " + "a" * (16 << 10)), "431"),
        Row(get("http://example.com/", "X: " + "a" * 16_000), "example.com:80"),
        Row(b"A" * (16 << 10), "431"),
        Row(b"\0" * (16 << 10), "431"),
    ]


ROWS: list[Row] = [
    *_through(),
    *_not_granted(),
    *_not_public(),
    *_odd_hosts(),
    *_odd_ports(),
    *_odd_forms(),
    *_odd_headers(),
    *_too_large(),
]
