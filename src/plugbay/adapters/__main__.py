"""`python -m plugbay.adapters FILE`: the program of an adapter, with the pin in FILE. Its host speaks on stdin."""

from __future__ import annotations

import sys

from plugbay.adapters.pin import PinInvalid, load
from plugbay.adapters.serving import serve


def main(path: str) -> None:
    """Serve the pin; never returns when it can be used."""
    try:
        pin = load(path)
    except PinInvalid as error:
        sys.exit(str(error))
    serve(pin)


if __name__ == "__main__":
    main(sys.argv[1])
