"""CPUs and threads: never one that is not there, never more threads than CPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts.device import Cluster, Cpu
from orin_deploy.intent.placement import cpu_list, cpu_text, place
from orin_deploy.intent.spec import Setting
from tests.planning import WORKSTATION, planned

numbers = st.sets(st.integers(0, 63), min_size=1).map(lambda found: tuple(sorted(found)))


def cpu(online: tuple[int, ...], allowed: tuple[int, ...], siblings: tuple[tuple[int, ...], ...] = ()) -> Cpu:
    return Cpu(None, frozenset(), (), online, online, allowed, "none", siblings)


def values(**changes: object) -> dict[str, Setting]:
    base: dict[str, object] = {
        "placement.cpus": "auto", "placement.reserve_cpus": 0, "threads": "auto", "threads_batch": "auto",
        "placement.draft_cpus": "none", "spec_draft_threads": None,
    }  # fmt: skip
    return {key: Setting(value, "--set") for key, value in {**base, **changes}.items()}  # type: ignore[arg-type]


@given(numbers)
def test_a_list_of_cpus_reads_back_as_written(cpus: tuple[int, ...]) -> None:
    assert cpu_list(cpu_text(cpus)) == cpus


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-", "-1", "0,,1", "1.5"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        cpu_list(text)


@given(numbers, numbers, st.integers(0, 70))
def test_the_server_only_gets_cpus_it_may_use(online: tuple[int, ...], allowed: tuple[int, ...], reserve: int) -> None:
    usable = set(online) & set(allowed)
    wish = values(**{"placement.reserve_cpus": reserve})
    if not usable:
        with pytest.raises(Refused):
            place(cpu(online, allowed), wish)
        return
    placed = place(cpu(online, allowed), wish)
    assert set(placed.cpus) <= usable
    assert 1 <= placed.threads <= len(placed.cpus)
    assert len(placed.cpus) == max(len(usable) - reserve, 1)


def test_the_system_keeps_the_lowest_cpu_because_interrupts_go_there() -> None:
    placed = place(cpu((0, 1, 2, 3), (0, 1, 2, 3)), values(**{"placement.reserve_cpus": 1}))
    assert placed.cpus == (1, 2, 3)
    assert placed.why == "1 left to the system"


def test_one_thread_a_core_where_cores_have_two() -> None:
    four = cpu((0, 1, 2, 3), (0, 1, 2, 3), ((0, 2), (1, 3)))
    assert place(four, values()).threads == 2
    assert place(four, values(threads=4)).threads == 4


def test_more_threads_than_cpus_is_refused_with_the_number_that_works() -> None:
    with pytest.raises(Refused) as refusal:
        place(cpu((0, 1), (0, 1)), values(threads=2048))
    assert refusal.value.hint is not None
    assert "threads=2" in refusal.value.hint


def test_an_offline_cpu_is_refused_with_those_that_can_be_used() -> None:
    with pytest.raises(Refused, match=r"CPU 4-5.*usable are 0-3"):
        place(cpu((0, 1, 2, 3), (0, 1, 2, 3, 4, 5)), values(**{"placement.cpus": "3-5"}))


# A draft in a process of its own.

DRAFT = {"placement.draft_cpus": "auto"}

# The clusters of every module (facts: lscpu captures, tegra234.dtsi, kernel bindings), and how many CPUs each of its
# power modes leaves on, the first ones always (nvpmodel.conf of JetPack 5 and 6; Thor: 7 pairs, of which 14 or 12).
BOARDS: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "agx-orin-64": ((4, 4, 4), {"MAXN": 12, "MODE_15W": 4, "MODE_30W": 8, "MODE_50W": 12}),
    "agx-orin-32": ((4, 4), {"MAXN": 8, "MODE_15W": 4, "MODE_30W": 8, "MODE_40W": 8}),
    "orin-nx-16": ((4, 4), {"MAXN_SUPER": 8, "10W": 4, "15W": 4, "25W": 8, "40W": 8}),
    "orin-nx-8": ((4, 2), {"MAXN_SUPER": 6, "10W": 4, "15W": 4, "20W": 6, "40W": 6}),
    "orin-nano-8": ((4, 2), {"15W": 6, "7W": 4, "25W": 6, "MAXN_SUPER": 6}),
    "orin-nano-4": ((4, 2), {"10W": 6, "7W_AI": 4, "7W_CPU": 4, "25W": 6, "MAXN_SUPER": 6}),
    "agx-xavier": ((2,) * 4, {"MAXN": 8, "MODE_10W": 2, "MODE_15W": 4, "MODE_30W_6CORE": 6, "MODE_30W_2CORE": 2}),
    "xavier-nx": ((2,) * 3, {"MODE_15W_2CORE": 2, "MODE_15W_4CORE": 4, "MODE_15W_6CORE": 6}),
    "thor": ((2,) * 7, {"MAXN": 14, "120W": 14, "90W": 12, "70W": 12}),
}
MODES = [(board, mode) for board, (_, modes) in BOARDS.items() for mode in modes]

# What the draft's process gets, with and without one CPU left to the system, by hand from the table above.
EXPECTED = {
    ((4, 4, 4), 12): ("8-11", "1-3"),
    ((4, 4, 4), 8): ("4-7", "1-3"),
    ((4, 4, 4), 4): ("3", "3"),
    ((4, 4), 8): ("4-7", "1-3"),
    ((4, 4), 4): ("3", "3"),
    ((4, 2), 6): ("4-5", "4-5"),
    ((4, 2), 4): ("3", "3"),
    ((2, 2, 2, 2), 8): ("6-7", "6-7"),
    ((2, 2, 2, 2), 6): ("4-5", "4-5"),
    ((2, 2, 2, 2), 4): ("2-3", "1"),
    ((2, 2, 2, 2), 2): ("1", "1"),
    ((2, 2, 2), 6): ("4-5", "4-5"),
    ((2, 2, 2), 4): ("2-3", "1"),
    ((2, 2, 2), 2): ("1", "1"),
    ((2,) * 7, 14): ("12-13", "12-13"),
    ((2,) * 7, 12): ("10-11", "10-11"),
}


def clustered(sizes: tuple[int, ...], on: int | None = None) -> Cpu:
    """Clusters of these sizes, the first `on` CPUs online."""
    numbers = iter(range(sum(sizes)))
    clusters = tuple(Cluster(tuple(next(numbers) for _ in range(size))) for size in sizes)
    present = tuple(range(sum(sizes)))
    return Cpu(None, frozenset(), clusters, present, present[:on], present, "cache")


@st.composite
def topologies(draw: st.DrawFn) -> Cpu:
    """Any machine of up to 24 CPUs: clusters of any shape and number, some CPUs off, some not allowed."""
    present = draw(st.lists(st.integers(0, 40), min_size=1, max_size=24, unique=True).map(sorted))
    home = {number: draw(st.integers(0, 5)) for number in present}
    groups = [tuple(n for n in present if home[n] == key) for key in sorted(set(home.values()))]
    clusters = tuple(Cluster(group) for group in groups if draw(st.booleans()) or len(group) > 1)
    threads = draw(st.booleans())
    siblings = tuple(tuple(group[i : i + 2]) for group in groups for i in range(0, len(group) - 1, 2) if threads)
    online, allowed = (tuple(sorted(draw(st.sets(st.sampled_from(present), min_size=1)))) for _ in range(2))
    return Cpu(None, frozenset(), clusters, tuple(present), online, allowed, "cache", siblings)


@given(topologies(), st.integers(0, 30))
def test_two_processes_share_no_cpu_and_the_server_has_the_larger_part(machine: Cpu, reserve: int) -> None:
    wish = values(**DRAFT, **{"placement.reserve_cpus": reserve})
    if len(machine.usable) < 2:
        with pytest.raises(Refused):
            place(machine, wish, draft=True)
        return
    placed = place(machine, wish, draft=True)
    server, drafting = set(placed.cpus), set(placed.draft_cpus)
    assert server
    assert drafting
    assert not server & drafting
    assert server | drafting <= set(machine.usable)
    assert len(server) >= len(drafting)
    assert len(server | drafting) == max(len(machine.usable) - reserve, 2)
    assert 1 <= placed.threads <= len(server)
    assert 1 <= placed.threads_batch <= len(server)
    assert 1 <= placed.draft_threads <= len(drafting)


@given(topologies(), st.integers(0, 3))
def test_no_cluster_of_two_or_more_is_torn_where_there_are_two(machine: Cpu, reserve: int) -> None:
    free = set(machine.usable[reserve:])
    shared = [free & set(cluster.cpus) for cluster in machine.clusters if len(free & set(cluster.cpus)) > 1]
    if len(shared) < 2 or len(machine.usable) - reserve < 2:
        return
    placed = place(machine, values(**DRAFT, **{"placement.reserve_cpus": reserve}), draft=True)
    assert not any(cluster & set(placed.cpus) and cluster & set(placed.draft_cpus) for cluster in shared)


@given(topologies(), st.integers(0, 30))
def test_without_a_draft_process_the_server_has_it_all(machine: Cpu, reserve: int) -> None:
    if not machine.usable:
        return
    placed = place(machine, values(**DRAFT, **{"placement.reserve_cpus": reserve}))
    assert placed.cpus == machine.usable[min(reserve, len(machine.usable) - 1) :]
    assert (placed.draft_cpus, placed.draft_threads) == ((), 0)


@pytest.mark.parametrize(("board", "mode"), MODES)
def test_each_board_in_each_of_its_power_modes(board: str, mode: str) -> None:
    sizes, modes = BOARDS[board]
    on = modes[mode]
    for reserve in (0, 1):
        placed = place(clustered(sizes, on), values(**DRAFT, **{"placement.reserve_cpus": reserve}), draft=True)
        drafting = cpu_list(EXPECTED[sizes, on][reserve])
        assert placed.draft_cpus == drafting
        first = reserve if on > 2 else 0  # of two CPUs none is left to the system: each process needs one
        assert placed.cpus == tuple(n for n in range(first, on) if n not in drafting)
        assert (placed.threads, placed.draft_threads) == (len(placed.cpus), len(drafting))


def test_what_is_left_of_small_clusters_makes_one_together() -> None:
    placed = place(clustered((4, 1, 1)), values(**DRAFT), draft=True)
    assert (placed.cpus, placed.draft_cpus) == ((0, 1, 2, 3), (4, 5))
    alone = place(clustered((1,) * 8), values(**DRAFT), draft=True)
    assert (alone.cpus, alone.draft_cpus) == ((0, 1, 2, 3, 4, 5), (6, 7))


def test_hardware_threads_of_a_core_stay_in_one_process() -> None:
    eight = replace(clustered((8,)), thread_siblings=((0, 4), (1, 5), (2, 6), (3, 7)))
    placed = place(eight, values(**DRAFT), draft=True)
    assert (placed.cpus, placed.draft_cpus) == ((0, 1, 2, 4, 5, 6), (3, 7))
    assert (placed.threads, placed.draft_threads) == (3, 1)


def test_what_is_asked_for_stands_and_the_other_process_gets_the_rest() -> None:
    machine = clustered((4, 4))
    placed = place(machine, values(**{"placement.draft_cpus": "0-1"}), draft=True)
    assert (placed.cpus, placed.draft_cpus) == ((2, 3, 4, 5, 6, 7), (0, 1))
    placed = place(machine, values(**{**DRAFT, "placement.cpus": "4-7"}), draft=True)
    assert (placed.cpus, placed.draft_cpus) == ((4, 5, 6, 7), (0, 1, 2, 3))
    assert placed.why == "placement.cpus (--set), CPU 0-3 for the draft's process"
    kept = place(machine, values(**{"placement.draft_cpus": "4-7", "placement.reserve_cpus": 1}), draft=True)
    assert (kept.cpus, kept.why) == ((1, 2, 3), "1 left to the system, CPU 4-7 for the draft's process")
    assert place(machine, values(**{**DRAFT, "spec_draft_threads": 1}), draft=True).draft_threads == 1


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"placement.draft_cpus": "2", "placement.cpus": "0-2"}, "both name CPU 2"),
        ({"placement.draft_cpus": "7-9"}, "placement.draft_cpus names CPU 8-9, which cannot be used here"),
        ({"placement.draft_cpus": "0-7"}, "CPUs of their own"),
        ({"placement.draft_cpus": "auto", "placement.cpus": "0-7"}, "CPUs of their own"),
        ({"placement.draft_cpus": "0", "spec_draft_threads": 2}, r"spec_draft_threads=2 \(--set\) is more than the 1"),
    ],
)
def test_what_cannot_be_is_refused(wish: dict[str, object], words: str) -> None:
    with pytest.raises(Refused, match=words) as refusal:
        place(clustered((4, 4)), values(**wish), draft=True)
    assert refusal.value.hint


def test_waiting_threads_give_way_on_a_workstation_and_a_board_is_left_as_it_is() -> None:
    assert dict(planned("host", device=WORKSTATION).spec.service.env) == {"GOMP_SPINCOUNT": "1000"}
    assert planned("agx32").spec.service.env == ()
