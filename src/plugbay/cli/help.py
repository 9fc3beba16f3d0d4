"""The `--help` page: usage, arguments, options and examples in two columns, without boxes.

Replaces Typer's page, which shows a type for every flag, draws frames even in a pipe, and takes twice as long to
import.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

from plugbay.cli.render import output


class HelpCommand(TyperCommand):
    """A command with this help page."""

    tail = ""
    """Usage text for trailing arguments that the command parses itself."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_render(self, ctx, {}))


class HelpGroup(TyperGroup):
    """A group of commands with this help page."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        formatter.write(_render(self, ctx, {name: command for name, command in commands.items() if command}))


def _render(command: Any, ctx: Any, subcommands: dict[str, Any]) -> str:
    page = output.out()
    with page.capturing() as lines:
        _show(page, command, ctx, subcommands)
    return "".join(lines)


def _show(page: output.Printer, command: Any, ctx: Any, subcommands: dict[str, Any]) -> None:
    parameters = [parameter for parameter in command.get_params(ctx) if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    for paragraph in paragraphs(command.help):
        page.line(paragraph)
        page.blank()
    words = ["COMMAND", "…"] if subcommands else _words(command, arguments, options)
    page.line(("Usage: ", output.NAME), " ".join([ctx.command_path, *words]))
    page.rows("Commands", [(name, summary(entry.help)) for name, entry in subcommands.items()])
    page.rows("Arguments", [(_argument_name(argument), argument.help or "") for argument in arguments])
    page.rows("Options", [(_option_name(option), option.help or "") for option in options])
    page.blocks(command.epilog or "")


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


def summary(text: str | None) -> str:
    """The first sentence of a help text."""
    return next(iter(paragraphs(text)), "").partition(". ")[0].rstrip(".")
