"""Options that several commands share, and the readers of their values: JSON, `--call EXPORT [JSON]`, secrets.

`main` imports this module always, so heavy imports stay inside functions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.help import HelpCommand
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Malformed

LONGEST = 3600.0
"""Seconds; the limit of the host."""

MAX_INPUT = 64 << 20
"""Bytes read from stdin; plugins buffer as much."""


def _seconds(value: float | None) -> float | None:
    if value is not None and not 0 < value <= LONGEST:
        raise typer.BadParameter(f"{value:g} is not more than 0 and at most {LONGEST:g} seconds")
    return value


Timeout = Annotated[
    float | None,
    typer.Option(metavar="S", callback=_seconds, help="Seconds for a call; the contract has the default."),
]


def database_url(value: str | None) -> str | None:
    """A URL, or the one in the file `@FILE`: a URL with a password is not for the list of processes."""
    if value is None or not value.startswith("@"):
        return value
    try:
        text = Path(value[1:]).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{value[1:]} cannot be read: {error}") from None
    if not text:
        raise typer.BadParameter(f"{value[1:]} is empty")
    return text


Grant = Annotated[
    list[str] | None, typer.Option(metavar="CAP", help="Grant a capability, such as network=example.com; repeatable.")
]
GrantAll = Annotated[bool, typer.Option("--grant-all", help="Grant all requested capabilities.")]
NoSandbox = Annotated[bool, typer.Option("--no-sandbox", help="Run plugins unconfined, despite their manifests.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Read this file, not ./plugbay.toml.")
]
Plugins = Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of plugins in which to look for an id.")]
Folders = Annotated[list[Path] | None, typer.Argument(metavar="DIR…", help="Plugins, or folders of plugins.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Server = Annotated[str | None, typer.Option(metavar="URL", help="The server; by default the one on this machine.")]
TokenFile = Annotated[Path | None, typer.Option(metavar="FILE", help="A file with the token for the server.")]


# --call EXPORT [JSON].

CALL = "--call"

JSON_BEGINS = tuple('{["-0123456789tfn')
"""First characters of a JSON value; an argument that begins otherwise is not the input of a call."""


class CallCommand(HelpCommand):
    """A command whose option `--call` takes an optional JSON argument after the name of the export."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        for at in reversed([at for at, word in enumerate(words) if word == CALL]):
            if words[at + 2 : at + 3] and words[at + 2].startswith(JSON_BEGINS) and not words[at + 2].startswith("--"):
                words[at + 1 : at + 3] = [f"{words[at + 1]} {words[at + 2]}"]
        return super().parse_args(ctx, words)


class ExportCall(NamedTuple):
    """A call of one export of a plugin."""

    export: str
    input: Any

    @property
    def key(self) -> str:
        return f"{self.export} {self.input!r}"


def parse_call(words: str) -> ExportCall:
    """Parse `EXPORT [JSON]`; raises `Refusal`."""
    export, _, given = words.partition(" ")
    return ExportCall(export, read_json(given.strip() or "{}", f"the input of {export}"))


def full_name(plugin_id: str, export: str) -> str:
    """`plugin/export`, unless the export is written so already."""
    return export if export.startswith(f"{plugin_id}/") else f"{plugin_id}/{export}"


# JSON.


def read_json(text: str, name: str) -> Any:
    """Parse one JSON value from `text`, or from stdin for `-`, as strictly as on the wire; raises `Refusal`."""
    from plugbay.wire.fast_json import MsgspecCodec
    from plugbay.wire.strict_json import Malformed

    data = _read_stdin() if text == "-" else text.encode("utf-8", "surrogateescape")
    source = "standard input" if text == "-" else name
    if not data.strip():
        raise refusal(f"{source} is empty; an empty object is {{}}", status=Exit.USAGE)
    try:
        return MsgspecCodec().decode(data)
    except Malformed as error:
        raise refusal(f"{source} {_describe_malformed(error)}", _quoting_hint(text), Exit.USAGE) from None


_KEY = re.compile(r"[^\W\d][\w.-]*(?==)")
"""The key of KEY=VALUE; no JSON value begins so."""


def read_input(words: Sequence[str]) -> Any:
    """The input of a call: one JSON value, `-` for stdin, or a `KEY=VALUE` for each key; raises `Refusal`.

    A VALUE that reads as JSON is that JSON, any other is a text.
    """
    if len(words) == 1 and not _KEY.match(words[0]):
        return read_json(words[0], "the input")
    given: dict[str, Any] = {}
    for word in words:
        key = _KEY.match(word)
        if key is None:
            hint = "write the input as one JSON value, or as KEY=VALUE for each key; see plugbay call --help"
            raise refusal(f"{word!r} is not KEY=VALUE", hint, Exit.USAGE)
        if key[0] in given:
            raise refusal(f"{key[0]} is given twice", f"write a list as {key[0]}='[1, 2]'", Exit.USAGE)
        given[key[0]] = _read_value(word[key.end() + 1 :])
    return given


def _read_value(text: str) -> Any:
    from plugbay.wire.fast_json import MsgspecCodec
    from plugbay.wire.strict_json import Malformed

    try:
        return MsgspecCodec().decode(text.encode("utf-8", "surrogateescape"))
    except Malformed:
        return text


def _describe_malformed(error: Malformed) -> str:
    """The error as the end of a sentence."""
    text = str(error)
    return f"is {text}" if text.startswith("not ") else f"cannot be used: {text}"


def _quoting_hint(text: str) -> str:
    """A hint for invalid JSON; the usual reason is that the shell removed the quotes."""
    if text != "-" and '"' not in text and any(sign in text for sign in ":'"):
        return 'quote it for the shell: \'{"key": "value"}\''
    return 'write JSON like \'{"key": "value"}\'; - reads it from standard input'


def _read_stdin() -> bytes:
    if sys.stdin is None:
        return b""
    if sys.stdin.isatty():
        output.note("reading the input from the terminal; end it with Ctrl-D")
    data = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise refusal(f"standard input has more than {MAX_INPUT:,} bytes", status=Exit.USAGE)
    return data


def read_secret(name: str) -> str:
    """Read a secret from the terminal without echo, or from stdin; empty if nothing was given."""
    if sys.stdin is not None and sys.stdin.isatty():
        import getpass

        return getpass.getpass(f"{name}: ")
    return "" if sys.stdin is None else sys.stdin.read().removesuffix("\n")
