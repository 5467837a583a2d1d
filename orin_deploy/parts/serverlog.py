"""What llama-server's own words mean: why it ended, what memory it took, how many layers it offloaded. Pure.

Line prefixes, function names and levels have changed over the releases, so everything is recognised by its tail.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orin_deploy.host.processes import START_MARK
from orin_deploy.parts import out_of_memory

_FETCH_AGAIN = "remove the file and run the same command again: it is fetched and checked anew"
_NEWER = "serve it with a newer llama.cpp (see `build.source`), or choose a model that this build knows"
_LESS_MEMORY = "--set ctx_size=N with a smaller N, cache_type_k=q8_0 and cache_type_v=q8_0, or a smaller model"


@dataclass(frozen=True)
class Buffer:
    """Memory the server says it took: the device ("CPU", "CUDA0", "CUDA_Host" …), the kind, bytes.

    Kinds are "model", "KV", "RS" (recurrent state), "compute" and "output".
    """

    device: str
    kind: str
    bytes: int


@dataclass(frozen=True)
class _Rule:
    """A pattern, what is true when a line has it, and what to do; {0}, {1} … are its groups, {build} the build."""

    pattern: str
    message: str
    hint: str


# The first rule that any line fits decides: causes come before the errors that follow from them.
_RULES = (
    _Rule(
        r"error: invalid argument: (\S+)",
        "llama-server{build} has no option {0}",
        "take it out of the profile or --set; `orin-deploy plan` checks names against the built binary's own --help",
    ),
    _Rule(
        r'error while handling argument "([^"]+)": sto[a-z]+$',
        "llama-server{build} wants a number for {0}",
        "correct it in the profile or with --set",
    ),
    _Rule(
        r"""error while handling argument "([^"]+)": (?:error: )?failed to open file '([^']*)'""",
        "llama-server{build} cannot open {1}, the value of {0}",
        "name the file by its absolute path; it must exist and be readable by the server's user",
    ),
    _Rule(
        r'error while handling argument "([^"]+)": (?:error: )?(.*)',
        "llama-server{build} refuses the value of {0}: {1}",
        "correct it in the profile or with --set",
    ),
    _Rule(
        r"error while loading shared libraries: ([^:]+):",
        "llama-server cannot start: the shared library {0} is missing",
        "if it is one of CUDA's, install CUDA's runtime for this JetPack; else remove the engine's folder and run "
        "`orin-deploy up` to build it again",
    ),
    _Rule(
        r"(?:taskset: failed to execute|cannot start) ([^:]+): (.*)",
        "{0} cannot be started: {1}",
        "run `orin-deploy up` to build the engine again",
    ),
    _Rule(
        r"taskset: failed to set .*affinity: (.*)",
        "none of the CPUs planned for the server can be used: {0}",
        "look at `orin-deploy facts` and set placement.cpus to CPUs that are online",
    ),
    _Rule(
        r"couldn't bind HTTP server socket, hostname: ([^,]+), port: (\d+)",
        "llama-server cannot listen on {0} port {1}: the port is taken, or the address is not this machine's",
        "--set port=N with a free port",
    ),
    _Rule(
        r"unknown (?:model )?architecture: ''",
        "the model file names an empty architecture: it is not a language model (a projector or an adapter?)",
        "choose the file with the model itself",
    ),
    _Rule(
        r"unknown (?:model )?architecture: '([^']+)'",
        "the model is newer than the binary: llama-server{build} does not know the architecture {0}",
        _NEWER,
    ),
    _Rule(
        r"unknown pre-tokenizer type: '([^']*)'",
        "the model is newer than the binary: llama-server{build} does not know the pre-tokenizer {0}",
        _NEWER,
    ),
    _Rule(
        r"unknown tokenizer: '([^']*)'",
        "the model is newer than the binary: llama-server{build} does not know the tokenizer {0}",
        _NEWER,
    ),
    _Rule(
        r"CLIP cannot be used as main model",
        "the model file is a projector for images, not a language model",
        "choose the file with the model itself",
    ),
    _Rule(
        r"data is not within the file bounds|corrupted or incomplete|corrupted model",
        "the model file is truncated or corrupt",
        _FETCH_AGAIN,
    ),
    _Rule(
        r"invalid magic characters: '(.*)', expected 'GGUF'|failed to read magic",
        "the model file is not a GGUF file",
        _FETCH_AGAIN,
    ),
    _Rule(
        r"failed to open (?:GGUF file )?'?([^'(]+?)'?:? \((.*)\)",
        "the model file {0} cannot be opened: {1}",
        "the file must exist and be readable by the server's user, each folder on the way included",
    ),
    _Rule(
        r"has invalid ggml type (\d+)|this GGUF file is version (\d+) but",
        "the model is newer than the binary: llama-server{build} does not know its format or a tensor type in it",
        _NEWER,
    ),
    _Rule(r"gguf_init_from_\w+: (.*)", "the model file is truncated or corrupt: {0}", _FETCH_AGAIN),
    _Rule(
        r"quantized V cache requires flash_attn",
        "a quantised cache_type_v needs flash attention",
        "--set flash_attn=on, or --set cache_type_v=f16",
    ),
    _Rule(
        r"cuMemAddressReserve",
        "CUDA could not reserve its 32 GiB of address space: this build uses the virtual memory pool",
        "build with GGML_CUDA_NO_VMM=ON: `orin-deploy up` does so for Jetson boards",
    ),
    _Rule(
        r"NvRmMemInitNvmap failed with Permission denied",
        "the server's user may not open the GPU's memory device /dev/nvmap",
        "the service's user must be in the groups video and render",
    ),
    _Rule(
        out_of_memory.GPU,
        "the GPU could not get the memory the server asked for",
        f"close other programs, or {_LESS_MEMORY}; when much memory is free, only a reboot cures its fragmentation",
    ),
    _Rule(
        f"{out_of_memory.BUFFERS}|{out_of_memory.PROGRAM}",
        "the server ran out of memory while it set up",
        _LESS_MEMORY,
    ),
    _Rule(
        r"layer input tensor is null",
        "the draft reads layers of its target that llama-server{build} does not hand out for this model",
        "--draft none, or a draft of another kind",
    ),
    _Rule(
        r"Remote RPC server crashed or returned malformed response",
        "the draft's own process ended in the middle of its work, and llama-server{build} with it",
        "it is started again; --set placement.draft=inline keeps the draft inside the server",
    ),
    _Rule(
        r"Failed to connect to (127\.0\.0\.1:\d+)|RPC handshake failed for (\S+)",
        "llama-server{build} cannot reach the draft's own process at {0}{1}",
        "--set placement.draft=inline, or another placement.draft_port",
    ),
    _Rule(
        r"failed to create MTP context",
        "llama-server{build} cannot make a context for the draft",
        "--draft none, or a draft that was made for this model",
    ),
    _Rule(
        r"(?:wrong number of tensors|missing tensor|tensor '[^']*' (?:not found|has wrong shape))(.*)",
        "the model's tensors are not what llama-server{build} expects of its architecture",
        f"the file is damaged or made for another release of llama.cpp: {_NEWER}",
    ),
    _Rule(r"error loading model: (.*)", "llama-server{build} cannot load the model: {0}", _NEWER),
    _Rule(r"error: (.*)", "llama-server{build} says: {0}", "look at the whole log with `orin-deploy logs`"),
)


def starts(lines: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """A log's lines start by start, oldest first; lines before the first mark belong to a start of their own."""
    groups: list[list[str]] = [[]]
    for line in lines:
        if line.startswith(START_MARK):
            groups.append([])
        groups[-1].append(line)
    return tuple(tuple(group) for group in groups if group)


def is_restart(start: Sequence[str]) -> bool:
    """A start's own mark says that the supervisor repeats an earlier one: "…, start 2, …"."""
    match = re.match(re.escape(START_MARK) + r", start (\d+)", start[0]) if start else None
    return match is not None and int(match[1]) > 1


def reason(lines: Sequence[str]) -> tuple[str, str] | None:
    """Why the server ended, by the last start in the log: what is true and what to do; None when it does not say."""
    last = starts(lines)[-1] if lines else ()
    for rule in _RULES:
        for line in last:
            if match := re.search(rule.pattern, line):
                groups = [(group or "").strip() for group in match.groups()]
                return rule.message.format(*groups, build=_build(last)), rule.hint
    return None


def complaint(lines: Sequence[str]) -> str | None:
    """The first error in the last start's own words, for an end that no rule explains; None when there is none."""
    last = starts(lines)[-1] if lines else ()
    found = (re.match(r"[\d.]+ E (.*)|\S+\.(?:cpp|cu|cuh|c|h):\d+: (.*)", line) for line in last)
    return next(((match[1] or match[2]).strip() for match in found if match), None)


def memory_rows(lines: Sequence[str]) -> tuple[Buffer, ...]:
    """The buffers of the last start in the log, in its order; needs the server's verbosity 4."""
    last = starts(lines)[-1] if lines else ()
    kinds = r"(?:model|KV|RS|compute|output|DSV4 \w+ state)"  # DeepSeek 4's compressors keep a recurrent state too
    found = (re.search(rf"(\S+)\s+({kinds}) buffer size\s*=\s*([\d.]+) MiB", line) for line in last)
    return tuple(
        Buffer(match[1], "RS" if "state" in match[2] else match[2], round(float(match[3]) * 1024 * 1024))
        for match in found
        if match
    )


def offloaded(lines: Sequence[str]) -> tuple[int, int] | None:
    """Layers given to the GPU and layers there are, by the last start in the log; None when it does not say."""
    last = starts(lines)[-1] if lines else ()
    for line in last:
        if match := re.search(r"offloaded (\d+)/(\d+) layers to GPU", line):
            return int(match[1]), int(match[2])
    return None


def speculation(lines: Sequence[str]) -> tuple[str, ...]:
    """The kinds of speculation that the last start in the log set up, by llama-server's names; needs verbosity 4."""
    last = starts(lines)[-1] if lines else ()
    found = (re.search(r"adding speculative implementation '([a-z0-9-]+)'", line) for line in last)
    return tuple(dict.fromkeys(match[1] for match in found if match))


def not_speculating(lines: Sequence[str]) -> str | None:
    """Why the last start in the log serves without speculation, in the server's words; None when it does not say."""
    last = starts(lines)[-1] if lines else ()
    for line in last:
        if match := re.search(r"failed to initialize speculative decoding context: (.*)", line):
            return match[1].strip()
    for line in last:
        if match := re.search(r"(speculative decoding not supported by this context)", line):
            return match[1]
        if match := re.search(r"(no implementations specified for speculative decoding)", line):
            return match[1]
    return None


def drafted(lines: Sequence[str]) -> tuple[int, int] | None:
    """Tokens drafted and tokens accepted since the last start in the log, over all kinds; None when it does not say."""
    last = starts(lines)[-1] if lines else ()
    found = (re.search(r"statistics\s+(\S+?):.*#gen tokens =\s*(\d+), #acc tokens =\s*(\d+)", line) for line in last)
    totals = {match[1]: (int(match[2]), int(match[3])) for match in found if match}
    return (sum(each[0] for each in totals.values()), sum(each[1] for each in totals.values())) if totals else None


def seconds_to_ready(lines: Sequence[str]) -> float | None:
    """Seconds from the last start in the log until the server listened with its model loaded."""
    last = starts(lines)[-1] if lines else ()
    for line in last:
        if match := re.match(r"(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) .*model loaded", line):
            minutes, seconds, millis, micros = map(int, match.groups())
            return minutes * 60 + seconds + millis / 1e3 + micros / 1e6
    return None


def _build(lines: Sequence[str]) -> str:
    """ " (build 6402, 0c1e570)" where the log says which build it is of."""
    for line in lines:
        if match := re.search(r"build(?:\s*[:=])?\s+(\d+) \(([0-9a-f]{7,40}|unknown)\)", line):
            return f" (build {match[1]}, {match[2]})"
    return ""
