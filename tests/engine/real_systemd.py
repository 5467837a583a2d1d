"""A real systemd for tests, booted in namespaces of its own with nothing but what it is given.

It has its own process, mount, cgroup, host name and IPC namespaces, its own /run, /etc/systemd and /var/log, a unit
path with targets and a journal alone, and ends with its first process. The network is the machine's.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

SYSTEMD = Path("/usr/lib/systemd/systemd")
_PATIENCE_S = 20.0
_PROJECT = Path(__file__).parents[2]

_BOOT = """
set -e
umount -R /sys/fs/cgroup || true
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for place in /run /etc/systemd /var/log; do mount -t tmpfs -o mode=755 tmpfs $place; done
mount --make-rshared /  # shared among the services, not with the world outside: credentials need it
mkdir -p /run/lock /etc/systemd/system
mount --bind /dev/null /dev/console
cp "$1"/units/* /etc/systemd/system/
mv /etc/systemd/system/journald.conf /etc/systemd/
exec "$2" --system --unit=basic.target --log-target=null --show-status=0
"""

_TARGETS = ("sysinit", "basic", "multi-user", "network", "shutdown", "umount")
_UNITS = {
    **{f"{name}.target": f"[Unit]\nDescription={name}\nDefaultDependencies=no\n" for name in _TARGETS},
    "basic.target": "[Unit]\nDescription=basic\nDefaultDependencies=no\nWants=systemd-journald.service\n",
    "systemd-journald.socket": "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=/run/systemd/journal/stdout\n"
    "ListenDatagram=/run/systemd/journal/socket\nPassCredentials=yes\n",
    "systemd-journald.service": "[Unit]\nDefaultDependencies=no\nRequires=systemd-journald.socket\n"
    "After=systemd-journald.socket\n[Service]\nType=notify\nExecStart=/usr/lib/systemd/systemd-journald\n"
    "Sockets=systemd-journald.socket\nStandardOutput=null\n",
    "journald.conf": "[Journal]\nStorage=volatile\nAudit=no\nReadKMsg=no\n",
}

Inside = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


@contextmanager
def real_systemd(folder: Path) -> Iterator[Inside]:
    """Boot a systemd; yields what runs a command inside. Skips the test, with the reason, where that cannot be."""
    control = next(
        (path for path in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if _is_cgroup2(path)), None
    )
    missing = [tool for tool in ("unshare", "nsenter", "systemctl") if shutil.which(tool) is None]
    if os.geteuid() != 0 or control is None or missing or not SYSTEMD.exists():
        pytest.skip(
            f"booting a systemd needs root, cgroup v2 and systemd (root {os.geteuid() == 0}, {control}, {missing})"
        )
    (folder / "units").mkdir()
    for name, text in _UNITS.items():
        (folder / "units" / name).write_text(text)
    group = control / f"orin-deploy-test-{os.getpid()}"
    environ = {**os.environ, "container": "orin-deploy-test", "SYSTEMD_UNIT_PATH": "/etc/systemd/system"}
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"booting a systemd needs a cgroup of its own: {error}")
    unshare = ["unshare", "--fork", "--pid", "--mount", "--cgroup", "--uts", "--ipc", "--mount-proc"]
    join_the_group = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group)]
    with (folder / "boot.log").open("w") as log:
        outer = subprocess.Popen(
            [
                *join_the_group,
                *unshare,
                "--propagation",
                "private",
                "bash",
                "-c",
                _BOOT,
                "boot",
                str(folder),
                str(SYSTEMD),
            ],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    first: int | None = None
    try:
        first = _first_process(outer)
        yield _enter(first, environ, folder)
    finally:
        if first is not None and outer.poll() is None:
            os.kill(first, signal.SIGKILL)  # the first process of a PID namespace takes all others with it
        outer.wait(_PATIENCE_S)
        _remove_groups(group)


def _enter(first: int, environ: dict[str, str], folder: Path) -> Inside:
    def inside(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "-t", str(first), "--mount", "--pid", "--cgroup", "--uts", "--ipc"]
        return subprocess.run(
            [*enter, "env", "-C", str(_PROJECT), *argv], env=environ, text=True, capture_output=True, timeout=120
        )

    deadline = time.monotonic() + _PATIENCE_S
    while (state := inside(["systemctl", "is-active", "systemd-journald.service"]).stdout.strip()) != "active":
        if time.monotonic() > deadline:
            pytest.skip(f"no systemd boots here: {state or (folder / 'boot.log').read_text()[-500:]}")
        time.sleep(0.1)
    return inside


def _first_process(outer: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + _PATIENCE_S
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    while time.monotonic() < deadline and outer.poll() is None:
        found = children.read_text().split()
        if found and Path(f"/proc/{found[0]}/comm").read_text().strip() == "systemd":
            return int(found[0])
        time.sleep(0.05)
    outer.kill()
    return pytest.skip("the namespaces for a systemd cannot be made here")


def _is_cgroup2(path: Path) -> bool:
    return (path / "cgroup.procs").exists() and (path / "cgroup.controllers").exists()


def _remove_groups(group: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while group.exists() and time.monotonic() < deadline:
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            try:
                folder.rmdir()
            except OSError:
                break
        try:
            group.rmdir()
        except OSError:
            time.sleep(0.1)
