"""`plugbay mcp login` and `logout`: the real commands against the official SDK's authorization server."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.support.commands import Piped
from tests.support.http_servers import WITH_OAUTH, sdk_server
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, first_alone


@pytest.fixture
def url() -> Iterator[str]:
    with sdk_server(program=WITH_OAUTH) as url:
        yield url


def declare(cwd: Path, url: str, more: str = "") -> None:
    (cwd / "plugbay.toml").write_text(f'[host]\nstate_dir = "state"\n[mcp.far]\nurl = "{url}"\n{more}\n')


CONFINED = "[plugins.far.sandbox]\non = true"


def log_in(cwd: Path, *options: str, change: Any = lambda url: url, browser: bool = False) -> tuple[int, str, str]:
    """Run the command and be its browser: follow the URL that it prints, and its redirect.

    `browser`: the command opens a browser, too, and says if it cannot before the URL is followed.
    """
    process = Piped("mcp", "login", "far", *([] if browser else ["--no-browser"]), *options, cwd=cwd)
    assert process.stdout is not None
    assert process.stderr is not None
    printed, said = process.stdout.readline().decode(), ""
    while printed and browser and "no browser" not in said:
        line = process.stderr.readline().decode()
        assert line, said
        said += line
    if printed:
        visit(change(printed.strip()))
    rest, err = process.communicate()
    return process.wait(PATIENCE), printed + rest.decode(), said + err.decode()


def visit(url: str, method: str = "GET") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def state_of(url: str) -> Any:
    return json.loads(visit(url.replace("/mcp", "/state"))[1])


def call(run: Run, tool: str = "add", given: str = '{"a": 1, "b": 2}') -> Any:
    return run("call", "far", tool, given, "--grant-all", "--json").json


@requirement("mcp:remote-login")
def test_a_server_that_wants_a_login_says_so_and_is_called_after_it(run: Run, cwd: Path, url: str) -> None:
    (cwd / "plugbay.toml").write_text('[host]\nstate_dir = "state"\n')
    added = run("mcp", "add", "far", url, "--yes")
    assert added.code == 5 and "plugbay mcp login far" in added.err
    code, out, err = log_in(cwd)
    assert code == 0, (out, err)
    assert "code_challenge_method=S256" in out and "resource=http" in out and "plugbay mcp approve far" in err
    assert run("mcp", "approve", "far", "--yes").code == 0
    called = run("call", "far", "add", '{"a": 1, "b": 2}', "--json").json
    assert called["output"]["structuredContent"] == {"result": 3}
    repeated = run("call", "far", "token", "--json").out
    assert "Bearer ***" in repeated and "access-" not in repeated
    file = next((cwd / "state" / "logins").iterdir())
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert "access-" in file.read_text()
    shown = run("inspect", "far", "--json").out + run("mcp", "list", "--json").out + out + err
    assert "access-" not in shown and "refresh-" not in shown


@requirement("mcp:remote-login")
def test_logout_revokes_and_removes_the_login(run: Run, cwd: Path, url: str) -> None:
    declare(cwd, url)
    assert run("mcp", "logout", "far").code == 4
    assert log_in(cwd)[0] == 0
    assert state_of(url)["access"] == 1
    done = run("mcp", "logout", "far", "--json").json
    assert done == {"server": "far", "removed": True, "revoked": True}
    assert state_of(url)["access"] == 0
    failure = call(run)["failure"]
    assert failure["code"] == "capability_not_allowed" and "plugbay mcp login far" in failure["message"]


@requirement("mcp:remote-refresh")
def test_an_expired_token_is_refreshed_and_the_new_one_is_kept(run: Run, cwd: Path) -> None:
    with sdk_server("seconds=1", program=WITH_OAUTH) as url:
        declare(cwd, url)
        assert log_in(cwd)[0] == 0
        for count in (1, 2):
            assert call(run)["output"]["structuredContent"] == {"result": 3}
            assert state_of(url)["refreshes"] >= count
        (kept,) = (cwd / "state" / "plugins").rglob("tokens.json")
        assert stat.S_IMODE(os.stat(kept).st_mode) == 0o600


@requirement("mcp:remote-refresh")
def test_a_withdrawn_token_is_refreshed_and_a_withdrawn_login_names_the_command(run: Run, cwd: Path, url: str) -> None:
    declare(cwd, url)
    assert log_in(cwd)[0] == 0
    visit(url.replace("/mcp", "/forget?only=access"), "POST")
    assert call(run)["output"]["structuredContent"] == {"result": 3}
    assert state_of(url)["refreshes"] == 1
    visit(url.replace("/mcp", "/forget"), "POST")
    failure = call(run)["failure"]
    assert failure["code"] == "capability_not_allowed"
    assert "has expired or was revoked" in failure["message"] and "plugbay mcp login far" in failure["message"]
    assert log_in(cwd)[0] == 0
    assert call(run)["output"]["structuredContent"] == {"result": 3}


@requirement("mcp:remote-scopes")
def test_a_login_with_too_few_scopes_names_the_login_with_more(run: Run, cwd: Path, url: str) -> None:
    declare(cwd, url)
    assert log_in(cwd, "--scope", "other")[0] == 0
    failure = call(run)["failure"]
    assert failure["code"] == "capability_not_allowed" and "insufficient_scope" in failure["message"]
    assert "plugbay mcp login far" in failure["detail"]["hint"]
    assert log_in(cwd, "--scope", "user other")[0] == 0
    assert call(run)["output"]["structuredContent"] == {"result": 3}


@requirement("mcp:remote-issuer")
def test_a_response_of_another_issuer_is_not_used(cwd: Path) -> None:
    with sdk_server("iss=https://evil.example", program=WITH_OAUTH) as url:
        declare(cwd, url)
        code, _, err = log_in(cwd)
        assert code != 0 and "another issuer" in err
        assert not (cwd / "state" / "logins").exists()


@requirement("mcp:remote-issuer")
def test_a_response_without_the_state_of_the_login_is_ignored(cwd: Path, url: str) -> None:
    declare(cwd, url)

    def forge(printed: str) -> str:
        redirect = urllib.parse.parse_qs(urllib.parse.urlsplit(printed).query)["redirect_uri"][0]
        assert visit(f"{redirect}?code=stolen&state=guess")[0] == 400
        assert visit(redirect.replace("/callback", "/other"))[0] == 404
        return printed

    assert log_in(cwd, change=forge)[0] == 0


@requirement("mcp:remote-resource")
def test_metadata_for_another_resource_is_refused(cwd: Path) -> None:
    with sdk_server("resource=/other", program=WITH_OAUTH) as url:
        declare(cwd, url)
        code, _, err = log_in(cwd)
        assert code != 0 and "another resource" in err


@requirement("mcp:remote-resource")
def test_a_login_is_not_used_for_another_url(run: Run, cwd: Path, url: str) -> None:
    declare(cwd, url)
    assert log_in(cwd)[0] == 0
    with sdk_server(program=WITH_OAUTH) as other:
        declare(cwd, other)
        assert "requires a login" in call(run)["failure"]["message"]


@exhaustive
@requirement("mcp:remote-client")
def test_a_registered_client_is_used_with_its_secret(run: Run, cwd: Path) -> None:
    port = free_port()
    with sdk_server("known=me:hunter2-hunter2", f"port={port}", program=WITH_OAUTH) as url:
        declare(cwd, url)
        code, _, err = log_in(cwd)
        assert code != 0 and "[mcp.far.oauth] client_id" in err
        oauth = f'[mcp.far.oauth]\nclient_id = "me"\nclient_secret = "secret://client"\nredirect_port = {port}'
        declare(cwd, url, oauth)
        assert "plugbay mcp secret far client" in log_in(cwd)[2]
        assert run("mcp", "secret", "far", "client", stdin="hunter2-hunter2\n").code == 0
        code, out, err = log_in(cwd)
        assert code == 0, err
        assert call(run)["output"]["structuredContent"] == {"result": 3}
        assert "hunter2" not in out + err


@requirement("mcp:remote-confined")
def test_a_confined_bridge_refreshes_its_token(run: Run, cwd: Path) -> None:
    with sdk_server("seconds=1", program=WITH_OAUTH) as url:
        declare(cwd, url, "[plugins.far.sandbox]\non = true")
        assert log_in(cwd)[0] == 0
        assert call(run)["output"]["structuredContent"] == {"result": 3}
        assert call(run)["output"]["structuredContent"] == {"result": 3}
        assert state_of(url)["refreshes"] >= 2


@requirement("mcp:remote-refused")
def test_a_confined_bridge_says_that_its_authorization_server_is_not_granted(run: Run, cwd: Path) -> None:
    """The login is changed behind `plugbay mcp login`, which grants the token endpoint that it saved."""
    with sdk_server("seconds=1", program=WITH_OAUTH) as url:
        declare(cwd, url, CONFINED)
        assert log_in(cwd)[0] == 0
        (file,) = (cwd / "state" / "logins").iterdir()
        kept = json.loads(file.read_text())
        elsewhere = json.dumps({**kept, "token_endpoint": f"http://127.0.0.1:{free_port()}/token"})
        file.unlink()
        declare(cwd, url, f"{CONFINED}\n[plugins.far.env]\nPLUGBAY_MCP_LOGIN = '{elsewhere}'")
        time.sleep(1.1)  # the token expires
        failure = call(run)["failure"]
        assert failure["code"] == "capability_not_allowed"
        assert "the network is not granted for 127.0.0.1" in failure["message"]
        assert "plugbay.toml" in failure["detail"]["hint"]
        declare(cwd, url, f"{CONFINED}\n[plugins.far.env]\nPLUGBAY_MCP_LOGIN = '{json.dumps(kept)}'")
        assert call(run)["output"]["structuredContent"] == {"result": 3}


@requirement("mcp:remote-client")
@pytest.mark.parametrize("accepted", first_alone([True, False]))
def test_the_url_of_a_client_document_is_the_client_id_where_that_is_accepted(
    run: Run, cwd: Path, accepted: bool
) -> None:
    client = "https://client.example/plugbay.json"
    options = [f"documents=http://127.0.0.1:{free_port()}"] if accepted else []
    with sdk_server(*options, program=WITH_OAUTH) as url:
        redirect = f"redirect_port = {options[0].rpartition(':')[2]}" if accepted else ""
        declare(cwd, url, f'[mcp.far.oauth]\nclient_id_url = "{client}"\n{redirect}')
        code, out, err = log_in(cwd)
        assert code == 0, err
        assert (urllib.parse.quote(client, safe="") in out) == accepted
        assert call(run)["output"]["structuredContent"] == {"result": 3}
        assert state_of(url)["clients"] == ([client] if accepted else state_of(url)["registered"])


BROWSER = f"""\
#!{sys.executable}
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=60) as page:
    assert b"close this page" in page.read()
open("visited", "w").write(sys.argv[1])
"""


@requirement("mcp:remote-browser")
def test_a_login_opens_the_browser_of_the_user(run: Run, cwd: Path, url: str) -> None:
    """The browser is a process that ends when it has the page, as browsers of a terminal do."""
    (cwd / "browser").write_text(BROWSER)
    (cwd / "browser").chmod(0o755)
    declare(cwd, url)
    done = run("mcp", "login", "far", "--timeout", "60", "--json", BROWSER=str(cwd / "browser"))
    assert (done.code, done.json["server"]) == (0, "far"), done.err
    assert "no browser" not in done.err
    assert "code_challenge" in (cwd / "visited").read_text()


@requirement("mcp:remote-browser")
def test_a_login_says_when_no_browser_can_be_opened(cwd: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(cwd, url)
    for browser in ("/no/such/browser", "/bin/false"):
        monkeypatch.setenv("BROWSER", browser)
        monkeypatch.setenv("PATH", "/nowhere")
        code, _, err = log_in(cwd, browser=True)
        assert code == 0, err
        assert "no browser can be opened here" in err and "ssh -L" in err
    assert "no browser" not in log_in(cwd)[2]


@requirement("mcp:remote-login")
def test_what_cannot_be_logged_in_to_says_why(run: Run, cwd: Path) -> None:
    declare(cwd, f"http://127.0.0.1:{free_port()}/mcp", '[mcp.local]\ncommand = ["true"]')
    assert run("mcp", "login", "nobody", "--no-browser").code == 4
    assert "program of this machine" in run("mcp", "login", "local", "--no-browser").err
    unreachable = run("mcp", "login", "far", "--no-browser")
    assert unreachable.code != 0 and "cannot be reached" in unreachable.err
    with sdk_server("json") as open_url:
        declare(cwd, open_url)
        assert "needs no login" in run("mcp", "login", "far", "--no-browser").err
