"""The `--help` page: usage, arguments, options and examples in two columns, without boxes.

Replaces Typer's page, which shows a type for every flag, draws frames even in a pipe, and takes twice as long to
import.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from typer.core import TyperCommand, TyperGroup

from plugbay.cli.render import output

if TYPE_CHECKING:
    Row = tuple[str, str]

GAP = 3


class HelpCommand(TyperCommand):
    """A command with this help page."""

    tail = ""
    """Usage text for trailing arguments that the command parses itself."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_render(self, ctx, {}))


class HelpGroup(TyperGroup):
    """A group of commands with this help page."""

    sections: ClassVar[dict[str, str]] = {}
    """Titles with the names of their commands; if empty, one section has all commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        formatter.write(_render(self, ctx, {name: command for name, command in commands.items() if command}))


def _render(command: Any, ctx: Any, subcommands: dict[str, Any]) -> str:
    page = output.out()
    with page.console.capture() as captured:
        _show(page, command, ctx, subcommands)
    return str(captured.get())


def _show(page: output.Printer, command: Any, ctx: Any, subcommands: dict[str, Any]) -> None:
    parameters = [parameter for parameter in command.get_params(ctx) if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    for paragraph in paragraphs(command.help):
        page.line(paragraph)
        page.blank()
    words = ["COMMAND", "…"] if subcommands else _words(command, arguments, options)
    page.line(("Usage: ", output.NAME), " ".join([ctx.command_path, *words]))
    sections = getattr(command, "sections", {}) or {"Commands": " ".join(subcommands)}
    width = max(map(len, subcommands), default=0) + GAP
    for title, names in sections.items():
        found = [(name, subcommands[name]) for name in names.split() if name in subcommands]
        _table(page, title, [(name, _first_line(entry)) for name, entry in found], width)
    _table(page, "Arguments", [(_argument_name(argument), argument.help or "") for argument in arguments])
    _table(page, "Options", [(_option_name(option), option.help or "") for option in options])
    _epilog(page, command.epilog)


def _words(command: Any, arguments: Iterable[Any], options: Iterable[Any]) -> list[str]:
    """The usage line after the command's name; options stand before arguments that are passed on."""
    named = [*map(_usage, arguments)]
    shown = [*(_option_name(option) for option in options if option.required), "[OPTIONS]"]
    foreign = next((at for at, word in enumerate(named) if "--" in word), len(named))
    at = foreign if command.allow_interspersed_args else 0
    return [*named[:at], *shown, *named[at:], *([command.tail] if command.tail else [])]


def paragraphs(text: str | None) -> list[str]:
    """A docstring's paragraphs, each on one line."""
    return [" ".join(part.split()) for part in (text or "").split("\n\n") if part.strip()]


def _usage(argument: Any) -> str:
    return _argument_name(argument) if argument.required else f"[{_argument_name(argument)}]"


def _argument_name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _option_name(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _first_line(command: Any) -> str:
    """The first sentence of the help text."""
    return next(iter(paragraphs(command.help)), "").partition(". ")[0].rstrip(".")


def _table(page: output.Printer, title: str, rows: Iterable[Row], width: int = 0) -> None:
    rows = list(rows)
    if not rows:
        return
    page.blank()
    page.line((title, output.NAME))
    width = width or max(len(name) for name, _ in rows) + GAP
    for name, text in rows:
        page.field(name, text, width=width, label_style=output.CODE)


def _epilog(page: output.Printer, text: str | None) -> None:
    """Print the epilog: blocks of a title and lines."""
    for block in (text or "").split("\n\n") if text else ():
        title, *lines = block.split("\n")
        page.blank()
        page.line((title, output.NAME))
        for line in lines:
            page.line(line.strip(), indent=2)
