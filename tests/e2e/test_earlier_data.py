"""Folders that an earlier plugbay wrote are used as they are: settings, approvals, storage, packages, a server's data.

`earlier.tar.gz` was written by the commands of commit 74141e4: a plugbay.toml with a plugin and an approved MCP server,
notes in the plugin's storage, a setting, an installed package, and the data of a server with an org, a key, a secret, a
package, two bindings, an invocation and a chain.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import environment
from tests.server.test_server import served
from tests.support.commands import plugbay

ARCHIVE = Path(__file__).with_name("earlier.tar.gz")
BINDING = "bind_a3bbe3ceb31c6bb1c517"
CHAIN = "ch_6b9c8da0a9c0deae6577"
DIFF = "--- a/t\n+++ b/t\n@@ -1 +1,2 @@\n-milk\n+lemon\n+sugar\n"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    subprocess.run(["tar", "-xzf", ARCHIVE, "-C", tmp_path], check=True)
    return tmp_path / "earlier"


def output(folder: Path, *arguments: str) -> Any:
    done = plugbay(*arguments, "--json", cwd=folder, env=environment(folder, XDG_CONFIG_HOME=str(folder / "config")))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_storage_settings_approvals_and_installed_packages_are_taken_over(earlier: Path) -> None:
    found = output(earlier, "call", "plugins/session-memory", "recall", '{"query": "tea"}')
    assert [note["text"] for note in found["output"]["notes"]] == ["Ada drinks tea without milk."]
    shown = output(earlier, "config", "show", "plugins/session-memory")
    assert shown["config"]["told"] == 3
    assert output(earlier, "call", "clock", "now")["output"]["content"][0]["text"] == "noon"
    (installed,) = output(earlier, "list", "--store", "store")["plugins"]
    assert (installed["id"], installed["version"]) == ("example.greeter", "1.0.0")
    greeted = output(
        earlier, "call", "store/plugins/example.greeter", "greet", '{"name": "Ada"}', "--grant", "tool.execute"
    )
    assert greeted["output"] == {"text": "Hello, Ada."}


def test_an_approval_of_a_server_that_was_changed_since_is_none(earlier: Path) -> None:
    config = earlier / "plugbay.toml"
    config.write_text(config.read_text().replace("The time.", "The exact time."))
    done = plugbay("call", "clock", "now", cwd=earlier, env=environment(earlier))
    assert done.returncode != 0 and b"approve" in done.stderr


def test_the_data_of_a_server_is_taken_over(earlier: Path) -> None:
    with served(earlier, "plugins", "--data", "data") as server, server.client() as client:
        assert server.facts["token"] is None
        client.headers["authorization"] = f"Bearer {(earlier / 'org.key').read_text().strip()}"

        def get(path: str) -> Any:
            answer = client.get(path)
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert get("/v1/orgs/acme")["name"] == "Acme"
        assert [item["id"] for item in get("/v1/orgs/acme/projects")["items"]] == ["shop"]
        assert {item["export_id"]: item["status"] for item in get("/v1/plugin-bindings")["items"]} == {
            "diff_stat": "active",
            "run_webhook": "active",
        }
        assert [item["version"] for item in get("/v1/secrets")["items"]] == [1]
        chain = get(f"/v1/chains/{CHAIN}")
        assert chain["digest"] == "dd4dee7971535f256d397da7cf7200fb9ab0c5e38a2968ece1c3d294c6dd9b41"
        (first,) = get("/v1/plugin-invocations?export_kind=tool")["items"]
        assert (first["export_id"], first["status"]) == ("diff_stat", "succeeded")
        request = {"binding_id": BINDING, "input": {"diff": DIFF}}
        again = client.post("/v1/plugin-invocations", json=request)
        assert again.json()["result"]["structured_output"]["added"] == 2, again.text
        for binding in get("/v1/plugin-bindings")["items"]:
            validated = client.post(f"/v1/plugin-bindings/{binding['binding_id']}:validate")
            assert validated.json()["valid"] is True, validated.text
        assert server.end() == 0
