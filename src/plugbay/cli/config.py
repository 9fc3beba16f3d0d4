"""`plugbay config show|set|secret`: the settings of one plugin, validated as a whole before they are saved.

`host.config.settings` validates and saves. A secret is never an argument, never shown and never echoed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import completion, local_host, lookup, remote
from plugbay.cli.exit_codes import Exit, Refusal
from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.options import AsJson, ConfigFile, Plugins, read_json, read_secret
from plugbay.cli.paths import directories
from plugbay.cli.render import output
from plugbay.model.errors import CallFailed, Code, Failure

if TYPE_CHECKING:
    from plugbay.host.admin.plugin_settings import PluginSettings
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.model.spec import PluginSpec

Where = Annotated[
    str,
    typer.Argument(
        metavar="PATH|ID",
        help="The plugin's folder, its id, or an MCP server of plugbay.toml.",
        autocompletion=completion.ids_of(completion.PLUGINS),
    ),
]

EXAMPLES = """\
Examples
plugbay config show plugins/memory
plugbay config set plugins/memory max_results 20
plugbay config secret plugins/memory api_key < key.txt"""

config = typer.Typer(
    name="config",
    help="Show and change the settings of a plugin.",
    epilog=EXAMPLES,
    cls=HelpGroup,
    no_args_is_help=True,
)


def _load(where: str, plugins: Path | None, config_file: Path | None, *, quiet: bool = False) -> PluginSettings:
    """The settings of a plugin, with the bindings that a host would use."""
    from plugbay.host.admin.plugin_settings import PluginSettings
    from plugbay.host.bindings import Bindings, Options
    from plugbay.host.config.config import Config

    loaded = local_host.load_config(config_file) or Config.default()
    spec = _find_plugin(where, plugins, loaded, quiet)
    state = Path(loaded.host.state_dir or directories()["state"]).absolute()
    return PluginSettings(spec, Bindings(loaded, Options(), state), state)


def _find_plugin(where: str, plugins: Path | None, config: Config, quiet: bool) -> PluginSpec:
    """Find the plugin in plugbay.toml, by id or by path; exits or raises `CallFailed` when there is none."""
    from plugbay.host.discovery import servers
    from plugbay.host.discovery.folders import discover

    if plugins is None:
        declared = (
            {item.entry: item for item in servers.find_servers(config)}
            if local_host.declares_server(config, where)
            else {}
        )
        found = declared.get(where) or _find_by_id(where, quiet) or lookup.find(Path(where))
        if found.spec is None:
            raise lookup.refusal(found, "config show")
        return found.spec
    specs = {item.spec.id: item.spec for item in discover([plugins]) if item.spec}
    if where not in specs:
        known = ", ".join(specs) or "none"
        raise CallFailed(Failure(Code.NOT_FOUND, f"no plugin has the id {where!r}; known ids: {known}"))
    return specs[where]


def _find_by_id(where: str, quiet: bool) -> Found | None:
    """The plugin of this id in this directory, among the installed ones or on the server, unless a path has this name.

    Prints its folder unless `quiet`.
    """
    from plugbay.host.discovery.folders import discover

    if lookup.folder_of(Path(where)).exists():
        return None
    here = next((item for item in discover([Path()]) if item.spec is not None and item.spec.id == where), None)
    if here is None:
        return remote.find_by_id(where, quiet=quiet)
    if not quiet:
        output.using(f"the folder {here.root}")
    return here


@config.command(cls=HelpCommand, epilog=EXAMPLES)
def show(plugin: Where, plugins: Plugins = None, config_file: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show the settings of a plugin, and the names of its secrets.

    Exits with 3 when a setting is invalid or missing.
    """
    shown = _load(plugin, plugins, config_file, quiet=as_json).describe()
    if as_json:
        output.print_json(shown)
    else:
        _show(shown)
    raise typer.Exit(Exit.INVALID if shown["problems"] else Exit.OK)


@config.command("set", cls=HelpCommand, epilog=EXAMPLES)
def set_(
    plugin: Where,
    knob: Annotated[str, typer.Argument(metavar="KNOB", help="A knob, or a field of the settings.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value; JSON for a field.")],
    plugins: Plugins = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Change one setting. The settings must match the plugin's schema; they apply after a reload."""
    target = _load(plugin, plugins, config_file, quiet=as_json)
    is_knob = any(known.name == knob for known in target.settings.knobs)
    failure = target.change({knob: value if is_knob else _parse_value(value)}).get(knob)
    if failure is not None:
        known = {"hint": f"plugbay config show {plugin} lists the settings"}
        raise CallFailed(failure.with_detail(target.spec.id, **(known if failure.code == Code.NOT_FOUND else {})))
    kept = target.describe()["config"][target.field_of(knob)]
    if as_json:
        output.print_json(target.describe())
    else:
        output.note(f"{target.spec.id}: {knob} is now {_text(kept)}; reload the plugin to apply it")


@config.command(cls=HelpCommand, epilog=EXAMPLES)
def secret(
    plugin: Where,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a secret of the plugin.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove the secret.")] = False,
    plugins: Plugins = None,
    config_file: ConfigFile = None,
) -> None:
    """Set a secret. The value is read from the terminal without echo, or from standard input."""
    target = _load(plugin, plugins, config_file)
    target.set_secret(name, None if remove else _read_secret(target, name))
    output.note(f"{target.spec.id}: the secret {name} is {'removed' if remove else 'saved'}")


def _parse_value(text: str) -> Any:
    """Parse JSON; text that is not JSON is the value itself, so that a word needs no second quotes."""
    try:
        return read_json(text, "the value")
    except Refusal:
        return text


def _read_secret(target: PluginSettings, name: str) -> str:
    """Read a secret from the terminal or stdin; raises `CallFailed` for a name that the plugin does not declare."""
    target.require_secret(name)
    typed = read_secret(name)
    if not typed:
        hint = "type the value, or pipe it in: … < FILE; --remove removes the secret"
        text = f"no value was given for {name}"
        raise CallFailed(Failure(Code.INVALID_INPUT, text, plugin=target.spec.id, detail={"hint": hint}))
    return typed


def _show(shown: dict[str, Any]) -> None:
    page = output.out()
    page.line((shown["plugin"], output.NAME))
    bound = {knob["field"] for knob in shown["knobs"]}
    rows = [
        *((knob["name"], _text(knob["value"]), f"{knob['label']}{_bounds(knob)}") for knob in shown["knobs"]),
        *((name, _text(value), "") for name, value in shown["config"].items() if name not in bound),
        *((name, "not set", about) for name, about in _unset_fields(shown).items() if name not in bound),
        *((item["name"], "set" if item["set"] else "not set", _secret_note(item)) for item in shown["secrets"]),
    ]
    if not rows:
        page.line(("  no settings", output.DIM))
    width = max((len(name) for name, _, _ in rows), default=0) + 2
    for name, value, about in rows:
        page.field(name, value or ("(empty)", output.DIM), (f"  {about}" if about else "", output.DIM), width=width)
    for problem in shown["problems"]:
        path = f"{problem['path']}: " if problem["path"] else ""
        page.line((output.BAD, output.BAD_STYLE), f" {path}{problem['message']}", indent=2)


def _unset_fields(shown: dict[str, Any]) -> dict[str, str]:
    """Fields of the schema without a value, each with its description or type."""
    schema = shown["config_schema"]
    fields = schema.get("properties", {}) if isinstance(schema, dict) else {}
    described = {name: field if isinstance(field, dict) else {} for name, field in fields.items()}
    return {
        name: str(field.get("description") or field.get("type") or "")
        for name, field in described.items()
        if name not in shown["config"]
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else output.json_bytes(value).decode()


def _bounds(knob: dict[str, Any]) -> str:
    if "values" in knob:
        return f" ({', '.join(map(str, knob['values']))})"
    if "min" in knob and "max" in knob:
        return f" ({knob['min']:g}..{knob['max']:g})"
    return ""


def _secret_note(item: dict[str, Any]) -> str:
    return "a secret" + (", required" if item["required"] else "")
