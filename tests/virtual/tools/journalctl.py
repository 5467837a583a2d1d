"""journalctl: what units' processes printed, as `-o cat` shows it; of several units one after the other."""

from __future__ import annotations

from tests.virtual.kernel import Kernel
from tests.virtual.systemd import full, journal


def main(kernel: Kernel, words: list[str]) -> int:
    units = [full(words[place + 1]) for place, word in enumerate(words) if word == "-u"]
    files = [journal(kernel, unit) for unit in units]
    logs = [file.read_text(errors="replace").splitlines() if file.exists() else [] for file in files]
    seen = [0] * len(logs)
    if "--after-cursor" in words:
        seen = list(map(int, words[words.index("--after-cursor") + 1].split("-")))
    lines = [line for log, count in zip(logs, seen, strict=True) for line in log[count:]]
    if "-n" in words and (wanted := words[words.index("-n") + 1]) != "all":
        lines = lines[len(lines) - min(int(wanted), len(lines)) :]
    for line in lines:
        print(line)
    if "--show-cursor" in words:
        print("-- cursor: " + "-".join(str(len(log)) for log in logs))
    return 0
