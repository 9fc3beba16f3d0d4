"""`plugbay help TOPIC`: the concepts of plugbay, a screen for each. With the name of a command, its help page.

A text has paragraphs and, as its last block, commands.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from plugbay.cli.commands import COMMANDS, GROUPS, SECTIONS
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.options import AsJson
from plugbay.cli.render import output


class Topic(NamedTuple):
    """One concept."""

    summary: str
    text: str
    page: str
    """Its page of the documentation."""


TOPICS = {
    "plugins": Topic(
        "What a plugin is, and how it runs",
        """\
A plugin is a program that speaks JSON on stdin and stdout. It offers exports: tools, hooks, models, screens and
others. The host starts it as a separate process, calls its exports, and ends it.

A plugin that crashes, hangs or sends nonsense fails its own call with one error. The host and the other plugins go on.

plugbay new weather
plugbay inspect weather
plugbay call weather hello name=Ada""",
        "docs/index.md",
    ),
    "contracts": Topic(
        "The six protocols between host and plugin, and which one to choose",
        """\
A contract is the protocol between a host and a plugin: rune, nexo, kaged, ainb, vai or MCP. The host reads the
manifest and knows the contract; only authors choose.

MCP: tools for any MCP client. vai: tools, hooks and harnesses for several organisations, with secrets and isolation.
rune: a script that answers one call and ends. kaged: tools, session hooks, storage. nexo: chat channels, models,
vector backends. ainb: screens and command lines.

A Python plugin that uses the SDK can speak all contracts that fit its exports, from one source.

plugbay new weather --contract vai
plugbay manifest weather --contract mcp
plugbay conform weather""",
        "docs/which-contract.md",
    ),
    "manifest": Topic(
        "The file that describes a plugin",
        """\
A host reads the manifest of a plugin: its id, its command, its exports, and the capabilities that it requests. The
host never imports the code of the plugin.

The SDK writes manifests from the Python source. Write them again after each change of a declaration; --check fails in
CI if one is out of date.

plugbay manifest weather
plugbay manifest weather --check""",
        "docs/author.md#manifests",
    ),
    "grants": Topic(
        "What a plugin requests, and what it gets",
        """\
A manifest requests capabilities, such as tool.execute or network=api.example.com. The operator grants them. A plugin
gets the capabilities that are both requested and granted.

A plugin without a decision is pending: its calls fail with capability_not_allowed. An empty list, grants = [], is a
decision too: the plugin runs without capabilities.

Grants are in plugbay.toml, in the section of the plugin. On a server, the commands change that file. For one call,
use --grant.

plugbay grant weather tool.execute
plugbay revoke weather tool.execute
plugbay call weather hello --grant tool.execute""",
        "docs/operate.md#grants",
    ),
    "sandbox": Topic(
        "Kernel limits around a plugin",
        """\
A confined plugin sees its own folder, the programs of the system, and the files that are granted. It reaches the
hosts that are granted, and no other. Its memory, processes and files have limits.

kaged, ainb and vai plugins are always confined. A nexo plugin is confined if its manifest enables it. Plugins of rune
and MCP are confined if the operator enables it: [sandbox] require = true, or [plugins.ID.sandbox]. A plugin that must
be confined and cannot be is not started. The sandbox needs Linux and bubblewrap.

plugbay sandbox weather --show
plugbay sandbox weather -- sh
plugbay doctor""",
        "docs/sandbox.md",
    ),
    "config": Topic(
        "plugbay.toml, settings and secrets of plugins",
        """\
plugbay.toml is the file of the operator: grants, environment, timeouts, limits, sandbox, language models, MCP
servers. Commands read the one in the current folder, or --config FILE. An unknown key is an error.

A plugin can have settings of its own. The last value wins: the manifest, then config in plugbay.toml, then plugbay
config set. A secret is read from the terminal or from stdin, and is never an argument.

plugbay config show weather
plugbay config set weather units metric
plugbay config secret weather api_key""",
        "docs/reference/configuration.md",
    ),
    "packages": Topic(
        "Plugins as signed files",
        """\
A package is a plugin as one file with a digest. The publisher signs it with a private key. The user trusts the public
key once, and installs packages that this key has signed.

Releases stay side by side: an upgrade that fails can be rolled back. Packages can be files or come from an OCI
registry.

plugbay keygen example
plugbay pack weather
plugbay sign weather-1.0.0.tar.gz --key example.key
plugbay trust add example.pub --publisher example
plugbay install weather-1.0.0.tar.gz""",
        "docs/packages.md",
    ),
    "bindings": Topic(
        "How an organisation gets a plugin on a server",
        """\
A binding allows one org or project to use one export of one package version. It has config, references to secrets, a
policy and a status: draft, active or disabled.

To create one: trust the publisher, add the package, create the org, create the binding. binding validate names
everything that is wrong; --dry-run shows a change without making it. A project's binding comes before the binding of
its org.

plugbay publisher trust --public-key @example.pub --publisher example
plugbay package add weather.tar.gz
plugbay org create Acme --id acme
plugbay binding create --package example/weather --package-version 1.0.0 --export hello --org acme""",
        "docs/control-plane.md#bindings",
    ),
    "policies": Topic(
        "Limits of an org and of a binding",
        """\
An invocation gets the requests of the manifest, narrowed by the policy of the org and by the policy of the binding. A
policy never adds a permission.

A policy can close the network, name the allowed hosts, leave out secrets and scopes, raise the isolation, and limit
time, concurrency and child runs. binding validate shows the result as effective_permissions.

plugbay org update acme --policy network=none
plugbay binding validate bind_1""",
        "docs/control-plane.md#policies",
    ),
    "invocations": Topic(
        "Calls with a record on a server",
        """\
An invocation is a call of a bound export. It has an id, a deadline, permissions, and exactly one outcome: succeeded,
failed, cancelled or retryable_failure. Its record is on disk before the plugin is asked.

A failure of the plugin is a result, with the code, the exit status and the last lines of stderr. After a crash of the
server, open invocations end as failed with host_restarted.

plugbay invocation create --org acme --export hello --input name=Ada
plugbay invocation list
plugbay invocation show inv_1""",
        "docs/control-plane.md#invocations",
    ),
    "roles": Topic(
        "Roles, keys and tokens on a server",
        """\
The operator of all orgs has the token in the data directory and may do everything. A key belongs to an org or a
project and has a role: viewer reads; operator also binds, invokes and runs; admin also manages packages, secrets,
keys and projects.

A plugin that is invoked can get a token of its own. It has scopes such as chains:read, and ends with the invocation.

plugbay key create --org acme --name deploy --role operator
plugbay audit list""",
        "docs/control-plane.md#who-may-what",
    ),
    "servers": Topic(
        "Which server a command uses",
        """\
Commands such as ps, logs, call, grant and all commands of the control plane use, in this order: the server of
--server or PLUGBAY_SERVER; your only running server; of several, the one that was started in the current folder or in
the nearest folder above.

A command prints the server that it uses on stderr. The key comes from --token-file, PLUGBAY_TOKEN, or your server on
this machine.

plugbay serve plugins/
plugbay ps
plugbay ps --server http://127.0.0.1:8787""",
        "docs/control-plane.md#which-server-a-command-asks",
    ),
    "states": Topic(
        "The states of a plugin",
        """\
idle: no process, the next call starts one. spawning: the process starts. running: it is ready. pending: it waits for
a grant or an approval. backoff: it failed, and the host waits before the next start. quarantined: it failed too
often. shutting_down and stopped: it was stopped.

A plugin that owes an answer and sends no byte is hung: the host kills and replaces it. plugbay reload ends the
quarantine.

plugbay ps
plugbay logs weather
plugbay reload weather""",
        "docs/states.md",
    ),
    "mcp": Topic(
        "MCP servers as plugins, and plugins for MCP clients",
        """\
plugbay hosts MCP servers, programs and URLs, like any other plugin. You approve the tools that a server offers; a
change of a tool needs a new approval.

plugbay also serves all plugins of all contracts to MCP clients, over stdio, over HTTP, and at /mcp of a running server.

plugbay mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
plugbay mcp serve plugins/""",
        "docs/mcp.md",
    ),
    "errors": Topic(
        "Failure codes and exit statuses",
        """\
Each failure has a code, such as invalid_input, timeout, crashed or capability_not_allowed; the plugin; a message; and
often a hint. Programs branch on the code.

The exit status is 0 for success, 1 for a failure, 2 for wrong usage, 3 for an invalid manifest or plugbay.toml, 4 for
not found, 5 for not granted, 6 for an invalid package, 7 for a failed start, 8 for a timeout, 9 for findings, and 10
for an error of the plugin.

plugbay call weather hello --json
plugbay doctor weather""",
        "docs/errors.md",
    ),
}


def help_(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC|COMMAND]", help="A topic, or a command.")] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a concept, such as grants, sandbox, contracts or bindings.

    Without a topic, lists all topics. With the name of a command, prints its help page.
    """
    if topic is None:
        _list(as_json)
        return
    found = TOPICS.get(topic.lower())
    if found is None:
        _show_command(topic)
        return
    if as_json:
        output.print_json({"topic": topic.lower(), **found._asdict()})
        return
    _show(topic.lower(), found)


def _list(as_json: bool) -> None:
    if as_json:
        output.print_json({"topics": {name: topic.summary for name, topic in TOPICS.items()}})
        return
    page = output.out()
    page.line(("Usage: ", output.NAME), "plugbay help TOPIC")
    page.rows("Topics", [(name, topic.summary) for name, topic in TOPICS.items()])


def _show(name: str, topic: Topic) -> None:
    page = output.out()
    page.line((name, output.NAME), f": {topic.summary}")
    *paragraphs, examples = topic.text.split("\n\n")
    for paragraph in paragraphs:
        page.blank()
        page.line(" ".join(paragraph.split()))
    same_name = f"\nplugbay {name} --help" if name in COMMANDS or name in GROUPS else ""
    page.blocks(f"Examples\n{examples}\n\nMore\n{topic.page}{same_name}")


def _show_command(name: str) -> None:
    names = " ".join(SECTIONS.values()).split()
    if name not in names:
        from difflib import get_close_matches

        near = get_close_matches(name.lower(), [*TOPICS, *names], n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "plugbay help lists the topics"
        raise refusal(f"there is no topic and no command {name!r}", hint, Exit.NOT_FOUND)
    from plugbay.cli.app import app_for

    command = typer.main.get_command(app_for(name))
    command.main([name, "--help"], prog_name="plugbay", standalone_mode=False)
