"""The lab's pure parts: device trees, the order of modules, the manifest, the report."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from orin_deploy.observe.telemetry.sample import Sample
from tests.lab import cuts, faults, kernel, manifest, report, run, trees
from tests.lab.commands import LabError
from tests.lab.guest.board import MOUNTS, board_of
from tests.lab.report import Result
from tests.virtual.boards_table import BOARDS
from tests.virtual.root import identity

LAB_BOARDS = ("agx32", "agx64", "nx8", "nano8")


_TREE = """/dts-v1/;

/ {{
	interrupt-parent = <0x8009>;
	model = "linux,dummy-virt";
	#size-cells = <0x02>;
	#address-cells = <0x02>;
	compatible = "linux,dummy-virt";

	psci {{
		compatible = "arm,psci";
	}};

	cpus {{
		#size-cells = <0x00>;
		#address-cells = <0x01>;

		cpu-map {{

			socket0 {{

				cluster0 {{
{cores}
				}};
			}};
		}};
{cpus}
	}};
}};
"""
_CORE = """
					core{number} {{
						cpu = <{handle:#x}>;
					}};
"""
_CPU = """
		cpu@{number} {{
			phandle = <{handle:#x}>;
			reg = <{number:#x}>;
		}};
"""


def qemu_tree(count: int) -> str:
    """The part of qemu's own device tree that is edited, as dtc prints it."""
    cores = "".join(_CORE.format(number=number, handle=0x8000 + number) for number in range(count))
    cpus = "".join(_CPU.format(number=number, handle=0x8000 + number) for number in range(count))
    return _TREE.format(cores=cores, cpus=cpus)


@pytest.mark.parametrize("name", LAB_BOARDS)
def test_a_tree_becomes_the_boards(name: str) -> None:
    board = BOARDS[name]
    text = trees.edit(qemu_tree(len(board.cpus)), board, board.super)
    found = [re.findall(r"cpu = <(0x[0-9a-f]+)>", part) for part in re.split(r"cluster\d+ \{", text)[1:]]
    assert [tuple(int(each, 16) - 0x8000 for each in part) for part in found] == list(board.clusters)
    strings, model = identity(board, board.super)
    assert f'"{model}"' in text
    assert all(f'"{each}"' in text for each in strings)
    for cpu in board.cpus:
        cluster = next(number for number, cpus in enumerate(board.clusters) if cpu in cpus)
        assert re.search(rf"cpu@{cpu} \{{\s+operating-points-v2 = <&opp{cluster}>;", text)
    assert f"opp-hz = /bits/ 64 <{round(board.cpu_mhz[board.super] * 1_000_000)}>" in text
    assert 'compatible = "arm,psci";' in text, "only the root's own strings are replaced"


@pytest.mark.skipif(shutil.which("dtc") is None, reason="there is no dtc")
@pytest.mark.parametrize("name", LAB_BOARDS)
def test_the_compiler_takes_the_tree(name: str, tmp_path: Path) -> None:
    board = BOARDS[name]
    source = tmp_path / "board.dts"
    source.write_text(trees.edit(qemu_tree(len(board.cpus)), board, board.super))
    done = subprocess.run(("dtc", "-q", "-I", "dts", "-O", "dtb", str(source)), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout[:4] == b"\xd0\x0d\xfe\xed"


def test_another_qemus_tree_is_named_and_not_half_edited() -> None:
    with pytest.raises(LabError, match="cpu-map"):
        trees.edit(qemu_tree(8).replace("cpu-map", "cpu-topology"), BOARDS["agx32"], False)


def test_every_folder_that_is_mounted_over_is_one_that_the_tree_makes_or_the_kernel_has() -> None:
    made = {f"{address:x}.{name.partition('@')[0]}" if address else name for name, address in trees.NODES}
    platform = {place.rpartition("/")[2] for _, place in MOUNTS if place.startswith("/sys/devices/platform/")}
    assert platform == made


@pytest.mark.parametrize("name", LAB_BOARDS)
def test_a_board_knows_itself_by_its_tree(name: str) -> None:
    strings, _ = identity(BOARDS[name], BOARDS[name].super)
    assert board_of("\0".join((*strings, trees.CPUFREQ, ""))) == name


def test_modules_come_behind_what_they_need() -> None:
    text = (
        "kernel/fs/ext4/ext4.ko: kernel/fs/mbcache.ko kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko\n"
        "kernel/fs/jbd2/jbd2.ko:\nkernel/fs/mbcache.ko:\nkernel/lib/crc16.ko:\n"
        "kernel/drivers/virtio-rng.ko.xz: kernel/lib/crc16.ko\n"
    )
    order = kernel.in_order(("virtio_rng", "ext4", "built_in"), text)
    assert order[-1].endswith("ext4.ko")
    assert order.index("kernel/lib/crc16.ko") < order.index("kernel/drivers/virtio-rng.ko.xz")
    assert len(order) == len(set(order)) == 5


STATUS = """Package: bash
Status: install ok installed
Version: 5.2.15-2+b2

Package: gone
Status: deinstall ok config-files
Version: 1

Package: apt
Status: install ok installed
Version: 2.6.1
Description: a
 Package: not-a-field
"""


def test_the_manifest_has_what_is_installed_with_the_hash_of_its_file() -> None:
    found = manifest.installed(STATUS)
    assert found == (("apt", "2.6.1"), ("bash", "5.2.15-2+b2"))
    known = manifest.hashes("Package: apt\nVersion: 2.6.1\nSHA256: aa\n\nPackage: apt\nVersion: 2.6.0\nSHA256: bb\n")
    assert known["apt", "2.6.1"] == "aa"


def test_two_builds_are_told_apart_package_by_package() -> None:
    before = {
        "a": {"version": "1", "sha256": "x"},
        "b": {"version": "1", "sha256": "y"},
        "c": {"version": "1", "sha256": "z"},
    }
    now = {
        "a": {"version": "2", "sha256": "w"},
        "b": {"version": "1", "sha256": "q"},
        "d": {"version": "1", "sha256": "z"},
    }
    assert manifest.differences(before, before) == ()
    assert manifest.differences(before, now) == (
        "a 1 is now 2", "b 1 has another hash than before", "c is gone", "d is new",
    )  # fmt: skip


def test_a_report_passes_only_when_every_check_did() -> None:
    good, bad = Result("facts", "passed", 1.0), Result("serve", "failed", 2.0, why="no answer")
    assert report.document("agx32", [good], {}, [80.0], [5.0])["passed"]
    assert not report.document("agx32", [], {}, [], [])["passed"], "nothing that ran has passed"
    told = report.document("agx32", [good, bad, Result("killed", "not run")], {}, [80.0, 41.2], [])
    assert not told["passed"]
    text = report.text(told)
    assert "no answer" in text
    assert "2 boots, 41 to 80 s each" in text
    assert "restores" not in text
    assert all(each in text for each in report.NOT_SHOWN)


def test_every_check_says_what_it_shows_and_begins_from_a_snapshot_that_is_made() -> None:
    assert all(check.work.__doc__ for check in run.ALL.values())
    assert {check.begins for check in run.ALL.values()} <= {"installed", *run.MAKERS}
    assert set(run.MAKERS.values()) <= run.ALL.keys()


def test_checks_run_in_their_order_behind_what_they_begin_from() -> None:
    everything = list(run.ALL)
    assert run.chosen([], lambda name: False) == everything
    assert run.chosen(["killed"], lambda name: False) == ["serve", "killed"]
    assert run.chosen(["killed"], lambda name: True) == ["killed"]
    assert run.chosen(["power-cuts", "facts"], lambda name: False) == ["facts", "power cuts"]


@pytest.mark.parametrize("seed", range(20))
def test_power_is_cut_in_every_part_of_up(seed: int) -> None:
    drawn = cuts.moments(seed, 100.0)
    assert [int(each // 10) for each in drawn] == list(range(10))
    assert drawn == cuts.moments(seed, 100.0), "a seed repeats them"


def test_what_jtop_must_give_are_fields_of_a_sample() -> None:
    wanted = json.loads(faults.JTOP_FIELDS.read_text())
    assert wanted
    assert set(wanted) <= {field.name for field in fields(Sample)}
