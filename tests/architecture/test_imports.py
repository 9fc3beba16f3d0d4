"""The import rules of `.importlinter` hold, and each of them reports a violation that is seeded here.

Works on the real tree and on a skeleton of it: the same rules, almost no code, one wrong import at a time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture import ROOT, write_tree
from tests.support.patience import PATIENCE
from tests.support.tiers import exhaustive

RULES = ".importlinter"
COUNT_TYPE_IMPORTS = ("exclude_type_checking_imports = True", "exclude_type_checking_imports = False")

LAYERS = "Layers point down"
CONTRACTS = "A contract never imports another contract"
SANS_IO = "model, wire and contracts do no I/O"
LIGHT = "What a plugin loads is import-light"
PROCESS = "process knows bytes, not frames"
PURE = "Host decisions are pure"
PURE_CLUSTER = "Decisions about nodes are pure"
ROOMS = "The rooms of the host have an order"
SDK_ROOMS = "The rooms of the SDK have an order"
SERVER_ROOMS = "The rooms of the server have an order"
KIT_ROOMS = "The rooms of the conformance kit have an order"
ACYCLIC = "No cycles between siblings, at any depth"
STRUCTURE = {LAYERS, CONTRACTS, ROOMS, SDK_ROOMS, SERVER_ROOMS, KIT_ROOMS, ACYCLIC}

IO_NAMES = set("asyncio subprocess socket threading signal sqlite3 logging time random".split())
HEAVY_NAMES = set("asyncio dataclasses inspect logging msgspec pydantic typing".split())


def lint_imports(tree: Path, rules: Path) -> str:
    """The report of import-linter on `src/plugbay` of a tree, whatever its verdict."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    report = subprocess.run(
        [sys.executable, "-c", program, "--config", str(rules), "--no-cache", "--no-logo"],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "Contracts: " in report.stdout, report.stdout + report.stderr
    return report.stdout


def broken_rules(report: str) -> set[str]:
    """The names of the rules that a report calls broken."""
    return set(re.findall(r"^(.+) BROKEN\b", report, re.MULTILINE))


def rules_that_count_type_imports(folder: Path) -> Path:
    """The rules with imports under TYPE_CHECKING counted; such an import couples two modules all the same."""
    text = (ROOT / RULES).read_text(encoding="utf-8")
    assert COUNT_TYPE_IMPORTS[0] in text
    return write_tree(folder, {"counted.ini": text.replace(*COUNT_TYPE_IMPORTS)}) / "counted.ini"


def test_the_source_keeps_every_rule() -> None:
    report = lint_imports(ROOT, ROOT / RULES)
    assert broken_rules(report) == set(), report


def test_imports_for_the_type_checker_keep_the_structure_too(tmp_path: Path) -> None:
    report = lint_imports(ROOT, rules_that_count_type_imports(tmp_path))
    assert broken_rules(report) & STRUCTURE == set(), report


SKELETON = (
    "__main__ cli.main tui.app server.app server.domain.bindings server.server server.workers server.dashboard.views "
    "server.api.errors server.mcp server.occupancy server.logs server.service_manager store.memory packages.verify "
    "brokers.nats mcp_server.server adapters.source cluster.remote integrations.langchain "
    "host.host host.authorization.policy host.supervision.restart host.supervision.supervisor host.services.llm "
    "host.admin.dev host.sync host.status host.screens.keys host.bindings host.assembly host.limits "
    "host.providers.agents host.calls.calls host.invocations.retry host.catalog.catalog host.inbound.handler "
    "host.confinement.policy host.discovery.folders host.recording.taps host.events.bus host.config.config "
    "host.journal host.disk.tree host.nesting host.ports host.stamps host.admission host.garbage host.records "
    "host.request sdk.plugin "
    "sdk.testing.session sdk.describe sdk.manifests sdk.contract_support sdk.attach sdk.serving sdk.contracts.nexo "
    "sdk.screens.canvas sdk.runtime.reader sdk.results sdk.context sdk.services.brokered sdk.errors sdk.io.stdio "
    "sdk.types.shapes sdk.events sdk.declarations "
    "conformance.bad_plugins.catalogue conformance.replay.mock_host conformance.engine.trial "
    "conformance.reports.report "
    "link.link process.child contracts.registry contracts.base contracts.rune.machine contracts.nexo.machine "
    "contracts.kaged.machine contracts.ainb.machine contracts.vai.machine contracts.mcp.machine "
    "wire.lines wire.fast_json model.ids model.spec"
).split()
LEGAL = {
    "wire.fast_json": "import msgspec\nimport typing",
    "sdk.plugin": "def run_async():\n    import asyncio",
    "model.ids": "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from typing import Any",
    "contracts.registry": "import plugbay.contracts.rune.machine, plugbay.contracts.nexo.machine",
    "__main__": "import plugbay.cli.main",
    "cli.main": "import plugbay.host.host, plugbay.server.app, plugbay.wire.fast_json",
}


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    named = re.findall(r"^    plugbay\.(\w+(?:\.\w+)+)$", (ROOT / RULES).read_text(), re.MULTILINE)
    for module, text in {**dict.fromkeys((*SKELETON, *named), ""), **LEGAL}.items():
        seed(tmp_path, module, text)
    return tmp_path


def seed(tree: Path, module: str, text: str) -> None:
    """Give a module of the skeleton this text, making it and its packages when they are missing."""
    path = Path("src", "plugbay", *module.split(".")).with_suffix(".py")
    write_tree(tree, {path.as_posix(): text})
    for folder in path.parents[:-2]:
        (tree / folder / "__init__.py").touch()


def test_a_clean_skeleton_keeps_every_rule(skeleton: Path) -> None:
    report = lint_imports(skeleton, ROOT / RULES)
    assert broken_rules(report) == set(), report


@exhaustive
@pytest.mark.parametrize(
    ("rule", "module", "imported"),
    [
        (LAYERS, "tui.app", "plugbay.cli.main"),
        (LAYERS, "server.app", "plugbay.tui.app"),
        (SERVER_ROOMS, "server.domain.bindings", "plugbay.server.app"),
        (LAYERS, "store.memory", "plugbay.packages.verify"),
        (LAYERS, "mcp_server.server", "plugbay.packages.verify"),
        (LAYERS, "adapters.source", "plugbay.server.app"),
        (LAYERS, "mcp_server.server", "plugbay.adapters.source"),
        (LAYERS, "mcp_server.server", "plugbay.integrations.langchain"),
        (LAYERS, "integrations.langchain", "plugbay.server.app"),
        (LAYERS, "brokers.nats", "plugbay.server.domain.bindings"),
        (LAYERS, "packages.verify", "plugbay.cluster.remote"),
        (LAYERS, "cluster.remote", "plugbay.server.domain.bindings"),
        (LAYERS, "host.host", "plugbay.store.memory"),
        (LAYERS, "sdk.plugin", "plugbay.host.host"),
        (LAYERS, "conformance.engine.trial", "plugbay.host.host"),
        (LAYERS, "link.link", "plugbay.process.child"),
        (LAYERS, "contracts.base", "plugbay.link.link"),
        (LAYERS, "wire.lines", "plugbay.contracts.base"),
        (LAYERS, "model.spec", "plugbay.wire.lines"),
        (LAYERS, "utils.text", "json"),
        (CONTRACTS, "contracts.nexo.machine", "plugbay.contracts.rune.machine"),
        (CONTRACTS, "contracts.rune.machine", "plugbay.contracts.registry"),
        (CONTRACTS, "contracts.base", "plugbay.contracts.vai.machine"),
        (CONTRACTS, "contracts.common", "json"),
        (PROCESS, "process.child", "plugbay.wire.lines"),
        (PROCESS, "process.child", "plugbay.contracts.base"),
        (PROCESS, "process.child", "json"),
        (PROCESS, "process.child", "msgspec"),
        (ROOMS, "host.supervision.supervisor", "plugbay.host.calls.calls"),
        (ROOMS, "host.calls.calls", "plugbay.host.host"),
        (ROOMS, "host.discovery.folders", "plugbay.host.recording.taps"),
        (ROOMS, "host.attic.trunk", "json"),
        (SDK_ROOMS, "sdk.runtime.reader", "plugbay.sdk.contracts.nexo"),
        (SDK_ROOMS, "sdk.attic.trunk", "json"),
        (KIT_ROOMS, "conformance.reports.report", "plugbay.conformance.engine.trial"),
        (KIT_ROOMS, "conformance.replay.mock_host", "plugbay.conformance.bad_plugins.catalogue"),
        (KIT_ROOMS, "conformance.attic.trunk", "json"),
        (PURE, "host.authorization.policy", "plugbay.link.link"),
        (PURE, "host.supervision.restart", "plugbay.process.child"),
        (PURE_CLUSTER, "cluster.roster", "plugbay.link.link"),
        (LIGHT, "contracts.nexo.machine", "plugbay.wire.fast_json"),
        (LIGHT, "wire.lines", "plugbay.wire.fast_json"),
        (LIGHT, "sdk.plugin", "plugbay.wire.fast_json"),
    ],
)
def test_a_forbidden_import_is_reported(skeleton: Path, rule: str, module: str, imported: str) -> None:
    seed(skeleton, module, f"import {imported}")
    assert rule in broken_rules(lint_imports(skeleton, ROOT / RULES))


@exhaustive
@pytest.mark.parametrize(
    ("rule", "module", "names"),
    [
        (SANS_IO, "model.spec", IO_NAMES),
        (SANS_IO, "wire.lines", IO_NAMES),
        (SANS_IO, "contracts.base", IO_NAMES),
        (LIGHT, "contracts.nexo.machine", HEAVY_NAMES),
        (LIGHT, "wire.lines", HEAVY_NAMES),
        (LIGHT, "contracts.base", HEAVY_NAMES),
        (LIGHT, "sdk.plugin", HEAVY_NAMES - {"asyncio"}),
        (PURE, "host.authorization.policy", {"asyncio", "time", "random"}),
        (PURE, "host.supervision.restart", {"asyncio", "time", "random"}),
    ],
)
def test_each_forbidden_name_is_reported(skeleton: Path, rule: str, module: str, names: set[str]) -> None:
    seed(skeleton, module, f"import {', '.join(sorted(names))}")
    report = lint_imports(skeleton, ROOT / RULES)
    assert rule in broken_rules(report)
    assert set(re.findall(r"is not allowed to import (\w+):", report)) >= names


def test_a_decision_that_acts_through_another_module_is_reported(skeleton: Path) -> None:
    seed(skeleton, "host.supervision.restart", "import plugbay.host.supervision.supervisor")
    seed(skeleton, "host.supervision.supervisor", "import plugbay.process.child")
    assert broken_rules(lint_imports(skeleton, ROOT / RULES)) == {PURE}


def test_a_cycle_inside_a_package_is_reported(skeleton: Path) -> None:
    seed(skeleton, "model.ids", "import plugbay.model.spec")
    seed(skeleton, "model.spec", "def f():\n    import plugbay.model.ids")
    assert broken_rules(lint_imports(skeleton, ROOT / RULES)) == {ACYCLIC}


def test_a_cycle_hidden_from_the_run_time_is_reported_when_type_imports_count(skeleton: Path) -> None:
    seed(skeleton, "model.ids", "import plugbay.model.spec")
    seed(skeleton, "model.spec", "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import plugbay.model.ids")
    assert broken_rules(lint_imports(skeleton, ROOT / RULES)) == set()
    assert broken_rules(lint_imports(skeleton, rules_that_count_type_imports(skeleton))) & STRUCTURE == {ACYCLIC}
