"""Diagnose: every rule asked about the evidence, the findings ordered by gravity."""

from __future__ import annotations

from collections.abc import Callable

from orin_deploy.doctor import (
    arch,
    bench,
    build,
    cache,
    container,
    cpus,
    flags,
    gguf,
    gpu,
    jtop,
    memory,
    memory_lack,
    power,
    server,
    speculation,
    start,
    toolchain,
    trials,
    units,
)
from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import SEVERITY, Finding

Rule = Callable[[Evidence], "Finding | None"]

# Name and rule; findings of equal gravity keep this order.
RULES: tuple[tuple[str, Rule], ...] = (
    ("gpu.no-kernel-image", gpu.no_kernel_image),
    ("gpu.launch-resources", gpu.launch_resources),
    ("container.no-nvidia-runtime", container.no_nvidia_runtime),
    ("gguf.newer-than-binary", gguf.newer_than_binary),
    ("gguf.arch-empty", gguf.architecture_empty),
    ("build.no-cuda-backend-produced", build.no_cuda_backend),
    ("build.unsupported-jetpack4", toolchain.unsupported_jetpack4),
    ("build.unused-cmake-variable", toolchain.unknown_flag),
    ("build.known-bad-revision", toolchain.known_bad_revision),
    ("build.gcc-too-old-neon", toolchain.gcc_too_old),
    ("build.arch-empty", arch.empty),
    ("build.arch-not-in-toolkit", arch.not_in_toolkit),
    ("build.artifact-arch-mismatch", arch.artifact_mismatch),
    ("build.arch-from-board", arch.from_board),
    ("build.toolkit-not-jetpack", toolchain.toolkit_not_jetpack),
    ("build.cmake-version", toolchain.cmake_version),
    ("build.known-good-flags", toolchain.known_good_flags),
    ("power.table-for-other-module", power.table_for_other_module),
    ("power.table-below-profile", power.table_below_profile),
    ("power.oc-alarm", power.oc_alarm),
    ("power.sysfs-late", power.sysfs_late),
    ("power.pending-reboot", power.pending_reboot),
    ("power.mode-differs", power.mode_differs),
    ("power.clocks-locked", power.clocks_locked),
    ("cpu.threads-gt-online", cpus.threads_gt_online),
    ("cpu.mask-not-applied", cpus.mask_not_applied),
    ("cpu.fast-cluster", cpus.fast_cluster),
    ("jtop.no-power-mode", jtop.no_power_mode),
    ("jtop.socket-is-directory", jtop.socket_is_directory),
    ("jtop.unit-or-group-missing", jtop.unit_or_group_missing),
    ("jtop.gpu-missing", jtop.gpu_missing),
    ("jtop.unknown-l4t", jtop.unknown_l4t),
    ("service.ordering-cycle", units.ordering_cycle),
    ("tune.telemetry-gap", trials.telemetry_gap),
    ("tune.objective", trials.objective),
    ("bench.unlike-records", bench.unlike_records),
    ("tune.noisy", bench.noisy),
    ("tune.cache-state-differs", trials.cache_state_differs),
    ("upgrade.rollback-to-last-good", trials.rollback),
    ("mem.vmm-reserve", memory_lack.vmm_reserve),
    ("mem.cotenant-nvml-assert", memory_lack.nvml_assert),
    ("mem.does-not-fit", memory_lack.does_not_fit),
    ("mem.fit-double-count", memory_lack.fit_double_count),
    ("mem.fragmented", memory_lack.fragmented),
    ("mem.swapping-during-decode", memory_lack.swapping),
    ("mem.reading-implausible", memory.reading_implausible),
    ("mem.prompt-cache-too-big", memory.prompt_cache_too_big),
    ("mem.zram-and-desktop", memory.zram_and_desktop),
    ("mem.budget-from-memavailable", memory.budget_from_available),
    ("service.memlock", memory.memlock),
    ("kv.v-quant-needs-fa", cache.v_quant_needs_flash_attention),
    ("kv.quant-slower-keep-f16", cache.quant_slower),
    ("ctx.too-big", cache.context_too_big),
    ("ctx.always-explicit", cache.always_explicit),
    ("flags.invalid-argument", flags.invalid_argument),
    ("profile.unknown-key", flags.unknown_key),
    ("flags.duplicate", flags.duplicate),
    ("flags.arity", flags.arity),
    ("flags.enum-translated", flags.enum_translated),
    ("flags.prefer-common-spelling", flags.common_spelling),
    ("spec.vocab-mismatch", speculation.vocab_mismatch),
    ("spec.vocab-type-mismatch", speculation.vocab_type_mismatch),
    ("ctx.prompt-too-long", speculation.prompt_too_long),
    ("spec.low-acceptance", speculation.low_acceptance),
    ("spec.kind-missing", speculation.kind_missing),
    ("spec.draft-ctx-smaller", speculation.draft_ctx_smaller),
    ("spec.per-workload", speculation.per_workload),
    ("spec.disable-when-slower", speculation.disable_when_slower),
    ("service.start-timeout", start.start_timeout),
    ("service.readiness", start.readiness),
    ("service.group-video", start.group_video),
)


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """What the rules find, gravest first; empty when nothing is wrong. Every rule speaks once, model files one each."""
    found = [*gguf.model_files(evidence), *build.log_causes(evidence)]
    named = {finding.rule for finding in found}
    found += [finding for name, rule in RULES if name not in named and (finding := rule(evidence)) is not None]
    if all(finding.verdict not in ("refuse", "diagnose") for finding in found):
        found += [finding for finding in (server.not_ready(evidence),) if finding is not None]
    return tuple(sorted(found, key=lambda finding: SEVERITY.index(finding.verdict)))
