"""Whether a source makes a plugin and never serves it, seen without running it: its program would end at once.

Owns what counts as serving: `plugin.run()`, or to hand the plugin to somebody who may do that. In doubt it is served.
"""

from __future__ import annotations

import ast

CODE = "never_runs"

WORDS = "never calls {plugin}.run(), so that a host would see it end at once; make that its last line"


def unserved(source: bytes) -> str | None:
    """The name of the plugin that a source makes and does not serve; None when there is none, or it is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    made = {name for node in tree.body for name in _made(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr == "run":
                return None
            node.value.id = ""  # to declare something is not to serve it
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return next(iter(made)) if len(made) == 1 and not made & used else None


def _made(node: ast.stmt) -> list[str]:
    """The names that a statement gives to a new `Plugin`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return []
    maker = ast.unparse(node.value.func).split(".")
    if maker[-1] == "from_manifest":
        maker.pop()
    return [target.id for target in node.targets if isinstance(target, ast.Name)] if maker[-1] == "Plugin" else []
