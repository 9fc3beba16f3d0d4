"""`make image`: one container image for gateways and nodes, as an OCI archive, made without a daemon.

    python deploy/image/build.py [--out dist/plugbay.oci.tar] [--check]

mmdebstrap makes the root file system from Debian packages, with the sources of this machine; pip brings the wheels,
with the settings of this machine and the versions of constraints.txt; buildah makes the image, with storage of its own.
Then the image is checked: it prints its version, and runs a plugin in the sandbox. It needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "deploy" / "where"
PACKAGES = ("python3", "python3-venv", "bubblewrap", "ca-certificates")
EXTRAS = "nats,oci,otel,postgres,serve,uvloop"
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
HOME, PREFIX = "/var/lib/plugbay", "/opt/plugbay"
SHARE = "usr/share"
UNNEEDED = (f"{SHARE}/doc/*", f"{SHARE}/man/*", f"{SHARE}/locale/*", f"{SHARE}/info/*")
POLICY = {"default": [{"type": "insecureAcceptAnything"}]}
"""For buildah: the only image that it reads is the one that it has just written."""

ENTER = """\
set -eu
root=$1 example=$2
shift 2
mount --bind "$root" "$root"
mount --bind -o ro "$example" "$root/where"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
cd "$root"
pivot_root . mnt
umount -l /mnt
exec env -i "$@"
"""
"""The isolation `chroot` of buildah gives a program no right to mount, and the sandbox needs it."""


def run(*command: object, output: bool = False) -> str:
    """The output of a program, if it is wanted; ends this program when that fails."""
    words = [*map(str, command)]
    done = subprocess.run(words, stdout=subprocess.PIPE if output else sys.stderr, text=True)
    if done.returncode:
        raise SystemExit(f"image: {' '.join(words)} failed with status {done.returncode}")
    return (done.stdout or "").strip()


def say(text: str) -> None:
    print(f"image: {text}", file=sys.stderr, flush=True)


class Buildah:
    """buildah with storage in a folder of its own, without a daemon and without overlays."""

    def __init__(self, folder: Path) -> None:
        self._policy = folder / "policy.json"
        self._policy.write_text(json.dumps(POLICY))
        self._options = ["--root", folder / "storage", "--runroot", folder / "run", "--storage-driver", "vfs"]

    def __call__(self, command: str, *words: object, output: bool = False) -> str:
        more = ["--signature-policy", self._policy] if command in ("from", "commit") else []
        return run("buildah", *self._options, command, *more, *words, output=output)

    def run(self, container: str, *words: object, volumes: Sequence[str] = (), output: bool = False) -> str:
        mounts = [word for volume in volumes for word in ("--volume", volume)]
        return self("run", "--isolation", "chroot", *mounts, container, "--", *words, output=output)


def make_root(out: Path) -> None:
    """A Debian with few packages."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    excluded = [f"--dpkgopt=path-exclude=/{pattern}" for pattern in UNNEEDED]
    sources = [SOURCES] if SOURCES.exists() else []
    run(
        "mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", *excluded, suite, out, *sources
    )


def collect_wheels(python: str, folder: Path) -> None:
    """plugbay and all that it needs, as wheels for this version of Python."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT / "distributions" / "sdk", ROOT)
    (wheel,) = folder.glob("plugbay-*.whl")
    options = [
        "--only-binary=:all:",
        "--python-version",
        python,
        "-c",
        ROOT / "constraints.txt",
        "--find-links",
        folder,
    ]
    run(*pip, "download", *options, "-d", folder, f"{wheel}[{EXTRAS}]")


def build(work: Path, out: Path) -> None:
    buildah = Buildah(work)
    say("making the root file system")
    make_root(work / "root.tar")
    container = buildah("from", "scratch", output=True)
    buildah("add", "--quiet", container, work / "root.tar", "/")
    asked = "import sys; print('{}.{}'.format(*sys.version_info))"
    python = buildah.run(container, "python3", "-c", asked, output=True)
    say(f"installing plugbay for Python {python}")
    (work / "wheels").mkdir()
    collect_wheels(python, work / "wheels")
    volumes = [f"{work / 'wheels'}:/wheels:ro"]
    buildah.run(container, "python3", "-m", "venv", PREFIX)
    pip = (f"{PREFIX}/bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--find-links", "/wheels")
    buildah.run(container, *pip, "--root-user-action=ignore", f"plugbay[{EXTRAS}]", volumes=volumes)
    buildah.run(container, f"{PREFIX}/bin/python", "-m", "pip", "uninstall", "--quiet", "--yes", "pip")
    buildah.run(container, "mkdir", "-p", HOME, "/etc/plugbay")
    labels = ["--label", "org.opencontainers.image.title=plugbay"]
    environment = ["--env", f"HOME={HOME}", "--env", f"PATH={PREFIX}/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    start = ["--entrypoint", json.dumps(["plugbay"]), "--cmd", "--help", "--workingdir", "/etc/plugbay"]
    buildah("config", *labels, *environment, *start, "--volume", HOME, "--stop-signal", "SIGTERM", container)
    say("writing the archive")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    buildah("commit", "--quiet", "--rm", container, f"oci-archive:{out}:plugbay")


def check(work: Path, archive: Path) -> None:
    """The image as others read it prints its version, and confines a plugin."""
    buildah = Buildah(work)
    say("checking the archive")
    container = buildah("from", f"oci-archive:{archive}", output=True)
    version = buildah.run(container, "plugbay", "--version", output=True)
    expected = run(sys.executable, "-m", "plugbay", "--version", output=True)
    if version != expected:
        raise SystemExit(f"image: its version is {version!r}, not {expected!r}")
    root = buildah("mount", container, output=True)
    (Path(root) / "where").mkdir()
    answer = enter(root, "plugbay", "call", "/where", "node", "--json")
    status = enter(root, "plugbay", "sandbox", "/where", "--", "grep", "^Seccomp:", "/proc/self/status")
    if '"node":"none"' not in answer or status.split() != ["Seccomp:", "2"]:
        raise SystemExit(f"image: no plugin ran in the sandbox:\n{answer}\n{status}")
    say(f"{version}; a confined plugin answered")


def enter(root: str, *words: str) -> str:
    """The output of a program with this folder as its root, in namespaces of its own, as in a container."""
    namespaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
    environment = (f"HOME={HOME}", f"PATH={PREFIX}/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return run(*namespaces, "sh", "-c", ENTER, "enter", root, EXAMPLE, *environment, *words, output=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make image")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "plugbay.oci.tar")
    parser.add_argument("--check", action="store_true", help="only check the archive that is there")
    given = parser.parse_args(arguments)
    if os.geteuid() != 0:
        raise SystemExit("image: mmdebstrap and buildah need root here")
    missing = [name for name in ("mmdebstrap", "buildah") if shutil.which(name) is None]
    if missing:
        raise SystemExit(f"image: missing; Debian: apt-get install {' '.join(missing)}")
    begun, out = time.monotonic(), given.out.absolute()
    with tempfile.TemporaryDirectory(prefix="plugbay-image-", dir="/var/tmp") as folder:
        for step in (check,) if given.check else (build, check):
            work = Path(folder) / step.__name__
            work.mkdir()
            step(work, out)
    say(f"{out}: {out.stat().st_size / 1e6:.0f} MB, in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
