"""What llama-server's words mean. The lines are its own, from real runs of build 0c1e570 unless marked older."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.host.processes import START_MARK
from orin_deploy.parts import serverlog
from orin_deploy.parts.serverlog import Buffer

BUILD = "0.00.002.914 I cmn  common_param: common_params_print_info: build 6402 (0c1e570) with GNU 12.2.0 for Linux"
LOADED = """\
0.00.133.940 I load_tensors: offloaded 31/31 layers to GPU
0.00.133.953 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB
0.00.135.119 I llama_context:        CPU  output buffer size =     0.19 MiB
0.00.135.213 I llama_kv_cache:        CPU KV buffer size =    45.00 MiB
0.00.158.339 I llama_kv_cache: size =   45.00 MiB (  2048 cells,  30 layers,  1/1 seqs), K (f16):   22.50 MiB
0.00.163.448 I sched_reserve:        CPU compute buffer size =    15.51 MiB
0.00.241.985 I srv  llama_server: model loaded
""".splitlines()

FAILURES = [
    ("error: invalid argument: --no-mmap", "has no option --no-mmap"),
    ('error while handling argument "-ctk": Unsupported cache type: zz', "value of -ctk: Unsupported cache type: zz"),
    ('error while handling argument "-c": stoi', "wants a number for -c"),
    (
        'error while handling argument "--draft-max": the argument has been removed. use --spec-draft-n-max',
        "--draft-max: the argument has been removed. use --spec-draft-n-max",
    ),
    (
        "bin/llama-server: error while loading shared libraries: libllama-server-impl.so: cannot open shared object "
        "file: No such file or directory",
        "libllama-server-impl.so is missing",
    ),
    ("taskset: failed to execute /nonexistent/llama-server: No such file or directory", "/nonexistent/llama-server"),
    ("taskset: failed to set pid 10451's affinity: Invalid argument", "none of the CPUs"),
    (
        "0.00.002.241 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 18232",
        "127.0.0.1 port 18232",
    ),
    (
        "llama_model_load: error loading model: unknown model architecture: 'lxama'",
        "does not know the architecture lxama",
    ),
    ("llama_model_load: error loading model: unknown model architecture: ''", "empty architecture"),
    (
        "0.00.031.206 E llama_model_load: error loading model: error loading model vocabulary: "
        "unknown pre-tokenizer type: 'smxllm'",
        "does not know the pre-tokenizer smxllm",
    ),
    (
        "0.00.012.679 E llama_model_load: error loading model: tensor 'blk.16.ffn_down.weight' data is not within the "
        "file bounds, model is corrupted or incomplete",
        "truncated or corrupt",
    ),
    ("0.00.003.449 E gguf_init_from_reader: invalid magic characters: '<htm', expected 'GGUF'", "not a GGUF file"),
    ("0.00.003.472 E gguf_init_from_reader: failed to read magic", "not a GGUF file"),
    ("0.00.012.599 E gguf_init_from_reader: failed to read key-value pairs", "truncated or corrupt"),
    ("gguf_init_from_reader: tensor 'x' has invalid ggml type 99. should be in [0, 42)", "newer than the binary"),
    (
        "0.00.003.731 E gguf_init_from_file: failed to open GGUF file 'perm.gguf' (Permission denied)",
        "perm.gguf cannot be opened: Permission denied",
    ),
    ("llama_init_from_model: quantized V cache requires flash_attn to be enabled", "flash attention"),
    (
        "E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
        "out of memory",
    ),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "out of memory"),
    ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "GPU could not get the memory"),
    ("  cuMemAddressReserve(&pool_addr, CUDA_POOL_VMM_MAX_SIZE, 0, 0, 0)", "address space"),
    ("NvRmMemInitNvmap failed with Permission denied", "/dev/nvmap"),
]


@pytest.mark.parametrize(("line", "expected"), FAILURES)
def test_each_failure_is_named(line: str, expected: str) -> None:
    # What follows a cause in a real log must not hide it.
    after = [
        "0.00.012.697 E llama_model_load_from_file_impl: failed to load model",
        "llama_model_load: error loading model: llama_model_loader: failed to load model from x.gguf",
        "0.00.013.051 E srv  llama_server: exiting due to model loading error",
    ]
    found = serverlog.reason([BUILD, line, *after])
    assert found is not None
    message, hint = found
    assert expected in message
    assert hint


def test_the_build_is_named_where_the_model_is_newer() -> None:
    line = "llama_model_load: error loading model: unknown model architecture: 'qwen9'"
    assert "(build 6402, 0c1e570)" in (serverlog.reason([BUILD, line]) or ("",))[0]
    older = "main: build = 3680 (947538ac)"
    assert "(build 3680, 947538ac)" in (serverlog.reason([older, line]) or ("",))[0]


def test_a_healthy_log_gives_no_reason() -> None:
    assert serverlog.reason([BUILD, *LOADED]) is None
    assert serverlog.reason([]) is None


def test_only_the_last_start_counts() -> None:
    failed = [f"{START_MARK}, start 1", "error: invalid argument: --no-mmap"]
    assert serverlog.reason([*failed, f"{START_MARK}, start 2", *LOADED]) is None
    assert serverlog.memory_rows([*LOADED, *failed]) == ()
    assert serverlog.offloaded([*LOADED, *failed]) is None
    assert [len(lines) for lines in serverlog.starts([*LOADED, *failed])] == [len(LOADED), 2]


def test_memory_rows() -> None:
    mib = 1024 * 1024
    assert serverlog.memory_rows(LOADED) == (
        Buffer("CPU_Mapped", "model", round(92.10 * mib)),
        Buffer("CPU", "output", round(0.19 * mib)),
        Buffer("CPU", "KV", 45 * mib),
        Buffer("CPU", "compute", round(15.51 * mib)),
    )


@given(st.sampled_from(["load_tensors:", "llm_load_tensors:", "1.02.003.004 I srv whatever:"]), st.integers(0, 10**9))
def test_memory_is_recognised_by_the_tail(prefix: str, hundredths: int) -> None:
    line = f"{prefix} RPC0[127.0.0.1:50052] model buffer size = {hundredths / 100:.2f} MiB"
    (row,) = serverlog.memory_rows([line])
    assert (row.device, row.kind) == ("RPC0[127.0.0.1:50052]", "model")
    assert abs(row.bytes - hundredths / 100 * 1024 * 1024) <= 1


def test_offload_and_time_to_ready() -> None:
    assert serverlog.offloaded(LOADED) == (31, 31)
    assert serverlog.seconds_to_ready(LOADED) == pytest.approx(0.241985)
    assert serverlog.seconds_to_ready(["2.03.500.000 I srv  llama_server: model loaded"]) == pytest.approx(123.5)
    assert serverlog.seconds_to_ready(["no time here"]) is None


@given(st.lists(st.text(max_size=80), max_size=20))
def test_any_text_can_be_read(lines: list[str]) -> None:
    serverlog.reason(lines)
    serverlog.memory_rows(lines)
    serverlog.offloaded(lines)
