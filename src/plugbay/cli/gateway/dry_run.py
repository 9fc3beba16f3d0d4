"""The print of a dry run: a diff of the record as it is and as it would be, and the result of the server's validation.

The server decides both, so a dry run ends with the exit status of the real command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from plugbay.cli import remote
from plugbay.cli.render import output

REFUSED = remote.STATUSES[422]
"""The exit status of a request that fails its validation."""


def show(answer: dict[str, Any], *, as_json: bool) -> None:
    """Print the answer to a dry run; exits with the status of the refused command if it would be refused."""
    before, after = answer["before"], answer["after"]
    if as_json:
        output.print_json({**answer, "changes": list(find_changes(before, after))})
    else:
        _show_diff(before, after)
        _show_validation(answer)
    if not answer["accepted"]:
        raise typer.Exit(REFUSED)


def find_changes(before: Any, after: Any, *path: str) -> Iterator[dict[str, Any]]:
    """Each changed value with its path. `before` is left out for a new value, `after` for a removed one."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            if name not in before:
                yield {"path": ".".join((*path, name)), "after": after[name]}
            elif name not in after:
                yield {"path": ".".join((*path, name)), "before": before[name]}
            else:
                yield from find_changes(before[name], after[name], *path, name)
    elif before != after:
        sides = {"before": before, "after": after}
        kept = sides if path else {side: record for side, record in sides.items() if record is not None}
        yield {"path": ".".join(path), **kept}


def _show_diff(before: Any, after: Any) -> None:
    import difflib

    lines = list(difflib.unified_diff(_lines(before), _lines(after), "as it is", "as it would be", lineterm="", n=2))
    output.out().diff(lines)
    if not lines:
        output.note("nothing would change")


def _lines(record: dict[str, Any] | None) -> list[str]:
    import msgspec

    if record is None:
        return []
    return msgspec.json.format(msgspec.json.encode(record, order="sorted"), indent=2).decode().split("\n")


def _show_validation(answer: dict[str, Any]) -> None:
    """Findings on stderr, and whether the server would accept the change."""
    page, validation = output.err(), answer["validation"] or {"errors": [], "warnings": []}
    for mark, style, findings in (
        (output.BAD, output.BAD_STYLE, validation["errors"]),
        (output.WARN, output.WARN_STYLE, validation["warnings"]),
    ):
        for finding in findings:
            page.line((mark, style), f" {finding['path']}: {finding['message']} ", (finding["code"], output.CODE))
    if not answer["accepted"]:
        output.problem("the server would refuse this; nothing was changed")
    elif validation["errors"]:
        output.note("the server would accept this as inactive; nothing was changed")
    else:
        page.line((output.OK, output.GOOD_STYLE), " the server would accept this; nothing was changed")
