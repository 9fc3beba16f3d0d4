"""Challenges, credentials, and requests to real and lying registries."""

from __future__ import annotations

import hashlib
import itertools
import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from plugbay.packages import checked_transport
from plugbay.packages import connection as connections
from plugbay.packages.connection import PUSH, Connection
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.reference import Reference, Registries, parse
from tests.packages import lying_registry, token_service
from tests.packages.lying_registry import Answer
from tests.packages.registry_server import serve
from tests.support.requirements import requirement


def test_a_challenge_is_read() -> None:
    text = 'Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push"'
    found = connections.parse_challenge(text)
    assert found.scheme == "bearer"
    assert found.parameters["realm"] == "https://auth.example/token"
    assert found.parameters["scope"] == "repository:a/b:pull,push"
    assert connections.parse_challenge('Basic realm="a \\"quoted\\" one"').parameters == {"realm": 'a "quoted" one'}
    assert connections.parse_challenge("") == connections.Challenge("", {})


def test_the_file_of_docker_login_is_found_where_docker_looks() -> None:
    assert connections.docker_config({"HOME": "/home/ada"}) == Path("/home/ada/.docker/config.json")
    assert connections.docker_config({"HOME": "/home/ada", "DOCKER_CONFIG": "/etc/d"}) == Path("/etc/d/config.json")


def write(folder: Path, document: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


def test_credentials_are_those_of_the_registry(tmp_path: Path) -> None:
    header = connections.basic("ada", "open:sesame").removeprefix("Basic ")
    path = write(tmp_path, {"auths": {"r.example": {"auth": header}, "https://s.example": {"auth": header}}})
    assert connections.credentials("r.example", path) == ("ada", "open:sesame")
    assert connections.credentials("s.example", path) == ("ada", "open:sesame")
    assert connections.credentials("t.example", path) is None


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"auths": []},
        {"auths": {"r.example": {}}},
        {"auths": {"r.example": {"auth": 1}}},
        {"auths": {"r.example": {"auth": "bm9jb2xvbg=="}}},
        {"credsStore": "helper", "auths": {"r.example": {}}},
    ],
)
def test_a_file_without_them_has_none(tmp_path: Path, document: object) -> None:
    assert connections.credentials("r.example", write(tmp_path, document)) is None
    assert connections.credentials("r.example", tmp_path / "gone") is None


DATA = b"some bytes"
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"

HTPASSWD = "ada:$2y$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n"
"""htpasswd hash of `open sesame`."""


def connect(address: str, name: str = "some/thing") -> Connection:
    return Connection(parse(f"{address}/{name}"), plain_http=True, actions=PUSH)


@pytest.fixture
def logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write the file of `docker login`."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    def log_in(address: str, user: str = "ada", password: str = "open sesame") -> None:
        auth = connections.basic(user, password).removeprefix("Basic ")
        (tmp_path / "config.json").write_text(json.dumps({"auths": {address: {"auth": auth}}}))

    return log_in


def test_a_blob_goes_to_a_real_registry_and_comes_back(registry: str) -> None:
    with connect(registry) as connection:
        assert not connection.has_blob(DIGEST)
        connection.put_blob(DIGEST, len(DATA), lambda: [DATA[:4], DATA[4:]])
        assert connection.has_blob(DIGEST)
        with connection.blob(DIGEST) as pieces:
            assert b"".join(pieces) == DATA


def test_a_real_registry_refuses_a_blob_with_another_digest(registry: str) -> None:
    with connect(registry) as connection, pytest.raises(PackageRefused) as caught:
        connection.put_blob(f"sha256:{'0' * 64}", len(DATA), lambda: [DATA])
    assert caught.value.reason is Reason.REGISTRY_FAILED
    assert "DIGEST_INVALID" in caught.value.message


def test_a_missing_manifest_and_a_missing_blob_are_distinguished(registry: str) -> None:
    with connect(registry) as connection:
        assert connection.manifest(parse(f"{registry}/some/thing:gone"), "application/json", 100) is None
        with pytest.raises(PackageRefused) as caught, connection.blob(f"sha256:{'0' * 64}"):
            pass
    assert caught.value.reason is Reason.NOT_FOUND


@pytest.fixture(params=["basic", "token"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A real registry with authentication: by password, or by the token of another service."""
    if request.param == "basic":
        (tmp_path / "htpasswd").write_text(HTPASSWD)
        section = {"htpasswd": {"realm": "test", "path": str(tmp_path / "htpasswd")}}
        with serve(tmp_path / "registry", auth=section) as address:
            yield address
    else:
        with token_service.serve(tmp_path) as section, serve(tmp_path / "registry", auth=section) as address:
            yield address


@requirement("vai:package-oci")
def test_a_logged_in_user_may_push_and_pull(guarded: str, logged_in: Callable[..., None]) -> None:
    logged_in(guarded)
    with connect(guarded) as connection:
        connection.put_blob(DIGEST, len(DATA), lambda: [DATA])
        with connection.blob(DIGEST) as pieces:
            assert b"".join(pieces) == DATA


def test_an_unknown_user_gets_a_hint(guarded: str, logged_in: Callable[..., None]) -> None:
    for password in (None, "wrong"):
        if password:
            logged_in(guarded, password=password)
        with connect(guarded) as connection, pytest.raises(PackageRefused, match=f"docker login {guarded}") as caught:
            connection.put_blob(DIGEST, len(DATA), lambda: [DATA])
        assert caught.value.reason is Reason.UNAUTHORIZED
        assert "wrong" not in str(caught.value)


@requirement("vai:package-tls")
def test_a_registry_elsewhere_is_never_asked_without_tls() -> None:
    with pytest.raises(PackageRefused, match="TLS is required") as caught:
        Connection(parse("registry.example/a"), plain_http=True)
    assert caught.value.reason is Reason.INSECURE_TRANSPORT


@requirement("vai:package-tls")
def test_tls_is_the_default_and_a_registry_that_has_none_is_not_believed(registry: str) -> None:
    with Connection(parse(f"{registry}/a")) as connection, pytest.raises(PackageRefused) as caught:
        connection.has_blob(DIGEST)
    assert caught.value.reason is Reason.REGISTRY_FAILED
    assert "--plain-http" in caught.value.hint


def certificate(folder: Path) -> dict[str, str]:
    """A self-signed certificate for this machine."""
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost "
        "-addext subjectAltName=IP:127.0.0.1 -keyout tls.key -out tls.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return {"certificate": str(folder / "tls.pem"), "key": str(folder / "tls.key")}


@requirement("vai:package-tls")
def test_a_certificate_counts_only_if_the_machine_trusts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    http = {"addr": "127.0.0.1:0", "secret": "of this test", "tls": certificate(tmp_path)}
    with serve(tmp_path / "registry", http=http) as address:
        with Connection(parse(f"{address}/a")) as connection, pytest.raises(PackageRefused, match="certificate"):
            connection.has_blob(DIGEST)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.pem"))
        with Connection(parse(f"{address}/a")) as connection:
            assert not connection.has_blob(DIGEST)
        (tmp_path / "other").mkdir()
        certificate(tmp_path / "other")
        (tmp_path / "other" / "tls.pem").replace(tmp_path / "tls.pem")
        with Connection(parse(f"{address}/a")) as connection, pytest.raises(PackageRefused, match="certificate"):
            connection.has_blob(DIGEST)


def test_an_unreachable_registry_is_reported_at_once() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with connect(f"127.0.0.1:{port}") as connection, pytest.raises(PackageRefused) as caught:
        connection.has_blob(DIGEST)
    assert caught.value.message == f"127.0.0.1:{port} cannot be reached: Connection refused"
    assert caught.value.hint == "check its name, and that it runs"


def test_credentials_go_to_the_registry_and_nowhere_else(logged_in: Callable[..., None]) -> None:
    with lying_registry.serve({"/elsewhere": Answer(DATA)}) as (other, seen_there):
        away = (("location", f"http://localhost:{other.rpartition(':')[2]}/elsewhere"),)
        wants = (("www-authenticate", 'Basic realm="x"'),)
        answers = {f"/v2/some/thing/blobs/{DIGEST}": Answer(b"", 401, wants)}
        with lying_registry.serve(answers) as (address, seen), connect(address) as connection:
            logged_in(address)
            with pytest.raises(PackageRefused):
                connection.has_blob(DIGEST)
            assert seen[-1].authorization is not None
            answers[f"/v2/some/thing/blobs/{DIGEST}"] = Answer(b"", 307, away)
            with connection.blob(DIGEST) as pieces:
                assert b"".join(pieces) == DATA
            assert seen[-1].authorization is not None
        assert [request.authorization for request in seen_there] == [None]


def test_an_answer_without_end_is_cut_off() -> None:
    answers = {"/v2/some/thing/manifests/1": Answer(b"x" * 4096, endless=True)}
    with (
        lying_registry.serve(answers) as (address, _),
        connect(address) as connection,
        pytest.raises(PackageRefused) as caught,
    ):
        connection.manifest(parse(f"{address}/some/thing:1"), "application/json", 10_000)
    assert caught.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b'{"errors": "x"}', b'{"errors": [1]}', b"[" * 5000])
def test_an_error_without_text_is_reported_with_its_status(body: bytes) -> None:
    answers = {f"/v2/some/thing/blobs/{DIGEST}": Answer(body, 500)}
    with (
        lying_registry.serve(answers) as (address, _),
        connect(address) as connection,
        pytest.raises(PackageRefused, match=r"answered 500$"),
        connection.blob(DIGEST),
    ):
        pass


# Responses of dishonest registries.

MANIFEST = "/v2/some/thing/manifests/1"
BLOB = f"/v2/some/thing/blobs/{DIGEST}"
UPLOADS = "/v2/some/thing/blobs/uploads/"
ELSEWHERE = "192.0.2.1"
"""An address reserved for documentation."""


def refused(answers: dict[str, Answer], ask: Callable[[Connection], object]) -> PackageRefused:
    with lying_registry.serve(answers) as (address, _), connect(address) as connection:
        with pytest.raises(PackageRefused) as caught:
            ask(connection)
        return caught.value


def ask_manifest(connection: Connection) -> object:
    return connection.manifest(parse("127.0.0.1/some/thing:1"), "application/json", 10_000)


def upload(connection: Connection) -> None:
    connection.put_blob(DIGEST, len(DATA), lambda: [DATA])


@requirement("vai:package-credentials")
@pytest.mark.parametrize("challenge", ['Bearer realm="{}/token"', 'Basic realm="x"'])
def test_redirect_targets_receive_no_credentials(challenge: str, logged_in: Callable[..., None]) -> None:
    answers_there: dict[str, Answer] = {}
    with lying_registry.serve(answers_there) as (other, seen_there):
        there = f"http://localhost:{other.rpartition(':')[2]}"
        answers_there["/blob"] = Answer(b"", 401, (("www-authenticate", challenge.format(there)),))
        with lying_registry.serve({BLOB: Answer(b"", 307, (("location", f"{there}/blob"),))}) as (address, _):
            logged_in(address)
            with connect(address) as connection, pytest.raises(PackageRefused, match="redirects to localhost"):
                connection.has_blob(DIGEST)
        assert [(request.path, request.authorization) for request in seen_there] == [("/blob", None)]


@requirement("vai:package-tls")
@pytest.mark.parametrize(
    ("status", "header"),
    [(307, ("location", f"http://{ELSEWHERE}/x")), (401, ("www-authenticate", f'Bearer realm="http://{ELSEWHERE}/t"'))],
)
def test_without_tls_nothing_leaves_this_machine(
    status: int, header: tuple[str, str], logged_in: Callable[..., None]
) -> None:
    found = refused({MANIFEST: Answer(b"", status, (header,))}, ask_manifest)
    assert (found.reason, ELSEWHERE in found.message) == (Reason.INSECURE_TRANSPORT, True)


@requirement("vai:package-tls")
def test_without_tls_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with lying_registry.serve({}) as (proxy, seen_there), lying_registry.serve({BLOB: Answer()}) as (address, seen):
        monkeypatch.setenv("http_proxy", f"http://{proxy}")
        monkeypatch.setenv("no_proxy", "")
        with connect(address) as connection:
            assert connection.has_blob(DIGEST)
        assert (len(seen), seen_there) == (1, [])


@pytest.mark.parametrize("status", [200, 500])
def test_a_truncated_response_is_reported(status: int) -> None:
    found = refused({MANIFEST: Answer(b"half", status, missing=4)}, ask_manifest)
    assert (found.reason, "closed the connection too early" in found.message) == (Reason.REGISTRY_FAILED, True)


@pytest.mark.parametrize("place", ["http://[::1", "\x01", "https://a..b/x", f"https://{'a' * 300}/x"])
def test_an_invalid_address_is_reported_wherever_it_occurs(place: str) -> None:
    elsewhere = (("location", place),)
    challenge = (("www-authenticate", f'Bearer realm="{place}"'),)
    for answers, ask in (
        ({UPLOADS: Answer(b"", 202, elsewhere)}, upload),
        ({MANIFEST: Answer(b"", 307, elsewhere)}, ask_manifest),
        ({MANIFEST: Answer(b"", 401, challenge)}, ask_manifest),
    ):
        assert refused(answers, ask).reason is Reason.REGISTRY_FAILED


def test_an_upload_goes_to_the_named_location_and_follows_no_redirect() -> None:
    place = f"/up?digest={DIGEST.replace(':', '%3A')}"
    answers = {UPLOADS: Answer(b"", 202, (("location", "/up"),)), place: Answer(b"", 307, (("location", "/on"),))}
    assert "answered 307" in refused(answers, upload).message
    answers[place] = Answer(b"", 201)
    with lying_registry.serve(answers) as (address, _), connect(address) as connection:
        upload(connection)


def test_a_page_of_some_proxy_is_an_error_with_its_status() -> None:
    found = refused({MANIFEST: Answer(b"<p>" * 100_000, 502)}, ask_manifest)
    assert (found.reason, found.message.endswith("answered 502")) == (Reason.REGISTRY_FAILED, True)


@contextmanager
def dripping(data: bytes, pause: float) -> Iterator[str]:
    """A server that sends these bytes one by one, for ever."""
    done = threading.Event()

    def drip(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            peer.recv(4096)
            for byte in itertools.chain(data, itertools.repeat(b"x"[0])):
                peer.sendall(bytes([byte]))
                if done.wait(pause):
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"


@requirement("vai:package-slow-registry")
@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\nx-header: ", HEAD], ids=["head", "body"])
@pytest.mark.parametrize("opened", [False, True])
def test_a_registry_that_takes_forever_is_given_up(data: bytes, opened: bool) -> None:
    with dripping(data, 0.01) as address:
        allowed = {address} if opened else None
        place = parse(f"{address}/some/thing:1")
        with (
            Connection(place, plain_http=True, opened=allowed, seconds=1.5) as connection,
            pytest.raises(PackageRefused, match="takes more than 0 minutes for one package") as caught,
        ):
            connection.manifest(place, "application/json", 1 << 20)
    assert caught.value.reason is Reason.REGISTRY_FAILED


@requirement("vai:package-slow-registry")
def test_a_registry_that_sends_too_few_bytes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "RATE_SECONDS", 0.1)
    with (
        dripping(HEAD, 0.005) as address,
        connect(address) as connection,
        pytest.raises(PackageRefused, match=r"sends less than 1,024 bytes a second"),
    ):
        connection.manifest(parse(f"{address}/some/thing:1"), "application/json", 1 << 20)
    monkeypatch.setattr(connections, "RATE_SECONDS", 0.0)
    monkeypatch.setattr(connections, "MIN_RATE", 1)
    with lying_registry.serve({MANIFEST: Answer(b"{}")}) as (address, _), connect(address) as connection:
        assert ask_manifest(connection) == b"{}"


@requirement("vai:package-plain-http-named")
def test_a_registry_that_the_operator_names_is_asked_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with lying_registry.serve({BLOB: Answer(DATA)}) as (address, seen):
        port = int(address.rpartition(":")[2])
        monkeypatch.setattr(checked_transport, "_resolve", lambda host, port: ["127.0.0.1"])
        place = parse(f"registry.test:{port}/some/thing")
        named = Registries(frozenset({place.registry}), frozenset({place.registry}))
        with Connection(place, opened=(), registries=named) as connection, connection.blob(DIGEST) as pieces:
            assert b"".join(pieces) == DATA
        assert len(seen) == 1
        with pytest.raises(PackageRefused) as caught:
            Connection(place, plain_http=True, registries=Registries(named.private))
        assert caught.value.reason is Reason.INSECURE_TRANSPORT
        assert f'[registries."{place.registry}"] plain_http = true' in caught.value.hint
        for only in (Registries(named.private), Registries(plain_http=named.plain_http)):
            with Connection(place, opened=(), registries=only) as connection, pytest.raises(PackageRefused):
                connection.has_blob(DIGEST)
        assert len(seen) == 1, "both the private address and plain HTTP are to be allowed"


@requirement("vai:package-plain-http-named")
def test_a_named_registry_leads_without_tls_to_named_ones_only(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Answer] = {}
    with lying_registry.serve({"/there": Answer(DATA)}) as (other, there), lying_registry.serve(answers) as (ours, _):
        answers[BLOB] = Answer(b"", 307, (("location", f"http://{other}/there"),))
        place = parse(f"{ours}/some/thing")
        monkeypatch.setattr(Reference, "is_local", False)  # as if it were elsewhere
        named = Registries(plain_http=frozenset({ours}))
        with Connection(place, registries=named) as connection, pytest.raises(PackageRefused, match="without TLS"):
            connection.has_blob(DIGEST)
        assert there == []
        both = Registries(plain_http=frozenset({ours, other}))
        with Connection(place, registries=both) as connection:
            assert connection.has_blob(DIGEST) and len(there) == 1


def test_the_registry_is_known_by_any_spelling_of_its_name(logged_in: Callable[..., None]) -> None:
    wants = (("www-authenticate", 'Basic realm="x"'),)
    with lying_registry.serve({BLOB: Answer(b"", 401, wants)}) as (address, seen):
        port = address.rpartition(":")[2]
        logged_in(f"localhost:{port}")
        with connect(f"LocalHost:{port}") as connection, pytest.raises(PackageRefused):
            connection.has_blob(DIGEST)
        assert [bool(request.authorization) for request in seen] == [False, True]
