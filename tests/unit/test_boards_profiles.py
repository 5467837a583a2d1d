"""Boards: what their profiles say against tables of this file, which profile a machine gets and why, what stands in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.doctor.boards import board_of
from orin_deploy.doctor.diagnose import diagnose
from orin_deploy.doctor.live import live
from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts import jetson
from orin_deploy.facts.device import MIB, CudaToolkit, Device, Jetson
from orin_deploy.facts.inspect import inspect
from orin_deploy.facts.power import PowerMode, PowerState, PowerTable, find, needs_reboot
from orin_deploy.intent import board, profile
from orin_deploy.intent.resolve import choose_build, layer
from tests.boards.capture import Capture
from tests.planning import WORKSTATION
from tests.virtual import build
from tests.virtual.boards_table import BOARDS as VIRTUAL
from tests.virtual.boards_table import TABLES

SEARCH = profile.search_path(None, {})[-1:]
CAPTURES = Path(__file__).parents[1] / "boards"
GIB = 1024 * MIB

# From the modules table: SKU, CPUs by cluster, CUDA cores, CUDA architecture, and the power table of the virtual
# boards, which is written independently of the profiles.
MODULES = {
    "agx64": ("p3701-0005", [4, 4, 4], 2048, "87", "p3701_0000"),
    "agx32": ("p3701-0004", [4, 4], 1792, "87", "p3701_0004"),
    "agx-orin-devkit-32gb": ("p3701-0000", [4, 4, 4], 2048, "87", "p3701_0000"),
    "agx-industrial": ("p3701-0008", [4, 4, 4], 2048, "87", None),
    "nx16": ("p3767-0000", [4, 4], 1024, "87", "p3767_0000_super"),
    "nx8": ("p3767-0001", [4, 2], 1024, "87", "p3767_0001_super"),
    "nano8": ("p3767-0003", [4, 2], 1024, "87", "p3767_0003_super"),
    "nano4": ("p3767-0004", [4, 2], 512, "87", "p3767_0004_super"),
    "agx-xavier": ("p2888-0004", [2, 2, 2, 2], 512, "72", "t194"),
    "xavier-nx": ("p3668-0000", [2, 2, 2], 384, "72", "t194_p3668"),
    "thor-t5000": ("p3834-0008", [2] * 7, 2560, "110", "p3834_0008"),
    "thor-t4000": ("p3834-0000", [2] * 6, 1536, "110", None),
}

# Cores of an SM: 64 on Volta, 128 on Ampere and Blackwell.
CORES_OF_SM = {"72": 64, "87": 128, "110": 128}

# Modes that switch without a reboot, by the facts' account of the masks.
LIVE = {
    "agx64": [{0, 3}, {1}, {2}],
    "agx32": [{0, 3}, {1}, {2}],
    "nx16": [{0, 3, 4}, {1, 2}],
    "nx8": [{0, 3, 4}, {1, 2}],
    "nano8": [{0, 1, 2}],
    "nano4": [{0, 1, 2}],
    "agx-xavier": [{0, 2, 3, 4, 5, 6, 7}, {1}],
    "thor-t5000": [{0, 1}, {2, 3}],
}


def load(name: str) -> tuple[profile.Profile, profile.Board]:
    told = profile.load(name, SEARCH)
    assert told.board is not None
    return told, told.board


# What the profiles say.


@pytest.mark.parametrize("name", MODULES)
def test_a_profile_says_what_the_table_of_modules_says(name: str) -> None:
    module, clusters, cuda_cores, arch, _ = MODULES[name]
    told, facts = load(name)
    assert facts.modules[0] == module
    assert [len(cluster) for cluster in facts.clusters] == clusters
    assert facts.cpus == tuple(range(sum(clusters)))
    assert facts.gpu_sm == cuda_cores // CORES_OF_SM[arch]
    assert (facts.machine, facts.cuda) == ("aarch64", True)
    assert facts.evidence in ("captured", "documents"), "no board has run this yet"
    assert told.values["build.cuda"] == "on"


@pytest.mark.parametrize("name", [name for name, row in MODULES.items() if row[3] == "87"])
def test_the_width_of_an_orin_is_what_its_mask_leaves(name: str) -> None:
    """SM = 2 x (8 - bits set in the TPC mask)."""
    _, facts = load(name)
    for modes in filter(None, (facts.power, facts.power_before_super)):
        widths = [2 * (8 - bin(dict(mode.gpu_mask)["TPC_PG_MASK"]).count("1")) for mode in modes]
        assert max(widths) == facts.gpu_sm
        best = find(PowerTable("", modes, None), "max")
        assert widths[modes.index(best)] == facts.gpu_sm
        assert best.cores == facts.cpus


@pytest.mark.parametrize("name", [name for name, row in MODULES.items() if row[4]])
@pytest.mark.parametrize("super_image", [True, False])
def test_the_modes_are_those_of_the_virtual_board(name: str, super_image: bool) -> None:
    told, facts = load(name)
    key = str(MODULES[name][4])
    if not super_image:
        if not key.endswith("_super"):
            return
        key = key.removesuffix("_super")
    mine = board.power_table(told, is_super=super_image)
    assert mine is not None
    assert mine.default_id == TABLES[key].default
    for number, (mode, other) in enumerate(zip(mine.modes, TABLES[key].modes, strict=True)):
        assert (mode.id, mode.name, len(mode.cores)) == (number, other.name, other.cores)
        assert set(mode.cpu_max_khz.values()) == {other.cpu_mhz and round(other.cpu_mhz * 1000)}
        gpu = None if name == "thor-t5000" and mode.name == "MAXN" else other.gpu_mhz  # uncapped is its highest
        assert mode.gpu_max_hz == (gpu and round(gpu * 1e6))
        assert mode.emc_max_hz == (other.emc_mhz and round(other.emc_mhz * 1e6))
        assert other.mask in dict(mode.gpu_mask).values()
        assert {cluster[0] for cluster in facts.clusters if cluster[0] in mode.cores} == mode.cpu_max_khz.keys()


@pytest.mark.parametrize("name", LIVE)
def test_modes_of_one_mask_switch_live(name: str) -> None:
    _, facts = load(name)
    by_id = {mode.id: mode for mode in facts.power}
    groups = [{number for number in by_id if not needs_reboot(by_id[first], by_id[number])} for first in by_id]
    assert sorted(map(sorted, LIVE[name])) == [list(group) for group in sorted({tuple(sorted(g)) for g in groups})]


def test_the_modes_are_those_of_the_collected_files() -> None:
    """The files lie beside the project on the machines of its makers; nothing of them is in it."""
    collected = Path(__file__).parents[3] / "shared/fixtures/nvpmodel/modes.json"
    if not collected.is_file():
        pytest.skip("the collected nvpmodel files are not beside the project")
    data = json.loads(collected.read_text())
    for name, row in MODULES.items():
        file = next(
            (f for key in (f"nvpmodel_{row[4]}.conf", f"nvpmodel_{row[4]}.r36.conf") if (f := data.get(key))), None
        )
        if file is None:
            continue
        _, facts = load(name)
        for mode, other in zip(facts.power, file["modes"], strict=True):
            assert (mode.id, mode.name, list(mode.cores)) == (other["id"], other["name"], other["cores_on"])
            assert mode.gpu_max_hz == (None if other["GPU.MAX_FREQ"] == -1 else other["GPU.MAX_FREQ"])
            assert mode.emc_max_hz == (None if other["EMC.MAX_FREQ"] <= 0 else other["EMC.MAX_FREQ"])
            assert mode.gpu_mask == tuple(
                sorted((k.split(".")[1], v) for k, v in other.items() if k.endswith("PG_MASK"))
            )


@pytest.mark.parametrize("name", MODULES)
def test_a_guess_is_called_one(name: str) -> None:
    _, facts = load(name)
    guesses = [key for key, source in facts.sources.items() if source.startswith("unverified")]
    assert not (facts.evidence == "captured" and guesses), "captured evidence has no unverified numbers"


# What stands in for a board.


@pytest.mark.parametrize("name", MODULES)
def test_a_board_not_at_hand_gets_the_architecture_and_jetpack_of_its_module(name: str) -> None:
    module, _, _, arch, _ = MODULES[name]
    told, facts = load(name)
    device = board.stand_in(told)
    engine = choose_build(device, layer(told, ()), "/data")
    assert engine.cuda_architectures == (arch,)
    assert f"-DCMAKE_CUDA_ARCHITECTURES={arch}" in engine.cmake
    assert device.jetson is not None
    assert device.jetson.module == module
    major = {"72": "5.", "87": "6.", "110": "7."}[arch]
    assert (device.jetson.jetpack or "").startswith(major)
    assert device.jetson.jetpack_cuda == jetson.RELEASES[device.jetson.l4t or ""][1]
    assert device.jetson.is_super is module.startswith("p3767")
    if facts.power:
        assert device.power is not None
        assert device.power.current == facts.power_default
        assert device.power.table == board.power_table(told)


@pytest.mark.parametrize(("cuda", "arch"), [((12, 8), "101"), ((13, 0), "110"), ((13, 2), "110")])
def test_the_architecture_of_thor_hangs_on_the_toolkit(cuda: tuple[int, ...], arch: str) -> None:
    told, _ = load("thor-t5000")
    device = board.stand_in(told)
    kit = CudaToolkit("/usr/local/cuda", cuda, on_path=True)
    device = replace(device, toolchain=replace(device.toolchain, cuda=(kit,)))
    assert choose_build(device, layer(told, ()), "/data").cuda_architectures == (arch,)


# Which profile, and why.

CHOSEN = {
    "agx-orin-devkit-32gb-r36": ("agx-orin-devkit-32gb", "the device tree says p3701-0000"),
    "agx-thor-r38": ("thor-t5000", "the device tree says p3834-0008"),
    "agx-xavier-r35": ("agx-xavier", "the device tree says p2972-0000"),
    "agx32-r36": ("agx32", "the device tree says p3701-0004"),
    "agx64-r36": ("agx64", "the device tree says p3701-0005"),
    "cgroup-v1": ("host", "this machine is no Jetson"),
    "host-x86-container": ("host", "this machine is no Jetson"),
    "nano4-unknown-l4t": ("nano4", "the device tree says p3767-0004, super"),
    "orin-nano-r36": ("nano8", "the device tree says p3767-0005, super"),
    "orin-nano-r36-7w": ("nano8", "the device tree says p3767-0005, super"),
    "orin-nano-r39": ("nano8", "the device tree says p3767-0005, super"),
    "orin-nx16-r35-two-toolkits": (
        "nx16", "the device tree says p3767-0000, on a carrier of another maker (acme,edge-box)",
    ),
    "orin-nx8-other-carrier-r36": (
        "nx8", "the device tree says p3767-0001, on a carrier of another maker (acme,recomputer)",
    ),
    "thor-t4000-r38": ("thor-t4000", "what was flashed (/etc/nv_boot_control.conf) says p3834-0000"),
    "vm-1cpu": ("host", "this machine is no Jetson"),
    "x86-smt": ("host", "this machine is no Jetson"),
}  # fmt: skip
REFUSED = {
    "jetson-nano-r32": (Refused, "JetPack 4"),
    "xavier-nx-r32": (Refused, "JetPack 4"),
    "orin-in-container-r36": (UsageError, "does not say which module"),
}


def captured(name: str) -> Device:
    return inspect(Capture(CAPTURES / name))


@pytest.mark.parametrize("name", sorted(path.parent.name for path in CAPTURES.glob("*/ABOUT")))
def test_every_machine_gets_one_profile_or_a_reason(name: str) -> None:
    device = captured(name)
    if name in REFUSED:
        kind, says = REFUSED[name]
        with pytest.raises(kind, match=says) as caught:
            board.choose(device, SEARCH)
        assert caught.value.hint
        return
    assert board.choose(device, SEARCH) == CHOSEN[name]
    told = profile.load(CHOSEN[name][0], SEARCH)
    assert board.is_at_hand(told, device)
    if name != "cgroup-v1":
        assert not [
            text for text in board.disagreements(told, device) if "CPUs where" in text or "memory where" in text
        ]


def test_every_module_has_one_profile() -> None:
    modules = [module for name in MODULES for module in load(name)[1].modules]
    assert len(modules) == len(set(modules))
    assert {profile.board_profile(module, SEARCH) for module in modules} == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_the_doctor_knows_every_board_by_profile_and_module(name: str) -> None:
    _, facts = load(name)
    for words in (name, *facts.modules):
        known = board_of(words)
        assert known is not None
        assert known.module in facts.modules


def test_a_container_takes_the_users_word_for_the_module() -> None:
    told, _ = load("nano8")
    device = board.assume_module(told, captured("orin-in-container-r36"))
    assert device.jetson is not None
    assert (device.jetson.module, device.jetson.module_from) == ("p3767-0003", "profile nano8")
    assert board.is_at_hand(told, device)
    known = captured("orin-nano-r36")
    assert board.assume_module(load("agx32")[0], known) == known
    assert board.assume_module(told, WORKSTATION) == WORKSTATION


def test_a_module_without_a_profile_names_those_there_are() -> None:
    device = captured("orin-nano-r36")
    assert device.jetson is not None
    with pytest.raises(UsageError, match="p3767-0099") as caught:
        board.choose(replace(device, jetson=replace(device.jetson, module="p3767-0099")), SEARCH)
    assert "nano8" in (caught.value.hint or "")


# The module: never by memory alone.

_ORIN_TREES = st.sampled_from(
    [
        ("nvidia,p3737-0000+p3701-0000", "nvidia,p3701-0000", "nvidia,tegra234"),
        ("acme,box", "nvidia,p3767-0001", "nvidia,tegra234"),
        ("nvidia,tegra234",),
        (),
    ]
)


@given(tree=_ORIN_TREES, one=st.integers(0, 256), other=st.integers(0, 256))
def test_memory_alone_never_decides(tree: tuple[str, ...], one: int, other: int) -> None:
    assert jetson.identify(tree, "", one * GIB) == jetson.identify(tree, "", other * GIB)


THOR = ("nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264")


@pytest.mark.parametrize(
    ("tree", "flashed", "gib", "module"),
    [
        (THOR, "", 122, "p3834-0008"),
        (THOR, "", 59, "p3834-0000"),
        (THOR, "", 0, "p3834-0008"),
        (THOR, "TNSPEC 3834-400-0000-A.0-1-0-jetson-agx-thor-devkit-\n", 122, "p3834-0000"),
        (THOR, "TNSPEC 3834-400-0008-J.1-1-0-jetson-agx-thor-devkit-\n", 59, "p3834-0008"),
        (THOR, "COMPATIBLE_SPEC 3834--0000--1--jetson-agx-thor-devkit-\n", 122, "p3834-0000"),
        (THOR, "TNSPEC 3767-302-0005-J.1-1-0-jetson-orin-nano-devkit-super-\n", 122, "p3834-0008"),
        (("acme,thor", "nvidia,tegra264"), "", 122, "p3834-0008"),
        (("acme,thor", "nvidia,tegra264"), "", 8, None),
        (("nvidia,p4071-0000+p3834-0005", "nvidia,p3834-0005", "nvidia,tegra264"), "", 122, "p3834-0005"),
        (("acme,box", "nvidia,tegra234"), "TNSPEC 3767-302-0005-J.1-1-0-orin-nano-super-\n", 8, "p3767-0005"),
        (("acme,box", "nvidia,p3767-0001"), "TNSPEC 3767-302-0005-J.1-1-0-x-\n", 8, "p3767-0001"),
        (("acme,box", "nvidia,tegra234"), "TNSPEC \nCOMPATIBLE_SPEC nonsense\n", 8, None),
    ],
)  # fmt: skip
def test_the_module_by_tree_by_what_was_flashed_and_thors_by_memory(
    tree: tuple[str, ...], flashed: str, gib: int, module: str | None
) -> None:
    found, why = jetson.identify(tree, flashed, gib * GIB)
    assert found == module
    assert (why is None) == (found is None)


# Releases.


def on(module: str, l4t: str | None) -> Jetson:
    return Jetson(None, (), module, l4t, *jetson.RELEASES.get(l4t or "", (None, None)))


@pytest.mark.parametrize(
    ("module", "l4t", "says"),
    [
        ("p3767-0003", "36.4.7", ["36.5.0", "drop_caches", "4 GiB"]),
        ("p3767-0003", "36.4.9", ["not among the releases"]),
        ("p3701-0005", None, ["no /etc/nv_tegra_release"]),
        ("p3668-0001", "35.4.1", ["JetPack 5", "3.8", "11.4"]),
    ],
)
def test_what_is_worth_knowing_of_a_release(module: str, l4t: str | None, says: list[str]) -> None:
    (note,) = jetson.notes(on(module, l4t))
    assert all(word in note for word in says)


@pytest.mark.parametrize("l4t", ["35.4.1", "36.4.3", "36.4.4", "36.5.0", "39.2.0"])
def test_a_sound_release_needs_no_note(l4t: str) -> None:
    assert jetson.notes(on("p3701-0005", l4t)) == ()


# Super or not, and CPUs that are off.


def test_the_table_of_before_super_on_a_super_image_is_told() -> None:
    told, facts = load("nano8")
    device = captured("orin-nano-r39")
    before, after = (PowerTable("/etc/nvpmodel.conf", modes, 0) for modes in (facts.power_before_super, facts.power))
    (text,) = board.disagreements(told, replace(device, power=PowerState(before, "15W")))
    assert "6279443" in text
    assert board.disagreements(told, replace(device, power=PowerState(after, "25W"))) == ()
    plain = replace(device, power=PowerState(before, "15W"), jetson=replace(device.jetson, is_super=False))  # type: ignore[type-var]
    assert board.disagreements(told, plain) == ()


def test_clusters_of_cpus_that_are_off_come_from_the_profile() -> None:
    told, facts = load("nano8")
    device = board.complete_clusters(told, captured("orin-nano-r36-7w"))
    assert tuple(cluster.cpus for cluster in device.cpu.clusters) == facts.clusters
    assert "profile nano8" in device.cpu.clusters_from
    xavier = board.complete_clusters(load("agx-xavier")[0], captured("agx-xavier-r35"))
    assert [cluster.cpus for cluster in xavier.cpu.clusters] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    whole = captured("orin-nano-r36")
    assert board.complete_clusters(told, whole) == whole
    other = captured("agx-xavier-r35")
    assert board.complete_clusters(load("nx16")[0], other) == other


# Faults in a profile's power table.

_MODE = "{id: 0, name: MAXN, cores: 0-7, masks: {TPC_PG_MASK: 0}}"


@pytest.mark.parametrize(
    ("power", "default", "says"),
    [
        (f"[{_MODE}]", "FAST", "has no mode FAST"),
        (f"[{_MODE}, {_MODE}]", "MAXN", "two modes of one name or number"),
        (f"[{_MODE.replace('0-7', '0-8')}]", "MAXN", "no CPU for the cores 0-8"),
        (f"[{_MODE}]", None, "needs both"),
        (f"[{_MODE.replace('cores', 'core')}]", "MAXN", "did you mean cores?"),
        (f"[{_MODE.replace('TPC_PG', 'TCP_PG')}]", "MAXN", "did you mean TPC_PG_MASK?"),
        (f"[{_MODE.replace('id: 0', 'id: first')}]", "MAXN", "from 0 to 255"),
        ("[{id: 0, name: MAXN, masks: {}}]", "MAXN", "lacks cores"),
        ("[]", "MAXN", "power"),
        ("MAXN", "MAXN", "power"),
    ],
)
def test_a_faulty_power_table_is_told(tmp_path: Path, power: str, default: str | None, says: str) -> None:
    lines = ["include: agx32", f"board:\n  power: {power}"]
    lines += [f"  power_default: {default}"] if default else []
    text = "\n".join(lines) + "\n"
    if default is None:
        whole = (SEARCH[0] / "agx32.yaml").read_text().splitlines(keepends=True)
        text = "".join(line for line in whole if "power_default" not in line)
    path = tmp_path / "own.yaml"
    path.write_text(text)
    assert says in "\n".join(map(str, profile.check(path, (tmp_path, *SEARCH))))


def test_a_mode_is_read_as_nvpmodel_conf_is() -> None:
    _, facts = load("nano8")
    assert facts.power[1] == PowerMode(
        id=1,
        name="25W",
        cores=(0, 1, 2, 3, 4, 5),
        cpu_max_khz={0: 1_344_000, 4: 1_344_000},
        gpu_max_hz=918_000_000,
        emc_max_hz=3_199_000_000,
        gpu_mask=(("FBP_PG_MASK", 2), ("TPC_PG_MASK", 240)),
    )


# Every board with every L4T generation, as virtual machines.

GENERATIONS = [(name, l4t) for name, told in VIRTUAL.items() for l4t in told.releases]


@pytest.mark.parametrize(("name", "l4t"), GENERATIONS)
def test_a_virtual_board_of_each_release_gets_its_profile(name: str, l4t: str, tmp_path: Path) -> None:
    device = inspect(build(tmp_path / "root", name, l4t).host())
    chosen, _ = board.choose(device, SEARCH)
    told, facts = load(chosen)
    assert chosen == name
    assert device.jetson is not None
    assert device.jetson.is_super is (name in ("nano8", "nano4", "nx16", "nx8") and not l4t.startswith("35."))
    assert board.disagreements(told, device) == ()
    whole = board.complete_clusters(told, device)
    assert tuple(cluster.cpus for cluster in whole.cpu.clusters) == facts.clusters
    kit, warning = jetson.toolkit_for(device.jetson, device.toolchain.cuda)
    assert kit is not None
    assert warning is None
    assert choose_build(device, layer(told, ()), "/data").cuda_architectures == (MODULES[name][3],)
    assert diagnose(live(device, None, ())) == ()
    mine = board.power_table(told, is_super=device.jetson.is_super)
    assert device.power is not None
    if mine is not None:
        assert device.power.table is not None
        assert [(mode.id, mode.name, mode.cores) for mode in device.power.table.modes] == [
            (mode.id, mode.name, mode.cores) for mode in mine.modes
        ]
        assert device.power.table.default_id == mine.default_id
