"""Rules about the context and the KV cache: how large, of which type, and what that type needs."""

from __future__ import annotations

from collections.abc import Mapping

from orin_deploy.doctor.evidence import CacheSpeed, Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.facts.device import MIB
from orin_deploy.facts.gguf_types import BY_NAME
from orin_deploy.intent import options
from orin_deploy.intent.serving import STEP, padded

_NEEDS = r"V cache quantization requires flash_attn|quantized V cache was requested, but this requires Flash Attention"
_NOT_QUANTISED = ("f32", "f16", "bf16")
_MUCH_SLOWER, _ABOUT_THE_SAME = 2.0, 0.15


def v_quant_needs_flash_attention(evidence: Evidence) -> Finding | None:
    """Values of the KV cache that are quantised without the kernel that can read them, asked for or met in a log."""
    kind, off = evidence.kv_v, evidence.flash_attn == "off"
    asked = kind is not None and kind not in _NOT_QUANTISED and kind.upper() in BY_NAME
    met = evidence.find(_NEEDS)
    if not (asked and off) and met is None:
        return None
    repeats = evidence.find(r"restart counter is at (\d+)|status=11/SEGV")
    crash = "; the exit by signal 11 is this same setting, and a restart does not change it" if repeats else ""
    why = "no Python package of that name is missing: flash attention is an option of llama-server"
    return Finding(
        "kv.v-quant-needs-fa",
        "refuse" if asked and off else "diagnose",
        f"a KV cache with {kind.upper() if asked and kind else 'quantised'} values needs flash attention (Flash "
        f"Attention in llama.cpp's words), which is off{crash}",
        "--set flash_attn=on, or leave the values as they are: --set cache_type_v=f16",
        why_not=why,
        values={"cache_type_v": kind} if asked else {},
    )


def quant_slower(evidence: Evidence) -> Finding | None:
    """A quantised KV cache that costs most of the prompt speed: there is no fast kernel for it and this model."""
    speeds = {speed.kind: speed for speed in evidence.kv_speeds}
    plain = speeds.get("f16")
    slow = [
        speed
        for speed in evidence.kv_speeds
        if plain is not None and speed.kind not in _NOT_QUANTISED and plain.prompt > _MUCH_SLOWER * speed.prompt
    ]
    if plain is None or not slow:
        return None
    worst = min(slow, key=lambda speed: speed.prompt)
    return Finding(
        "kv.quant-slower-keep-f16",
        "plan",
        f"prompts run at {plain.prompt:g} tokens/s with an f16 KV cache and at {worst.prompt:g} with {worst.kind}: "
        "this engine has no fast kernel for that type and this model's heads",
        "keep f16 and take a smaller context instead: --set cache_type_k=f16 --set cache_type_v=f16 --set ctx_size=N",
        why_not="the power mode and the clocks are not at fault: generation is about the same with both"
        if _generates_alike(plain, worst)
        else None,
        values={"chosen": "f16", "slower": {speed.kind: round(plain.prompt / speed.prompt, 1) for speed in slow}},
    )


def _generates_alike(one: CacheSpeed, other: CacheSpeed) -> bool:
    """Whether generation was measured with both, and is about the same."""
    if not one.generation or not other.generation:
        return False
    return abs(one.generation - other.generation) <= _ABOUT_THE_SAME * max(one.generation, other.generation)


def context_too_big(evidence: Evidence) -> Finding | None:
    """A context whose KV cache is larger than the room for it, with the contexts that do fit."""
    shape, tokens, room = evidence.shape, evidence.ctx_wanted, evidence.kv_limit_bytes
    if tokens is None or room is None or not (each := _token_bytes(shape, "f16")):
        return None
    kind = evidence.kv_v if evidence.kv_v and evidence.kv_v.upper() in BY_NAME else "f16"
    needed = padded(tokens) * (_token_bytes(shape, kind) or each)
    if needed <= room:
        return None
    most = {
        name: room // size // STEP * STEP for name in ("f16", "q8_0", "q4_0") if (size := _token_bytes(shape, name))
    }
    fits = ", ".join(f"{size} tokens with {name}" for name, size in most.items())
    return Finding(
        "ctx.too-big",
        "refuse",
        f"a context of {tokens} needs a KV cache of {needed // MIB} MiB ({kind}), and {room // MIB} MiB are there for "
        f"it; the largest that fits is {fits}",
        f"--set ctx_size={most['f16']}; or "
        f"--set ctx_size={most['q8_0']} --set cache_type_k=q8_0 --set cache_type_v=q8_0",
        values={"kv_bytes": needed, "kv_limit_bytes": room, **{f"max_ctx_{name}": size for name, size in most.items()}},
    )


def always_explicit(evidence: Evidence) -> Finding | None:
    """A profile that leaves the context to the engine, whose default has been three things over the years."""
    trained = evidence.shape.get("context")
    if evidence.ctx_given is not False or trained is None:
        return None
    words = options.render({"ctx_size": STEP}, None)
    return Finding(
        "ctx.always-explicit",
        "plan",
        f"no context is given: by its age an engine takes all {trained} tokens of the training, 4096, or what it "
        "believes to fit",
        "nothing is to be done with orin-deploy, which fits the context to memory and always passes it; else give -c",
        why_not="a model that loads with one build and not with the next has not changed",
        values={"flag_c_present": bool({"-c", "--ctx-size"} & set(words)), "n_ctx_train": trained},
    )


def _token_bytes(shape: Mapping[str, int], kind: str) -> int:
    """Bytes of KV cache for one token in all blocks; 0 where the header does not say enough."""
    heads, keys, values = (shape.get(name, 0) for name in ("heads_kv", "key", "value"))
    block = BY_NAME[kind.upper()]
    if not (heads and keys and values) or any(heads * size % block.block for size in (keys, values)):
        return 0
    return shape.get("blocks", 0) * (block.row_bytes(heads * keys) + block.row_bytes(heads * values))
