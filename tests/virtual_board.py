"""A virtual board: a captured board's files below a folder, with the programs that a deployment runs played here.

Files are written, linked, unpacked and removed for real. Commands, fetches, systemd, our supervisor, the server and
its endpoint are small models that keep all their state in the root, processes in its /proc, so that a second host on
the same folder finds what a first one left. `moments` names the points at which a run can break off; at number `at`,
counted from 1, it does, with `fault`.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import socket
import sys
import tarfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from orin_deploy.actions import Action, Fetch, Run, Start, Stop
from orin_deploy.errors import CommandFailed
from orin_deploy.host import Host, Progress, files, processes
from orin_deploy.host.http import Reply
from orin_deploy.host.processes import RUNNING, START_MARK, State
from orin_deploy.intent.option_table import SERVER
from tests.boards.capture import PATH, Capture
from tests.ggufs import Shape

BOARDS = Path(__file__).parent / "boards"
SERVED = Shape()
BUILD = "b11312-0c1e570"
_HELP = {"value": " VALUE", "digit": " <0|1>", "two": " FIRST LAST"}


class Killed(BaseException):
    """The command's own process is gone: nothing that it had still to do is done."""


class VirtualBoard(Host):
    """The board in tests/boards of that name, with what happened to it so far in `folder`; root's."""

    def __init__(self, folder: Path, board: str = "agx32-r36") -> None:
        self.capture = Capture(BOARDS / board)
        if not folder.exists():
            shutil.copytree(self.capture.root, folder, symlinks=True, ignore=shutil.ignore_patterns("sys"))
            (folder / "sys").symlink_to(self.capture.root / "sys")
            for name, text in (("usr/bin/taskset", ""), ("proc/uptime", "1000.00 0.00\n")):
                (folder / name).write_text(text)
            (folder / "proc/net").mkdir()
        super().__init__(folder, {"PATH": PATH, "HOME": "/absent/home"})
        self.is_root = True
        self.data, self.cache = self._folders()
        if self.read("/proc/sys/kernel/random/boot_id") is None:
            self.boot()
        self.moments: list[str] = []
        self.at = 0
        self.fault: Callable[[], BaseException] = Killed
        self.over = False
        self.clock = 0.0

    # What breaks off.

    def moment(self, what: str) -> None:
        self.moments.append(what)
        if len(self.moments) == self.at or self.over:
            error = self.fault()
            self.over = isinstance(error, Killed)
            raise error

    def boot(self) -> None:
        """Switch the board on, again after a power cut: no process of before is left, enabled units start."""
        for pid in self.pids():
            self.end(pid)
        shutil.rmtree(self.root / "run/loaded", ignore_errors=True)
        number = len(list(self.root.glob("boots/*")))
        files.write(self.root / f"boots/{number}", "")
        files.write(self.path("/proc/sys/kernel/random/boot_id"), f"boot {number}\n")
        for link in sorted(self.path("/etc/systemd/system/multi-user.target.wants").glob("*.service")):
            self._start_unit(link.name)

    # Reading.

    def which(self, program: str) -> str | None:
        return "/usr/bin/taskset" if program == "taskset" else self.capture.which(program)

    def free_bytes(self, path: str | Path) -> int | None:
        return 1 << 40

    def monotonic(self) -> float:
        self.clock += 0.01
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += seconds

    def ask(self, *argv: str, timeout_s: float = 20) -> str | None:
        if argv[:2] == ("systemctl", "show"):
            pid = self.unit_pid(argv[2])
            return f"ActiveState={'active' if pid else 'inactive'}\nMainPID={pid or 0}\nResult=success"
        if argv[0] == "journalctl":
            return self.read(f"/var/log/{argv[2]}")
        program = argv[0] if argv[0].startswith("/") else self.which(argv[0])
        return None if program is None else self.capture.ask(program, *argv[1:])

    # Doing.

    def do(self, action: Action, progress: Progress = lambda fraction, text: None) -> None:
        self.moment(str(action))
        match action:
            case Fetch():
                self._fetch(action)
            case Start():
                self._start_supervised(Path(action.path))
            case Stop():
                self._stop_supervised(Path(action.path))
            case _:
                super().do(action, progress)

    def _fetch(self, action: Fetch) -> None:
        path = self.path(action.path)
        self._make(path.with_name(f".{path.name}.part"))
        if action.reference.startswith("package:"):
            with tarfile.open(path.with_name(f".{path.name}.part"), "w") as tar:
                member = tarfile.TarInfo("llama_cpp_python-0.3.36/vendor/llama.cpp/CMakeLists.txt")
                tar.addfile(member, io.BytesIO())
        else:
            SERVED.write(path.with_name(f".{path.name}.part"))
        path.with_name(f".{path.name}.part").replace(path)

    def _run(self, action: Run, progress: Progress) -> None:
        name, words = Path(action.argv[0]).name, action.argv[1:]
        if action.argv[0] == sys.executable:
            name = words[1] if words[0] == "-m" else Path(words[0]).stem
        said = getattr(self, f"_{name.replace('-', '_')}")(action, *words)
        if action.output is not None:
            files.write(self.path(action.output), f"{said}\n")

    def _need(self, action: Run, *paths: str | Path) -> None:
        for path in paths:
            if not self.exists(path):
                raise CommandFailed(action.argv, 1, (f"{path} is not there",))

    def _make(self, *paths: Path) -> None:
        """Files one after the other, each of which may stay half written."""
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("half")
            self.moment(f"half of {path.name}")
            path.write_text("whole")

    def _pip(self, action: Run, *words: str) -> None:
        folder = Path(words[words.index("--target") + 1])
        if words[-1].endswith(".tar.gz"):
            self._need(action, words[-1])
            names = ("llama_cpp/__init__.py", "numpy/__init__.py")
        else:
            names = ("cmake/data/bin/cmake", "bin/ninja")
        # pip leaves what is in the target folder already as it is.
        self._make(*(folder / name for name in names if not (folder / name).exists()))

    def _mv(self, action: Run, *words: str) -> None:
        self._need(action, words[-2])
        os.rename(words[-2], words[-1])  # as mv -T, it fails on a folder that holds something

    def _cmake(self, action: Run, *words: str) -> str:
        ninja = next(word for word in words if word.startswith("-DCMAKE_MAKE_PROGRAM=")).partition("=")[2]
        self._need(action, ninja, f"{words[words.index('-S') + 1]}/CMakeLists.txt")
        self._make(Path(words[words.index("-B") + 1], "CMakeCache.txt"))
        return "-- Build files have been written"

    def _configured(self, action: Run, *words: str) -> None:
        self._need(action, words[1])

    def _ninja(self, action: Run, *words: str) -> None:
        folder = Path(words[words.index("-C") + 1])
        self._need(action, action.argv[0], folder / "CMakeCache.txt")
        self._make(*(folder / "bin" / name for name in ("libllama.so", "llama-bench", "llama-server")))

    def _llama_server(self, action: Run, *words: str) -> str:
        self._need(action, action.argv[0])
        if words == ("--version",):
            return "version: 11312 (0c1e570)"
        rows = ((*row.flags[0], *row.flags[1], row.form) for row in SERVER)
        return "\n".join(f"{', '.join(names)}{_HELP.get(form, '')}   help" for *names, form in rows)

    def _probe(self, action: Run, *words: str) -> str:
        self._need(action, f"{words[1]}/libllama.so", f"{dict(action.env)['PYTHONPATH']}/llama_cpp")
        cpu = words[words.index("--cpu") + 1 : words.index("--cuda")]
        archs = f"{words[words.index('--cuda') + 1]}0"
        return json.dumps(
            {
                "python": f"{sys.version_info.major}.{sys.version_info.minor}",
                "features": {"CPU": dict.fromkeys(cpu, "1"), "CUDA": {"ARCHS": archs}},
                "devices": [{"name": "CUDA0"}, {"name": "CPU"}],
                "binding": "0.3.36",
            }
        )

    # systemd and our supervisor.

    def _systemctl(self, action: Run, verb: str, *words: str) -> None:
        match verb:
            case "restart":
                self._stop_units(words[-1])
                self.moment(f"{words[-1]} stopped")
                self._start_unit(words[-1])
            case "stop":
                self._stop_units(*words)
            case "daemon-reload":
                shutil.rmtree(self.root / "run/loaded", ignore_errors=True)

    def _start_unit(self, unit: str) -> None:
        """systemd reads a unit once and knows that text until it is told to reload."""
        loaded = self.root / "run/loaded" / unit
        if not loaded.exists():
            files.write(loaded, self.read(f"/etc/systemd/system/{unit}") or "")
        line = next((line for line in loaded.read_text().splitlines() if line.startswith("ExecStart=")), None)
        if line is not None:
            words = [word.replace("$$", "$").replace("%%", "%") for word in shlex.split(line.partition("=")[2])]
            self._spawn(words, unit, self.path(f"/var/log/{unit}"))

    def _stop_units(self, *patterns: str) -> None:
        for pid in self.pids():
            if any(fnmatch(self.unit_of(pid), pattern) for pattern in patterns):
                self.end(pid)

    def _start_supervised(self, launch: Path) -> None:
        if processes.running(launch, self.path("/proc")) is not None:
            return
        data = json.loads(launch.read_text())
        pid = self._spawn(data["argv"], "a session", Path(data["log"]))
        who = processes.identify(pid, self.path("/proc")) if pid else None
        assert who is not None
        processes.write_state(launch, State(RUNNING, who, who, 1, 0, None))

    def _stop_supervised(self, launch: Path) -> None:
        state = processes.read_state(launch)
        if state is not None and processes.is_alive(state.server, self.path("/proc")):
            self.end(state.supervisor.pid)
        processes.state_path(launch).unlink(missing_ok=True)

    # Processes.

    def pids(self) -> list[int]:
        return sorted(int(path.parent.name) for path in self.root.glob("proc/[0-9]*/cmdline"))

    def argv(self, pid: int) -> list[str]:
        return (self.path(f"/proc/{pid}/cmdline").read_text()).rstrip("\0").split("\0")

    def unit_of(self, pid: int) -> str:
        return self.path(f"/proc/{pid}/cgroup").read_text().strip().rpartition("/")[2]

    def unit_pid(self, unit: str) -> int | None:
        return next((pid for pid in self.pids() if self.unit_of(pid) == unit), None)

    def _spawn(self, words: list[str], unit: str, log: Path) -> int | None:
        """The server under taskset; None when its program or its model is not there."""
        taskset, _, cpus, *argv = words
        assert taskset == "/usr/bin/taskset"
        if not (self.exists(argv[0]) and self.exists(argv[argv.index("--model") + 1])):
            return None
        last = int((self.root / "run/last_pid").read_text()) if (self.root / "run/last_pid").exists() else 4000
        pid = last + 10
        (self.root / "run/last_pid").write_text(str(pid))
        process = self.path(f"/proc/{pid}")
        about = {f"task/{thread}/status": f"Cpus_allowed_list:\t{cpus}\n" for thread in (pid, pid + 1)} | {
            "stat": f"{pid} (llama-server) S {'0 ' * 18}{100_000 + pid}\n",
            "status": "RssAnon:\t4096 kB\nRssFile:\t1024 kB\nRssShmem:\t0 kB\n",
            "environ": "PATH=/usr/bin\0",
            "cgroup": f"0::/system.slice/{unit}\n",
            "cmdline": "\0".join(argv) + "\0",
        }
        for name, text in about.items():
            (process / name).parent.mkdir(parents=True, exist_ok=True)
            (process / name).write_text(text)
        (process / "fd").mkdir()
        (process / "exe").symlink_to(argv[0])
        (process / "fd/3").symlink_to(f"socket:[{90_000 + pid}]")
        files.write(log, "\n".join((START_MARK, *_LOG)) + "\n")
        self._list_ports()
        return pid

    def end(self, pid: int) -> None:
        self.path(f"/proc/{pid}").rename(self.root / f"run/ended-{pid}")
        self._list_ports()

    def _list_ports(self) -> None:
        lines = ["header"]
        for pid in self.pids():
            packed = socket.inet_aton(self.option(pid, "--host"))
            address = (packed[::-1] if sys.byteorder == "little" else packed).hex().upper()
            lines.append(f"0: {address}:{int(self.option(pid, '--port')):04X} 0 0A 0 0 0 0 0 {90_000 + pid}")
        (self.path("/proc/net/tcp")).write_text("\n".join(lines) + "\n")

    def option(self, pid: int, name: str) -> str:
        words = self.argv(pid)
        return words[words.index(name) + 1]

    # The endpoint.

    def http(self, method: str, url: str, payload: Any = None, **options: Any) -> Reply | None:
        parts = urlsplit(url)
        pid = next((pid for pid in self.pids() if self.option(pid, "--port") == str(parts.port)), None)
        if pid is None:
            return None
        slots = int(self.option(pid, "--parallel"))
        each = int(self.option(pid, "--ctx-size")) // slots
        answers: dict[str, Any] = {
            "/health": {"status": "ok"},
            "/slots": [{"id": slot, "n_ctx": each} for slot in range(slots)],
            "/props": {
                "default_generation_settings": {"n_ctx": each},
                "total_slots": slots,
                "model_path": self.option(pid, "--model"),
                "build_info": BUILD,
            },
        }
        return Reply(200, json.dumps(answers[parts.path]).encode())

    def events(self, url: str, payload: Any, **options: Any) -> Iterator[Any]:
        if self.http("POST", url.replace("/v1/chat/completions", "/health")) is None:
            raise ConnectionRefusedError(url)
        self.moment("a completion")
        timings = {"prompt_n": 9, "prompt_per_second": 900.0, "predicted_n": 3, "predicted_per_second": 30.0}
        yield {"choices": [{"delta": {"content": "I am ready."}}]}
        yield {"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": timings}


_LOG = (
    "0.00.100.000 I load_tensors: offloaded 4/4 layers to GPU",
    "0.00.200.000 I load_tensors:        CUDA0 model buffer size =     2.00 MiB",
    "0.00.300.000 I srv          load: model loaded",
)
