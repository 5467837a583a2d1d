"""The checks on a board, cheap ones first; each says what it saw, or raises what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from orin_deploy.facts.cpu import parse_list
from tests.lab import product
from tests.lab.machine import Board
from tests.lab.product import NAME, call, expect, must
from tests.virtual.boards_table import BOARDS

Seen = dict[str, Any]
SERVER, DRAFT = f"orin-deploy-{NAME}.service", f"orin-deploy-{NAME}@draft.service"

# A model of one layer: what it says is nonsense, and quick. The real one is served once.
TINY = f"--profile {NAME} --no-power --model /opt/tiny.gguf"
REAL = (
    f"--profile {NAME} --no-power --draft /opt/tiny.gguf --set placement.draft=process "
    "--set placement.draft_cpus=4 --set spec_draft_n_max=1"
)


@dataclass
class Lab:
    """A board under test, and what earlier checks leave for later ones."""

    board: Board
    boots: list[float] = field(default_factory=list)

    @property
    def cpus(self) -> tuple[int, ...]:
        return BOARDS[self.board.name].cpus

    def boot(self, **how: Any) -> None:
        self.boots.append(self.board.up(**how))


def facts(lab: Lab) -> Seen:
    """Board, clusters and L4T are read from the running machine."""
    board, told = BOARDS[lab.board.name], must(lab.board, "facts")
    cpu, jetson = told["cpu"], told["jetson"]
    clusters = [tuple(cluster["cpus"]) for cluster in cpu["clusters"]]
    expect(jetson["module"] == board.module, f"the module is {jetson['module']}")
    expect(clusters == list(board.clusters), f"the clusters are {clusters}")
    expect(cpu["clusters_from"] == "cluster_id", f"the clusters are from {cpu['clusters_from']}")
    expect(jetson["l4t"] == "36.4.3", f"L4T is {jetson['l4t']}")
    expect({"asimddp", "asimdhp"} <= set(cpu["features"]) and "i8mm" not in cpu["features"], f"{cpu['features']}")
    return {"module": jetson["module"], "clusters": clusters, "L4T": jetson["l4t"], "memory": told["memory"]["total"]}


def serve(lab: Lab) -> Seen:
    """`up` with SmolLM2 and a draft process under the real systemd; every thread of both is where it was planned."""
    began = time.monotonic()
    done = must(lab.board, f"up {REAL}")
    placement = done["plan"]["spec"]["placement"]
    seen: Seen = {"up_seconds": round(time.monotonic() - began), "speculation": done["speculation"]}
    seen |= _placed(lab, SERVER, placement["target"]["cpus"]) | _placed(lab, DRAFT, placement["draft"]["cpus"])
    measured = done.get("measurement") or {}
    seen["tokens_per_s"] = measured.get("generated_per_s")
    again = must(lab.board, f"up {REAL}")
    expect(not again["changed"], "a second `up` found something to do")
    return seen


def _placed(lab: Lab, unit: str, cpus: list[int]) -> Seen:
    """Read back: each thread's CPUs, its user and privileges."""
    process = product.pid(lab.board, unit)
    expect(process > 0, f"{unit} does not run")
    found = product.threads(lab.board, process)
    masks, users = {thread.cpus for thread in found}, {thread.uid for thread in found}
    expect(all(parse_list(mask) == tuple(cpus) for mask in masks), f"{unit}: CPUs {masks}, planned {cpus}")
    expect(0 not in users and len(users) == 1, f"{unit} runs as user {users}")
    expect(all(thread.no_new_privileges for thread in found), f"{unit} may gain privileges")
    return {unit: f"{len(found)} threads on CPUs {', '.join(masks)} as user {users.pop()}, no new privileges"}


def library(lab: Lab) -> Seen:
    """The engine's libraries, asked on the board, say what they were built with."""
    said = lab.board.ssh("cat /var/lib/orin-deploy/engines/external-*/system_info.json").stdout
    missing = [name for name in ("NEON", "DOTPROD", "FP16_VA") if f'"{name}": "1"' not in said]
    expect(not missing, f"{', '.join(missing)} is missing: {said[:600]}")
    return {"system_info": next(line.strip() for line in said.splitlines() if "system_info" in line)}


def killed(lab: Lab) -> Seen:
    """Server and draft come back after kill -9, and the server answers."""
    seen: Seen = {}
    for unit in (SERVER, DRAFT):
        before = product.pid(lab.board, unit)
        began = time.monotonic()
        lab.board.ssh(f"kill -9 {before}; sleep 8")
        product.await_answer(lab.board)
        now = {each: product.pid(lab.board, each) for each in (SERVER, DRAFT)}
        expect(now[unit] not in (0, before), f"{unit} is not back: {before}, now {now[unit]}")
        seen[unit] = f"answers again after {time.monotonic() - began:.0f} s"
    status = must(lab.board, f"status --name {NAME}")
    expect(status, "status says nothing")
    return seen


def telemetry(lab: Lab) -> Seen:
    """`top` reads the board: all CPUs and their clocks, rails, temperatures, the mode."""
    sample = must(lab.board, "top --once")
    expect(sample["mode"] == product.mode(lab.board), f"the mode is {sample['mode']}")
    expect(len(sample["cpu_percent"]) == len(lab.cpus), f"CPUs: {sample['cpu_percent']}")
    return {"source": sample["source"], "gaps": sample["gaps"], "power_mw": sample["power_mw"]}


def bench(lab: Lab) -> Seen:
    """`bench` measures what runs, within the seconds it is given."""
    told = must(lab.board, "bench --workload chat --seconds 60")
    return {"keys": sorted(told)}


def cores(lab: Lab) -> Seen:
    """Cores that go off are left alone: placement follows what the kernel says, and comes back with them."""
    last = lab.cpus[-2:]
    lab.board.ssh("; ".join(f"echo 0 > /sys/devices/system/cpu/cpu{cpu}/online" for cpu in last))
    fewer = must(lab.board, f"up {TINY}")["plan"]["spec"]["placement"]["target"]["cpus"]
    expect(not set(last) & set(fewer), f"CPUs {fewer} with {last} off")
    seen = _placed(lab, SERVER, fewer)
    lab.board.ssh("; ".join(f"echo 1 > /sys/devices/system/cpu/cpu{cpu}/online" for cpu in last))
    more = must(lab.board, f"up {TINY}")["plan"]["spec"]["placement"]["target"]["cpus"]
    expect(set(last) <= set(more), f"CPUs {more} with {last} on again")
    return {f"{SERVER} with CPUs {last} off": seen[SERVER], "on again": more}


def reboot(lab: Lab) -> Seen:
    """A mode that needs a reboot: exit code 3, with --reboot it reboots, the same command goes on; units start."""
    words = f"up --profile {NAME} --model /opt/tiny.gguf --set power.mode=15W"
    before = product.mode(lab.board)
    refused = call(lab.board, words)
    expect(refused.code == 3, f"exit code {refused.code}, wanted 3: {refused.error}")
    expect(product.mode(lab.board) == before, "the mode was changed although a reboot was refused")
    boot = lab.board.boot_id()
    began = time.monotonic()
    call(lab.board, f"{words} --reboot")
    lab.board.await_shell(other_boot=boot)
    lab.boots.append(time.monotonic() - began)
    expect(product.mode(lab.board) == "MODE_15W", f"the mode is {product.mode(lab.board)}")
    done = must(lab.board, words)
    cpus = done["plan"]["spec"]["placement"]["target"]["cpus"]
    expect(product.online(lab.board) == "0-3", f"CPUs {product.online(lab.board)} are online")
    seen = _placed(lab, SERVER, cpus) | {"mode": f"{before} to MODE_15W", "refused": refused.error}
    boot, began = lab.board.boot_id(), time.monotonic()
    lab.board.ssh("systemctl reboot", check=False, timeout=60)
    lab.board.await_shell(other_boot=boot)
    lab.boots.append(time.monotonic() - began)
    product.await_answer(lab.board)
    clocks = lab.board.ssh("cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_{min,max}_freq").stdout.split()
    expect(len(set(clocks)) == 1, f"the clocks are not pinned after a boot: {clocks}")
    return seen | {"after another boot": f"serves, clocks pinned at {clocks[0]} kHz"}


CHECKS: dict[str, Callable[[Lab], Seen]] = {
    "facts": facts,
    "serve": serve,
    "library": library,
    "killed": killed,
    "telemetry": telemetry,
    "bench": bench,
    "cores": cores,
    "reboot": reboot,
}
