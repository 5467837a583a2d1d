"""Jetson: which module and L4T release this is, and which CUDA toolkit and architecture belong to them."""

from __future__ import annotations

import re
from collections.abc import Sequence

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

# Board number to CUDA architecture; p2972 is the AGX Xavier kit, whose compatible string does not name the module.
_ORIN, _XAVIER, _THOR = ("p3701", "p3767"), ("p2888", "p2972", "p3668"), ("p3834",)


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
    return Jetson(
        model=model[0] if model else None,
        compatible=strings,
        module=module_of(strings),
        l4t=l4t,
        jetpack=jetpack,
        jetpack_cuda=cuda,
    )


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
