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

# What it takes to mount the root and to be reached: udev looks at disks and networks only, see `root`.
FIRST = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "virtio_rng", "virtio_net")

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
    """Unpack the kernel below `where.kernel()`: Image, busybox, and the modules for the root and the initrd."""
    folder = where.kernel()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kernel, package = apt.download(apt.newest_kernel())
    busybox, box = apt.download("busybox-static")
    sh(("dpkg-deb", "-x", kernel, folder))
    sh(("dpkg-deb", "-x", busybox, folder / "busybox"))
    modules = _modules()
    sh(("depmod", "-b", folder, modules.name))
    image = folder / "boot" / f"vmlinuz-{modules.name}"
    image.rename(folder / "Image")
    make_initrd()
    return package, box


def make_initrd() -> None:
    """The initrd, made at every call: it takes less than a second."""
    folder, initrd, modules = where.kernel(), where.kernel() / "initrd", _modules()
    shutil.rmtree(initrd, ignore_errors=True)
    for name in ("bin", "lib/modules", "proc", "sys", "dev", "newroot"):
        (initrd / name).mkdir(parents=True)
    box = next(path for path in (folder / "busybox").rglob("bin/busybox"))
    shutil.copy2(box, initrd / "bin/busybox")
    for number, module in enumerate(in_order(FIRST, (modules / "modules.dep").read_text())):
        shutil.copy2(modules / module, initrd / "lib/modules" / f"{number:02}-{PurePosixPath(module).name}")
    (initrd / "init").write_text(_INIT)
    (initrd / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(initrd)) for path in [initrd, *sorted(initrd.rglob("*"))])
    partial = folder / "initrd.partial"
    with partial.open("wb") as archive:
        words = ("cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0")
        subprocess.run(words, input=names.encode(), stdout=archive, cwd=initrd, check=True)
    partial.rename(folder / "initrd.cpio")


def _modules() -> Path:
    return next((where.kernel() / "lib/modules").iterdir())


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
