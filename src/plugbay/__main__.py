"""`python -m plugbay` is `plugbay`."""

from __future__ import annotations

from plugbay.cli.main import main

if __name__ == "__main__":
    main()
