"""The first page of help: the same in every way that leads to it, and made without Typer, rich or a command."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import typer

from plugbay.cli.app import app_for
from plugbay.cli.overview import OPTIONS
from tests.cli.conftest import Run
from tests.support.patience import PATIENCE

LOADED = """
import sys
from plugbay.cli.main import main
sys.argv[1:] = ["--help"]
main()
print([name for name in ("typer", "rich", "pydantic", "plugbay.host", "plugbay.cli.call") if name in sys.modules])
"""


def test_neither_typer_nor_rich_nor_a_command_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


def test_every_way_leads_to_the_same_page(run: Run) -> None:
    page = run("--help").out
    assert run("-h").out == page
    assert run().err == page, "without a command, on stderr"


def test_the_options_are_those_of_the_app() -> None:
    command = typer.main.get_command(app_for("paths"))
    context = command.make_context("plugbay", ["paths"])
    options: list[Any] = command.get_params(context)
    found = {", ".join(sorted(option.opts, key=len)): option.help for option in options}
    assert found == OPTIONS
