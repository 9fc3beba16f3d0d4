"""The command line of the control plane, against a real server with a record of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plugbay.packages.archive import signature_path
from tests.cli.conftest import Done, Run
from tests.support.requirements import requirement
from tests.support.vai import export
from tests.support.worlds import World, world_at

LISTS = {
    "org list": "org_id",
    "project list org_1": "project_id",
    "key list": "key_id",
    "package list": "",
    "export tools": "",
    "export hooks": "",
    "export compactors": "",
    "export harnesses": "",
    "binding list": "binding_id",
    "secret list": "name",
    "invocation list": "invocation_id",
    "session list": "session_id",
    "chain list": "chain_id",
    "runs list": "run_id",
    "compaction list": "compaction_id",
    "harness list": "execution_id",
    "delivery list": "delivery_id",
    "delivery events": "",
    "marketplace list": "card_id",
    "audit list": "",
}
"""Commands that list, with the record that each has to show."""

SHOWN = {
    "org": "org_id",
    "key": "key_id",
    "package": "package",
    "binding": "binding_id",
    "invocation": "invocation_id",
    "session": "session_id",
    "chain": "chain_id",
    "runs": "run_id",
    "compaction": "compaction_id",
    "harness": "execution_id",
    "delivery": "delivery_id",
    "marketplace": "card_id",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_at(tmp_path_factory.mktemp("world")) as world:
        yield world


class Shell:
    """`plugbay` with the key of one caller."""

    def __init__(self, run: Run, world: World) -> None:
        self._run = run
        self._world = world

    def __call__(self, words: str, *more: str, caller: str = "admin", stdin: str = "") -> Done:
        token = self._world.tokens[caller] or ""
        env = {"PLUGBAY_SERVER": self._world.url, "PLUGBAY_TOKEN": token}
        return self._run(*words.split(), *more, stdin=stdin, **env)


def using(world: World) -> str:
    """The line that names the server."""
    return f"using the server {world.url}, named by PLUGBAY_SERVER\n"


@pytest.fixture
def shell(run: Run, world: World) -> Shell:
    return Shell(run, world)


@requirement("host:control-plane-commands")
@pytest.mark.parametrize("words", LISTS)
def test_a_list_is_a_table(words: str, shell: Shell, world: World) -> None:
    table = shell(words)
    assert (table.code, table.err) == (0, using(world))
    head, *rows = table.out.splitlines()
    assert head.isupper() and rows
    assert world.ids.get(LISTS[words], "") in table.out


@requirement("host:control-plane-commands")
@pytest.mark.parametrize("group", SHOWN)
def test_one_record_is_shown_and_another_orgs_is_not_found(group: str, shell: Shell, world: World) -> None:
    id = world.ids[SHOWN[group]]
    page = shell(f"{group} show {id}")
    assert (page.code, page.err) == (0, using(world)) and id in page.out
    if group != "marketplace":  # cards are for all orgs
        stranger = shell(f"{group} show {id}", caller="stranger")
        assert stranger.code == 4 and "error:" in stranger.err


@requirement("host:control-plane-commands")
def test_a_list_ends_at_its_limit_and_says_so(shell: Shell, world: World) -> None:
    for name in ("one", "two", "three"):
        assert shell("session create --metadata", f"name={name}").code == 0
    whole = shell("session list --json").json
    assert len(whole["items"]) > 3 and (whole["more"], whole["asked"]) == (False, world.url)
    part = shell("session list --limit 2")
    assert len(part.out.splitlines()) == 3
    assert "there are more than 2" in " ".join(part.err.split())
    assert shell("session list --limit 2 --json").json["more"] is True


@requirement("host:control-plane-commands")
def test_a_secret_comes_from_standard_input_and_is_never_shown(shell: Shell) -> None:
    done = shell("secret set brew --org org_1", stdin="a-value-of-some-length\n")
    assert done.code == 0 and "a-value" not in done.out + done.err
    assert "brew" in shell("secret list --org org_1").out
    assert shell("secret delete brew --org org_1").code == 0
    assert "brew" not in shell("secret list --org org_1").out


@requirement("host:control-plane-commands")
def test_an_object_is_written_as_pairs_as_json_or_in_a_file(shell: Shell, cwd: Path) -> None:
    (cwd / "labels.json").write_text('{"cups": 3}')
    done = shell("session create --json --metadata cups=2 --metadata kind=green --metadata", '{"hot": true}')
    assert done.json["metadata"] == {"cups": 2, "kind": "green", "hot": True}
    assert shell("session create --json --metadata @labels.json").json["metadata"] == {"cups": 3}
    assert shell("session create --json --metadata -", stdin='{"cups": 4}').json["metadata"] == {"cups": 4}
    wrong = shell("session create --metadata", "[1]")
    assert wrong.code == 2 and "--metadata is not an object" in wrong.err
    missing = shell("session create --metadata @nowhere.json")
    assert missing.code == 1 and "nowhere.json" in missing.err


@requirement("host:control-plane-commands")
def test_work_is_awaited_and_its_end_is_the_exit_status(shell: Shell, world: World) -> None:
    session = shell("session create --project proj_1 --json").json["id"]
    chain = shell(f"chain create {session} --defaults-model m --json").json["id"]
    ended = shell(f"chain run {chain} --wait --json --blocks", "Which tea is left?")
    assert (ended.code, ended.json["status"]) == (0, "completed")
    assert shell(f"chain runs {chain} --json").json["items"][0]["id"] == ended.json["id"]
    context = shell(f"chain context {chain} --json").json["blocks"]
    assert context[0]["content"][0]["text"] == "Which tea is left?"
    replayed = shell(f"delivery replay {world.ids['delivery_id']} --wait")
    assert replayed.code == 10, "the hook fails every time"
    errand = shell(f"harness create {world.ids['harness']} --chain {chain} --wait --json --trigger-input", "Take stock")
    assert (errand.code, errand.json["status"]) == (0, "succeeded")
    assert errand.json["trigger"]["input"] == [{"type": "text", "text": "Take stock"}]
    words = f"compaction create {chain} --target-max-input-tokens 1000 --wait --json --compactor-binding"
    short = shell(words, world.ids["compactor"])
    assert short.json["status"] in ("succeeded", "failed") and short.code in (0, 10), short.json


@requirement("host:control-plane-commands")
def test_an_invocation_is_created_followed_and_listed(shell: Shell, world: World) -> None:
    done = shell(f"invocation create --binding {world.ids['binding_id']} --input a=1 --json")
    assert (done.code, done.json["status"]) == (0, "succeeded"), done.out + done.err
    id = done.json["invocation"]["invocation_id"]
    events = shell(f"invocation follow {id} --json").out.splitlines()
    assert '"event":"ended"' in events[-1]


@requirement("host:control-plane-commands")
@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ("org create", 2, "NAME"),
        ("binding create --org org_1", 2, "--package"),
        ("key create --org org_1 --name n --role king", 2, "viewer"),
        ("org show nowhere", 4, "refused"),
        ("package add nowhere.tar.gz", 1, "nowhere.tar.gz"),
        ("org serve", 2, "serve"),
    ],
)
def test_a_bad_command_line_is_explained(words: str, status: int, text: str, shell: Shell) -> None:
    done = shell(words)
    assert done.code == status and text in done.err, done.err


@requirement("host:control-plane-commands")
def test_a_package_is_added_bound_validated_and_disabled(shell: Shell, world: World, cwd: Path) -> None:
    packed = world.publisher.pack("", [export("t")], package="acme/cups")
    unsigned = shell("package add", str(packed.path), "--json")
    assert unsigned.code == 6 or unsigned.json.get("status") == "quarantined"
    signature_path(packed.path).write_bytes(world.publisher.sign(packed))
    added = shell("package add", str(packed.path), "--json")
    assert (added.code, added.json["status"]) == (0, "available"), added.err
    assert shell(f"package show {added.json['id']}").code == 0
    words = (
        f"binding create --package acme/cups --package-version {added.json['version']} --export t --org org_1 --json"
    )
    bound = shell(words).json["binding_id"]
    assert shell(f"binding validate {bound}").code == 0
    assert shell(f"binding update {bound} --status active --json").json["status"] == "active"
    assert shell(f"binding update {bound} --status disabled").code == 0
    assert shell(f"binding update {bound} --status active", caller="stranger").code == 4
