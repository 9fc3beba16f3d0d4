"""What docstrings say about parameters, in the three ways people write it."""

from __future__ import annotations

import pytest

from plugbay.sdk.types.docstrings import parse, summary

GOOGLE = """Order tea,
    and more.

    With a second paragraph: it says nothing: about parameters.

    Args:
        city: Where it goes,
            even far.
        days (int, optional): How long.
        *names: All of them.

        late: After an empty line.

    Returns:
        total: no parameter
    """

SPHINX = """Order tea,
    and more.

    :param city: Where it goes,
        even far.
    :param int days: How long.
    :param names: All of them.
    :type names: list
    :arg late: After an empty line.
    :returns: total
    """

NUMPY = """Order tea,
    and more.

    Parameters
    ----------
    city : str
        Where it goes,
        even far.
    days : int, optional
        How long.
    *names
        All of them.
    late
        After an empty line.

    Returns
    -------
    total : int
        No parameter.
    """


@pytest.mark.parametrize("text", [GOOGLE, SPHINX, NUMPY], ids=["google", "sphinx", "numpy"])
def test_parameters_are_described_in_three_ways(text: str) -> None:
    doc = parse(text)
    assert doc.summary == "Order tea, and more."
    assert doc.fields == {
        "city": "Where it goes, even far.",
        "days": "How long.",
        "names": "All of them.",
        "late": "After an empty line.",
    }


def test_attributes_of_a_class_are_described_as_parameters_are() -> None:
    assert parse("A thing.\n\nAttributes:\n\tprice: In euros.\n").fields == {"price": "In euros."}


@pytest.mark.parametrize("text", [None, "", "  \n ", "One line.", "Args:", ":param", "Args:\n\nArgs\n----\n", "a\n---"])
def test_what_is_written_in_another_way_says_nothing(text: str | None) -> None:
    assert parse(text).fields == {}


def test_the_first_paragraph_is_one_line() -> None:
    assert summary("\n  One\n  two.  \n   \n  Three.") == "One two."
    assert summary(None) == ""
