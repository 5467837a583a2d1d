"""Jetson: which module and L4T release this is, and which CUDA toolkit and architecture belong to them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orin_deploy.facts import memory
from orin_deploy.facts.device import CudaToolkit, Jetson
from orin_deploy.host.machine import Machine

# L4T release to JetPack and its CUDA. Sources: rbonghi/jetson_stats jetson_variables.py, dusty-nv/jetson-containers
# l4t_version.py, captures of boards. For 36.3.0 jetson-containers says 12.4; JetPack 6.0 ships 12.2.
RELEASES: dict[str, tuple[str, str]] = {
    "32.6.1": ("4.6", "10.2"),
    "32.7.1": ("4.6.1", "10.2"),
    "32.7.2": ("4.6.2", "10.2"),
    "32.7.3": ("4.6.3", "10.2"),
    "32.7.4": ("4.6.4", "10.2"),
    "32.7.5": ("4.6.5", "10.2"),
    "32.7.6": ("4.6.6", "10.2"),
    "35.1.0": ("5.0.2", "11.4"),
    "35.2.1": ("5.1", "11.4"),
    "35.3.1": ("5.1.1", "11.4"),
    "35.4.1": ("5.1.2", "11.4"),
    "35.5.0": ("5.1.3", "11.4"),
    "35.6.0": ("5.1.4", "11.4"),
    "35.6.1": ("5.1.5", "11.4"),
    "35.6.2": ("5.1.5", "11.4"),
    "35.6.3": ("5.1.5", "11.4"),
    "35.6.4": ("5.1.6", "11.4"),
    "35.6.5": ("5.1.7", "11.4"),
    "36.2.0": ("6.0 DP", "12.2"),
    "36.3.0": ("6.0", "12.2"),
    "36.4.0": ("6.1", "12.6"),
    "36.4.3": ("6.2", "12.6"),
    "36.4.4": ("6.2.1", "12.6"),
    "36.4.7": ("6.2.1", "12.6"),
    "36.5.0": ("6.2.2", "12.6"),
    "36.5.2": ("6.2.3", "12.6"),
    "38.2.0": ("7.0", "13.0"),
    "38.2.1": ("7.0", "13.0"),
    "38.2.2": ("7.0", "13.0"),
    "38.4.0": ("7.1", "13.0"),
    "39.2.0": ("7.2", "13.2"),
    "39.2.1": ("7.2.1", "13.2"),
    "39.2.2": ("7.2.2", "13.2"),
}

# Releases with a fault that a deployment meets, and what is true of them. 36.4.7: fixed issue 5602402 of NVIDIA's
# release notes for 36.5; one of 4 GiB failed on an Orin Nano while 5.36 GiB were free, 1 to 3 GiB worked.
FAULTS: dict[str, str] = {
    "36.4.7": "L4T 36.4.7 has a fault in CUDA allocation (NVIDIA's issue 5602402): one block of about 4 GiB fails "
    "though more is free. Update to L4T 36.5.0 (JetPack 6.2.2), or free the page cache before each start: "
    "sudo sysctl -w vm.drop_caches=3",
}

# Board number to CUDA architecture; p2972 is the AGX Xavier kit, whose compatible string does not name the module.
_ORIN, _XAVIER, _THOR = ("p3701", "p3767"), ("p2888", "p2972", "p3668"), ("p3834",)

# Thor's two modules by their least MemTotal, GiB (detect_jetson.sh of NVIDIA/skills); 0005 is an early T5000.
_THOR_BY_MEMORY = ((96, ("p3834-0008", "p3834-0005")), (32, ("p3834-0000",)))


def read(machine: Machine) -> Jetson | None:
    """What the device tree and the L4T release file say; None where neither is a Jetson's.

    In a container the device tree is often hidden and only the release file is there: then the module is None.
    """
    strings = device_tree_strings(machine.read_bytes("/proc/device-tree/compatible") or b"")
    l4t = l4t_release(machine.read("/etc/nv_tegra_release") or "")
    if l4t is None and not any(string.startswith("nvidia,tegra") for string in strings):
        return None
    model = device_tree_strings(machine.read_bytes("/proc/device-tree/model") or b"")
    jetpack, cuda = RELEASES.get(l4t or "", (None, None))
    total = memory.meminfo(machine.read("/proc/meminfo") or "").get("MemTotal", 0)
    module, module_from = identify(strings, machine.read("/etc/nv_boot_control.conf") or "", total)
    return Jetson(
        model=model[0] if model else None,
        compatible=strings,
        module=module,
        l4t=l4t,
        jetpack=jetpack,
        jetpack_cuda=cuda,
        module_from=module_from,
        is_super=is_super(strings) if strings else None,
    )


def identify(compatible: Sequence[str], boot_control: str, total_bytes: int) -> tuple[str | None, str | None]:
    """The module and, in words, where it is told.

    The device tree names it, or what was flashed (nv_boot_control.conf) where the tree does not. Thor's trees are
    alike, so there what was flashed counts first, and memory decides between the two modules. It never decides alone:
    the first AGX Orin kit has the memory of one module and the CPUs of another.
    """
    module, flashed = module_of(compatible), module_flashed(boot_control)
    is_thor = "nvidia,tegra264" in compatible or (module or "").startswith(_THOR)
    if flashed and (module is None or (is_thor and flashed.startswith(_THOR) and flashed != module)):
        return flashed, "what was flashed (/etc/nv_boot_control.conf)"
    sized = next((modules for least, modules in _THOR_BY_MEMORY if total_bytes >= least << 30), ())
    if is_thor and sized and module not in sized and (module is None or flashed != module):
        return sized[0], "a Thor device tree and the memory"
    return module, "the device tree" if module else None


def module_flashed(boot_control: str) -> str | None:
    """The module in /etc/nv_boot_control.conf: "TNSPEC 3767-302-0005-…" or "COMPATIBLE_SPEC 3767--0005-…"."""
    for key in ("TNSPEC", "COMPATIBLE_SPEC"):
        if match := re.search(rf"^{key}[ \t=]+(\d{{4}})-[^-\s]*-(\d{{4}})-", boot_control, re.MULTILINE | re.ASCII):
            return f"p{match[1]}-{match[2]}"
    return None


def is_super(compatible: Sequence[str]) -> bool:
    """Whether an image brings the super modes: the kits' compatible strings then end so (JetPack 6.2 and later)."""
    return any(string.endswith("-super") for string in compatible)


def is_xavier(module: str | None) -> bool:
    return (module or "").startswith(_XAVIER)


def is_thor(module: str | None) -> bool:
    return (module or "").startswith(_THOR)


def notes(jetson: Jetson) -> tuple[str, ...]:
    """What is worth knowing of this module with this release before anything is deployed on it."""
    found = []
    if jetson.l4t is None:
        found.append(
            "there is no /etc/nv_tegra_release, so the JetPack is not known: the first CUDA toolkit found counts"
        )
    elif jetson.l4t not in RELEASES:
        found.append(f"L4T {jetson.l4t} is not among the releases we know: the first CUDA toolkit found counts")
    found += [FAULTS[jetson.l4t]] if jetson.l4t in FAULTS else []
    if is_xavier(jetson.module):
        found.append(
            "JetPack 5 is the last for Xavier: CUDA 11.4, and a Python 3.8 beside which orin-deploy needs 3.10; "
            "its numbers come from documents"
        )
    return tuple(found)


def device_tree_strings(raw: bytes) -> tuple[str, ...]:
    """The strings of a device-tree property: each ends with a NUL."""
    return tuple(text for part in raw.split(b"\0") if (text := part.decode("utf-8", "replace").strip()))


def l4t_release(text: str) -> str | None:
    """The release in /etc/nv_tegra_release: "# R36 (release), REVISION: 4.3, …" is "36.4.3"; the same R32 to R39."""
    match = re.match(r"#\s*R(\d{1,3}) \(release\), REVISION: (\d{1,3}(?:\.\d{1,3})*)", text, re.ASCII)
    return f"{match[1]}.{match[2]}" if match else None


def module_of(compatible: Sequence[str]) -> str | None:
    """The module's part number, as in "p3701-0004", from the compatible strings.

    NVIDIA's kits say "nvidia,CARRIER+MODULE[-super]", then "nvidia,MODULE". Carriers of other makers have a name of
    their own first and keep the second, so the entry of the module alone counts before the part after the plus.
    """
    joined = "\n".join(compatible)
    match = re.search(r"^nvidia,(p\d{4}-\d{4})$", joined, re.MULTILINE | re.ASCII)
    match = match or re.search(r"^nvidia,[^+\n]*\+(p\d{4}-\d{4})\b", joined, re.MULTILINE | re.ASCII)
    return match[1] if match else None


def cuda_architecture(module: str | None, toolkit_version: tuple[int, ...]) -> str | None:
    """The CUDA architecture to compile for, as in "87" for Orin; None for a module we do not know.

    Thor is called 101 before CUDA 13 and 110 from it on; an unknown toolkit (empty version) counts as CUDA 13.
    """
    board = (module or "").partition("-")[0]
    if board in _ORIN:
        return "87"
    if board in _XAVIER:
        return "72"
    if board in _THOR:
        return "101" if toolkit_version and toolkit_version < (13,) else "110"
    return None


def toolkit_for(jetson: Jetson | None, toolkits: Sequence[CudaToolkit]) -> tuple[CudaToolkit | None, str | None]:
    """The toolkit to build with, and a warning where it is not the one people would expect.

    On a Jetson it is the one that belongs to the JetPack: a newer one installed beside it may not know the module and
    needs a newer driver (llama.cpp issue 1455). Elsewhere, or for an unknown release, the first one found.
    """
    first = next(iter(toolkits), None)
    if first is None or jetson is None or jetson.jetpack_cuda is None:
        return first, None
    release = f"JetPack {jetson.jetpack} (L4T {jetson.l4t})"
    own = next((kit for kit in toolkits if ".".join(map(str, kit.version[:2])) == jetson.jetpack_cuda), None)
    if own is None:
        return first, (
            f"CUDA {jetson.jetpack_cuda} belongs to {release} and is not installed; "
            f"building with CUDA {first.version_text} ({first.root})"
        )
    other = next((kit for kit in toolkits if kit.on_path and kit != own), None)
    if other is not None:
        return own, (
            f"nvcc on PATH is CUDA {other.version_text} ({other.root}); "
            f"building with CUDA {own.version_text} ({own.root}), which belongs to {release}"
        )
    return own, None
