"""Renders a report as an SVG badge for a README: the contract on the left, the verdict on the right.

One file, without scripts, fonts or anything fetched.
"""

from __future__ import annotations

from html import escape

from plugbay.conformance.reports.report import Report
from plugbay.model.text import printable

HEIGHT, PADDING = 22, 8
GOOD, BAD, NEUTRAL = "#14804a", "#c0293b", "#626a76"

WIDE, NARROW, USUAL = 9.4, 4.2, 6.7
"""Pixels of a character at 11 px, in the fonts that are tried first; the picture makes the text fit exactly."""


def badge(report: Report) -> str:
    """The picture, as SVG."""
    left, (right, colour) = printable(report.contract.encode()), _verdict(report)
    first, second = _width(left), _width(right)
    title = escape(f"{left}: {right}, by plugbay")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{first + second}" height="{HEIGHT}" role="img"'
        f' aria-label="{title}"><title>{title}</title>'
        f'<clipPath id="round"><rect width="{first + second}" height="{HEIGHT}" rx="4"/></clipPath>'
        f'<g clip-path="url(#round)"><rect width="{first}" height="{HEIGHT}" fill="#2b2f36"/>'
        f'<rect x="{first}" width="{second}" height="{HEIGHT}" fill="{colour}"/></g>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" font-size="11">'
        f"{_text(left, 0, first)}{_text(right, first, second)}</g></svg>\n"
    )


def _verdict(report: Report) -> tuple[str, str]:
    if report.failed:
        return f"breaks {report.failed} of {report.passed + report.failed} rules", BAD
    return ("conforms", GOOD) if report.passed or report.advice else ("not tried", NEUTRAL)


def _text(text: str, x: int, width: int) -> str:
    return f'<text x="{x + PADDING}" y="15" textLength="{width - 2 * PADDING}">{escape(text)}</text>'


def _width(text: str) -> int:
    pixels = sum(WIDE if char in "mwMW@" else NARROW if char in "ijlft1.,: +" else USUAL for char in text)
    return round(pixels) + 2 * PADDING
