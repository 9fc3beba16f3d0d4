"""Addresses with variables: the examples of RFC 6570 for every kind of expression."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.mcp.templates import expanded, variables

VALUES: dict[str, Any] = {
    "var": "value",
    "hello": "Hello World!",
    "path": "/foo/bar",
    "x": 1024,
    "y": 768,
    "empty": "",
    "list": ["red", "green", "blue"],
    "on": True,
    "none": None,
}


@pytest.mark.parametrize(
    ("template", "address"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("{+hello}", "Hello%20World!"),
        ("{+path}/here", "/foo/bar/here"),
        ("{path}", "%2Ffoo%2Fbar"),
        ("X{#hello}", "X#Hello%20World!"),
        ("map?{x,y}", "map?1024,768"),
        ("{x,hello,y}", "1024,Hello%20World%21,768"),
        ("X{.x,y}", "X.1024.768"),
        ("{/var,x}/here", "/value/1024/here"),
        ("{;x,y,empty}", ";x=1024;y=768;empty"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{var:3}", "val"),
        ("{list}", "red,green,blue"),
        ("{/list*}", "/red/green/blue"),
        ("{?list*}", "?list=red&list=green&list=blue"),
        ("{?list}", "?list=red,green,blue"),
        ("{none}{missing}{?none,missing}", ""),
        ("{on}", "true"),
        ("no variables", "no variables"),
    ],
)
def test_an_address_is_filled_in(template: str, address: str) -> None:
    assert expanded(template, VALUES) == address


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("file:///{path}", ["path"]),
        ("a:{x}{?y,z*}{#x:3}", ["x", "y", "z"]),
        ("a:b", []),
        ("a:{}", []),
        ("a:{ x , y }", ["x", "y"]),
        ("a:{unclosed", []),
    ],
)
def test_the_names_in_a_template_are_known(template: str, names: list[str]) -> None:
    assert variables(template) == names
