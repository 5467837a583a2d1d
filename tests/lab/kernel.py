"""Kernel, modules and initrd, unpacked and made on the workstation: under emulation the initrd takes half an hour."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from tests.lab import where
from tests.lab.commands import sh
from tests.lab.manifest import Package
from tests.lab.packages import Apt

# What it takes to mount the root; udev loads all others from the root itself.
FIRST = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_rng")

_INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in /lib/modules/*.ko; do /bin/busybox insmod $module; done
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 100 ]; do /bin/busybox sleep 0.1; tries=$((tries + 1)); done
/bin/busybox mount -t ext4 /dev/vda /newroot || exec /bin/busybox sh
/bin/busybox mount --move /dev /newroot/dev
exec /bin/busybox switch_root /newroot /lib/systemd/systemd
"""


def make(apt: Apt) -> tuple[Package, ...]:
    """Unpack the kernel below `where.kernel()`: Image, initrd, and the modules for the root."""
    folder, initrd = where.kernel(), where.kernel() / "initrd"
    shutil.rmtree(folder, ignore_errors=True)
    initrd.mkdir(parents=True)
    kernel, package = apt.download(apt.newest_kernel())
    busybox, box = apt.download("busybox-static")
    sh(("dpkg-deb", "-x", kernel, folder))
    sh(("dpkg-deb", "-x", busybox, folder / "busybox"))
    modules = next((folder / "lib/modules").iterdir())
    sh(("depmod", "-b", folder, modules.name))
    image = folder / "boot" / f"vmlinuz-{modules.name}"
    image.rename(folder / "Image")
    _initrd(folder, initrd, modules)
    return package, box


def _initrd(folder: Path, initrd: Path, modules: Path) -> None:
    for name in ("bin", "lib/modules", "proc", "sys", "dev", "newroot"):
        (initrd / name).mkdir(parents=True)
    box = next(path for path in (folder / "busybox").rglob("bin/busybox"))
    shutil.copy2(box, initrd / "bin/busybox")
    for number, module in enumerate(in_order(FIRST, (modules / "modules.dep").read_text())):
        shutil.copy2(modules / module, initrd / "lib/modules" / f"{number:02}-{PurePosixPath(module).name}")
    (initrd / "init").write_text(_INIT)
    (initrd / "init").chmod(0o755)
    with (folder / "initrd.cpio").open("wb") as archive:
        names = "\n".join(str(path.relative_to(initrd)) for path in [initrd, *sorted(initrd.rglob("*"))])
        subprocess.run(
            ("cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"), input=names.encode(), stdout=archive, cwd=initrd,
            check=True,
        )  # fmt: skip


def in_order(wanted: Iterable[str], dependencies: str) -> tuple[str, ...]:
    """The modules' paths, each behind those it needs, from the text of modules.dep; one that is built in has none."""
    needs = {}
    for line in dependencies.splitlines():
        path, _, others = line.partition(":")
        needs[path] = others.split()
    by_name = {PurePosixPath(path).name.split(".ko")[0].replace("-", "_"): path for path in needs}
    ordered: list[str] = []

    def add(path: str) -> None:
        for other in reversed(needs[path]):
            add(other)
        if path not in ordered:
            ordered.append(path)

    for name in wanted:
        if name in by_name:
            add(by_name[name])
    return tuple(ordered)
