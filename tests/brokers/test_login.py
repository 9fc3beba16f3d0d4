"""Who we are to a server, and that nothing of it is said. That servers take it is in `test_nats`."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

import pytest

from plugbay.brokers.login import MAX_FILE, login_options
from plugbay.host.config.sections import BrokerConfig
from plugbay.model.errors import ConfigInvalid
from tests.support.nats_identities import USER, Identity, write_certificate, write_credentials

URL = "nats://127.0.0.1:4222"
SEED = Identity(USER).seed
"""Nobody's."""


def test_who_has_no_credentials_says_none() -> None:
    assert login_options(BrokerConfig(url=URL), {}) == {}


def test_tokens_and_passwords_come_from_the_environment() -> None:
    token = BrokerConfig(url=URL, token_env="T")
    assert login_options(token, {"T": " hunter2\n"}) == {"token": "hunter2"}
    user = BrokerConfig(url=URL, user="me", password_env="P")
    assert login_options(user, {"P": "hunter2"}) == {"user": "me", "password": "hunter2"}


@pytest.mark.parametrize(
    ("environ", "words"), [({}, "not set, or empty"), ({"T": "hunter2\x07x"}, "cannot be printed")]
)
def test_a_variable_that_holds_no_secret_is_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=rf"broker\.token_env: the environment variable T .*{words}") as caught:
        login_options(BrokerConfig(url=URL, token_env="T"), environ)
    assert "hunter2" not in str(caught.value)


def test_a_file_of_credentials_gives_the_jwt_and_proves_it(tmp_path: Path) -> None:
    path = tmp_path / "my.creds"
    write_credentials(path, "a.b.c", SEED)
    options = login_options(BrokerConfig(url=URL, credentials=str(path)), {})
    assert options["user_jwt_cb"]() == b"a.b.c"
    assert len(base64.b64decode(options["signature_cb"]("nonce"))) == 64


def _damaged(path: Path) -> None:
    write_credentials(path, "a.b.c", SEED[:20] + ("A" if SEED[20] != "A" else "B") + SEED[21:])


def _open_to_others(path: Path) -> None:
    write_credentials(path, "a.b.c", SEED)
    path.chmod(0o640)


def _endless(path: Path) -> None:
    write_credentials(path, "a.b." + "c" * MAX_FILE, SEED)


def _without_jwt(path: Path) -> None:
    path.write_text(SEED)
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (_damaged, "the seed in .* is damaged"),
        (_open_to_others, "chmod 600"),
        (_endless, "no file of NATS credentials"),
        (_without_jwt, "no file of NATS credentials"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_before_anybody_is_asked(
    tmp_path: Path, prepare: object, words: str
) -> None:
    path = tmp_path / "my.creds"
    assert callable(prepare)
    prepare(path)
    with pytest.raises(ConfigInvalid, match=words) as caught:
        login_options(BrokerConfig(url=URL, credentials=str(path)), {})
    assert SEED[3:] not in str(caught.value)


def test_an_encrypted_server_has_to_prove_who_it_is(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    url = "tls://127.0.0.1"
    context = login_options(BrokerConfig(url=url, ca_file=str(certificate)), {})["tls"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert login_options(BrokerConfig(url=url), {})["tls"].verify_mode == ssl.CERT_REQUIRED
    for wrong in (key, tmp_path / "nowhere"):
        with pytest.raises(ConfigInvalid, match=r"broker\.ca_file: .*no certificates that can be used"):
            login_options(BrokerConfig(url=url, ca_file=str(wrong)), {})
