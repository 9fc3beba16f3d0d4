"""Fields from knobs and schemas, with their values."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.server.dashboard.forms import Field, input_of
from plugbay.server.dashboard.views.settings import changes_of, settings_page


def knob(type: str, value: Any, **facts: Any) -> dict[str, Any]:
    return {
        "name": "k",
        "type": type,
        "label": "Label",
        "description": "Text.",
        "field": "f",
        "value": value,
        "default": None,
        **facts,
    }


def page_of(*knobs: dict[str, Any], config: dict[str, Any] | None = None, schema: Any = None, **more: Any) -> Any:
    described = {"knobs": knobs, "config": config or {}, "config_schema": schema, "secrets": [], "problems": []}
    return settings_page(described | more, ("f", "words"))


@pytest.mark.parametrize(
    ("made", "kind", "value", "description"),
    [
        (
            knob("range", 0.5, min=0, max=1, step=0.1, default=0.2),
            "number",
            "0.5",
            "Text. (0 to 1, steps of 0.1, default 0.2)",
        ),
        (knob("int_range", 5, min=0, max=20, step=1, unit="seconds"), "integer", "5", "Text. (0 to 20, seconds)"),
        (knob("boolean", True, default=True), "flag", "true", "Text. (default true)"),
        (knob("enum", "a", values=["a", "b"]), "choice", '"a"', "Text."),
        (knob("text", "x", max_length=9), "text", "x", "Text. (at most 9 characters)"),
        (knob("path", None, prefixes=["/srv"]), "text", "", "Text. (begins with /srv)"),
    ],
    ids=lambda part: part["type"] if isinstance(part, dict) else None,
)
def test_each_type_of_knob_has_its_field(made: dict[str, Any], kind: str, value: str, description: str) -> None:
    (setting,) = page_of(made).settings
    field = setting.field
    assert (field.kind, field.value, field.description) == (kind, value, description)
    assert field.required is (made["value"] is not None) and setting.changed


def test_choices_have_the_names_of_the_manifest() -> None:
    (setting,) = page_of(knob("enum", 1, values=[1, "1", True], labels={"true": "Yes"})).settings
    assert setting.field.choices == ("1", '"1"', "true") and setting.field.names == ("1", "1", "Yes")


def test_fields_without_a_knob_come_from_the_schema() -> None:
    schema = {
        "properties": {
            "f": {"type": "integer"},
            "words": {"type": "array", "items": {"type": "string"}},
            "mode": {"enum": ["x"]},
        }
    }
    page = page_of(knob("int_range", 1), config={"f": 1, "words": ["a"]}, schema=schema)
    assert [(each.field.name, each.field.kind, each.field.value, each.changed) for each in page.settings] == [
        ("k", "integer", "1", True),
        ("words", "list", "a", True),
        ("mode", "choice", "", False),
    ]


def test_only_what_differs_is_changed() -> None:
    schema = {"properties": {"n": {"type": "number"}, "s": {"type": "string"}, "e": {"enum": ["x", "y"]}}}
    fields = page_of(config={"n": 1, "s": "a", "e": "x"}, schema=schema).fields
    typed = {"field:n": "1", "field:s": "a", "field:e": '"x"'}
    assert changes_of(fields, input_of(fields, typed)) == {}
    typed = {"field:n": "2.5", "field:s": "", "field:e": '"y"'}
    assert changes_of(fields, input_of(fields, typed)) == {"n": 2.5, "s": "", "e": "y"}


def test_secrets_and_problems_are_named() -> None:
    secret = {"name": "key", "description": "For the API.", "required": True, "set": False}
    problem = {"path": "key", "message": "is required"}
    page = page_of(secrets=[secret], problems=[problem, {"path": "", "message": "odd"}])
    assert page.secrets[0].name == "key" and page.problems == ("key: is required", "odd")
    assert page.with_fields(()).fields == () and isinstance(page.with_fields(()), type(page))
    assert Field("x", "text").step == ""
