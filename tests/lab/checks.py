"""The checks on a board, cheap ones first; each says what it saw, or raises what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orin_deploy.facts.cpu import parse_list
from tests.lab import product
from tests.lab.machine import L4T, Board
from tests.lab.product import NAME, call, expect, must
from tests.lab.snapshots import Snapshots

Seen = dict[str, Any]
SERVER, DRAFT = f"orin-deploy-{NAME}.service", f"orin-deploy-{NAME}@draft.service"

# Without `--draft none` an `up` measures for minutes which speculation is best; power cuts and `auto` have that.
TINY = f"--profile {NAME} --no-power --draft none --model {product.TINY}"
REAL = (
    f"--profile {NAME} --no-power --draft {product.TINY} --set placement.draft=process "
    "--set placement.draft_cpus=4 --set spec_draft_n_max=1"
)


@dataclass(frozen=True)
class Lab:
    """A board under test, and where it can begin."""

    snapshots: Snapshots

    @property
    def board(self) -> Board:
        return self.snapshots.board

    @property
    def cpus(self) -> tuple[int, ...]:
        return self.board.table.cpus

    def reboot(self, command: str) -> None:
        """Let the board reboot itself, and wait until it is back."""
        boot, began = self.board.boot_id(), time.monotonic()
        self.board.ssh(command, check=False, timeout=3600)
        self.board.await_shell(other_boot=boot)
        self.snapshots.boots.append(time.monotonic() - began)


@dataclass(frozen=True)
class Check:
    """A check: what it does, and the snapshot from which it begins."""

    work: Callable[[Lab], Seen]
    begins: str = "installed"


def facts(lab: Lab) -> Seen:
    """Board, clusters, memory and L4T are read from the running machine."""
    board = lab.board.table
    # A mode may leave cores off, as an AGX Orin's 30 W does: of those a kernel tells no cluster.
    online = parse_list(product.online(lab.board))
    if off := set(board.cpus) - set(online):
        seen = [tuple(cpu for cpu in cluster if cpu in online) for cluster in board.clusters]
        found = [tuple(cluster["cpus"]) for cluster in must(lab.board, "facts")["cpu"]["clusters"]]
        expect(found == [cluster for cluster in seen if cluster], f"the clusters are {found} with {off} off")
        lab.board.ssh("; ".join(f"echo 1 > /sys/devices/system/cpu/cpu{cpu}/online" for cpu in off))
    told = must(lab.board, "facts")
    cpu, jetson = told["cpu"], told["jetson"]
    clusters = [tuple(cluster["cpus"]) for cluster in cpu["clusters"]]
    expect(jetson["module"] == board.module, f"the module is {jetson['module']}")
    expect(clusters == list(board.clusters), f"the clusters are {clusters}")
    expect(cpu["clusters_from"] == "cluster_id", f"the clusters are from {cpu['clusters_from']}")
    expect(jetson["l4t"] == L4T, f"L4T is {jetson['l4t']}")
    expect({"asimddp", "asimdhp"} <= set(cpu["features"]) and "i8mm" not in cpu["features"], f"{cpu['features']}")
    total, wanted = told["memory"]["total"], board.total_kib[int(L4T.split(".")[0])] * 1024
    expect(abs(total - wanted) < 0.01 * wanted, f"the memory is {total}, the board's {wanted}")
    return {"module": jetson["module"], "clusters": clusters, "L4T": jetson["l4t"], "memory": total}


def serve(lab: Lab) -> Seen:
    """`up` with SmolLM2 and a draft process under the real systemd; every thread of both is where it was planned."""
    began = time.monotonic()
    done = must(lab.board, f"up {REAL}")
    placement = done["plan"]["spec"]["placement"]
    seen: Seen = {"up_seconds": round(time.monotonic() - began), "speculation": done["speculation"]}
    seen |= _placed(lab, SERVER, placement["target"]["cpus"]) | _placed(lab, DRAFT, placement["draft"]["cpus"])
    measured = done.get("measurement") or {}
    seen["tokens_per_s"] = measured.get("generated_per_s")
    product.expect_nothing_to_do(lab.board, f"up {REAL}")
    lab.snapshots.keep("served")
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
    must(lab.board, f"up {TINY}")
    told = must(lab.board, "bench --workload chat --seconds 60")
    expect(told["seconds"] < 120, f"it took {told['seconds']} s")  # an answer that is under way is waited for
    arm = told["cases"][0]["arms"][NAME]
    expect(arm["turns"] and arm["speed"]["value"] > 0, f"it measured {arm}")
    return {"seconds": told["seconds"], "turns": arm["turns"], "tokens per second": arm["speed"]}


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
    words = f"up --profile {NAME} --draft none --model {product.TINY} --set power.mode=15W"
    before = product.mode(lab.board)
    refused = call(lab.board, words)
    expect(refused.code == 3, f"exit code {refused.code}, wanted 3: {refused.error}")
    expect(product.mode(lab.board) == before, "the mode was changed although a reboot was refused")
    lab.reboot(f"{product.PROGRAM} {words} --reboot --json")
    expect(product.mode(lab.board) == "MODE_15W", f"the mode is {product.mode(lab.board)}")
    done = must(lab.board, words)
    cpus = done["plan"]["spec"]["placement"]["target"]["cpus"]
    expect(product.online(lab.board) == "0-3", f"CPUs {product.online(lab.board)} are online")
    seen = _placed(lab, SERVER, cpus) | {"mode": f"{before} to MODE_15W", "refused": refused.error}
    lab.reboot("systemctl reboot")
    product.await_answer(lab.board)
    clocks = lab.board.ssh("cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_{min,max}_freq").stdout.split()
    expect(len(set(clocks)) == 1, f"the clocks are not pinned after a boot: {clocks}")
    return seen | {"after another boot": f"serves, clocks pinned at {clocks[0]} kHz"}


CHECKS: dict[str, Check] = {
    "facts": Check(facts),
    "serve": Check(serve),
    "library": Check(library, "served"),
    "killed": Check(killed, "served"),
    "telemetry": Check(telemetry, "served"),
    "bench": Check(bench),
    "cores": Check(cores),
    "reboot": Check(reboot),
}
