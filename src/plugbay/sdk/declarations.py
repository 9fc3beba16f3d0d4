"""Checks of declarations, made while the plugin's module is loaded and not when a host calls.

Only checks that need no evaluation of annotations are made here: shapes cost 2 ms of start-up, so the rest is
checked by `plugbay manifest`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARARGS, VARKEYWORDS = 0x04, 0x08
"""Code flags, as in `inspect`, which costs 27 ms to import."""

MAX_SECONDS = 1e9
"""The longest time that can be waited: thirty years. Threads cannot wait ten times as long, and infinity is none."""


def refuse_function(what: str, name: object) -> None:
    """A decorator that takes a name was given the function itself."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"write @plugin.{what}() with parentheses")


def declare(declared: dict[str, Any], what: str, name: str, thing: object) -> None:
    """Keep a declaration under its name."""
    if name in declared:
        raise ValueError(f"two {what} are called {name!r}")
    declared[name] = thing


def refuse_other(what: str, value: object, known: tuple[str, ...]) -> None:
    """One of a few words was meant."""
    if value not in known:
        raise ValueError(f"{what} is one of {', '.join(known)}, not {value!r}")


def seconds(what: str, value: Any) -> float:
    """A number of seconds, unchanged; raises for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{what} is a number of seconds, such as 5 or 0.5, not {value!r}")
    if not 0 < value <= MAX_SECONDS:
        raise ValueError(f"{what} is a number of seconds above 0 and up to {MAX_SECONDS:,.0f}, not {value!r}")
    return value


def whole_seconds(what: str, value: Any, least: int, most: int) -> int | None:
    """A whole number of seconds within bounds, or None; raises for any other value."""
    if value is None:
        return None
    if type(value) is not int:
        raise TypeError(f"{what} is a whole number of seconds, such as {least}, not {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{what} is a number of seconds from {least} to {most}, not {value!r}")
    return value


def texts(what: str, value: Any) -> tuple[str, ...]:
    """Several texts; one alone would be taken letter by letter."""
    if isinstance(value, str):
        raise TypeError(f"{what} is a list of texts, such as [{value!r}], not {value!r}")
    return tuple(value)


def table(what: str, value: Any) -> dict[str, Any] | None:
    """An object, for example a schema, or None."""
    if value is None:
        return None
    if not hasattr(value, "keys"):
        raise TypeError(f"{what} is an object, such as {{'type': 'object'}}, not {value!r:.60}")
    return dict(value)


def function_name(function: Any, otherwise: str) -> str:
    """The name of a function; a lambda has none, and neither has a callable object."""
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() else otherwise


# The function of a tool.


def parameters(function: Any) -> tuple[str, ...]:
    """The names that it can be called with, without those of `*args` and `**kwargs`."""
    code = function.__code__
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def defaults(function: Any) -> dict[str, Any]:
    """The defaults of a function, by parameter."""
    last: tuple[Any, ...] = function.__defaults__ or ()
    count = function.__code__.co_argcount
    return {
        **dict(zip(function.__code__.co_varnames[count - len(last) : count], last, strict=True)),
        **(function.__kwdefaults__ or {}),
    }


def unwrap(function: Any) -> Any:
    """Whose parameters count: of a decorator's wrapper that passes everything on, those of the function inside."""
    while _forwards_arguments(function) and hasattr(function.__wrapped__, "__code__"):
        function = function.__wrapped__
    return function


def _forwards_arguments(function: Any) -> bool:
    everything = VARARGS | VARKEYWORDS
    return hasattr(function, "__wrapped__") and function.__code__.co_flags & everything == everything


def refuse_unfit(what: str, function: Any) -> None:
    """A host's input is an object, and each of its keys becomes a keyword: not every function can be called so."""
    if not hasattr(function, "__code__") or hasattr(function, "__self__"):
        raise TypeError(f"a {what} must be a plain function, not {function!r}; wrap it in one")
    inner = unwrap(function)
    code = inner.__code__
    if code.co_flags & VARARGS:
        rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        raise TypeError(
            f"the {what} {inner.__name__} takes *{rest}, which never gets a value: the keys of an input are its "
            f"parameters, so name them, or take **{rest} for any; the wrapper of a decorator needs @functools.wraps"
        )
    if code.co_posonlyargcount:
        alone = ", ".join(code.co_varnames[: code.co_posonlyargcount])
        raise TypeError(
            f"the {what} {inner.__name__} takes {alone} by position only, but inputs are passed by name: remove the /"
        )
    for name, default in defaults(inner).items():
        _refuse_misfit(what, inner, name, default)


_JSON = (str, bool, int, float, list, dict)

_TAKES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "list": (list,),
    "dict": (dict,),
    "None": (),
}
"""Annotations that can be read without evaluation, and the plain values of each."""


def _refuse_misfit(what: str, function: Any, name: str, default: Any) -> None:
    """`None` stands for nothing given, and an object of the author's own may stand for anything."""
    if type(default) not in _JSON:
        return
    said = _said(function, name)
    words = [word.partition("[")[0].strip() for word in said.split("|")]
    if any(word not in _TAKES or word in function.__globals__ for word in words):
        return
    whole = int if type(default) is float and default.is_integer() else None
    if not any(type(default) in _TAKES[word] or whole in _TAKES[word] for word in words):
        raise TypeError(
            f"the {what} {function.__name__} declares {name}: {said} with the default {default!r:.60}, which does not "
            "match: change one of them"
        )


def _said(function: Any, name: str) -> str:
    """An annotation as it is written; nothing where there is none, or it cannot be had without evaluating others."""
    try:
        said = function.__annotations__.get(name, "")
    except Exception:  # where Python evaluates them late, this runs the author's code
        return ""
    return said if isinstance(said, str) else said.__name__ if type(said) is type else repr(said)
