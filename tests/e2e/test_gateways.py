"""Several gateways on one PostgreSQL: real processes, real databases; any of them answers anything.

Leases are short here. A test that takes over the work of a gateway waits for the length of two.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.server.test_server import Served
from tests.support.clusters import Cluster, cluster, made
from tests.support.patience import PATIENCE, pauses, until_blocking
from tests.support.tiers import exhaustive

TOOL = """
import time, os
def tool(body, m):
    asked = body["input"]
    with open({log!r}, "a") as file:
        file.write("began\\n")
    while asked.get("wait") and not os.path.exists({go!r}):
        time.sleep(0.02)
    with open({log!r}, "a") as file:
        file.write("ended\\n")
    succeed(m, output({{"n": asked.get("n")}}))
"""


class Pair:
    """Two gateways, a client of each, and a bound tool that waits if it is told to."""

    def __init__(self, gateways: Cluster, one: Served, other: Served, stack: ExitStack) -> None:
        self.cluster = gateways
        self.one, self.other = one, other
        self.a, self.b = (stack.enter_context(each.client()) for each in (one, other))
        self.log, self.go = gateways.folder / "log", gateways.folder / "go"
        (self.binding,) = gateways.bring(self.a, TOOL.format(log=str(self.log), go=str(self.go)))

    def told(self, word: str) -> int:
        return self.log.read_text().split().count(word) if self.log.exists() else 0

    def begin(self, client: httpx2.Client) -> str:
        """An invocation that waits; its id, once the tool was called."""
        body = {"binding_id": self.binding, "input": {"wait": True}, "wait": False}
        answer = made(client.post("/v1/plugin-invocations", json=body), 202)
        until_blocking(lambda: self.told("began") == 1)
        found: str = answer["invocation"]["invocation_id"]
        return found

    def ended(self, client: httpx2.Client, id: str) -> dict[str, Any]:
        """The invocation once it has ended."""
        for pause in pauses():
            found: dict[str, Any] = made(client.get(f"/v1/plugin-invocations/{id}"), 200)
            if found["status"] is not None:
                return found
            time.sleep(pause)
        raise AssertionError


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    with cluster(folder) as gateways, ExitStack() as stack:
        one, other = (stack.enter_context(gateways.start()) for _ in range(2))
        yield Pair(gateways, one, other, stack)


def test_any_of_two_gateways_answers_anything(tmp_path: Path) -> None:
    with pair(tmp_path) as two:
        # A package that one gateway took runs at the other, which fetches and verifies it.
        for client in (two.b, two.a):
            done = made(client.post("/v1/plugin-invocations", json={"binding_id": two.binding, "input": {"n": 7}}), 200)
            assert done["result"]["structured_output"] == {"n": 7}
        assert len(made(two.a.get("/v1/plugin-invocations"), 200)["items"]) == 2

        keys_pass_and_are_revoked_at_once(two)
        links_and_sessions_are_shared(two)
        a_repetition_through_another_gateway_is_the_same_request(two)

        # Watched and cancelled through the gateway that does not run it.
        two.log.unlink()
        id = two.begin(two.a)
        with two.b.stream("GET", f"/v1/plugin-invocations/{id}/events") as stream:
            lines = stream.iter_lines()
            assert next(lines)
            made(two.a.get("/readyz"), 200)
            with two.other.client() as another:
                made(another.post(f"/v1/plugin-invocations/{id}:cancel"), 202)
            assert any(line == "event: ended" for line in lines), "the stream ends with the invocation"
        assert two.ended(two.b, id)["status"] == "cancelled"
        ready = made(two.a.get("/readyz"), 200)
        assert ready["checks"]["lease"] == "ok"
        assert [each.end() for each in (two.one, two.other)] == [0, 0]


def keys_pass_and_are_revoked_at_once(two: Pair) -> None:
    for _ in range(5):
        key = made(two.a.post("/v1/api-keys", json={"org_id": "acme", "name": "k", "role": "viewer"}))
        head = {"authorization": f"Bearer {key['key']}"}
        # The same connection each time: what one request has checked must not count for the next.
        for _ in range(3):
            assert two.b.get("/v1/orgs/acme", headers=head).status_code == 200
        made(two.a.delete(f"/v1/api-keys/{key['id']}"), 200)
        assert two.b.get("/v1/orgs/acme", headers=head).json()["error"]["code"] == "auth.key_revoked"


def links_and_sessions_are_shared(two: Pair) -> None:
    link = made(two.a.post("/api/v1/dashboard-links"))["url"].rpartition("/login/")[2]
    urls = [each.facts["url"] for each in (two.one, two.other)]
    with httpx2.Client(timeout=PATIENCE) as browser:
        first = browser.get(f"{urls[1]}/login/{link}")
        assert first.status_code == 303, first.text
        cookie = first.headers["set-cookie"].partition(";")[0].partition("=")[2]
        assert browser.get(f"{urls[0]}/login/{link}").status_code == 401, "once, at all of them"
        # The name of a cookie has the port; behind a load balancer it is the same for all gateways.
        jars = [{"cookie": f"plugbay_{url.rpartition(':')[2]}={cookie}"} for url in urls]
        pages = [browser.get(f"{url}/orgs/acme", headers=jar) for url, jar in zip(urls, jars, strict=True)]
        assert [page.status_code for page in pages] == [200, 200]
        form_key = re.search(r'name="form_key" value="([0-9a-f]+)"', pages[0].text)
        assert form_key is not None and form_key[1] in pages[1].text
        form = {"form_key": form_key[1], "name": "from a page", "role": "viewer", "org": "acme"}
        head = {**jars[0], "origin": urls[0]}
        new = browser.post(f"{urls[0]}/keys", data=form, headers=head)
        assert new.status_code == 303, new.text
        shown = browser.get(f"{urls[1]}{new.headers['location']}", headers=jars[1]).text
        assert "pb_sk_" in shown, "the other gateway shows the new key, and the notice"
        again = browser.get(f"{urls[0]}{new.headers['location']}", headers=jars[0]).text
        assert "pb_sk_" not in again, "once"
        out = browser.post(f"{urls[0]}/logout", data={"form_key": form_key[1]}, headers=head)
        assert out.status_code == 303, out.text
        assert browser.get(f"{urls[1]}/orgs/acme", headers=jars[1]).status_code == 401


def a_repetition_through_another_gateway_is_the_same_request(two: Pair) -> None:
    two.log.unlink()
    head = {"idempotency-key": "k1"}
    body = {"binding_id": two.binding, "input": {"n": 1}}
    answers = [client.post("/v1/plugin-invocations", json=body, headers=head).json() for client in (two.a, two.b)]
    assert answers[0] == answers[1]
    assert two.told("began") == 1
    two.log.unlink()
    waiting = {"binding_id": two.binding, "input": {"n": 2, "wait": True}}
    held: list[httpx2.Response] = []
    head = {"idempotency-key": "k2"}
    thread = threading.Thread(
        target=lambda: held.append(two.a.post("/v1/plugin-invocations", json=waiting, headers=head))
    )
    thread.start()
    until_blocking(lambda: two.told("began") == 1)
    refused = two.b.post("/v1/plugin-invocations", json=waiting, headers=head)
    assert refused.json()["error"]["code"] == "idempotency.in_progress"
    two.go.touch()
    thread.join(PATIENCE)
    assert held[0].status_code == 200
    two.go.unlink()
    assert two.b.post("/v1/plugin-invocations", json=waiting, headers=head).json() == held[0].json()
    assert two.told("began") == 1


def test_the_work_of_a_killed_gateway_is_closed_once_by_another(tmp_path: Path) -> None:
    with pair(tmp_path) as two:
        id = two.begin(two.a)
        assert two.one.end(signal.SIGKILL) == -signal.SIGKILL
        ended = two.ended(two.b, id)
        assert (ended["status"], ended["status_reason"]) == ("failed", "host_restarted")
        assert two.told("ended") == 0, "its plugin has gone with it"
        with two.cluster.start() as third, third.client() as client:
            assert made(client.get(f"/v1/plugin-invocations/{id}"), 200) == ended
        assert two.other.end() == 0


@exhaustive
def test_a_suspended_gateway_is_fenced_when_it_wakes_and_ends(tmp_path: Path) -> None:
    with pair(tmp_path) as two:
        id = two.begin(two.a)
        os.kill(two.one.process.pid, signal.SIGSTOP)
        ended = two.ended(two.b, id)
        assert ended["status_reason"] == "host_restarted"
        two.go.touch()  # its plugin answers now, and it wakes with that answer
        until_blocking(lambda: two.told("ended") == 1)
        os.kill(two.one.process.pid, signal.SIGCONT)
        assert two.one.process.wait(PATIENCE) != 0, "it must begin anew"
        assert made(two.b.get(f"/v1/plugin-invocations/{id}"), 200) == ended, "the late answer is not written"
        assert any("taken over" in line for line in two.one.log)
        assert two.other.end() == 0


def refusal(gateways: Cluster, *arguments: str) -> str:
    """Why a gateway does not start."""
    with gateways.start(*arguments) as gateway:
        message: str = gateway.facts["failure"]["message"]
        return message


@exhaustive
def test_a_gateway_that_does_not_fit_the_others_is_refused(tmp_path: Path) -> None:
    with cluster(tmp_path) as gateways, gateways.start() as first:
        for name, problem in (
            ("PLUGBAY_OPERATOR_TOKEN_FILE", "another operator token"),
            ("PLUGBAY_SECRET_KEY_FILE", "another secret key"),
        ):
            kept = gateways.environ[name]
            wrong = tmp_path / "wrong"
            wrong.touch(0o600)
            wrong.write_text("pb_sk_" + "x" * 40 if "TOKEN" in name else "A" * 43 + "=")
            gateways.environ[name] = str(wrong)
            assert problem in refusal(gateways)
            gateways.environ[name] = kept
        plain = tmp_path / "plain.toml"
        plain.write_text("")
        assert "another plugbay server: 1 gateways with [cluster]" in refusal(gateways, "--config", str(plain))
        assert first.end() == 0
        with gateways.start("--config", str(plain)) as alone:
            assert "a plugbay server without [cluster]" in refusal(gateways)
            assert alone.end() == 0


@exhaustive
def test_several_gateways_start_at_the_same_moment(tmp_path: Path) -> None:
    with cluster(tmp_path) as gateways, ExitStack() as stack:
        starting = [gateways.start() for _ in range(3)]
        started: list[Served] = []
        # The environment is set once: threads would undo each other's.
        os.environ.update(gateways.environ)
        stack.callback(lambda: [os.environ.pop(name, None) for name in gateways.environ])
        threads = [threading.Thread(target=lambda each=each: started.append(each.__enter__())) for each in starting]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        for each in starting:
            stack.push(each)
        assert len(started) == 3
        for gateway in started:
            with gateway.client() as client:
                assert made(client.get("/readyz"), 200)["ready"] is True
        assert [gateway.end() for gateway in started] == [0, 0, 0]
