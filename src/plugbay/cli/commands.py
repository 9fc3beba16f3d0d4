"""The commands by name: the place of each, its summary and its examples. Loads none of them.

A summary is the first sentence of the command's docstring; a test compares them. Here it is at hand without the
command's module, so that `plugbay --help` is fast.
"""

from __future__ import annotations

from typing import NamedTuple

from plugbay.cli.gateway.resources import RESOURCES


class Command(NamedTuple):
    """A command, or a group of commands."""

    home: str
    """`MODULE:NAME`."""
    summary: str
    examples: str = ""
    parser: str = ""
    """`MODULE:NAME` of a class with its own parsing of arguments."""


COMMANDS = {
    "inspect": Command(
        "plugbay.cli.inspect:inspect",
        "Show the exports, capabilities, sandbox and problems of a plugin",
        """\
Examples
plugbay inspect plugins/weather
plugbay inspect plugins/weather --json | jq .problems""",
    ),
    "call": Command(
        "plugbay.cli.call:call",
        "Call one export of a plugin",
        """\
Examples
plugbay call plugins/weather forecast '{"city": "Lima"}'
plugbay call weather.py forecast city=Lima days=3
plugbay call plugins/weather forecast - < input.json
plugbay call example.weather forecast --plugins plugins/ --grant-all --json""",
    ),
    "conform": Command(
        "plugbay.cli.conform:conform",
        "Check that a plugin conforms to its contract, axis by axis",
        """\
Examples
plugbay conform plugins/weather
plugbay conform plugins/weather --html report.html --badge conforms.svg --junit report.xml
plugbay conform plugins/weather -- ./target/debug/weather
plugbay conform --contract nexo -- node weather.mjs""",
        parser="plugbay.cli.conform:ConformCommand",
    ),
    "new": Command(
        "plugbay.cli.new:new",
        "Create a plugin: program, manifest, README, test and CI file",
        """\
Examples
plugbay new weather
plugbay new weather --contract rune --contract kaged --yes
plugbay new weather --lang shell --contract nexo""",
    ),
    "manifest": Command(
        "plugbay.cli.manifest.command:manifest",
        "Write the manifests of a plugin from its Python source",
        """\
Examples
plugbay manifest plugins/weather
plugbay manifest plugins/weather --contract nexo --contract vai
plugbay manifest plugins/weather --check""",
    ),
    "adapt": Command(
        "plugbay.cli.adapt:adapt",
        "Make a plugin of one contract from plugins of any other",
        """\
Examples
plugbay adapt plugins/weather --to nexo
plugbay adapt files --to rune --output ~/rune/plugins/files
plugbay adapt plugins/weather --to vai --explain
plugbay adapt plugins/ --id tools --to mcp --run""",
    ),
    "dev": Command(
        "plugbay.cli.dev.command:dev",
        "Run a plugin while you write it",
        """\
Examples
plugbay dev plugins/weather
plugbay dev plugins/weather --call forecast '{"city": "Lima"}'
plugbay dev plugins/weather --attach""",
        parser="plugbay.cli.options:CallCommand",
    ),
    "attach": Command(
        "plugbay.cli.dev.command:attach",
        "Run a program as the plugin of plugbay dev --attach",
        """\
Examples
plugbay attach unix:/path/to/socket#token -- node plugin.js""",
        parser="plugbay.cli.dev.command:AttachCommand",
    ),
    "run": Command(
        "plugbay.cli.screens:run",
        "Run a command line of a plugin, in a folder of plugins or on the running server",
        """\
Examples
plugbay run --plugins plugins/ notes add "buy milk"
plugbay run --plugins plugins/ --grant-all notes --help""",
        parser="plugbay.cli.screens:RunCommand",
    ),
    "render": Command(
        "plugbay.cli.screens:render",
        "Print one frame of a plugin's screen, or save it as SVG",
        """\
Examples
plugbay render plugins/usage
plugbay render usage burndown --plugins plugins/ --size 100x30 --key down --key enter
plugbay render plugins/usage --svg usage.svg
plugbay render usage --server http://127.0.0.1:8787""",
    ),
    "tap": Command(
        "plugbay.cli.tap:tap",
        "Show the frames between the host and a plugin, without secrets",
        """\
Examples
plugbay tap plugins/weather --call forecast '{"city": "Lima"}'
plugbay tap example.weather --plugins plugins/ --grant-all --record weather.jsonl""",
        parser="plugbay.cli.options:CallCommand",
    ),
    "replay": Command(
        "plugbay.cli.replay:replay",
        "Replay a recording as the plugin, or as its host",
        """\
Examples
plugbay replay weather.jsonl --check
plugbay replay weather.jsonl --as-host plugins/weather
plugbay replay weather.jsonl --as-host -- python3 plugin.py""",
    ),
    "serve": Command(
        "plugbay.cli.serve:serve",
        "Serve the plugins of some folders: REST API, dashboard, MCP",
        """\
Examples
plugbay serve plugins/
plugbay serve plugins/ --listen 127.0.0.1:0 --data ./data --json
plugbay serve plugins/ --database postgresql+asyncpg://plugbay@db/plugbay
plugbay serve --gateways 4 --database postgresql+asyncpg://plugbay@db/plugbay""",
    ),
    "migrate": Command(
        "plugbay.cli.migrate:migrate",
        "Bring the tables of a database up to date",
        """\
Examples
plugbay migrate --database postgresql+asyncpg://plugbay@db/plugbay
plugbay migrate --data ./data --json""",
    ),
    "node": Command(
        "plugbay.cli.nodes:node",
        "Run plugins for the gateways of a cluster",
        """\
Examples
plugbay node --name n1
plugbay node --name n1 --config node.toml --data /var/lib/plugbay-node --json""",
    ),
    "nodes": Command(
        "plugbay.cli.nodes:nodes",
        "Show the nodes of the cluster: state, calls, memory, labels, plugins; and the gateways with their leases",
        """\
Examples
plugbay nodes
plugbay nodes drain n1
plugbay nodes drain n1 --undo""",
    ),
    "dashboard": Command(
        "plugbay.cli.operate:dashboard",
        "Print a dashboard link of the running server",
        """\
Examples
plugbay dashboard
plugbay dashboard --open""",
    ),
    "ps": Command(
        "plugbay.cli.operate:ps",
        "Show the plugins of the running server: state, process, grants",
        """\
Examples
plugbay ps
plugbay ps --plugins plugins/
plugbay ps --plugins plugins/ --grant-all --json""",
    ),
    "logs": Command(
        "plugbay.cli.operate:logs",
        "Show the log of a plugin or a package of the running server",
        """\
Examples
plugbay logs example.weather --follow""",
    ),
    "start": Command(
        "plugbay.cli.operate:start",
        "Start a stopped or quarantined plugin of the running server",
        """\
Examples
plugbay start example.weather""",
    ),
    "stop": Command(
        "plugbay.cli.operate:stop",
        "Stop a plugin of the running server",
        """\
Examples
plugbay stop example.weather""",
    ),
    "restart": Command(
        "plugbay.cli.operate:restart",
        "Stop a plugin of the running server at once, and start it again",
        """\
Examples
plugbay restart example.weather""",
    ),
    "reload": Command(
        "plugbay.cli.operate:reload",
        "Restart a plugin of the running server after its running calls",
        """\
Examples
plugbay reload example.weather""",
    ),
    "grant": Command(
        "plugbay.cli.operate:grant",
        "Grant capabilities to a plugin of the running server",
        """\
Examples
plugbay grant example.weather network=api.example.com""",
    ),
    "revoke": Command(
        "plugbay.cli.operate:revoke",
        "Revoke capabilities of a plugin of the running server",
        """\
Examples
plugbay revoke example.weather network=api.example.com""",
    ),
    "prune": Command(
        "plugbay.cli.operate:prune",
        "Remove old records of the running server",
        """\
Examples
plugbay prune --dry-run
plugbay prune --json""",
    ),
    "sandbox": Command(
        "plugbay.cli.sandbox:sandbox",
        "Run a command in the sandbox of a plugin",
        """\
Examples
plugbay sandbox plugins/weather --show
plugbay sandbox plugins/weather --grant-all -- sh
plugbay sandbox plugins/weather --grant network -- curl https://api.example.com/""",
    ),
    "publish": Command(
        "plugbay.cli.events:publish",
        "Publish an event to the plugins of the running server",
        """\
Examples
plugbay publish orders.created '{"id": 7}'
plugbay publish orders.created '{"id": 7}' --plugins plugins/ --grant-all --json""",
    ),
    "hook": Command(
        "plugbay.cli.agents:hook",
        "Call a hook of every plugin of an agent, in order",
        """\
Examples
plugbay hook on_user_prompt '{"prompt": "tea?"}' --agent primary
plugbay hook before_message '{"body": "tea?"}' --plugins plugins/ --grant-all --json""",
    ),
    "compact": Command(
        "plugbay.cli.agents:compact",
        "Compact a conversation with the plugins of an agent",
        """\
Examples
plugbay compact - < messages.json
plugbay compact '[{"role": "user", "content": "tea?"}]' --plugins plugins/ --grant-all --json""",
    ),
    "events": Command(
        "plugbay.cli.events:events",
        "Print the events of the running server as they happen, until Ctrl-C",
        """\
Examples
plugbay events
plugbay events 'orders.>' --count 1 --json
plugbay events --plugins plugins/ --grant-all""",
    ),
    "doctor": Command(
        "plugbay.cli.doctor.command:doctor",
        "Check this machine, plugbay.toml and a plugin",
        """\
Examples
plugbay doctor
plugbay doctor plugins/weather""",
    ),
    "tui": Command(
        "plugbay.cli.screens:tui",
        "Use the screens of plugins in the terminal",
        """\
Examples
plugbay tui plugins/
plugbay tui plugins/burndown --grant-all""",
    ),
    "pack": Command(
        "plugbay.cli.packages.publish:pack",
        "Pack a plugin's folder into one file",
        """\
Examples
plugbay pack plugins/weather
plugbay pack plugins/weather --out dist/ --json""",
    ),
    "keygen": Command(
        "plugbay.cli.packages.signing:keygen",
        "Make a key pair for signing packages",
        """\
Examples
plugbay keygen acme""",
    ),
    "sign": Command(
        "plugbay.cli.packages.signing:sign",
        "Sign a package",
        """\
Examples
plugbay sign example.weather-1.0.0.tar.gz --key acme.key
vai-plugin-sign dist/devkit --key acme.key""",
    ),
    "verify": Command(
        "plugbay.cli.packages.signing:verify",
        "Verify the contents and the signature of a package",
        """\
Examples
plugbay verify example.weather-1.0.0.tar.gz""",
    ),
    "push": Command(
        "plugbay.cli.packages.publish:push",
        "Upload a package and its signature to a registry",
        """\
Examples
plugbay push example.weather-1.0.0.tar.gz oci://registry.example/acme/weather""",
    ),
    "pull": Command(
        "plugbay.cli.packages.publish:pull",
        "Download a package and its signature from a registry",
        """\
Examples
plugbay pull oci://registry.example/acme/weather:1.0.0
plugbay pull oci://registry.example/acme/weather@sha256:…""",
    ),
    "install": Command(
        "plugbay.cli.packages.install:install",
        "Verify a package and install it for hosts",
        """\
Examples
plugbay install oci://registry.example/acme/weather:1.0.0
plugbay install example.weather-1.0.0.tar.gz --store ./store""",
    ),
    "upgrade": Command(
        "plugbay.cli.packages.install:upgrade",
        "Replace an installed plugin by a newer release",
        """\
Examples
plugbay upgrade oci://registry.example/acme/weather:1.1.0
plugbay upgrade --all --json""",
    ),
    "outdated": Command(
        "plugbay.cli.packages.outdated:outdated",
        "List the installed plugins with the newest release in the registry they came from",
        """\
Examples
plugbay outdated
plugbay outdated --json""",
    ),
    "search": Command(
        "plugbay.cli.packages.search:search",
        "Search the marketplace of the running server",
        """\
Examples
plugbay search review
plugbay search review --server http://127.0.0.1:8787 --json""",
    ),
    "list": Command(
        "plugbay.cli.packages.install:list_",
        "List the installed plugins, with their earlier releases",
        """\
Examples
plugbay list --json""",
    ),
    "rollback": Command(
        "plugbay.cli.packages.install:rollback",
        "Return to the previous release of a plugin",
        """\
Examples
plugbay rollback example.weather""",
    ),
    "pin": Command(
        "plugbay.cli.packages.install:pin",
        "Keep a plugin at its current release",
        """\
Examples
plugbay pin example.weather""",
    ),
    "unpin": Command(
        "plugbay.cli.packages.install:unpin",
        "Allow upgrade and rollback of a pinned plugin again",
        """\
Examples
plugbay unpin example.weather""",
    ),
    "uninstall": Command(
        "plugbay.cli.packages.install:uninstall",
        "Remove a plugin with all its releases",
        """\
Examples
plugbay uninstall example.weather""",
    ),
    "help": Command(
        "plugbay.cli.topics:help_",
        "Explain a concept, such as grants, sandbox, contracts or bindings",
        """\
Examples
plugbay help
plugbay help grants
plugbay help call""",
    ),
    "paths": Command(
        "plugbay.cli.paths:paths",
        "Show the folders of plugbay, and the plugbay.toml in use",
        """\
Examples
plugbay paths --json""",
    ),
}

GROUPS = {
    "badplugins": Command("plugbay.cli.badplugins:badplugins", "Test a host with plugins that misbehave on purpose"),
    "config": Command("plugbay.cli.config:config", "Show and change the settings of a plugin"),
    "mcp": Command("plugbay.cli.mcp.commands:mcp", "Host MCP servers as plugins, and serve plugins over MCP"),
    "memory": Command("plugbay.cli.memory:memory", "Fill, search and clear the memory of agents"),
    "trust": Command("plugbay.cli.packages.signing:trust", "Manage the keys that may sign packages"),
}

SECTIONS = {
    "Use plugins": "inspect call run render tui adapt",
    "Write a plugin": "new manifest dev attach conform tap replay badplugins",
    "Publish a plugin": "pack keygen sign push",
    "Install plugins": "search trust pull verify install outdated upgrade list rollback pin unpin uninstall",
    "Serve and operate": (
        "serve migrate dashboard node nodes ps logs start stop restart reload grant revoke prune config mcp"
    ),
    "Services": "publish events memory hook compact",
    "Control plane": " ".join(RESOURCES),
    "This machine": "doctor sandbox paths help",
}
"""Names of commands by task."""
