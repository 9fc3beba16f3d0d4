"""Renders a report as one HTML page that can be published: no script, no second file, nothing fetched.

Text from the plugin is untrusted: it is made printable, escaped and bounded, and a content security policy in the page
also blocks scripts and fetches. The style is in `page.css`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable
from html import escape
from pathlib import Path

import msgspec

from plugbay.conformance.reports.report import GOT, AxisResult, Finding, Report, Status, excerpt
from plugbay.model.text import printable

STYLE = Path(__file__).with_name("page.css")

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The content security policy: text and style only."""

FRAME_LINES = 80
"""Characters of a formatted message; the rest is in a reproduced failure."""

TALK_BYTES = 600
"""Of each message before a failure."""

WORDS = {status: str(status) for status in Status}
MARKS = {
    Status.PASSED: '<path d="M3.5 8.5l3 3 6-7"/>',
    Status.FAILED: '<path d="M4 4l8 8M12 4l-8 8"/>',
    Status.ADVICE: '<path d="M8 3.5v5.5M8 12v.5"/>',
    Status.SKIPPED: '<path d="M4 8h8"/>',
}

_JSON = re.compile(r'("(?:\\.|[^"\\])*")(\s*:)?|\b(true|false|null)\b|(-?\d[\d.eE+-]*)')


class About(msgspec.Struct, frozen=True):
    """Facts about the run for the reader of the page."""

    name: str
    version: str
    command: tuple[str, ...]
    """The command that reproduces the run."""
    program: tuple[str, ...]
    """The arguments after `--`."""
    date: str
    made_by: str

    def again(self, *options: str) -> str:
        """The command line."""
        return shlex.join([*self.command, *options, *(["--", *self.program] if self.program else [])])


def page(report: Report, about: About) -> str:
    """The whole page."""
    title = f"{_safe(about.name)} {_safe(about.version)}: {verdict(report)}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{title}</title>",
        f"<style>{STYLE.read_text('utf-8')}</style></head><body><main>",
        _header(report, about),
        _cards(report, about, Status.FAILED, "broken", "What is broken"),
        _cards(report, about, Status.ADVICE, "advice", "Advice"),
        _every_rule(report),
        _footer(about),
        "</main></body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def verdict(report: Report) -> str:
    """The report in a few words: `conforms to rune`."""
    tried = report.passed + report.failed + report.advice
    if report.failed:
        return f"breaks {report.failed} of {report.passed + report.failed} rules of {_safe(report.contract)}"
    return f"conforms to {_safe(report.contract)}" if tried else f"was not tested against {_safe(report.contract)}"


def _header(report: Report, about: About) -> str:
    kind = "bad" if report.failed else "good"
    status = Status.FAILED if report.failed else Status.PASSED
    counts = [(each, getattr(report, WORDS[each])) for each in Status if each is not Status.ADVICE or report.advice]
    told = ", ".join(f"{number} {WORDS[each]}" for each, number in counts)
    bar = "".join(f'<i class="{WORDS[each]}" style="flex:{number}"></i>' for each, number in counts if number)
    facts = [
        ("Contract", _safe(report.contract)),
        ("Date", f"<time>{_safe(about.date)}</time>"),
        ("Checked with", _safe(about.made_by)),
    ]
    return (
        '<header><p class="kind">Conformance report</p>'
        f"<h1>{_safe(about.name)} <small>{_safe(about.version)}</small></h1>"
        f'<p class="verdict {kind}">{_mark(status)}<span>{verdict(report)}</span></p>'
        f'<div class="bar" role="img" aria-label="{told}">{bar}</div>'
        f'<ul class="counts">{"".join(f"<li class={WORDS[e]}><b>{n}</b> {WORDS[e]}</li>" for e, n in counts)}</ul>'
        f"<dl>{''.join(f'<div><dt>{name}</dt><dd>{text}</dd></div>' for name, text in facts)}</dl></header>"
    )


# Findings.


def _cards(report: Report, about: About, status: Status, id: str, title: str) -> str:
    axes = [axis for axis in report.axes if axis.status is status]
    if not axes:
        return ""
    cards = "\n".join(_card(axis, anchor, found, about) for axis in axes for anchor, found in _findings(axis))
    return f'<section aria-labelledby="{id}"><h2 id="{id}">{title}</h2>\n{cards}</section>'


def _findings(axis: AxisResult) -> list[tuple[str, Finding]]:
    """The findings of an axis, each with the anchor of its card; an axis without findings gives its detail."""
    number: Counter[str] = Counter()
    named: list[tuple[str, Finding]] = []
    for found in axis.findings or (Finding(axis.detail),):
        check = found.check or axis.id
        number[check] += 1
        named.append((check if number[check] == 1 else f"{check}-{number[check]}", found))
    return named


def _card(axis: AxisResult, anchor: str, found: Finding, about: About) -> str:
    wanted = f"It {found.title or axis.title}" if found.title else _capital(axis.title)
    again = about.again("--only", found.check or axis.id)
    parts = [
        f"<h3>{_mark(Status.ADVICE if found.is_advice else Status.FAILED)}<span>{_safe(wanted)}</span></h3>",
        f'<p class="id"><code>{_safe(found.check or axis.id)}</code></p>',
        f'<p class="what">{_lines(found.what)}</p>',
        _rule(found),
        _frame(found),
        _facts(found),
        _talk(found),
        f'<p class="label">Reproduce</p><pre class="command"><code>{_safe(again)}</code></pre>',
    ]
    kind = ' class="advice"' if found.is_advice else ""
    return f'<article id="{_safe(anchor)}"{kind}>{"".join(parts)}</article>'


def _rule(found: Finding) -> str:
    if not found.rule:
        return ""
    cite = f"<cite>{_safe(found.clause)}</cite>" if found.clause else ""
    label = "Advice, not in the contract's text" if found.is_advice else "The rule"
    return f'<p class="label">{label}</p><blockquote><p>{_safe(_capital(found.rule))}.</p>{cite}</blockquote>'


def _frame(found: Finding) -> str:
    if found.frame is None:
        return ""
    label = "The message" if found.is_advice else "The message that broke it"
    return f'<p class="label">{label}</p><pre class="frame"><code>{pretty(found.frame)}</code></pre>'


def _facts(found: Finding) -> str:
    rows = [("Step", found.step), ("Case", found.case), ("Exit", found.exit), ("Hint", found.hint)]
    if found.stderr:
        rows.append(("Stderr", "\n".join(found.stderr)))
    items = "".join(f"<div><dt>{name}</dt><dd>{_lines(text)}</dd></div>" for name, text in rows if text)
    return f"<dl>{items}</dl>" if items else ""


def _talk(found: Finding) -> str:
    if not found.talk:
        return ""
    lines = "".join(_said(direction == GOT, body) for direction, body in found.talk)
    return f"<details><summary>The conversation before it</summary><ol>{lines}</ol></details>"


def _said(by_plugin: bool, body: bytes) -> str:
    kind, who = ("got", "plugin") if by_plugin else ("sent", "host")
    return f'<li class="{kind}"><b>{who}</b> <code>{_safe(excerpt(body.strip(), TALK_BYTES))}</code></li>'


# Every rule.


def _every_rule(report: Report) -> str:
    areas = dict.fromkeys(map(_area, report.axes))
    groups = "\n".join(_group(name, [axis for axis in report.axes if _area(axis) == name]) for name in areas)
    return f'<section aria-labelledby="rules"><h2 id="rules">Every rule</h2>\n{groups}</section>'


def _area(axis: AxisResult) -> str:
    """`rune.handshake` of `rune.handshake.answers`; where axes have no parts, the contract."""
    return axis.id.rpartition(".")[0]


def _group(name: str, axes: Iterable[AxisResult]) -> str:
    return f'<h3 class="area"><code>{_safe(name)}</code></h3><ul class="rules">{"".join(map(_row, axes))}</ul>'


def _row(axis: AxisResult) -> str:
    status = WORDS[axis.status]
    why = f'<span class="why">{_safe(axis.detail)}</span>' if axis.status is Status.SKIPPED else ""
    links = ", ".join(f'<a href="#{_safe(anchor)}">what happened</a>' for anchor, _ in _findings(axis))
    more = f'<span class="why">{links}</span>' if axis.status in (Status.FAILED, Status.ADVICE) else why
    name = _safe(axis.id.rpartition(".")[2])
    return (
        f'<li class="{status}">{_mark(axis.status)}<span class="off">{status}: </span>'
        f"<span><span>{_safe(axis.title)}</span>{more}</span><code>{name}</code></li>"
    )


def _footer(about: About) -> str:
    return (
        f'<footer><p class="label">See for yourself</p><pre class="command"><code>{_safe(about.again())}</code></pre>'
        f"<p>Made by {_safe(about.made_by)} on {_safe(about.date)}. Each rule was tried in a process of its own.</p>"
        "</footer>"
    )


# Text.


def pretty(body: bytes) -> str:
    """A message laid out where it is JSON, and as it is where it is not; escaped either way, and bounded."""
    head, blank, rest = body.partition(b"\r\n\r\n")
    header, content = (head + blank, rest) if blank and head.lower().startswith(b"content-length") else (b"", body)
    try:
        lines = json.dumps(json.loads(content), indent=2, ensure_ascii=False).split("\n")
    except (ValueError, RecursionError):
        lines = [excerpt(content, len(content))]
        return _safe(excerpt(header)) + _safe(lines[0])
    more = f"\n… and {len(lines) - FRAME_LINES} more lines" if len(lines) > FRAME_LINES else ""
    text = "\n".join(printable(line.encode("utf-8", "backslashreplace")) for line in lines[:FRAME_LINES])
    return (f"{_safe(excerpt(header))}\n" if header else "") + _highlight(text) + more


def _highlight(text: str) -> str:
    """JSON with its keys, texts and other values told apart; everything is escaped on the way."""
    parts: list[str] = []
    end = 0
    for match in _JSON.finditer(text):
        parts.append(escape(text[end : match.start()]))
        quoted, colon, word, number = match.groups()
        kind = "key" if colon else "text" if quoted else "value"
        parts.append(f'<span class="{kind}">{escape(quoted or word or number)}</span>{colon or ""}')
        end = match.end()
    return "".join(parts) + escape(text[end:])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lines(text: str) -> str:
    return "<br>".join(map(_safe, text.split("\n")))


def _safe(text: str) -> str:
    """Untrusted text as one line of escaped HTML."""
    return escape(printable(text.encode("utf-8", "backslashreplace")))


def _mark(status: Status) -> str:
    return f'<svg class="mark {WORDS[status]}" viewBox="0 0 16 16" aria-hidden="true">{MARKS[status]}</svg>'
