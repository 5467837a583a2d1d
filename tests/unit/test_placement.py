"""CPUs and threads: never one that is not there, never more threads than CPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts.device import Cpu
from orin_deploy.intent.placement import cpu_list, cpu_text, place
from orin_deploy.intent.spec import Setting

numbers = st.sets(st.integers(0, 63), min_size=1).map(lambda found: tuple(sorted(found)))


def cpu(online: tuple[int, ...], allowed: tuple[int, ...], siblings: tuple[tuple[int, ...], ...] = ()) -> Cpu:
    return Cpu(None, frozenset(), (), online, online, allowed, "none", siblings)


def values(**changes: object) -> dict[str, Setting]:
    base: dict[str, object] = {
        "placement.cpus": "auto", "placement.reserve_cpus": 0, "threads": "auto", "threads_batch": "auto"
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
