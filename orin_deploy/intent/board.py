"""Is this profile for this machine, and what stands in for a board that is not at hand."""

from __future__ import annotations

from orin_deploy.errors import Refused
from orin_deploy.facts.device import MIB, Cluster, Cpu, CudaToolkit, Device, Jetson, Memory, Tool, Toolchain
from orin_deploy.intent.profile import Board, Profile

# A board that is not at hand counts as freshly flashed with the JetPack most of them run. Versions from the JetPack
# table (L4T 36.4.3: CUDA 12.6, gcc 11.4.0, cmake 3.22.1) and NVIDIA's first JetPack for Thor (L4T 38.2: CUDA 13.0).
_JETPACK_6 = ("36.4.3", "6.2", (12, 6), (11, 4, 0), (3, 22, 1))
_JETPACK_7 = ("38.2.0", "7.0", (13, 0), (13, 2, 0), (3, 28, 3))


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
    l4t, jetpack, cuda, gcc, cmake = _JETPACK_7 if _is_thor(board) else _JETPACK_6
    toolkit = CudaToolkit(f"/usr/local/cuda-{cuda[0]}.{cuda[1]}", cuda, on_path=False)
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
            jetpack_cuda=f"{cuda[0]}.{cuda[1]}",
        ),
        systemd=True,
        container=None,
        assumed=f"profile {profile.name}",
    )


def _is_thor(board: Board) -> bool:
    return any(module.startswith("p3834") for module in board.modules)


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
    if total is not None and abs(device.memory.total // MIB - total) > total // 10:
        found.append(
            f"this board has {device.memory.total // MIB} MiB of memory where profile {profile.name} says {total}"
        )
    return tuple(found)
