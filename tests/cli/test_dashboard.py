"""`plugbay dashboard`: a link into the running server, and what `plugbay serve` says of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import httpx2

from tests.cli.conftest import Run
from tests.server.test_server import served


def test_the_link_that_is_printed_logs_in_once(run: Run, cwd: Path) -> None:
    with served(cwd) as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        printed = run("dashboard", *there)
        assert printed.code == 0 and printed.err == ""
        link = printed.out.strip()
        assert re.fullmatch(rf"{server.facts['url']}/login/[\w-]{{22}}", link)
        told = run("dashboard", "--json", *there).json
        assert set(told) == {"url", "expires_at"} and told["url"] != link
        with httpx2.Client() as browser:
            assert browser.get(link).status_code == 303
            assert browser.get(server.facts["url"]).status_code == 200
            assert browser.get(link).status_code == 401
        assert server.end() == 0
        assert link.rpartition("/")[2] not in "".join(server.log)
        assert "/login/" not in str(server.facts), "a line for programs is often kept in a file"


def test_a_browser_is_opened_on_demand(run: Run, cwd: Path) -> None:
    browser = cwd / "browser"
    browser.write_text(f'#!{sys.executable}\nimport sys\nopen("{cwd}/opened", "w").write(sys.argv[1])\n')
    browser.chmod(0o755)
    with served(cwd) as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        done = run("dashboard", "--open", *there, BROWSER=f"{browser} %s")
        assert done.code == 0 and (cwd / "opened").read_text() == done.out.strip()
        none = run("dashboard", "--open", *there, BROWSER="", PATH="/nowhere")
        assert none.code == 0 and "open the link yourself" in none.err and "/login/" in none.out


def test_without_a_server_or_with_a_wrong_key_it_is_said(run: Run, cwd: Path) -> None:
    assert run("dashboard").code == 4
    (cwd / "wrong").write_text("pb_sk_wrong")
    with served(cwd) as server:
        refused = run("dashboard", "--server", server.facts["url"], "--token-file", cwd / "wrong")
        assert refused.code == 5 and "auth.key_unknown" in refused.err
