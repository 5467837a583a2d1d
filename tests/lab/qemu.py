"""qemu: the words that start a board, and its monitor."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tests.lab import where
from tests.lab.commands import LabError
from tests.virtual.boards_table import Board

# Emulated CPUs may wait for the workstation's: neither the kernel nor systemd is to take that for a fault.
_KERNEL_WORDS = (
    "console=ttyAMA0 root=/dev/vda rw panic=-1 rcupdate.rcu_cpu_stall_suppress=1 nowatchdog "
    "systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900 systemd.show_status=auto"
)
# What this kernel keeps of memory for itself: measured on boards of 8 and 32 GB; a 64th is its page table.
_KERNEL_KIB, _KERNEL_SHARE = 171_000, 0.01673


def machine(board: Board, l4t: str) -> tuple[str, ...]:
    """What shapes the device tree. qemu knows equal clusters only: the tree's cpu-map is edited afterwards."""
    total = board.total_kib[int(l4t.split(".")[0])]
    mib = round((total + _KERNEL_KIB) / (1 - _KERNEL_SHARE) / 1024)
    # Version 3 of the interrupt controller is what an Orin has, and the one for more than 8 CPUs.
    return ("qemu-system-aarch64", "-M", "virt,gic-version=3,memory-backend=ram", "-cpu", "cortex-a76", "-smp",
            str(len(board.cpus)), "-m", f"{mib}M",
            # Not reserved: a board of 64 GB fits where it never uses them.
            "-object", f"memory-backend-ram,id=ram,size={mib}M,reserve=off")  # fmt: skip


def devices(folder: Path, disk: Path, tree: Path, given: Path, port: int, rtc: str) -> tuple[str, ...]:
    kernel = where.kernel()
    return ("-kernel", str(kernel / "Image"), "-initrd", str(kernel / "initrd.cpio"), "-dtb", str(tree),
            "-append", _KERNEL_WORDS,
            # What a board has flushed is on this disk, and qemu's death leaves it there: the power cut.
            "-drive", f"file={disk},if=virtio,format=qcow2,cache=writeback",
            "-drive", f"file={where.share_image()},if=virtio,format=raw,read-only=on",
            "-drive", f"file={given},if=virtio,format=raw,read-only=on",
            "-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22",
            "-device", "virtio-net-pci,netdev=n,romfile=", "-device", "virtio-rng-pci", "-rtc", f"base={rtc}",
            "-display", "none", "-serial", f"file:{folder / 'console.log'}",
            "-qmp", f"unix:{folder / 'monitor.socket'},server=on,wait=off")  # fmt: skip


def monitor(folder: Path, line: str, seconds: float = 300) -> str:
    """Run one line of qemu's monitor; what it answers, which is nothing where all is well."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            connection.connect(str(folder / "monitor.socket"))
            with connection.makefile("rw") as stream:
                json.loads(stream.readline())  # its greeting
                _ask(stream, {"execute": "qmp_capabilities"})
                words = {"command-line": line}
                return str(_ask(stream, {"execute": "human-monitor-command", "arguments": words})).strip()
        except (OSError, ValueError) as error:
            raise LabError(f"qemu does not take {line!r}: {error}", f"look at {folder / 'qemu.log'}") from error


def _ask(stream: Any, question: dict[str, Any]) -> Any:
    stream.write(json.dumps(question) + "\n")
    stream.flush()
    while True:  # events come in between
        answer = json.loads(stream.readline())
        if "error" in answer:
            raise ValueError(answer["error"].get("desc"))
        if "return" in answer:
            return answer["return"]
