"""Power modes: reading the table, finding a mode, foretelling a reboot, deciding what is to be done."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.actions import Reboot, Remove, Run, Write
from orin_deploy.errors import CommandFailed, Refused, UsageError
from orin_deploy.facts.device import Cluster, Cpu, Device, Jetson
from orin_deploy.facts.power import (
    PowerMode,
    PowerState,
    PowerTable,
    current_mode,
    fan_profile,
    fan_profiles,
    find,
    needs_reboot,
    parse_conf,
)
from orin_deploy.host import Host
from orin_deploy.intent.power import foreign, in_mode, resolve
from orin_deploy.intent.spec import Setting, Spec
from orin_deploy.parts import power
from orin_deploy.parts.power.in_force import differences
from orin_deploy.parts.power.script import script_text
from orin_deploy.parts.power.state import Current, Limit
from orin_deploy.parts.power.where import Where
from tests.specs import make_device, make_spec
from tests.virtual.boards_table import BOARDS, TABLES
from tests.virtual.conf import OLD, text

SUPER = {f"{board.conf}{'_super' if sup else ''}": (board, sup) for board in BOARDS.values() for sup in (False, True)}
CASES = [(name, *SUPER[name]) for name in TABLES if name in SUPER]


def conf(name: str, kernel: str = "5.15.148-tegra") -> PowerTable:
    board, super_modes = SUPER[name]
    return parse_conf(text(board, TABLES[name], super_modes, old=kernel < "5.15"), kernel)


@pytest.mark.parametrize("kernel", ["5.10.120-tegra", "5.15.148-tegra", "6.8.12-tegra"])
@pytest.mark.parametrize("name", [name for name, *_ in CASES])
def test_every_table_reads_back(name: str, kernel: str) -> None:
    board, _ = SUPER[name]
    table, told = conf(name, kernel), TABLES[name]
    assert (len(table.modes), table.default_id) == (len(told.modes), told.default)
    for number, (mode, wanted) in enumerate(zip(table.modes, told.modes, strict=True)):
        assert (mode.id, mode.name, mode.cores) == (number, wanted.name, board.cpus[: wanted.cores])
        cpu = None if wanted.cpu_mhz is None else round(wanted.cpu_mhz * 1000)
        assert set(mode.cpu_max_khz.values()) == {cpu}
        assert set(mode.cpu_max_khz) <= set(mode.cores)
        assert mode.gpu_max_hz == (None if wanted.gpu_mhz is None else round(wanted.gpu_mhz * 1e6))
        assert mode.emc_max_hz == (None if wanted.emc_mhz is None else round(wanted.emc_mhz * 1e6))
        assert wanted.mask in dict(mode.gpu_mask).values()


def test_the_paths_are_those_of_the_kernel() -> None:
    old, new = conf("p3701_0000", "5.10.120-tegra"), conf("p3701_0000", "5.15.148-tegra")
    assert old.gpu_max_path == f"{OLD.gpu.format(chip='ga10b')}/max_freq"
    assert new.gpu_max_path == "/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq"
    assert new.gpu_clocks_path == "/sys/devices/platform/17000000.gpu/devfreq_dev/available_frequencies"
    assert conf("p3701_0000", "6.1.0").gpu_max_path == new.gpu_max_path


VENDOR = Path(__file__).parents[3] / "shared/fixtures/nvpmodel"


@pytest.mark.skipif(not VENDOR.is_dir(), reason="the vendor's files are not beside this checkout")
def test_the_vendors_own_files_read_as_their_tables_say() -> None:
    for name, told in json.loads((VENDOR / "modes.json").read_text()).items():
        table = parse_conf((VENDOR / name).read_text(), "5.10" if ".r35" in name or "t194" in name else "5.15")
        assert table.default_id == told["default"]
        assert table.gpu_max_path is not None
        for mode, wanted in zip(table.modes, told["modes"], strict=True):
            assert (mode.id, mode.name, list(mode.cores)) == (wanted["id"], wanted["name"], wanted["cores_on"])
            caps = [None if khz < 0 else khz for khz in wanted["cpu_max_khz"].values()]
            assert list(mode.cpu_max_khz.values()) == caps
            emc = wanted["EMC.MAX_FREQ"]
            assert (mode.gpu_max_hz or -1, mode.emc_max_hz) == (wanted["GPU.MAX_FREQ"], emc if emc > 0 else None)
            assert dict(mode.gpu_mask)["TPC_PG_MASK"] == wanted["TPC_POWER_GATING.TPC_PG_MASK"]


def test_a_table_without_parameters_is_read_as_far_as_it_goes() -> None:
    table = parse_conf(
        "< POWER_MODEL ID=0 NAME=MAXN >\nCPU_ONLINE CORE_3 1\n< POWER_MODEL ID=2 NAME=MODE_30W >\n", None
    )
    assert [(mode.id, mode.name, mode.cores) for mode in table.modes] == [(0, "MAXN", (3,)), (2, "MODE_30W", ())]
    assert table.default_id is None


@given(st.text(alphabet=st.sampled_from("<> PARAMTYPE=FILENOWRDLI0123456789_#\n/-"), max_size=300))
def test_any_text_is_a_table_of_some_size(garbage: str) -> None:
    assert isinstance(parse_conf(garbage, "5.15.0"), PowerTable)


@pytest.mark.parametrize(
    ("name", "best"),
    [
        ("p3701_0000", "MAXN"), ("p3767_0003_super", "MAXN_SUPER"), ("p3767_0003", "15W"), ("p3767_0004", "10W"),
        ("t194", "MAXN"), ("t194_p3668", "MODE_20W_6CORE"), ("p3834_0008", "MAXN"),
    ],
)  # fmt: skip
def test_max_is_the_fastest_mode(name: str, best: str) -> None:
    assert find(conf(name), "max").name == best


def test_modes_are_found_by_name_and_by_watts() -> None:
    table = conf("p3701_0000")
    assert [find(table, word).name for word in ("maxn", "MODE_30W", "mode_30w", "30W", "30w", "30")] == [
        "MAXN", *["MODE_30W"] * 5,
    ]  # fmt: skip
    assert find(conf("p3767_0003_super"), "25").name == "25W"
    with pytest.raises(UsageError) as caught:
        find(table, "60W")
    assert "there are MAXN, MODE_15W, MODE_30W, MODE_50W; or max, or keep" in str(caught.value.hint)


def test_a_reboot_is_foretold_by_the_masks() -> None:
    """Live on AGX Orin 64GB: MAXN and 50W; on Orin NX: 0, 3, 4 and 1, 2; on Orin Nano Super all three."""
    expected = {"p3701_0000": {(0, 3)}, "p3767_0000_super": {(0, 3), (0, 4), (3, 4), (1, 2)}, "p3767_0003_super": None}
    for name, live in expected.items():
        modes = conf(name).modes
        found = {(a.id, b.id) for a in modes for b in modes if a.id < b.id and not needs_reboot(a, b)}
        assert found == (live if live is not None else {(0, 1), (0, 2), (1, 2)})
    assert not needs_reboot(None, modes[0])


@pytest.mark.parametrize(
    ("said", "mode"),
    [
        ("NV Power Mode: MAXN\n0", "MAXN"),
        ("NVPM WARN: fan mode is not set!\nNV Power Mode: MODE_15W\n2\n", "MODE_15W"),
        ("NVPM ERROR: Error opening /sys/x: 13\nNVPM ERROR: failed to read\nNV Power Mode: 25W\n1", "25W"),
        ("NVPM VERB: Current mode: NV Power Mode: 25W\n1\nNVPM VERB: PARAM", "25W"),
        ("NV Power Mode: MAXN", "MAXN"),
        ("", None),
    ],
)  # fmt: skip
def test_the_query_is_read_through_noise(said: str, mode: str | None) -> None:
    assert current_mode(said) == mode


def test_fan_profiles() -> None:
    text = "<FAN 1>\n\tFAN_PROFILE quiet {\n\t\t#TEMP\n\t}\n\tFAN_PROFILE cool {\n\t}\n\tFAN_DEFAULT_PROFILE quiet\n"
    assert (fan_profile(text), fan_profiles(text)) == ("quiet", ("quiet", "cool"))
    assert (fan_profile(""), fan_profiles("")) == (None, ())


# Deciding.


def device(name: str, current: str, **changes: object) -> Device:
    board, table = SUPER[name][0], conf(name)
    at = next(mode for mode in table.modes if mode.name == current)
    cpu = Cpu("core", frozenset(), tuple(map(Cluster, board.clusters)), board.cpus, at.cores, board.cpus, "cache")
    state = PowerState(table, current, "/usr/sbin/nvpmodel", "/usr/bin/jetson_clocks")
    whole = replace(make_device(), cpu=cpu, power=state, jetson=Jetson(None, (), board.module, "36.4.3", "6.2", "12.6"))
    return replace(whole, **changes)  # type: ignore[arg-type]


def values(mode: str = "max", clocks: str = "on", fan: str = "keep") -> dict[str, Setting]:
    words = {"power.mode": mode, "power.clocks": clocks, "power.fan": fan}
    return {key: Setting(value, "--set") for key, value in words.items()}


def test_cores_that_go_offline_are_no_place_and_those_that_come_are() -> None:
    here = device("p3701_0000", "MODE_30W")
    assert len(here.cpu.online) == 8
    for mode, cores in (("max", 12), ("15W", 4), ("keep", 8)):
        wanted = resolve(here, values(mode))
        assert wanted is not None
        assert in_mode(here.cpu, wanted).usable == tuple(range(cores))


def test_a_cluster_that_is_off_now_is_as_the_profile_tells_it() -> None:
    here = device("p3701_0000", "MODE_30W")
    read = replace(here.cpu, clusters=here.cpu.clusters[:2])
    wanted = resolve(here, values())
    assert in_mode(read, wanted, ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))).clusters == here.cpu.clusters
    assert in_mode(read, wanted, ((8, 9, 10, 99),)).clusters == read.clusters, "no CPU of this board"
    assert in_mode(read, resolve(here, values("keep")), ((8, 9, 10, 11),)) == read


def test_a_reboot_is_a_warning_until_it_is_agreed_to() -> None:
    here = device("p3701_0000", "MODE_30W")
    wanted, agreed = resolve(here, values()), resolve(here, values(), reboot=True)
    assert wanted is not None
    assert agreed is not None
    assert (wanted.mode_id, wanted.reboot_needed, wanted.reboot_allowed) == (0, True, False)
    assert "--reboot does it, --set power.mode=keep goes on without" in wanted.warnings[0]
    assert (agreed.reboot_needed, agreed.reboot_allowed, agreed.warnings) == (True, True, ())


def test_a_machine_that_is_no_jetson() -> None:
    assert resolve(make_device(), values("keep", "keep")) is None
    left = resolve(make_device(), values())
    assert left is not None
    assert (left.mode, left.clocks) == (None, False)
    with pytest.raises(UsageError, match="power mode 25W cannot be set: there is no power mode"):
        resolve(make_device(), values("25W"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"power": None}, "there is no power mode in /etc/nvpmodel.conf"),
        ({"container": "docker"}, "nvpmodel changes nothing but its status file"),
        ({"power": PowerState(conf("p3701_0000"), "MAXN")}, "nvpmodel is not on this machine"),
    ],
)
def test_what_cannot_be_set_is_said(changes: dict[str, object], words: str) -> None:
    left = resolve(device("p3701_0000", "MODE_30W", **changes), values())
    assert left is not None
    assert (left.mode, left.clocks) == (None, False)
    assert any(words in warning for warning in left.warnings)


def test_a_table_of_another_module_is_refused() -> None:
    here = device("p3767_0003_super", "25W")
    other = replace(here, power=PowerState(conf("p3701_0000"), None, "/usr/sbin/nvpmodel"))
    with pytest.raises(Refused, match="for a module with 12 CPUs, and this one has 6"):
        resolve(other, values())
    assert foreign(conf("p3767_0003_super"), here.cpu.present) is None


FOLDER = Where("/data/deployments/test/power", "/etc/nvpmodel.conf", "orin-deploy-power-test.service")


def spec(here: Device, *, reboot: bool = False, **wanted: str) -> Spec:
    whole = make_spec(Path("/data"), Path("/engine"), Path("/m.gguf"), 8080)
    return replace(whole, device=here, power=resolve(here, values(**wanted), reboot=reboot))


def test_the_state_from_before_is_on_disk_before_the_first_change() -> None:
    here = device("p3767_0003_super", "25W")
    mode, clocks = power.plan(spec(here), Current(FOLDER, "25W"))
    words = list(map(str, mode.actions))
    assert words[-1] == "nvpmodel -m 2"
    assert words[1] == f"jetson_clocks --store {FOLDER.clocks}.part"
    assert f"write {FOLDER.before}" in words
    assert [str(action) for action in clocks.actions] == ["jetson_clocks"], "a switch unpins, so they are pinned again"
    assert mode.undo == clocks.undo
    written, back, restore, gone = mode.undo
    assert isinstance(written, Write)
    assert written.path == FOLDER.script
    assert isinstance(back, Run)
    assert back.argv[1:] == (FOLDER.script, "back", "25W")
    assert isinstance(restore, Run)
    assert restore.argv[1:] == (FOLDER.script, "restore", FOLDER.clocks)
    assert gone == Remove(FOLDER.folder)
    later, _ = power.plan(spec(here), Current(FOLDER, "15W", before="25W", stored=True))
    assert [str(action) for action in later.actions] == ["nvpmodel -m 2"]
    assert later.undo == mode.undo, "what was there first is put back, not what an earlier run set"


def test_the_question_is_answered_only_with_consent() -> None:
    here = device("p3701_0000", "MODE_30W")
    asked, *_ = power.plan(spec(here), Current(FOLDER, "MODE_30W"))
    agreed, *_ = power.plan(spec(here, reboot=True), Current(FOLDER, "MODE_30W"))
    assert not any(isinstance(action, Reboot) for action in asked.actions)
    assert isinstance(agreed.actions[-1], Reboot)
    assert agreed.actions[:-1] == asked.actions[:-1]
    undo = [power.with_consent(action) for action in asked.undo]
    assert [type(action).__name__ for action in undo] == ["Write", "Reboot", "Run", "Remove"]


LEFT_OVER = "the GPU is limited to 612 MHz, 1020 in MAXN_SUPER"


def table_and(mode: str) -> tuple[PowerTable, PowerMode]:
    table = conf("p3767_0003_super")
    found = table.named(mode)
    assert found is not None
    return table, found


@pytest.mark.parametrize(
    ("mode", "changes", "words"),
    [
        ("25W", {}, []),
        ("25W", {"mode": "15W"}, ["15W is active"]),
        ("25W", {"online": (0, 1, 2, 3)}, ["CPUs 0-3 are online, 0-5 in 25W"]),
        ("25W", {"cpu_limits": {0: Limit(1_497_600, 1_728_000)}}, ["CPU 0 is limited to 1497.6 MHz, 1344 in 25W"]),
        ("25W", {"cpu_limits": {0: Limit(1_113_600, 1_728_000)}}, []),  # heat
        ("25W", {"cpu_limits": {0: Limit(1_382_400, 1_728_000)}}, []),  # the next clock that there is
        ("25W", {"gpu_limit": Limit(612_000_000, 1_020_000_000)}, ["the GPU is limited to 612 MHz, 918 in 25W"]),
        ("25W", {"gpu_limit": Limit(624_750_000, 624_750_000)}, []),  # an image without the clocks
        ("MAXN_SUPER", {"gpu_limit": Limit(918_000_000, 1_020_000_000)}, []),  # within a step: rounding
        ("MAXN_SUPER", {"gpu_limit": Limit(612_000_000, 1_020_000_000)}, [LEFT_OVER]),
        ("MAXN_SUPER", {"cpu_limits": {5: Limit(1_344_000, None)}}, []),  # nothing to compare with
    ],
)  # fmt: skip
def test_a_mode_is_in_force_or_it_is_said_why_not(mode: str, changes: dict[str, object], words: list[str]) -> None:
    now = replace(Current(FOLDER, mode, online=tuple(range(6))), **changes)  # type: ignore[arg-type]
    assert list(differences(*table_and(mode), now, tuple(range(6)))) == words


def test_nothing_is_planned_for_what_is_kept() -> None:
    here = device("p3767_0003_super", "25W")
    assert power.plan(spec(here, mode="keep", clocks="keep"), Current(FOLDER, "25W")) == ()


def test_the_boot_unit_comes_after_the_vendors_and_before_the_server() -> None:
    here = device("p3767_0003_super", "MAXN_SUPER")
    whole = replace(spec(here), service=replace(spec(here).service, manager="systemd"))
    boot = power.plan(whole, Current(FOLDER, "MAXN_SUPER"))[-1]
    script, unit = boot.actions[:2]
    assert isinstance(script, Write)
    assert isinstance(unit, Write)
    lines = unit.text.splitlines()
    assert "After=nv.service nvpower.service nvpmodel.service" in lines
    assert f"Before={whole.service.unit}" in lines
    assert f"ExecStart=/bin/sh {FOLDER.script} boot MAXN_SUPER on" in lines
    assert "RemainAfterExit" not in unit.text, "it would sleep through `systemctl isolate`"
    done = replace(Current(FOLDER, "MAXN_SUPER"), script=script.text, unit=unit.text, enabled=True)
    assert not power.plan(whole, done)[-1].actions


def test_late_devices_are_waited_for(tmp_path: Path) -> None:
    """The mode is refused twice, as while sysfs is not there yet; the script goes on trying."""
    tool, count = tmp_path / "nvpmodel", tmp_path / "count"
    tool.write_text(
        f'#!/bin/sh\n[ "$1" = -q ] && echo "NV Power Mode: 25W" && exit\necho x >> {count}\n'
        f'[ "$(wc -l < {count})" -ge 3 ] || {{ echo "NVPM ERROR: Error opening /sys/x: 2" >&2; exit 255; }}\n'
    )
    tool.chmod(0o755)
    (tmp_path / "nvpmodel.conf").write_text("< POWER_MODEL ID=1 NAME=25W >\n")
    place = replace(FOLDER, conf=str(tmp_path / "nvpmodel.conf"))
    text = script_text(place, str(tool), None).replace("sleep 2", "sleep 0")
    (tmp_path / "power.sh").write_text(text)
    words = ("/bin/sh", str(tmp_path / "power.sh"), "boot")
    Host("/").do(Run((*words, "25W", "keep")))
    assert count.read_text() == "x\n" * 3
    with pytest.raises(CommandFailed):
        Host("/").do(Run((*words, "MAXN", "keep")))
