"""The site: links out of docs/ lead to copies or become text, versions stand side by side, no page loads from afar."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.site import Stage, loaded_from_elsewhere, publish
from tests.architecture import write_tree

PAGE = """\
# Page

[architecture](../../ARCHITECTURE.md#rooms), [code](../../src/a.py), [folder](../../src), [beside](b.md), [here](#page),
[far](https://example.com), ![picture](../images/a.svg)

```text
[code](../../src/a.py)
```
"""


def test_a_link_that_leaves_the_pages_leads_to_a_copy_or_becomes_text(tmp_path: Path) -> None:
    tree = {
        "docs/how/a.md": PAGE,
        "docs/how/b.md": "# B\n",
        "docs/images/a.svg": "<svg/>",
        "ARCHITECTURE.md": "# Rooms\n\n[page](docs/how/a.md#page), [example](examples/x/README.md), [code](src/a.py)\n",
        "examples/x/README.md": "![picture](x.png) [back](../../docs/how/a.md)\n",
        "examples/x/x.png": "png",
        "src/a.py": "",
    }
    root, out = write_tree(tmp_path / "root", tree), tmp_path / "out"
    Stage(root, out).fill()
    assert (out / "how/a.md").read_text() == PAGE.replace("../../ARCH", "../repository/ARCH").replace(
        "[code](../../src/a.py), [folder](../../src)", "code, folder"
    )
    architecture = (out / "repository/ARCHITECTURE.md").read_text()
    assert architecture == "# Rooms\n\n[page](../how/a.md#page), [example](examples/x/README.md), code\n"
    assert (out / "repository/examples/x/README.md").read_text() == "![picture](x.png) [back](../../../how/a.md)\n"
    assert (out / "repository/examples/x/x.png").read_text() == "png"


def test_what_a_page_loads_from_another_site_is_found(tmp_path: Path) -> None:
    good = (
        '<a href="https://example.com">far</a><link href="https://here/a" rel="canonical"><script src="a.js"></script>'
    )
    bad = '<script src="https://cdn.example/a.js"></script>', "<link rel=stylesheet href=//fonts.example/a.css>"
    write_tree(tmp_path, {"good.html": good, "bad.html": "".join(bad)})
    found = loaded_from_elsewhere(tmp_path)
    assert len(found) == 2 and all(line.startswith("bad.html: ") for line in found)


def test_versions_stand_side_by_side_and_the_newest_opens(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for version, text in (("0.9.0", "a"), ("0.10.0", "b"), ("0.9.0", "c")):
        publish(write_tree(tmp_path / "built", {"index.html": text}), site, version)
    assert (site / "0.9.0/index.html").read_text() == "c"
    listed = json.loads((site / "versions.json").read_text())
    assert [(entry["version"], entry["aliases"]) for entry in listed] == [("0.10.0", ["latest"]), ("0.9.0", [])]
    assert "url=0.10.0/" in (site / "index.html").read_text()
