"""Views of a plugin's confinement: in full for `inspect` and `sandbox`, in one line for `ps` and `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plugbay.cli.render import output

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from plugbay.host.confinement.policy import Confinement
    from plugbay.process.sandbox.policy import Limits, Policy

REACHES = {"none": "none", "any": "any public address", "host": "the machine's own, unchecked"}

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def show(page: output.Printer, confinement: Confinement) -> None:
    """Print the whole confinement as fields."""
    page.field("sandbox", *_headline(confinement))
    for label, text in _rows(confinement):
        page.field(label, text)


def show_visible(page: output.Printer, visible: Iterable[tuple[str, str]]) -> None:
    """Print every path that is visible in the sandbox, and how."""
    rows = [f"{how:<10}  {path}" for how, path in visible]
    if rows:
        page.field("visible", "\n".join(rows))


def summarize(confinement: Confinement) -> str:
    """A policy in one line: the permissions beyond the minimum of every confined plugin."""
    return "" if confinement.policy is None else summarize_json(confinement.policy.to_json())


def summarize_json(policy: dict[str, Any]) -> str:
    """The same from the public JSON shape, as the server's API returns it."""
    counted = [("reads", policy["read"]), ("writes", policy["write"]), ("runs", policy["run"])]
    words = [f"{verb} {_shorten(paths)}" for verb, paths in counted if paths]
    words += ["keeps state"] if policy["state"] is not None else []
    network = policy["network"]
    reach = ", ".join(network["doors"]) or "none" if network["reach"] == "listed" else REACHES[network["reach"]]
    return output.DOT.join([*words, f"network {reach}"])


def _headline(confinement: Confinement) -> list[output.Part]:
    if confinement.policy is not None:
        return ["confined"]
    bad = confinement.downgrade or confinement.refusal is not None
    return [(str(confinement), output.WARN_STYLE if bad else output.DIM)]


def _rows(confinement: Confinement) -> list[tuple[str, str]]:
    policy = confinement.policy
    rows = [] if policy is None else _policy_rows(policy, confinement.has_scratch)
    rows += [("missing", note) for note in confinement.notes]
    if confinement.refusal is not None and confinement.refusal.detail.get("hint"):
        rows.append(("hint", str(confinement.refusal.detail["hint"])))
    return rows


def _policy_rows(policy: Policy, has_scratch: bool) -> list[tuple[str, str]]:
    listed = [("reads", policy.read), ("writes", policy.write), ("runs", policy.run)]
    rows = [(label, "\n".join(map(str, paths))) for label, paths in listed if paths]
    rows += [("programs", _programs(policy))] if policy.fenced else []
    rows += [("keeps", f"{policy.state}, up to {size(policy.limits.state)}")] if policy.state is not None else []
    rows += [("scratch", "a folder for each invocation")] if has_scratch else []
    rows.append(("network", str(policy.network)))
    # Without the proxy no private address can be reached, so the list would mislead.
    rows += (
        [("private", ", ".join(policy.network.private))] if policy.network.proxied and policy.network.private else []
    )
    return [*rows, ("limits", limits(policy.limits))]


def _programs(policy: Policy) -> str:
    others = [path.name for path in policy.tools] + (["those of runs"] if policy.run else [])
    return ", ".join(["its own", *others]) if others else "its own only"


def limits(values: Limits) -> str:
    """`256 MiB memory · 1 core · …`."""
    return output.DOT.join(
        [
            f"{size(values.memory)} memory",
            f"{values.cpu:g} {'core' if values.cpu == 1 else 'cores'}",
            f"{values.processes:,} processes",
            f"{values.open_files:,} open files",
            f"{size(values.file_size)} a file",
            f"{size(values.tmp)} in /tmp",
        ]
    )


def size(number: int) -> str:
    """`256 MiB`; in bytes if the number is not a multiple of a unit."""
    found = next(((number // unit, name) for unit, name in UNITS if number and number % unit == 0), None)
    return f"{number:,} bytes" if found is None else f"{found[0]:,} {found[1]}"


def _shorten(paths: Iterable[Path | str]) -> str:
    first, *others = map(str, paths)
    return f"{first} and {len(others)} more" if others else first
