"""The root file system: a small Debian, and the disk that is made of it."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.lab import where
from tests.lab.commands import LabError, sh
from tests.lab.manifest import Package, installed
from tests.lab.packages import SOURCES, Apt

INCLUDE = (
    "systemd", "systemd-sysv", "udev", "dbus", "openssh-server", "python3", "python3-venv", "python3-pip", "iproute2",
    "util-linux", "procps", "libgomp1", "ca-certificates", "kmod", "passwd", "sudo", "zstd", "lsb-release",
)  # fmt: skip
SIZE = "8G"

# In a mount namespace, and taken away again: this machine is to run no foreign programs afterwards.
_BUILD = r"""set -e
mount -t binfmt_misc none "$1"
trap 'echo -1 > "$1/orin-lab" 2>/dev/null || true' EXIT
if ! ls "$1" | grep -q aarch64; then
    printf '%s' ':orin-lab:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$(command -v qemu-aarch64-static)"':F' > "$1/register"
fi
shift
"$@"
"""  # noqa: E501

# qemu's own network is the same at every start.
_NETWORK = "[Match]\nName=en* eth*\n[Network]\nAddress=10.0.2.15/24\nLinkLocalAddressing=no\n"
_FSTAB = """/dev/vda / ext4 noatime 0 1
/dev/vdb /opt/lab ext4 ro,noatime 0 0
/dev/vdc /opt/given ext4 ro,noatime 0 0
"""
# Looking at every device with all rules took 54 s of a boot's 100: only those that are waited for are looked at.
_COLDPLUG = """[Service]
ExecStart=
ExecStart=-udevadm trigger --type=devices --action=add --subsystem-match=block --subsystem-match=net
"""
# What a board does not have, or what takes its time under emulation and shows nothing.
_MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "systemd-timesyncd.service",
    "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "e2scrub_reap.service", "e2scrub_all.timer",
    "fstrim.timer", "getty@tty1.service", "serial-getty@ttyAMA0.service", "modprobe@drm.service",
)  # fmt: skip


def make(apt: Apt) -> tuple[Package, ...]:
    """Debian's packages for arm64, configured under emulation: minutes. Into `where.root_tar()`."""
    tar, partial = where.root_tar(), where.home() / "root.partial.tar"
    mount = where.home() / "binfmt"
    mount.mkdir(parents=True, exist_ok=True)
    partial.unlink(missing_ok=True)
    strap = ("mmdebstrap", "--mode=root", "--architectures=arm64", "--variant=minbase", "--quiet",
             f"--include={','.join(INCLUDE)}", where.SUITE, str(partial), *SOURCES)  # fmt: skip
    done = subprocess.run(
        ("unshare", "-m", "sh", "-c", _BUILD, "sh", str(mount), *strap), capture_output=True, text=True
    )
    if done.returncode != 0:
        raise LabError(
            "the root file system could not be made; it takes root and a kernel with binfmt_misc",
            "\n".join(done.stderr.splitlines()[-15:]),
        )
    partial.rename(tar)
    return apt.described(installed(_status(tar)))


def _status(tar: Path) -> str:
    with tarfile.open(tar) as archive:
        file = archive.extractfile("./var/lib/dpkg/status")
        return file.read().decode() if file else ""


def make_disk(guest: Path) -> None:
    """The boards' first disk: the root, the kernel's modules, and the lab's own units below `guest`."""
    folder, raw = where.home() / "root", where.home() / "disk.raw"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    sh(("tar", "-C", folder, "-xf", where.root_tar()))
    modules = next((where.kernel() / "lib/modules").iterdir())
    shutil.copytree(modules, folder / "lib/modules" / modules.name, symlinks=True)
    _configure(folder, guest)
    raw.unlink(missing_ok=True)
    sh(("truncate", "-s", SIZE, raw))
    sh(("mke2fs", "-q", "-t", "ext4", "-d", folder, raw))
    sh(("qemu-img", "convert", "-O", "qcow2", raw, where.disk()))
    raw.unlink()
    shutil.rmtree(folder)


def _configure(folder: Path, guest: Path) -> None:
    key = where.key()
    if not key.exists():
        sh(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key))
    (folder / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy2(f"{key}.pub", folder / "root/.ssh/authorized_keys")
    sh(("ssh-keygen", "-q", "-A", "-f", folder))  # else the first boot makes them, under emulation
    for name in ("opt/lab", "opt/given", "etc/systemd/system/systemd-udev-trigger.service.d"):
        (folder / name).mkdir(parents=True)
    (folder / "etc/hostname").write_text("lab\n")
    (folder / "etc/fstab").write_text(_FSTAB)
    (folder / "etc/modules-load.d/lab.conf").write_text("cpufreq_dt\n")
    (folder / "etc/systemd/network/20-dhcp.network").write_text(_NETWORK)
    (folder / "etc/systemd/system/systemd-udev-trigger.service.d/lab.conf").write_text(_COLDPLUG)
    units, wants = folder / "etc/systemd/system", folder / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")
    for unit in sorted(guest.glob("*.service")):
        shutil.copy2(unit, units / unit.name)
        (wants / unit.name).symlink_to(f"/etc/systemd/system/{unit.name}")
    for name in _MASKED:
        (units / name).unlink(missing_ok=True)
        (units / name).symlink_to("/dev/null")
