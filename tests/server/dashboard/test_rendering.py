"""Templates become answers: escaped, visible, and with the headers that keep a browser from doing more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.views.tones import Badge
from tests.architecture import ROOT

FOLDER = Path(rendering.__file__).parent


def written(source: str, **values: object) -> str:
    return rendering._environment().from_string(source).render(values)


def test_whatever_a_template_writes_is_escaped_and_visible() -> None:
    hostile = "<script>alert(1)</script>\"'\u202e\x00"
    assert written("{{ x }}", x=hostile) == "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;\\u202e\\x00"
    assert written('<a title="{{ x|cut(3) }}">', x='">x').startswith('<a title="&#34;&gt;x')
    assert "<script" not in written('{% import "macros.html" as m %}{{ m.badge(x) }}', x=Badge(hostile, "bad"))


def test_no_template_turns_escaping_off() -> None:
    templates = list((FOLDER / "templates").rglob("*.html"))
    assert len(templates) > 15
    for template in templates:
        assert not re.search(r"\|\s*safe\b|autoescape|\bMarkup\b", template.read_text()), template


def test_no_template_has_script_or_style_of_its_own() -> None:
    for template in (FOLDER / "templates").rglob("*.html"):
        text = template.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text), template
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text)), template


def test_a_value_that_a_template_lacks_is_an_error_and_not_a_gap() -> None:
    with pytest.raises(UndefinedError):
        written("{{ missing }}")


def test_a_page_may_load_our_own_files_and_nothing_else() -> None:
    page = rendering.page("again.html")
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
    assert set(policy.values()) == {"'self'"}
    assert set(policy) == {"script-src", "style-src", "img-src", "connect-src", "form-action"}
    assert page.headers["cache-control"] == "no-store" and page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "same-origin"


def test_files_are_named_by_their_content_so_they_may_be_kept() -> None:
    assert re.fullmatch(r"/static/style\.css\?[0-9a-f]{12}", rendering.asset_path("style.css"))
    found = rendering.asset("script.js")
    assert found is not None and "immutable" in found.headers["cache-control"]
    assert found.headers["content-type"] == "text/javascript; charset=utf-8"
    assert rendering.asset("../door.py") is None and rendering.asset("door.py") is None


def test_the_script_is_small_and_nothing_is_anybody_elses() -> None:
    assert len((FOLDER / "static/script.js").read_text().splitlines()) < 150
    assert len((FOLDER / "static/keys.js").read_text().splitlines()) < 50
    assert sorted(path.name for path in (FOLDER / "static").iterdir()) == [
        "icon.svg",
        "keys.js",
        "script.js",
        "style.css",
    ]


def test_what_pages_are_made_of_is_in_the_package_that_is_built() -> None:
    assert 'packages = ["src/plugbay"]' in (ROOT / "pyproject.toml").read_text()
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert not {"*.html", "*.css", "*.js", "static/", "templates/"} & set(ignored), (
        "hatchling leaves out what git ignores"
    )


def brightness(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((brightness(one), brightness(other)))
    return (light + 0.05) / (dark + 0.05)


READ_ON = {
    "ink": ("page", "card", "calm-wash"),
    "soft": ("page", "card", "calm-wash"),
    "link": ("page", "card"),
    "bad": ("card", "bad-wash"),
    "warn": ("card", "warn-wash"),
    "good": ("card", "good-wash"),
    "accent-ink": ("accent",),
}
"""Colours of text, and what each stands on."""


def test_every_text_can_be_read_by_day_and_by_night() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") < 4.5
    style = (FOLDER / "static/style.css").read_text()
    day, night = (
        dict(re.findall(r"--([\w-]+): (#\w{6});", rules)) for rules in re.findall(r":root \{(.*?)\}", style, re.S)
    )
    for colours in (day, day | night):
        for text, grounds in READ_ON.items():
            assert [contrast(colours[text], colours[ground]) >= 4.5 for ground in grounds] == [True] * len(grounds), (
                text
            )
