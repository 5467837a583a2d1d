"""Options: the table against the real binary's help, names, values, rendering."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import Refused, UsageError
from orin_deploy.intent import options
from orin_deploy.intent.option_table import CACHE_TYPES, OWN, OWNED, RENAMED, SERVER, Option
from orin_deploy.intent.options import find, flags_in, parse, render
from orin_deploy.intent.spec import Value

GOLDEN = Path(__file__).parents[1] / "golden/options/options.txt"
SETTABLE = tuple(row for row in (*SERVER, *OWN) if row.owned is None and row.kind != "map")

OLD_HELP = """\
-fa,   --flash-attn                     enable Flash Attention (default: disabled)
-md,   --model-draft FNAME              draft model for speculative decoding
-ngl,  --gpu-layers, --n-gpu-layers N   number of layers to store in VRAM
--spec-type none,draft-simple,ngram-mod
                                        comma-separated list of types
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
--no-host                               bypass host buffer
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading
"""


def _help(engine_bin: Path) -> str:
    return subprocess.run([engine_bin / "llama-server", "--help"], capture_output=True, text=True, check=True).stdout


@pytest.mark.engine
def test_the_table_is_the_real_help(engine_bin: Path) -> None:
    flags = flags_in(_help(engine_bin))
    rows = {name: row for row in (*SERVER, *OWNED) for name in (*row.flags[0], *row.flags[1])}
    assert set(flags) == set(rows)
    for name, flag in flags.items():
        row = rows[name]
        assert (set(flag.names), set(flag.negative)) == (set(row.flags[0]), set(row.flags[1]))
        assert row.key == next(n for n in flag.names if n.startswith("--"))[2:].replace("-", "_")
        if row.owned is None:
            shape = {None: "pair" if flag.negative else "bare", "<0|1>": "digit", "START END": "two"}
            assert row.form == shape.get(flag.value, "value"), row.key
            assert not flag.choices or set(flag.choices) in (set(row.choices), {"0", "1"}), row.key
    listed = re.findall(r"allowed values: ([a-z0-9_]+(?:, [a-z0-9_]+)+)", _help(engine_bin))
    assert [set(types.split(", ")) for types in listed] == [set(CACHE_TYPES)] * 4


@pytest.mark.engine
def test_what_the_help_calls_removed_is_named_by_todays_name(engine_bin: Path) -> None:
    removed = re.findall(r"^(--\S.*?) N\s+the argument has been removed", _help(engine_bin), re.MULTILINE)
    names = [name for line in removed for name in line.split(", ")]
    assert len(names) >= 5
    for name in names:
        with pytest.raises(UsageError) as caught:
            find(name)
        assert (caught.value.hint or "").startswith("use spec_")


def _examples(option: Option, folder: Path) -> list[Value]:
    """Values at the bounds, every word, and for free text something llama-server reads without a model."""
    special: dict[str, Value] = {
        "override_tensor": "x=CPU", "spec_draft_override_tensor": "x=CPU", "override_kv": "a=int:1",
        "lora_scaled": "a:1", "control_vector_scaled": "a:1", "logit_bias": "15043+1", "json_schema": "{}",
        "chat_template_kwargs": "{}", "ui_config": "{}", "device": "none", "spec_draft_device": "none",
        "mmproj_device": "none", "control_vector_layer_range": "1,2", "tensor_split": "3,1", "samplers": "top_k;temp",
        "sampler_seq": "kt", "spec_synth_rates": "0.5,0.25", "host": "127.0.0.1", "grammar": 'root ::= "a"',
        "dry_sequence_breaker": "none", "reasoning_effort": "low", "chat_template": "chatml",
    }  # fmt: skip
    if option.key in special:
        return [special[option.key]]
    if option.kind == "bool":
        return [True, False]
    if option.kind in ("enum", "list") and option.choices:
        return list(option.choices)
    if option.kind in ("int", "float"):
        bounds = [bound for bound in (option.low, option.high) if bound is not None] or [0.5]
        return [*(int(b) if option.kind == "int" else float(b) for b in bounds), *option.choices]
    if option.key.endswith(("_dir", "_path")) or option.key == "path":
        return [str(folder)]
    file = folder / option.key
    file.write_text('root ::= "a"' if option.key == "grammar_file" else "{}")
    return [str(file)]


@pytest.mark.engine
def test_the_real_server_takes_every_option_at_its_bounds(engine_bin: Path, tmp_path: Path) -> None:
    # --rpc is left out: it connects while it is parsed.
    rows = [row for row in SERVER if row.owned is None and row.key != "rpc"]
    examples = {row.key: _examples(row, tmp_path) for row in rows}
    text = _help(engine_bin)
    for i in range(max(map(len, examples.values()))):
        settings = {key: values[min(i, len(values) - 1)] for key, values in examples.items()}
        words: list[str | Path] = [engine_bin / "llama-server", *render(settings, text), "--version"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "DEPRECATED" not in done.stderr


@pytest.mark.engine
def test_help_and_table_render_the_same_words(engine_bin: Path, tmp_path: Path) -> None:
    settings = {row.key: _examples(row, tmp_path)[0] for row in SERVER if row.owned is None}
    assert render(settings, _help(engine_bin)) == render(settings, None)


def test_names_are_unique() -> None:
    taken: dict[str, str] = {}
    for row in (*SERVER, *OWN, *OWNED):
        for name in options.names(row):
            assert taken.setdefault(name, row.key) == row.key


def test_every_row_reads_well() -> None:
    for row in (*SERVER, *OWN):
        assert row.owned or row.help[-1] in ".…", row.key
        assert row.cost in ("request", "restart", "rebuild", "reboot")
        assert row.default is None or parse(row, row.default) == row.default
        for value in row.candidates:
            assert parse(row, value) == value


def test_every_option_as_people_see_it() -> None:
    lines = [
        f"{row.key:32} {row.cost:8} {'-' if row.default is None else options.written(row.default):10} "
        + (f"not settable: {row.owned}" if row.owned else options.allowed(row))
        for row in (*SERVER, *OWN, *OWNED)
    ]
    assert "\n".join(lines) + "\n" == GOLDEN.read_text(), f"if the change is meant, write it to {GOLDEN.name}"


@pytest.mark.parametrize(
    "name",
    ["ctx_size", "ctx-size", "--ctx-size", "-c", "c", "build.blas", "n_gpu_layers", "ngl", "build.cmake.GGML_LTO"],
)
def test_names_that_are_found(name: str) -> None:
    known = {"c": "ctx_size", "ngl": "gpu_layers", "n_gpu_layers": "gpu_layers"}
    plain = name.lstrip("-").replace("-", "_")
    assert find(name).key == known.get(plain, plain)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("draft_max", "spec_draft_n_max"), ("draft-n-max", "spec_draft_n_max"), ("draft_min", "spec_draft_n_min"),
        ("no-mmap", "load_mode"), ("mlock", "load_mode"), ("ctx_size_draft", "ctx_size"), ("n_ctx", "ctx_size"),
        ("no_warmup", "warmup=off"), ("ctx_sise", "ctx_size"), ("blas", "build.blas"), ("build.blass", "build.blas"),
        ("n_gpu_layer", "gpu_layers"),
        ("build.cmake.GGML_CUDAA", "GGML_CUDA"), ("build.cmake.LLAMA_CUBLAS", "build.cuda"),
        ("build.cmake.GGML_CUDA_F16", "always on"), ("build.cmake.GGML_CUDA", "build.cuda"),
        ("spec_replace", "leave it out"),
    ],
)  # fmt: skip
def test_other_names_are_refused_with_the_right_one(name: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        find(name)
    assert says in (caught.value.hint or "")
    assert name.removeprefix("build.cmake.") in caught.value.message


def test_renamed_names_lead_to_options_that_exist() -> None:
    for name, old in RENAMED.items():
        for key in (*old.keys, *re.findall(r"^[a-z_.0-9]+|(?<=or )spec_\w+", old.today)):
            assert find(key.format(kind="map_k")).key == key.format(kind="map_k"), name


@pytest.mark.parametrize(
    ("key", "raw", "value"),
    [
        ("ctx_size", "4096", 4096), ("ctx_size", 4096.0, 4096), ("ctx_size", "auto", "auto"),
        ("gpu_layers", "all", "all"),
        ("flash_attn", "on", "on"), ("warmup", "off", False), ("warmup", True, True), ("temp", "0.8", 0.8),
        ("temp", 1, 1.0), ("spec_type", "draft,ngram-mod", "draft-simple,ngram-mod"), ("alias", ["a", "b"], "a,b"),
        ("spec_type", ["dspark"], "draft-dspark"), ("build.cuda_architectures", [87, "110a"], "87,110a"),
        ("build.cuda_architectures", 87, "87"), ("build.fa_quants", "all", "all"), ("build.blas", "on", True),
        ("build.fa_quants", "q8_0-q4_0;f16-f16", "q8_0-q4_0,f16-f16"), ("placement.cpus", "0-3,6", "0-3,6"),
        ("placement.cpus", 3, "3"), ("build.engine", "auto", None), ("build.cmake.GGML_LTO", "on", "ON"),
        ("build.cmake.GGML_LTO", True, "ON"), ("tensor_split", [0.5, 1], "0.5,1"), ("fit", "off", "off"),
        ("model", "hf:a/b:Q4_0", "hf:a/b:Q4_0"),
    ],
)  # fmt: skip
def test_values_that_are_read(key: str, raw: object, value: Value) -> None:
    read = parse(find(key), raw)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        ("ctx_size", "many"), ("ctx_size", 0), ("ctx_size", 2**31), ("ctx_size", True), ("ctx_size", ""),
        ("ctx_size", None),
        ("ctx_size", "1_000"), ("ctx_size", "٣"), ("ctx_size", 4.5), ("port", 65536), ("port", -1), ("top_p", "nan"),
        ("top_p", float("inf")), ("top_p", 1.1), ("temp", "1e9999"), ("flash_attn", True), ("flash_attn", "yes"),
        ("warmup", "yes"), ("warmup", 1), ("cache_type_k", "q3_0"), ("alias", "a\nb"), ("alias", "\ud800"),
        ("alias", []),
        ("alias", {"a": 1}), ("spec_type", "draft,foo"), ("build.cuda_architectures", "native"), ("cache_ram", -1),
        ("build.cuda_architectures", ""), ("build.cuda_architectures", []), ("build.arm_arch", "native"),
        ("build.fa_quants", "q8_0"), ("build.fa_quants", "f32-f32"), ("placement.cpus", "all"), ("host", "a,b"),
        ("host", "/run/a.sock"), ("host", "a.sock"), ("build.cmake", "A=1"), ("build.cmake.A", ""), ("fit", "on"),
        ("verbosity", 3), ("tools", "all"), ("api_key", "secret"), ("log_file", "x"), ("slots", "off"),
        ("hf_repo", "a/b"),
    ],
)  # fmt: skip
def test_values_that_are_refused(key: str, raw: object) -> None:
    with pytest.raises(UsageError) as caught:
        parse(find(key), raw)
    assert key.partition(".cmake")[0] in caught.value.message


def test_a_refusal_names_key_value_and_what_is_allowed() -> None:
    with pytest.raises(UsageError) as caught:
        parse(find("cache_type_v"), "q3")
    assert 'cache_type_v cannot be "q3"' in caught.value.message
    assert "q8_0" in caught.value.message
    with pytest.raises(UsageError, match="87"):
        parse(find("build.cuda_architectures"), "native")


@pytest.mark.parametrize(
    ("key", "raw", "meant"),
    [("spec_type", "draft,ngrm-mod", "ngram-mod"), ("cache_type_k", "q8", "q8_0"), ("split_mode", "layers", "layer")],
)
def test_a_misspelt_word_is_answered_with_the_nearest(key: str, raw: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(find(key), raw)
    assert caught.value.hint == f"did you mean {meant}?"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)


@given(st.sampled_from(SETTABLE), anything)
def test_any_value_is_read_or_refused_and_what_is_read_reads_again(option: Option, raw: object) -> None:
    try:
        value = parse(option, raw)
    except UsageError:
        return
    if value is not None:
        assert parse(option, value) == value
        assert parse(option, options.written(value)) == value  # --set says the same as YAML


@given(st.text())
def test_any_name_is_found_or_refused(name: str) -> None:
    with suppress(UsageError):
        assert find(name).key


@given(st.text())
def test_any_text_is_a_help(text: str) -> None:
    assert isinstance(flags_in(text), dict)


def test_an_older_help_decides_spelling_and_shape() -> None:
    assert render({"flash_attn": "on"}, OLD_HELP) == ("--flash-attn",)
    assert render({"flash_attn": "off"}, OLD_HELP) == ()
    assert render({"flash_attn": "on"}, "-fa,   --flash-attn [on|off|auto]       set use\n") == ("--flash-attn", "on")
    assert render({"spec_draft_model": "d"}, OLD_HELP) == ("--model-draft", "d")
    assert render({"spec_draft_model": "d"}, "-md,   --spec-draft-model, --model-draft FNAME\n") == (
        "--model-draft",
        "d",
    )
    assert render({"kv_offload": False, "no_host": True, "gpu_layers": 3}, OLD_HELP) == (
        "--no-kv-offload", "--no-host", "--gpu-layers", "3",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"warmup": True}, "--warmup"),
        ({"spec_type": "draft-dspark"}, "draft-dspark"),
        ({"spec_draft_n_max": 3}, "n_max"),
    ],
)
def test_what_the_binary_lacks_is_refused(settings: dict[str, Value], says: str) -> None:
    with pytest.raises(Refused) as caught:
        render(settings, OLD_HELP)
    assert says in caught.value.message
    assert caught.value.hint


def test_words_of_every_form() -> None:
    settings: dict[str, Value] = {
        "metrics": False, "swa_full": True, "warmup": False, "jinja": True, "poll_batch": True, "cpu_strict": False,
        "control_vector_layer_range": "4,20", "ctx_size": 4096, "temp": 0.9, "predict": None,
    }  # fmt: skip
    assert " ".join(render(settings, None)) == (
        "--cpu-strict 0 --poll-batch 1 --ctx-size 4096 --swa-full --control-vector-layer-range 4 20 "
        "--temp 0.9 --no-warmup --jinja"
    )


def test_what_is_undecided_is_never_rendered() -> None:
    with pytest.raises(ValueError, match="ctx_size"):
        render({"ctx_size": "auto"}, None)
    with pytest.raises(ValueError, match="blas"):
        render({"build.blas": True}, None)


def test_rpc_comes_before_the_devices_it_brings() -> None:
    words = render({"spec_draft_device": "RPC0", "device": "none", "rpc": "127.0.0.1:50052"}, None)
    assert words.index("--rpc") < min(words.index("--device"), words.index("--spec-draft-device"))
