"""Data of the boards and L4T releases that a virtual Jetson can be. Every row is ours, written from public captures.

Sources: module data, mode tables, memory sizes, thermal zones and idle powers as boards' owners published them. A
number marked "unverified" is an estimate of ours. Load powers (`cpu_mw`, `gpu_mw`, `soc_mw`) are fitted to the few
published readings under load and are no board's datasheet.
"""

from __future__ import annotations

from dataclasses import dataclass

MHZ = 1_000_000
UNCAPPED = -1

# Caps of DLA0_CORE, DLA0_FALCON, DLA1_CORE, DLA1_FALCON, PVA0_VPS and PVA0_AXI in MHz; None where a module has none.
Engines = tuple[float, float, float, float, float, float]
_FREE: Engines = (UNCAPPED,) * 6


@dataclass(frozen=True)
class Mode:
    """A power mode. `cores` counts those online, always the lowest; clocks are caps in MHz, None for no cap."""

    name: str
    cores: int
    cpu_mhz: float | None
    gpu_mhz: float | None
    emc_mhz: float | None
    mask: int
    engines: Engines | None = None
    gpu_min_mhz: float = 0


@dataclass(frozen=True)
class Table:
    """The modes of one nvpmodel.conf, by their ID, and the default's ID."""

    modes: tuple[Mode, ...]
    default: int


_NX_10W: Engines = (153.6, 115, 115, 115, 115, 115)
_NX8_10W: Engines = (153.6, 115, 153.6, 115, 115, 115)
_NX_15W: Engines = (614.4, 294.4, 614.4, 294.4, 115, 115)
_NX_25W: Engines = (614.4, 294.4, 614.4, 294.4, 512, 358.4)
_NX_40W: Engines = (908.8, 435.2, 908.8, 435.2, 704, 486.4)
_AGX_15W: Engines = (614.4, 294.4, 614.4, 294.4, 307.2, 217.6)
_AGX_30W: Engines = (1369.6, 729.6, 1369.6, 729.6, 512, 358.4)
_AGX_40W: Engines = (1228.8, 652.8, 1228.8, 652.8, 704, 486.4)
_AGX_50W: Engines = (1369.6, 729.6, 1369.6, 729.6, 704, 486.4)

TABLES = {
    "p3701_0000": Table(
        (
            Mode("MAXN", 12, None, None, None, 0, _FREE),
            Mode("MODE_15W", 4, 1113.6, 408, 2133, 248, _AGX_15W),
            Mode("MODE_30W", 8, 1728, 612, None, 240, _AGX_30W),
            Mode("MODE_50W", 12, 1497.6, 816, None, 0, _AGX_50W),
        ),
        2,
    ),
    "p3701_0004": Table(
        (
            Mode("MAXN", 8, None, None, None, 128, _FREE),
            Mode("MODE_15W", 4, 1113.6, 408, 2133, 248, _AGX_15W),
            Mode("MODE_30W", 8, 1728, 612, None, 240, _AGX_30W),
            Mode("MODE_40W", 8, 1497.6, 816, None, 128, _AGX_40W),
        ),
        2,
    ),
    "p3767_0000": Table(
        (
            Mode("MAXN", 8, None, None, None, 240, _FREE),
            Mode("10W", 4, 1190.4, 612, 2133, 252, _NX_10W),
            Mode("15W", 4, 1651.2, 612, None, 252, _NX_15W),
            Mode("25W", 8, 1497.6, 408, None, 240, _NX_25W),
        ),
        2,
    ),
    "p3767_0000_super": Table(
        (
            Mode("MAXN_SUPER", 8, None, None, None, 240, _FREE),
            Mode("10W", 4, 1190.4, 612, 2133, 252, _NX_10W),
            Mode("15W", 4, 1420.8, 612, None, 252, (614.4, 294.4, 115, 115, 115, 115)),
            Mode("25W", 8, 1497.6, 408, None, 240, _NX_25W),
            Mode("40W", 8, 1497.6, 1173, None, 240, _NX_40W),
        ),
        4,
    ),
    "p3767_0001": Table(
        (
            Mode("MAXN", 6, None, None, None, 240, _FREE),
            Mode("10W", 4, 1190.4, 612, 2133, 252, _NX8_10W),
            Mode("15W", 4, 1420.8, 612, None, 252, _NX_15W),
            Mode("20W", 6, 1497.6, 408, None, 240, _NX_25W),
        ),
        2,
    ),
    "p3767_0001_super": Table(
        (
            Mode("MAXN_SUPER", 6, None, None, None, 240, _FREE),
            Mode("10W", 4, 1190.4, 612, 2133, 252, _NX8_10W),
            Mode("15W", 4, 1420.8, 612, None, 252, _NX_15W),
            Mode("20W", 6, 1497.6, 408, None, 240, _NX_25W),
            Mode("40W", 6, 1984, 1173, None, 240, (1203.2, 640, 1203.2, 640, 704, 486.4)),
        ),
        4,
    ),
    "p3767_0003": Table((Mode("15W", 6, None, None, None, 240), Mode("7W", 4, 960, 408, 2133, 252)), 0),
    "p3767_0003_super": Table(
        (
            Mode("15W", 6, 1497.6, 612, 2133, 240),
            Mode("25W", 6, 1344, 918, 3199, 240),
            Mode("MAXN_SUPER", 6, None, None, None, 240),
        ),
        1,
    ),
    "p3767_0004": Table(
        (
            Mode("10W", 6, None, None, None, 252),
            Mode("7W_AI", 4, 806.4, 408, 2133, 252),
            Mode("7W_CPU", 4, 960, 306, 2133, 252),
        ),
        0,
    ),
    "p3767_0004_super": Table(
        (
            Mode("10W", 6, 1497.6, 612, 2133, 252),
            Mode("25W", 6, 1728, 1020, 3199, 252),
            Mode("MAXN_SUPER", 6, None, None, None, 252),
        ),
        1,
    ),
    "t194": Table(
        (
            Mode("MAXN", 8, None, None, None, 0),
            Mode("MODE_10W", 2, 1200, 520, 1065.6, 5),
            Mode("MODE_15W", 4, 1200, 670, 1331.2, 0),
            Mode("MODE_30W_ALL", 8, 1200, 900, 1600, 0),
            Mode("MODE_30W_6CORE", 6, 1450, 900, 1600, 0),
            Mode("MODE_30W_4CORE", 4, 1780, 900, 1600, 0),
            Mode("MODE_30W_2CORE", 2, 2100, 900, 1600, 0),
            Mode("MODE_15W_DESKTOP", 4, 2188.8, 670, 1331.2, 0, gpu_min_mhz=318.75),
        ),
        7,
    ),
    "t194_p3668": Table(
        (
            Mode("MODE_15W_2CORE", 2, 1907.2, 1109.25, 1600, 1),
            Mode("MODE_15W_4CORE", 4, 1420.8, 1109.25, 1600, 1),
            Mode("MODE_15W_6CORE", 6, 1420.8, 1109.25, 1600, 1),
            Mode("MODE_10W_2CORE", 2, 1497.6, 803.25, 1600, 1),
            Mode("MODE_10W_4CORE", 4, 1190.4, 803.25, 1600, 1),
            Mode("MODE_10W_DESKTOP", 4, 1907.2, 510, 1600, 1),
            Mode("MODE_20W_2CORE", 2, 1907.2, 1109.25, 1866, 1),
            Mode("MODE_20W_4CORE", 4, 1420.8, 1109.25, 1866, 1),
            Mode("MODE_20W_6CORE", 6, 1420.8, 1109.25, 1866, 1),
        ),
        5,
    ),
    # No public text of Thor's files was found: names, clocks and masks are from posts of owners.
    "p3834_0008": Table(
        (
            Mode("MAXN", 14, None, 1575, None, 512),
            Mode("120W", 14, 2601, 1386, None, 512),
            Mode("90W", 12, 2601, 1530, None, 17353),
            Mode("70W", 12, 1998, 1530, None, 17353),
        ),
        1,
    ),
    # Unverified but for the module's 70 W default and 90 W maximum.
    "p3834_0000": Table(
        (Mode("MAXN", 12, None, None, None, 17353), Mode("70W", 12, 1998, 1386, None, 17353)),
        1,
    ),
}


@dataclass(frozen=True)
class Rail:
    """A power rail: its label, what it takes when idle and more at full load of CPU, GPU and memory, in mW."""

    label: str
    idle_mw: int
    cpu_mw: int = 0
    gpu_mw: int = 0
    soc_mw: int = 0


@dataclass(frozen=True)
class Board:
    """A module on its carrier. `conf` names its mode table, with "_super" where the release knows super modes.

    `total_kib` is MemTotal by L4T major release; `cpu_mhz` and `gpu_mhz` are maxima, with super modes the second.
    `sum_rail` is the rail that carries all others; `limit_mw` is what over-current events begin at.
    """

    module: str
    carrier: str
    model: str
    conf: str
    releases: tuple[str, ...]
    clusters: tuple[tuple[int, ...], ...]
    cpu_mhz: tuple[float, float]
    gpu_mhz: tuple[float, float]
    emc_mhz: tuple[float, float]
    total_kib: dict[int, int]
    idle_mib: int
    rails: tuple[Rail, ...]
    sum_rail: str | None
    limit_mw: int
    super: bool = False
    l3_kib: int = 2048
    super_model: str | None = None
    tnspec: str | None = None

    @property
    def soc(self) -> str:
        return {"p3834": "tegra264", "p3701": "tegra234", "p3767": "tegra234"}.get(self.module[:5], "tegra194")

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(cpu for cluster in self.clusters for cpu in cluster)


_ORIN_RELEASES = ("35.4.1", "36.4.3", "36.4.7", "36.5.0", "39.2.0")
_FOURS = ((0, 1, 2, 3), (4, 5, 6, 7))
_NANO_SUPER = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"
_NX_SUPER = "NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super"


def _small(idle: tuple[int, int, int], cpu: int, gpu: int, soc: int) -> tuple[Rail, ...]:
    """Orin Nano and NX: one input rail, and two behind it."""
    return (
        Rail("VDD_IN", idle[0]),
        Rail("VDD_CPU_GPU_CV", idle[1], cpu_mw=cpu, gpu_mw=gpu),
        Rail("VDD_SOC", idle[2], soc_mw=soc),
    )


_AGX_RAILS = (
    Rail("VDD_GPU_SOC", 1995, gpu_mw=32_000, soc_mw=4000),
    Rail("VDD_CPU_CV", 400, cpu_mw=15_000),
    Rail("VIN_SYS_5V0", 2524, soc_mw=4000),
)
_THOR_RAILS = (
    Rail("VDD_GPU", 1962, gpu_mw=60_000),
    Rail("VDD_CPU_SOC_MSS", 5887, cpu_mw=28_000, soc_mw=8000),
    Rail("VIN_SYS_5V0", 5635, soc_mw=4000),
    Rail("VIN", 19780),
)

BOARDS = {
    "nano8": Board(
        "p3767-0005", "p3768-0000", "NVIDIA Jetson Orin Nano Developer Kit", "p3767_0003", _ORIN_RELEASES,
        ((0, 1, 2, 3), (4, 5)), (1510.4, 1728), (624.75, 1020), (2133, 3199),
        # JetPack 5 unverified; 6 from a whole meminfo, 7 from tegrastats.
        {35: 7_650_304, 36: 7_802_736, 39: 7_665_664}, 1273,
        _small((4968, 436, 1708), 6000, 17_000, 1500), "VDD_IN", 25_000, True, 2048, _NANO_SUPER,
    ),
    "nano4": Board(
        "p3767-0004", "p3768-0000", "NVIDIA Jetson Orin Nano Developer Kit", "p3767_0004", _ORIN_RELEASES,
        ((0, 1, 2, 3), (4, 5)), (1510.4, 1728), (624.75, 1020), (2133, 3199),
        {35: 3_577_856, 36: 3_577_856, 39: 3_577_856}, 1100,  # unverified: 4 GiB less what others keep for firmware
        _small((4300, 400, 1500), 6000, 9000, 1500), "VDD_IN", 25_000, True, 2048, _NANO_SUPER,
    ),
    "nx16": Board(
        "p3767-0000", "p3768-0000", "NVIDIA Jetson Orin NX Engineering Reference Developer Kit", "p3767_0000",
        _ORIN_RELEASES, _FOURS, (1984, 1984), (918, 1173), (3199, 3199),
        {35: 15_758_336, 36: 16_031_744, 39: 16_031_744}, 1224,
        _small((4304, 573, 1218), 9000, 26_000, 2000), "VDD_IN", 40_000, True, 2048, _NX_SUPER,
    ),
    "nx8": Board(
        "p3767-0001", "p3768-0000", "NVIDIA Jetson Orin NX Engineering Reference Developer Kit", "p3767_0001",
        _ORIN_RELEASES, ((0, 1, 2, 3), (4, 5)), (1984, 1984), (765, 1173), (3199, 3199),
        {35: 7_758_848, 36: 7_758_848, 39: 7_665_664}, 1200,
        _small((4300, 560, 1200), 7000, 26_000, 2000), "VDD_IN", 40_000, True, 2048, _NX_SUPER,
    ),
    "agx32": Board(
        "p3701-0004", "p3737-0000", "NVIDIA Jetson AGX Orin Developer Kit", "p3701_0004", _ORIN_RELEASES,
        _FOURS, (2188.8, 2188.8), (930, 930), (3199, 3199),
        {35: 31_268_864, 36: 31_433_768, 39: 31_409_152}, 1313, _AGX_RAILS, None, 60_000,
    ),
    "agx64": Board(
        "p3701-0005", "p3737-0000", "NVIDIA Jetson AGX Orin Developer Kit", "p3701_0000", _ORIN_RELEASES,
        (*_FOURS, (8, 9, 10, 11)), (2201.6, 2201.6), (1300.5, 1300.5), (3199, 3199),
        {35: 64_302_080, 36: 64_349_376, 39: 64_324_608}, 2300, _AGX_RAILS, None, 75_000,
    ),
    "agx-orin-devkit-32gb": Board(
        "p3701-0000", "p3737-0000", "NVIDIA Jetson AGX Orin Developer Kit", "p3701_0000", _ORIN_RELEASES,
        (*_FOURS, (8, 9, 10, 11)), (2201.6, 2201.6), (1300.5, 1300.5), (3199, 3199),
        {35: 31_268_864, 36: 31_433_768, 39: 31_409_152}, 1313, _AGX_RAILS, None, 75_000,
    ),
    "agx-xavier": Board(
        "p2888-0004", "p2972-0000", "Jetson-AGX", "t194", ("35.4.1",),
        ((0, 1), (2, 3), (4, 5), (6, 7)), (2265.6, 2265.6), (1377, 1377), (2133, 2133),
        {35: 32_693_248}, 721,
        (
            Rail("GPU", 0, gpu_mw=18_400), Rail("CPU", 311, cpu_mw=14_000), Rail("SOC", 932, soc_mw=3700),
            Rail("CV", 0), Rail("VDDRQ", 621, soc_mw=2300), Rail("SYS5V", 1482, soc_mw=3100),
        ),
        None, 60_000,
    ),
    "xavier-nx": Board(
        "p3668-0000", "p3509-0000", "NVIDIA Jetson Xavier NX Developer Kit", "t194_p3668", ("35.4.1",),
        ((0, 1), (2, 3), (4, 5)), (1907.2, 1907.2), (1109.25, 1109.25), (1866, 1866),
        {35: 7_958_528}, 900,
        _small((4067, 738, 1353), 6000, 8000, 1500), "VDD_IN", 20_000,
    ),
    "thor-t5000": Board(
        "p3834-0008", "p4071-0000", "NVIDIA Jetson AGX Thor Developer Kit", "p3834_0008", ("38.4.0", "39.2.0"),
        tuple((cpu, cpu + 1) for cpu in range(0, 14, 2)), (2601, 2601), (1575, 1575), (4266, 4266),
        {38: 128_790_032, 39: 128_790_032}, 3200, _THOR_RAILS, "VIN", 130_000, l3_kib=16_384,
        tnspec="3834-400-0008-J.1-1-0-jetson-agx-thor-devkit-",
    ),
    "thor-t4000": Board(
        "p3834-0000", "p4071-0000", "NVIDIA Jetson AGX Thor Developer Kit", "p3834_0000", ("38.4.0", "39.2.0"),
        tuple((cpu, cpu + 1) for cpu in range(0, 12, 2)), (2601, 2601), (1530, 1530), (4266, 4266),
        {38: 64_000_000, 39: 64_000_000}, 3200, _THOR_RAILS, "VIN", 90_000, l3_kib=16_384,
        tnspec="3834-400-0000-J.1-1-0-jetson-agx-thor-devkit-",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Release:
    """An L4T release: the first line of nv_tegra_release behind the revision, and what comes with it."""

    revision: str
    gcid: str
    board: str
    date: str
    ubuntu: str
    kernel: str
    gcc: str
    cmake: str
    cuda: str
    nvcc: str
    nvcc_built: str

    @property
    def major(self) -> int:
        return int(self.revision.split(".")[0])


_CUDA_126 = ("12.6", "12.6.68", "2005-2024 NVIDIA Corporation\nBuilt on Wed_Aug_14_10:14:07_PDT_2024")
_JAMMY = ("22.04.5 LTS", "5.15.148-tegra", "11.4.0", "3.22.1", *_CUDA_126)
# gcc and cmake of Ubuntu 20.04 and 24.04 are the distribution's own, unverified on a board; so is nvcc's date there.
_FOCAL = ("20.04.6 LTS", "5.10.120-tegra", "9.4.0", "3.16.3", "11.4", "11.4.315", "2005-2022 NVIDIA Corporation")
_NOBLE = ("24.04 LTS", "6.8.12-tegra", "13.3.0", "3.28.3", "13.0", "13.0.48", "2005-2025 NVIDIA Corporation")
_NOBLE_39 = (
    "24.04 LTS", "6.8.12-1021-tegra", "13.3.0", "3.28.3", "13.2", "13.2.86",
    "2005-2026 NVIDIA Corporation\nBuilt on Fri_May_08_10:52:52_AM_PDT_2026",
)  # fmt: skip

RELEASES = {
    "35.4.1": Release("35.4.1", "33958178", "t186ref", "Tue Aug  1 19:57:35 UTC 2023", *_FOCAL),
    "36.4.3": Release("36.4.3", "38968081", "generic", "Wed Jan  8 01:49:37 UTC 2025", *_JAMMY),
    "36.4.7": Release("36.4.7", "42132812", "generic", "Thu Sep 18 22:54:44 UTC 2025", *_JAMMY),
    "36.5.0": Release(
        "36.5.0", "43688277", "generic", "Fri Jan 16 03:50:45 UTC 2026", "22.04.5 LTS", "5.15.185-tegra", *_JAMMY[2:]
    ),
    "38.4.0": Release("38.4.0", "43443517", "generic", "Wed Dec 31 00:15:19 UTC 2025", *_NOBLE),
    "39.2.0": Release("39.2.0", "45755727", "generic", "Mon Jun  1 09:28:48 PM UTC 2026", *_NOBLE_39),
}
