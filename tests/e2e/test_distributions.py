"""The distributions `plugbay-sdk` and `plugbay`: their wheels, installed in real environments."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import plugbay
from plugbay import Host
from scripts.sbom import collect
from tests.support.patience import PATIENCE
from tests.support.tiers import exhaustive

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "plugbay"
SDK_PROJECT = ROOT / "distributions" / "sdk"
SECONDS = 500
"""For a build of all artefacts."""
EPOCH = "1800000000"
MARK = "builder-of-plugbay"
"""Part of each name that the machine of a builder has."""

OF_THE_HOST = [
    name for name in plugbay.__all__ if name != "__version__" and plugbay._HOMES[name] != "plugbay.model.errors"
]

PLUGIN = (SDK_PROJECT / "README.md").read_text("utf-8").partition("```python\n")[2].partition("```")[0]
"""The example of the page that PyPI shows."""

MANIFEST = """
import sys
from plugbay.sdk.manifests import {contract}_manifest
from plugin import plugin
print({contract}_manifest(plugin, command=[sys.executable, "plugin.py"]))
"""

TEST_IN_MEMORY = """
import sys
sys.path.insert(0, "plugins/rune")
from plugbay.sdk import testing
from plugin import plugin
for contract in testing.contracts_of(plugin):
    with testing.host(plugin, contract=contract) as host:
        assert host.call("greet", {"name": "Ada"})["text"] == "Hello, Ada."
"""

MANIFESTS = {"rune": "rterm-plugin.json", "nexo": "nexo-plugin.toml", "kaged": "kaged-plugin.yaml"}


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return found


def test_the_host_requires_the_sdk_of_its_own_version() -> None:
    required = [name for name in project(ROOT)["project"]["dependencies"] if name.startswith("plugbay")]
    assert required == [f"plugbay-sdk=={plugbay.__version__}"]


def test_the_sdk_requires_nothing_and_its_extras_require_the_versions_of_the_host() -> None:
    sdk, host = project(SDK_PROJECT)["project"], project(ROOT)["project"]
    assert sdk["dependencies"] == []
    assert {name for extra in sdk["optional-dependencies"].values() for name in extra} <= set(host["dependencies"])


def test_the_host_leaves_out_exactly_the_paths_of_the_sdk() -> None:
    host = project(ROOT)["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    sdk = project(SDK_PROJECT)["tool"]["hatch"]["build"]["only-include"]
    assert host == [f"/{path}" for path in sdk]


def test_both_have_the_same_licence() -> None:
    assert (SDK_PROJECT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def closure(requirements: Iterable[str]) -> dict[str, metadata.Distribution]:
    """Libraries and the libraries that they require; a library for another platform is not installed here."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [requirement for requirement in requirements if not requirement.startswith("plugbay")]
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if name not in found and "extra ==" not in requirement:
            with suppress(metadata.PackageNotFoundError):
                found[name] = metadata.distribution(name)
                waiting += found[name].requires or ()
    return found


class Environment:
    """A fresh virtual environment. pip of this one installs into it, without an index."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "env")
        self.folder = folder
        self.python = str(folder / "env" / "bin" / "python")

    def pip(self, *arguments: str) -> str:
        return self._run(sys.executable, "-m", "pip", "--python", self.python, *arguments)

    def install(self, wheel: Path | str, *, with_libraries: Iterable[str] = ()) -> None:
        """Install a wheel; its libraries are copied from this environment."""
        for library in closure(with_libraries).values():
            self._copy(library)
        self.pip("install", "-q", "--no-index", str(wheel))

    def _copy(self, library: metadata.Distribution) -> None:
        (target,) = (self.folder / "env" / "lib").glob("python*/site-packages")
        for file in library.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target / file)

    def run(self, *arguments: str) -> str:
        return self._run(self.python, *arguments)

    def program(self, name: str, *arguments: str) -> str:
        return self._run(str(self.folder / "env" / "bin" / name), *arguments)

    def error(self, code: str) -> str:
        """The last line of the traceback that the code ends with."""
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    def installed(self) -> dict[str, str]:
        return {item["name"]: item["version"] for item in json.loads(self.pip("list", "--format", "json"))}

    def _run(self, *command: str) -> str:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("dist")
    make_dist(folder, ROOT, SOURCE_DATE_EPOCH=EPOCH)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


def make_dist(out: Path, root: Path, **variables: str) -> str:
    """Run what `make dist` runs; its output."""
    command = [sys.executable, "-m", "scripts.dist", str(out), "--root", str(root)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@exhaustive
def test_another_machine_builds_the_same_bytes_and_its_names_are_in_none_of_them(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    here, there = wheels["plugbay"].parent, tmp_path / f"{MARK}-out"
    copy = copy_source(tmp_path / f"{MARK}-tree")
    for path in copy.rglob("*.py"):
        os.utime(path, (0, 0))
        path.chmod(path.stat().st_mode & 0o700)
    folders = {"HOME": tmp_path / f"{MARK}-home", "TMPDIR": tmp_path / f"{MARK}-tmp"}
    for folder in folders.values():
        folder.mkdir()
    names = {**{name: str(folder) for name, folder in folders.items()}, "USER": MARK, "TZ": "Asia/Tokyo"}
    said = make_dist(there, copy, SOURCE_DATE_EPOCH=EPOCH, PYTHONHASHSEED="7", **names)
    assert said.count("PASSED") == 4
    assert {path.name: path.read_bytes() for path in here.iterdir()} == {
        path.name: path.read_bytes() for path in there.iterdir()
    }
    version = plugbay.__version__
    kinds = ("-py3-none-any.whl", ".tar.gz", ".cdx.json")
    assert {path.name for path in there.iterdir()} == {
        "SHA256SUMS",
        *(f"{name}-{version}{kind}" for name in ("plugbay", "plugbay_sdk") for kind in kinds),
    }
    for path in there.iterdir():
        for name, data in contents(path):
            assert MARK.encode() not in data or name.endswith("tests/e2e/test_distributions.py"), (path.name, name)
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=there, check=True, timeout=SECONDS)


def copy_source(folder: Path) -> Path:
    """Copy the files of the source distribution, and no files that tools and tests leave beside them."""
    included = project(ROOT)["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    folder.mkdir()
    for pattern in (*included, "/pyproject.toml", "/.gitignore"):
        for path in ROOT.glob(pattern.lstrip("/")):
            if path.is_dir():
                shutil.copytree(path, folder / path.name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(path, folder)
    return folder


def contents(artefact: Path) -> Iterator[tuple[str, bytes]]:
    """The files in an artefact, with their names; of another file, itself."""
    if artefact.suffix == ".whl":
        with zipfile.ZipFile(artefact) as archive:
            yield from ((name, archive.read(name)) for name in archive.namelist())
    elif artefact.suffix == ".gz":
        with tarfile.open(artefact) as packed:
            yield from ((item.name, read.read()) for item in packed if (read := packed.extractfile(item)) is not None)
            yield "headers", repr([item.get_info() for item in packed.getmembers()]).encode()
    else:
        yield artefact.name, artefact.read_bytes()


@exhaustive
def test_the_metadata_is_complete_and_the_long_description_stands_alone(wheels: dict[str, Path]) -> None:
    for wheel in wheels.values():
        found = dict(contents(wheel))
        (written,) = [Parser().parsestr(data.decode()) for name, data in found.items() if name.endswith("/METADATA")]
        assert written["License-Expression"] == "Apache-2.0"
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in found)
        assert "Typing :: Typed" in written.get_all("Classifier", [])
        assert written["Requires-Python"] == ">=3.11"
        assert written["Description-Content-Type"] == "text/markdown"
        description = str(written.get_payload())
        assert description.startswith("# plugbay")
        assert re.findall(r"\]\((?!https://)[^)]*\)", description) == []
        assert written.get_all("Project-URL", []) == []
    assert "plugbay/py.typed" in files_in(wheels["plugbay_sdk"])


@exhaustive
def test_in_an_empty_environment_a_plugin_is_made_called_and_served(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    assert environment.installed() == {}
    environment.install(wheels["plugbay_sdk"])
    environment.install(f"{wheels['plugbay']}[serve]", with_libraries=collect("plugbay", ["serve"]))
    assert "No broken requirements" in environment.pip("check")
    environment.program("plugbay", "new", "weather")
    called = environment.program("plugbay", "call", "weather", "hello", '{"name": "Ada"}', "--grant-all", "--json")
    assert json.loads(called)["status"] == "succeeded"
    served = [str(tmp_path / "env/bin/plugbay"), "serve", "weather", "--listen", "127.0.0.1:0", "--data", "data"]
    with subprocess.Popen([*served, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            with urllib.request.urlopen(f"{url}/readyz", timeout=PATIENCE) as answer:
                assert json.load(answer)["ready"]
        finally:
            server.terminate()
        assert server.wait(PATIENCE) == 0


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path]) -> Environment:
    """An environment with the SDK alone, and a plugin for three contracts in the folders beside it."""
    environment = Environment(tmp_path_factory.mktemp("author"))
    environment.install(wheels["plugbay_sdk"])
    for contract, file in MANIFESTS.items():
        folder = environment.folder / "plugins" / contract
        folder.mkdir(parents=True)
        (folder / "plugin.py").write_text(PLUGIN)
        code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{MANIFEST.format(contract=contract)}"
        (folder / file).write_text(environment.run("-c", code))
    return environment


def files_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@exhaustive
def test_each_file_of_the_package_is_in_exactly_one_wheel_and_nothing_else_is(wheels: dict[str, Path]) -> None:
    sdk, host = files_in(wheels["plugbay_sdk"]), files_in(wheels["plugbay"])
    source = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert not sdk & host
    assert sdk | host == {f"plugbay/{path.relative_to(SOURCE).as_posix()}" for path in source}
    assert not {name for name in sdk if not name.endswith(".py")} - {"plugbay/py.typed"}


@exhaustive
def test_the_wheel_of_the_sdk_requires_nothing(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["plugbay_sdk"]) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        written = Parser().parsestr(archive.read(name).decode())
    assert all("extra == " in requirement for requirement in written.get_all("Requires-Dist", []))
    assert set(written.get_all("Provides-Extra", [])) == {"msgpack", "testing"}


@exhaustive
def test_a_plugin_runs_with_the_sdk_alone(author: Environment) -> None:
    assert author.installed() == {"plugbay-sdk": plugbay.__version__}
    assert "No broken requirements" in author.pip("check")
    assert greetings(author) == {contract: {"text": "Hello, Ada."} for contract in MANIFESTS}


def greetings(author: Environment) -> dict[str, Any]:
    """The answer of each plugin to the host of this environment."""

    async def main() -> dict[str, Any]:
        found = {}
        for contract in MANIFESTS:
            async with Host.load(author.folder / "plugins" / contract) as host:
                (name,) = host.exports()
                found[contract] = await host.call(name, {"name": "Ada"})
        return found

    return asyncio.run(main())


@exhaustive
def test_without_the_host_its_names_say_how_to_install_it(author: Environment) -> None:
    for name in OF_THE_HOST:
        message = f"ImportError: plugbay.{name} needs the host: pip install plugbay"
        assert author.error(f"import plugbay; plugbay.{name}") == message
        assert author.error(f"from plugbay import {name}") == message


@exhaustive
def test_without_the_extras_the_sdk_says_how_to_install_them(author: Environment) -> None:
    error = author.error("import plugbay.sdk.testing")
    assert error.startswith("ImportError: plugbay.sdk.testing needs ")
    assert error.endswith(": pip install 'plugbay-sdk[testing]'")
    error = author.error("from plugbay.sdk.services import brokered; brokered.to_msgpack(1)")
    assert error == "ImportError: MessagePack needs msgspec: pip install 'plugbay-sdk[msgpack]'"


@exhaustive
def test_the_extras_and_then_the_host_install_over_the_sdk_which_stays_whole_when_the_host_goes(
    author: Environment, wheels: dict[str, Path]
) -> None:
    extras, host = project(SDK_PROJECT)["project"]["optional-dependencies"], project(ROOT)["project"]
    author.install(f"{wheels['plugbay_sdk']}[testing]", with_libraries=extras["testing"])
    author.run("-c", TEST_IN_MEMORY)

    author.install(wheels["plugbay"], with_libraries=host["dependencies"])
    assert {"plugbay": plugbay.__version__, "plugbay-sdk": plugbay.__version__}.items() <= author.installed().items()
    assert "No broken requirements" in author.pip("check")
    call = ("call", "plugins/rune", "greet", '{"name": "Ada"}')
    assert "Hello, Ada." in author.program("plugbay", *call)
    assert "Hello, Ada." in author.run("-m", "plugbay", *call)
    author.run("-c", f"from plugbay import {', '.join(plugbay.__all__)}")

    author.pip("uninstall", "-q", "-y", "plugbay")
    assert greetings(author) == {contract: {"text": "Hello, Ada."} for contract in MANIFESTS}
    left = Path(author.run("-c", "import plugbay; print(plugbay.__file__)").strip()).parent
    kept = {path.relative_to(left.parent).as_posix() for path in left.rglob("*") if path.is_file()}
    assert {name for name in kept if "__pycache__" not in name} == files_in(wheels["plugbay_sdk"])
