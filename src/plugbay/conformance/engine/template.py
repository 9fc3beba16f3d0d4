"""The messages that a scenario sends: JSON with placeholders, filled for the plugin under test.

"$tool"                          the named value of the run
{"$text": 70000}                 the value that a generator makes from its argument
{"$joined": ["$plugin_id", "."]}
{"$listed": ["$init", "$tour"]}
"$$text"                         the text `$text`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

Generator = Callable[[Any], Any]

PANGRAM = "The quick brown fox jumps over the lazy dog. "


def text(length: int) -> str:
    """Readable text of exactly this many characters, each one byte long."""
    return (PANGRAM * (length // len(PANGRAM) + 1))[:length]


def joined(parts: list[str]) -> str:
    """These texts as one."""
    return "".join(parts)


def merged(parts: list[Any]) -> dict[str, Any]:
    """These objects merged, later ones over earlier ones; other values add nothing."""
    return {key: value for part in parts if isinstance(part, dict) for key, value in part.items()}


def listed(parts: list[Any]) -> list[Any]:
    """These items as one list; those that are lists themselves are spread."""
    return [item for part in parts for item in (part if isinstance(part, list) else [part])]


def sized(parts: list[Any]) -> dict[str, Any]:
    """A message whose params are padded so that its JSON is exactly this many bytes long."""
    message, size = parts
    bare = json.dumps({**message, "params": {"pad": ""}}, separators=(",", ":"))
    return {**message, "params": {"pad": text(size - len(bare))}}


PURE: dict[str, Generator] = {"text": text, "joined": joined, "merged": merged, "listed": listed, "sized": sized}
"""The generators that need only their argument."""


def fill(template: Any, named: Mapping[str, Any], generators: Mapping[str, Generator]) -> Any:
    """The template with every placeholder filled. It must have passed `template_problems` with the same names."""
    if isinstance(template, str):
        return _word(template, named)
    if isinstance(template, list):
        return [fill(item, named, generators) for item in template]
    if not isinstance(template, dict):
        return template
    generator = _generator_in(template)
    if generator is not None:
        return generators[generator[1:]](fill(template[generator], named, generators))
    return {key: fill(item, named, generators) for key, item in template.items()}


def template_problems(template: Any, names: Collection[str], generators: Collection[str]) -> list[str]:
    """Placeholders that cannot be filled."""
    if isinstance(template, str):
        known = not template.startswith("$") or template.startswith("$$") or template[1:] in names
        return [] if known else [f"{template!r} is not a named value"]
    if isinstance(template, list):
        return [problem for item in template for problem in template_problems(item, names, generators)]
    if not isinstance(template, dict):
        return []
    generator = _generator_in(template)
    if generator is not None and (generator[1:] not in generators or len(template) > 1):
        return [f"{generator!r} is not a generator that stands alone in its object"]
    return [problem for item in template.values() for problem in template_problems(item, names, generators)]


def at(value: Any, path: str) -> Any:
    """The value under these dotted keys; None when there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _generator_in(template: dict[str, Any]) -> str | None:
    return next((key for key in template if key.startswith("$")), None)


def _word(word: str, named: Mapping[str, Any]) -> Any:
    if word.startswith("$$"):
        return word[1:]
    return named[word[1:]] if word.startswith("$") else word
