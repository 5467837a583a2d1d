"""Is this profile for this machine, and what stands in for a board that is not at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts import jetson
from orin_deploy.facts.device import MIB, Cluster, Cpu, CudaToolkit, Device, Jetson, Memory, Tool, Toolchain
from orin_deploy.facts.power import PowerState, PowerTable
from orin_deploy.intent import profile as profiles
from orin_deploy.intent.profile import Board, Profile

# A board that is not at hand counts as freshly flashed with the JetPack most of them run: the last for Xavier, the
# first with super modes for Orin, the first that knows both modules for Thor. L4T, and the versions of gcc and cmake
# from the JetPack table; those of JetPack 5 and 7 are Ubuntu's (unverified).
_JETPACK_5 = ("35.6.1", (9, 4, 0), (3, 16, 3))
_JETPACK_6 = ("36.4.3", (11, 4, 0), (3, 22, 1))
_JETPACK_7 = ("38.4.0", (13, 2, 0), (3, 28, 3))

# Jetson Nano, TX1 and TX2, for which JetPack 4 was the last.
_ENDED_WITH_JETPACK_4 = ("p3448", "p3310", "p3489", "p2180", "p3636")


def choose(device: Device, search: Sequence[Path]) -> tuple[str, str]:
    """The profile for this machine and, in words, why it is that one: what `--profile auto` means.

    Raises UsageError for a Jetson whose module is not known or has no profile, Refused for one of JetPack 4.
    """
    here = device.jetson
    if here is None:
        return profiles.board_profile(None, search), "this machine is no Jetson"
    release = f"L4T {here.l4t}" if here.l4t else "no L4T release"
    if (here.l4t or "").startswith("32.") or (here.module or "").startswith(_ENDED_WITH_JETPACK_4):
        raise Refused(
            f"this Jetson ({here.module or 'module unknown'}, {release}) runs JetPack 4, "
            "whose CUDA 10.2 llama.cpp does not support any more",
            "Xavier can be updated to JetPack 5; others have their CPU: --profile host",
        )
    if here.module is None:
        raise UsageError(
            f"this is a Jetson ({release}) that does not say which module it is: its device tree is hidden or unknown",
            "name it with --profile; `orin-deploy profiles list` shows them. A container sees the device tree with "
            "-v /proc/device-tree:/proc/device-tree:ro",
        )
    name = profiles.board_profile(here.module, search)
    carrier = here.compatible[0].partition("+")[0] if here.compatible else ""
    on = f", on a carrier of another maker ({carrier})" if carrier and not carrier.startswith("nvidia,") else ""
    return name, f"{here.module_from or 'the device'} says {here.module}{', super' if here.is_super else ''}{on}"


def assume_module(profile: Profile, device: Device) -> Device:
    """The device, with the profile's module where a Jetson does not say its own: a user who names it is believed."""
    here, board = device.jetson, profile.board
    if here is None or here.module is not None or board is None:
        return device
    return replace(device, jetson=replace(here, module=board.modules[0], module_from=f"profile {profile.name}"))


def complete_clusters(profile: Profile, device: Device) -> Device:
    """The device, with the profile's clusters where it cannot tell those of CPUs that are off.

    A CPU that is off has no topology to read; another power mode may switch it on. The device's own clusters stand
    where they contradict the profile's.
    """
    told = tuple(Cluster(cpus) for cpus in profile.board.clusters) if profile.board else ()
    seen = {cpu for cluster in device.cpu.clusters for cpu in cluster.cpus}
    homes = {cpu: number for number, cluster in enumerate(told) for cpu in cluster.cpus}
    present = set(device.cpu.present)
    if seen == present or homes.keys() != present or not is_at_hand(profile, device):
        return device
    split = {frozenset(homes[cpu] for cpu in cluster.cpus) for cluster in device.cpu.clusters}
    if len(split) < len(device.cpu.clusters) or any(len(group) != 1 for group in split):
        return device
    source = f"{device.cpu.clusters_from}, and profile {profile.name} for what is off"
    return replace(device, cpu=replace(device.cpu, clusters=told, clusters_from=source))


def is_at_hand(profile: Profile, device: Device) -> bool:
    """Whether the profile's board is the machine we are on. A profile that names no module is for any machine."""
    if profile.board is None or not profile.board.modules:
        return True
    return device.jetson is not None and device.jetson.module in profile.board.modules


def require_at_hand(profile: Profile, device: Device) -> None:
    """Raises Refused (exit code 4) when the profile is for another machine than this one."""
    if is_at_hand(profile, device):
        return
    here = device.jetson.module if device.jetson and device.jetson.module else f"a {device.machine} machine"
    board = profile.board
    assert board is not None
    raise Refused(
        f"profile {profile.name} is for module {' or '.join(board.modules)}, and this is {here}",
        "use --profile auto; `orin-deploy plan` shows what it would do there; --force goes on with what is here",
    )


def stand_in(profile: Profile) -> Device:
    """The device that a profile's board describes, for planning on another machine; `assumed` says so."""
    board = profile.board
    assert board is not None
    clusters = tuple(Cluster(tuple(cpus)) for cpus in board.clusters)
    cpus = tuple(cpu for cluster in clusters for cpu in cluster.cpus)
    total = (board.memory_total_mib or 0) * MIB
    l4t, gcc, cmake = _release(board)
    jetpack, cuda = jetson.RELEASES[l4t]
    toolkit = CudaToolkit(f"/usr/local/cuda-{cuda}", tuple(map(int, cuda.split("."))), on_path=False)
    return Device(
        machine=board.machine or "aarch64",
        os=None,
        kernel=None,
        cpu=Cpu(
            model=board.cpu_model,
            features=frozenset(board.features),
            clusters=clusters,
            present=cpus,
            online=cpus,
            allowed=cpus,
            clusters_from=f"profile {profile.name}",
        ),
        memory=Memory(total=total, available=total - (board.memory_idle_mib or 0) * MIB, free=total),
        toolchain=Toolchain(
            cxx=Tool("/usr/bin/g++", gcc),
            cc=Tool("/usr/bin/gcc", gcc),
            cmakes=(Tool("/usr/bin/cmake", cmake),),
            cuda=(toolkit,) if board.cuda else (),
        ),
        jetson=Jetson(
            model=None,
            compatible=(),
            module=board.modules[0],
            l4t=l4t,
            jetpack=jetpack,
            jetpack_cuda=cuda,
            module_from=f"profile {profile.name}",
            is_super=bool(board.power_before_super),
        ),
        systemd=True,
        container=None,
        assumed=f"profile {profile.name}",
        power=_as_flashed(profile),
    )


def _as_flashed(profile: Profile) -> PowerState | None:
    """The power state of a freshly flashed board: in its default mode."""
    table = power_table(profile)
    if table is None:
        return None
    return PowerState(table, next((mode.name for mode in table.modes if mode.id == table.default_id), None))


def power_table(profile: Profile, *, is_super: bool = True) -> PowerTable | None:
    """The power modes that the profile tells of its board, on a super image or on one from before; None without any."""
    board = profile.board
    if board is None:
        return None
    before = bool(board.power_before_super) and not is_super
    modes = board.power_before_super if before else board.power
    default = board.power_before_super_default if before else board.power_default
    ids = {mode.name: mode.id for mode in modes}
    return PowerTable(f"profile {profile.name}", modes, ids.get(default or "")) if modes else None


def _release(board: Board) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    if jetson.is_thor(board.modules[0]):
        return _JETPACK_7
    return _JETPACK_5 if jetson.is_xavier(board.modules[0]) else _JETPACK_6


def _other_table(board: Board, device: Device) -> tuple[str, ...]:
    """Modes without a super one where the image is super.

    JetPack 7.2 leaves the old link on an Orin Nano that was updated by ISO (NVIDIA's issue 6279443, fixed in 7.2.1).
    """
    table, here = device.power.table if device.power else None, device.jetson
    if table is None or here is None or not here.is_super or not board.power_before_super:
        return ()
    if any("SUPER" in mode.name.upper() for mode in table.modes):
        return ()
    return (
        f"the image is super and {table.path} has no super mode: remove that link and reboot, nvpower makes it anew "
        "(JetPack 7.2 leaves the old one, NVIDIA's issue 6279443)",
    )


def disagreements(profile: Profile, device: Device) -> tuple[str, ...]:
    """Where the device's own facts differ from the profile's board: the device wins, and the plan says so."""
    board = profile.board
    if board is None or device.assumed is not None or not is_at_hand(profile, device) or not board.clusters:
        return ()
    found = []
    expected = sum(len(cpus) for cpus in board.clusters)
    if len(device.cpu.present) != expected:
        found.append(f"this board has {len(device.cpu.present)} CPUs where profile {profile.name} says {expected}")
    total = board.memory_total_mib
    if total is not None and device.memory.total and abs(device.memory.total // MIB - total) > total // 10:
        found.append(
            f"this board has {device.memory.total // MIB} MiB of memory where profile {profile.name} says {total}"
        )
    return (*found, *_other_table(board, device))
