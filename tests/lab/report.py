"""What the checks showed: a document and a text, with the seconds that each took."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NOT_SHOWN = (
    "GPU and CUDA: the engine is built for the CPU alone; GPU clocks, masks and load are files of ours",
    "a disk that loses what it has not been told to flush: the power cut ends qemu, and the workstation keeps what "
    "qemu wrote",
    "udev's rules: to boot sooner it looks at disks and networks alone",
    "speed: everything is emulated, and waits for the workstation",
    "the CPU is a Cortex-A76 (no A78AE in qemu); its features are those of the A78AE as far as the engine uses them",
    "rails, temperatures, fan, memory clock: files of ours, not sensors; the EMC cap's path is not there",
    "the kernel is Debian's 6.1, not L4T's; the distribution is Debian 12, not Ubuntu 22.04",
    "zram, the desktop, nvfancontrol and nvpmodel's own program: a stub that follows its published answers",
)


@dataclass
class Result:
    """How a check ended: "passed", "failed" or "not run", with what it saw."""

    name: str
    outcome: str
    seconds: float = 0.0
    seen: dict[str, Any] = field(default_factory=dict)
    why: str = ""


def document(
    board: str, results: list[Result], built: dict[str, float], boots: list[float], restores: list[float]
) -> dict[str, Any]:
    return {
        "board": board,
        "passed": bool(results) and all(result.outcome == "passed" for result in results),
        "boot_seconds": [round(each, 1) for each in boots],
        "restore_seconds": [round(each, 1) for each in restores],
        "build_seconds": built,
        "checks": [vars(result) for result in results],
        "not_shown": list(NOT_SHOWN),
    }


def text(told: dict[str, Any]) -> str:
    lines = [f"The lab on {told['board']}: {'passed' if told['passed'] else 'failed'}"]
    for name, title in (("boot_seconds", "boots"), ("restore_seconds", "restores")):
        if told[name]:
            lines.append(f"{len(told[name])} {title}, {min(told[name]):.0f} to {max(told[name]):.0f} s each")
    lines.append("")
    for check in told["checks"]:
        lines.append(f"{check['outcome']:<8} {check['seconds']:7.0f} s  {check['name']}")
        if check["why"]:
            lines += [f"             {line}" for line in check["why"].splitlines()[:12]]
        lines += [f"             {name}: {value}" for name, value in check["seen"].items()]
    return "\n".join((*lines, "", "What the lab does not show:", *(f"- {each}" for each in told["not_shown"]), ""))


def write(folder: Path, told: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(told, indent=1) + "\n")
    (folder / "report.txt").write_text(text(told))
