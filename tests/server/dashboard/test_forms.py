"""A schema becomes a form, and what was typed an input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.server.dashboard import forms
from plugbay.server.dashboard.forms import Field, Invalid, fields_of, input_of, input_of_json

ORDER: dict[str, Any] = {
    "type": "object",
    "required": ["order", "gift"],
    "properties": {
        "order": {"type": "integer", "minimum": 1, "maximum": 9, "description": "On the receipt."},
        "price": {"type": "number", "default": 1.5},
        "gift": {"type": "boolean"},
        "note": {"type": "string", "title": "A note", "default": "none"},
        "currency": {"enum": ["EUR", "PEN"], "default": "PEN"},
        "mixed": {"enum": [1, "1", None]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


def one(schema: Any, root: dict[str, Any] | None = None) -> Field:
    found = fields_of({"type": "object", "properties": {"x": schema}, **(root or {})})
    assert found is not None
    return found[0]


def typed(**values: str) -> dict[str, str]:
    return {forms.NAMES + name: value for name, value in values.items()}


def test_each_property_becomes_the_field_that_fits_it() -> None:
    found = fields_of(ORDER)
    assert found is not None
    assert [(field.name, field.kind, field.required) for field in found] == [
        ("order", "integer", True),
        ("price", "number", False),
        ("gift", "flag", True),
        ("note", "text", False),
        ("currency", "choice", False),
        ("mixed", "choice", False),
        ("tags", "list", False),
    ]
    order, price, _, note, currency, mixed, _ = found
    assert (order.low, order.high, order.description) == ("1", "9", "On the receipt.")
    assert (price.value, note.value, note.label, currency.value) == ("1.5", "none", "A note", '"PEN"')
    assert (currency.choices, currency.names) == (('"EUR"', '"PEN"'), ("EUR", "PEN"))
    assert mixed.choices == mixed.names == ("1", '"1"', "null")


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": ["string", "null"]}, "text"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"$ref": "#/$defs/Colour"}, "choice"),
        ({"anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}], "default": None}, "choice"),
        ({"$ref": "#/$defs/Circle"}, "json"),
        ({"$ref": "https://elsewhere.example/schema"}, "json"),
        ({"$ref": "#/$defs/nowhere"}, "json"),
        ({"$ref": 7}, "json"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "json"),
        ({"type": ["integer", "string"]}, "json"),
        ({"type": "object"}, "json"),
        ({"const": "fixed"}, "choice"),
        ({"enum": []}, "json"),
        ({"enum": list(range(1000))}, "json"),
        ({"type": 7, "title": 3, "description": []}, "json"),
        (True, "json"),
        (None, "json"),
        ("nonsense", "json"),
    ],
)
def test_a_property_that_is_more_than_a_simple_value_is_a_field_for_json(schema: Any, kind: str) -> None:
    more = {"$defs": {"Colour": {"enum": ["red", "blue"]}, "Circle": {"$ref": "#/$defs/Circle"}}}
    assert one(schema, more).kind == kind


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        "nonsense",
        {"type": "array"},
        {"type": "object"},
        {"type": "object", "properties": []},
        {"oneOf": [{"type": "string"}]},
        {"type": "object", "properties": {str(number): {} for number in range(forms.MAX_FIELDS + 1)}},
    ],
)
def test_a_schema_that_is_no_list_of_fields_is_asked_for_as_json(schema: Any) -> None:
    assert fields_of(schema) is None
    assert forms.signature(schema) == "JSON"
    assert forms.example(schema) == "{}"


def test_a_schema_without_any_fields_is_an_empty_form() -> None:
    nothing = {"type": "object", "additionalProperties": False}
    assert fields_of(nothing) == fields_of({"properties": {}}) == ()
    assert forms.signature(nothing) == "nothing"


def test_odd_words_of_a_schema_are_passed_over() -> None:
    odd = fields_of({"type": "object", "properties": {"x": {"minimum": "one", "maximum": True}}, "required": [7]})
    assert odd == (Field("x", "json", label="x"),)


def test_a_form_in_one_line() -> None:
    words = "order: integer, price?: number, gift: flag, note?: text, currency?: choice, mixed?: choice, tags?: list"
    assert forms.signature(ORDER) == words


def test_an_example_has_required_properties_and_defaults() -> None:
    assert json.loads(forms.example(ORDER)) == {
        "order": 0,
        "price": 1.5,
        "gift": False,
        "note": "none",
        "currency": "PEN",
    }


def test_typed_values_become_the_input() -> None:
    found = fields_of(ORDER)
    assert found is not None
    meant = typed(order=" 7 ", price="2e3", gift="false", note="a\r\nb", currency='"EUR"', mixed="1", tags="a\r\n\n b ")
    assert input_of(found, meant) == {
        "order": 7,
        "price": 2000.0,
        "gift": False,
        "note": "a\nb",
        "currency": "EUR",
        "mixed": 1,
        "tags": ["a", "b"],
    }


def test_empty_fields_are_left_out_and_a_required_text_may_be_empty() -> None:
    found = fields_of({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]})
    assert found is not None
    assert input_of(found, typed(a="", b="")) == {"a": ""}


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        ({"type": "integer"}, "1.5", "a whole number"),
        ({"type": "integer"}, "1" * 5000, "a whole number"),
        ({"type": "number"}, "much", "a number"),
        ({"type": "number"}, "nan", "a number"),
        ({"type": "number"}, "1e999", "a number"),
        ({"type": "boolean"}, "perhaps", "yes or no"),
        ({"enum": ["a"]}, '"b"', "one of the values"),
        ({"type": "array"}, "[1,", "invalid JSON: Expecting value in line 1, column 4"),
        ({"type": "array"}, "[NaN]", "invalid JSON: NaN is not a JSON value"),
        ({"type": "array"}, "[" * 100_000, "nested too deeply"),
    ],
)
def test_an_invalid_value_is_reported_at_its_field(schema: Any, text: str, problem: str) -> None:
    with pytest.raises(Invalid) as unclear:
        input_of((one(schema),), typed(x=text))
    (field,) = unclear.value.fields
    assert problem in field.problem and field.value == text


def test_what_has_to_be_there_is_asked_for() -> None:
    found = fields_of({"properties": {"n": {"type": "integer"}}, "required": ["n"]})
    assert found is not None
    with pytest.raises(Invalid) as unclear:
        input_of(found, {})
    assert unclear.value.fields[0].problem == "a value is required"


def test_an_input_can_be_written_as_json() -> None:
    assert input_of_json(" ") == {}
    assert input_of_json("[1, null]") == [1, None]
    with pytest.raises(Invalid, match="line 2, column 1"):
        input_of_json("{\n")


def test_fields_keep_the_typed_values() -> None:
    kept = forms.refill((Field("a", "text", value="default"), Field("b", "text", value="default")), typed(a="mine"))
    assert [field.value for field in kept] == ["mine", "default"]


def test_fields_show_the_values_of_an_input_and_send_them_back() -> None:
    values = {"order": 3, "gift": False, "note": "a\nb", "currency": "EUR", "tags": ["x"], "mixed": "1"}
    filled = forms.fill(fields_of(ORDER) or (), values)
    assert {field.name: field.value for field in filled}["price"] == "", "a default is not a value"
    assert input_of(filled, {forms.NAMES + field.key: field.value for field in filled}) == values
    for other in ({**values, "more": 1}, {**values, "order": "three"}):
        with pytest.raises(Invalid):
            forms.fill(fields_of(ORDER) or (), other)


def test_one_of_several_groups_of_fields_is_told_by_its_prefix() -> None:
    form = {"a:x": ("1", "2"), "b:x": ("3",), "x": ("4",), "a:": ("5",)}
    assert forms.with_prefix("a:", form) == {"field:x": "1", "field:": "5"}


TRIP: dict[str, Any] = {
    "type": "object",
    "required": ["day", "from"],
    "properties": {
        "day": {"type": "string", "format": "date"},
        "leaves": {"type": "string", "format": "date-time"},
        "from": {"$ref": "#/$defs/place"},
        "via": {
            "type": "object",
            "required": ["city"],
            "properties": {
                "city": {"type": "string"},
                "nights": {"type": "integer"},
                "hotel": {"$ref": "#/$defs/place"},
            },
        },
        "seats": {"type": "array", "items": {"type": "integer"}},
        "class": {"type": "array", "items": {"enum": ["first", "second"]}},
        "a/b~c": {"type": "string"},
    },
    "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def trip() -> tuple[Field, ...]:
    found = fields_of(TRIP)
    assert found is not None
    return found


def test_dates_lists_and_objects_within_have_fields() -> None:
    assert [(field.key, field.kind, field.item) for field in trip()] == [
        ("day", "date", ""),
        ("leaves", "moment", ""),
        ("from/city", "text", ""),
        ("via/city", "text", ""),
        ("via/nights", "integer", ""),
        ("via/hotel/city", "text", ""),
        ("seats", "list", "integer"),
        ("class", "list", "text"),
        ("a~1b~0c", "text", ""),
    ]
    assert [(legend, len(group)) for legend, group in forms.groups_of(trip())] == [
        ("", 2),
        ("from", 1),
        ("via", 2),
        ("via / hotel", 1),
        ("", 3),
    ]
    assert forms.signature(TRIP).startswith("day: date, leaves?: moment, from.city?: text, via.city?: text")


def test_values_of_objects_within_are_put_where_they_belong() -> None:
    made = input_of(
        trip(),
        {
            "field:day": "2026-03-12",
            "field:leaves": "2026-03-12T20:00",
            "field:via/city": "Lima",
            "field:via/hotel/city": "",
            "field:seats": "1\n 2 ",
            "field:class": "first",
            "field:a~1b~0c": "x",
        },
    )
    assert made == {
        "day": "2026-03-12",
        "leaves": "2026-03-12T20:00:00Z",
        "from": {},
        "via": {"city": "Lima"},
        "seats": [1, 2],
        "class": ["first"],
        "a/b~c": "x",
    }


def test_what_is_required_within_an_object_counts_only_if_the_object_is_there() -> None:
    empty = {"field:day": "2026-03-12"}
    assert input_of(trip(), empty) == {"day": "2026-03-12", "from": {}}
    assert input_of(trip(), empty | {"field:via/nights": "2"})["via"] == {"city": "", "nights": 2}
    number = {"type": "number"}
    inner = {"type": "object", "required": ["n"], "properties": {"n": number, "m": number}}
    strict = fields_of({"properties": {"o": inner}})
    assert strict is not None and input_of(strict, {}) == {}
    with pytest.raises(Invalid) as wrong:
        input_of(strict, {"field:o/m": "1"})
    assert [field.problem for field in wrong.value.fields] == ["a value is required", ""]


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("day", "tomorrow", "enter a day such as 2026-03-12"),
        ("leaves", "soon", "enter a moment such as"),
        ("seats", "1\ntwo", "'two': enter a whole number"),
        ("class", "third", "'third' is not one of first, second"),
    ],
)
def test_a_date_or_an_item_that_is_none_is_marked(key: str, text: str, problem: str) -> None:
    with pytest.raises(Invalid) as wrong:
        input_of(trip(), {"field:day": "2026-03-12", f"field:{key}": text})
    assert next(field.problem for field in wrong.value.fields if field.problem).startswith(problem)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"day": "2026-03-12", "leaves": "2026-03-12T20:00:00Z", "from": {"city": "Lima"}},
        {"via": {"nights": 2, "hotel": {"city": "Cusco"}}, "seats": [1, 2], "class": ["second"], "a/b~c": "<b>"},
    ],
)
def test_a_form_and_its_json_have_the_same_values(value: Any) -> None:
    filled = forms.fill(trip(), value)
    assert forms.draft_of(filled, {f"field:{field.key}": field.value for field in filled}) == value


@pytest.mark.parametrize(
    "value",
    [
        [],
        "text",
        {"colour": 1},
        {"via": {"colour": 1}},
        {"via": 7},
        {"seats": ["1"]},
        {"class": ["a\nb"]},
        {"day": 7},
        {"a/b~c": ""},
        {"from": {}},
        {"leaves": "2026-03-12T20:00:00.5+01:00"},
    ],
)
def test_json_that_a_form_cannot_express_stays_json(value: Any) -> None:
    with pytest.raises(Invalid, match="cannot show all of this JSON"):
        forms.fill(trip(), value)


def test_a_draft_may_lack_what_is_required_but_not_be_wrong() -> None:
    assert forms.draft_of(trip(), {}) == {}
    with pytest.raises(Invalid):
        forms.draft_of(trip(), {"field:day": "never"})


def test_schemas_that_are_deep_wide_or_circular_are_bounded() -> None:
    inner = {"type": "object", "properties": {"c": {"$ref": "#/$defs/c"}, "n": {"type": "number"}}}
    found = fields_of({**inner, "$defs": {"c": inner}})
    assert found is not None and max(len(field.path) for field in found) == forms.MAX_DEPTH
    names = {str(number): {"$ref": "#/$defs/wide"} for number in range(30)}
    wide = {"type": "object", "properties": names, "$defs": {"wide": {"type": "object", "properties": names}}}
    found = fields_of(wide)
    assert found is not None and len(found) == 30 and {field.kind for field in found} == {"json"}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "array", "items": {"type": "object"}}, "json"),
        ({"type": "array"}, "json"),
        ({"type": "array", "items": {"enum": [1, 2]}}, "json"),
        ({"type": "array", "items": {"type": "string"}, "default": ["a\nb"]}, "json"),
        ({"type": "array", "items": {"type": "string"}, "default": 7}, "json"),
        ({"type": "array", "items": {"type": "number"}, "default": [1.5]}, "list"),
        ({"type": "string", "format": "email"}, "text"),
        ({"type": "string", "format": 7}, "text"),
    ],
)
def test_a_list_has_lines_only_where_each_item_is_one(schema: Any, kind: str) -> None:
    assert one(schema).kind == kind
