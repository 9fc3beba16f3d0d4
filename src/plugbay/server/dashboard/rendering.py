"""Templates and static files: one Jinja environment, security headers of every page.

Everything a template writes is escaped, and invisible characters are shown as escapes, in text of any origin.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from plugbay.server.dashboard import charts, text
from plugbay.server.dashboard.views import screens

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Not `no-referrer`: with it browsers send `Origin: null` with our own forms, and that is refused.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Of every answer of the dashboard."""

_KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def _finalize(value: Any) -> Any:
    """Make text visible before a template writes it."""
    return text.visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def _environment() -> Environment:
    """Made by the first page: Jinja takes a fiftieth of a server's start.

    `exact` is for values of form fields: the browser sends them back, so invisible characters in them stay.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        ago=text.ago,
        as_json=text.as_json,
        cut=text.visible,
        duration=text.duration,
        exact=escape,
        path=lambda part: quote(part, safe="/"),
        query=lambda part: quote(part, safe=""),
        frame_svg=screens.frame_svg,
        svg=charts.svg,
        utc=text.utc,
    )
    made.globals.update(asset=asset_path, count=text.count, zip=zip)
    return made


class _Asset:
    """A static file; its URL contains its hash, so browsers cache it permanently."""

    def __init__(self, path: Path) -> None:
        self.body = path.read_bytes()
        self.kind = _KINDS[path.suffix]
        self.path = f"/static/{path.name}?{hashlib.sha256(self.body).hexdigest()[:12]}"


_ASSETS = {path.name: _Asset(path) for path in sorted((HERE / "static").iterdir()) if path.suffix in _KINDS}


def asset_path(name: str) -> str:
    """Where a page loads this file from."""
    return _ASSETS[name].path


def asset(name: str) -> Response | None:
    """A static file; None if the name is unknown."""
    found = _ASSETS.get(name)
    if found is None:
        return None
    kept = {"cache-control": "private, max-age=31536000, immutable"}
    return Response(found.body, media_type=found.kind, headers=HEADERS | kept)


def fragment(template: str, **values: Any) -> str:
    """A piece of a page."""
    return _environment().get_template(template).render(values).strip()


def page(template: str, status: int = 200, **values: Any) -> Response:
    """A whole page."""
    return HTMLResponse(_environment().get_template(template).render(values), status, HEADERS)
