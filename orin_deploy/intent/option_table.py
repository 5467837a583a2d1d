"""Every option a person can set, one row each: llama-server's own and orin-deploy's nested keys.

Reviewed against `llama-server --help` and common/arg.cpp of commit 0c1e570; a test compares the rows with the help of
the binary that is built. A new option is one row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orin_deploy.intent.spec import Value

INT_MAX = 2**31 - 1  # llama-server parses whole numbers with std::stoi
LAYERS = 512  # LLAMA_MAX_LAYERS; the server makes a pattern for each layer, and hangs on a thousand million

CACHE_TYPES = ("f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "f32")
FA_TYPES = ("f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")  # those CUDA flash attention has kernels for
CPUS = r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*"
"""How CPUs are written: "0-3,6"."""


@dataclass(frozen=True)
class Option:
    """One thing that can be set.

    `key` is llama-server's first long flag name with underscores, or a nested key of ours ("build.blas"); `names`
    are its other flags; where the key's own flag is among them the order says which to prefer and which are negative.
    `kind` is "int", "float", "bool", "enum", "str", "list" or "map". `choices` are the words allowed: all there are
    for an enum or a list, besides numbers for an int, besides free text for a str. `auto` allows the word of that
    name: the default, which is decided here because the engine does not know it. `form` says how a server option is
    written: "value" (--x 1), "pair" (--x, --no-x), "bare" (--x or nothing), "digit" (--x 0|1), "two" (--x 1 2).
    `default` is passed explicitly; None leaves the choice to the engine. `cost` is what a change costs: "request",
    "restart", "rebuild" or "reboot". `candidates` are values worth measuring. `owned` is the reason why orin-deploy
    itself decides the option.
    """

    key: str
    kind: str
    help: str
    names: str = ""
    default: Value = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    auto: bool = False
    pattern: str | None = None
    shape: str | None = None  # the pattern in words, as in 'CPU numbers such as "0-3,6"'
    synonyms: tuple[tuple[str, str], ...] = ()
    form: str = "value"
    cost: str = "restart"
    candidates: tuple[Value, ...] = ()
    owned: str | None = None

    @property
    def section(self) -> str:
        """ "server", "draft" for that key, or a nested key's first word: "build", "placement", "speculation" …"""
        return self.key.partition(".")[0] if "." in self.key or self.key == "draft" else "server"

    @property
    def flags(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The flags that set a server option, preferred first, and those that turn it off."""
        own, others = "--" + self.key.replace("_", "-"), tuple(self.names.split())
        on, off = split_negated(others if own in others else (own, *others))
        return _long_first(on), _long_first(off)

    @property
    def words(self) -> tuple[str, ...]:
        """All words allowed as a value."""
        return (*self.choices, "auto") if self.auto else self.choices


def _long_first(flags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(flags, key=lambda flag: not flag.startswith("--")))


def split_negated(flags: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Flags of one switch, split into those that turn it on and those (--no-x, -nx) that turn it off.

    llama-server lists the negative ones last; a switch that has only a --no- name is itself turned on by it.
    """
    positive = [i for i, flag in enumerate(flags) if flag.startswith("--") and not flag.startswith("--no-")]
    if not positive or not any(flag.startswith("--no-") for flag in flags):
        return flags, ()
    return flags[: positive[-1] + 1], flags[positive[-1] + 1 :]


def _int(key: str, names: str, help: str, low: float = 0, high: float = INT_MAX, **more: object) -> Option:
    return Option(key, "int", help, names, low=low, high=high, **more)  # type: ignore[arg-type]


def _float(key: str, names: str, help: str, low: float | None = None, high: float | None = None) -> Option:
    return Option(key, "float", help, names, low=low, high=high)


def _enum(key: str, names: str, help: str, *choices: str, **more: object) -> Option:
    return Option(key, "enum", help, names, choices=choices, **more)  # type: ignore[arg-type]


def _pair(key: str, names: str, help: str) -> Option:
    """A switch that has a --no- form."""
    return Option(key, "bool", help, names, form="pair")


def _bare(key: str, names: str, help: str) -> Option:
    """A switch that can only be turned on."""
    return Option(key, "bool", help, names, form="bare")


def _text(key: str, names: str, help: str, kind: str = "str", **more: object) -> Option:
    return Option(key, kind, help, names, **more)  # type: ignore[arg-type]


def _owned(reason: str, *flags: str) -> tuple[Option, ...]:
    """Rows for flags, each with its aliases ("--help -h --usage"), that nobody but orin-deploy sets."""
    rows = []
    for words in flags:
        own, _, names = words.partition(" ")
        rows.append(Option(own[2:].replace("-", "_"), "str", reason, names, owned=reason))
    return tuple(rows)


LOADING = (
    _text("model", "-m", "The model: a catalogue name or a reference such as hf:owner/repo:Q4_K_M."),
    _int("threads", "-t", "CPU threads for generation.", 1, 1024, auto=True, default="auto"),
    _int("threads_batch", "-tb", "CPU threads for prompts and batches.", 1, 1024, auto=True, default="auto"),
    Option("cpu_strict", "bool", "Pin each thread to one CPU of the mask.", form="digit"),
    _int("prio", "", "Priority of process and threads, -1 (low) to 3 (realtime).", -1, 3, candidates=(0, 1, 2)),
    _int("poll", "", "How eagerly threads poll for work; 0 sleeps.", 0, 100, candidates=(0, 50, 100)),
    Option("cpu_strict_batch", "bool", "Pin each batch thread to one CPU of the mask.", form="digit"),
    _int("prio_batch", "", "Priority of the batch threads, 0 (normal) to 3 (realtime).", 0, 3),
    Option("poll_batch", "bool", "Batch threads poll for work.", form="digit"),
    # A batch of one token aborts llama-server as it starts (get_sub_batch, 0c1e570), and so does a context of one.
    _int("ctx_size", "-c", "Tokens of context over all slots; auto fits it to memory.", 2, auto=True, default="auto"),
    _int("predict", "-n --n-predict", "Tokens to generate at most; -1 is no limit.", -1),
    _int(
        "batch_size", "-b", "Logical batch: tokens a decode call may take.",
        2, default=2048, candidates=(512, 1024, 2048, 4096),
    ),
    _int(
        "ubatch_size", "-ub", "Physical batch: tokens computed at once; costs memory.",
        1, default=512, candidates=(128, 256, 512, 1024),
    ),
    _int("keep", "", "Tokens of the first prompt to keep on a context shift; -1 keeps all.", -1),
    _bare("swa_full", "", "Keep the whole cache of sliding-window layers; costs memory."),
    _enum(
        "flash_attn", "-fa", "Flash attention; a quantized V cache needs it.", "on", "off", "auto",
        default="auto", candidates=("on", "off"),
    ),
    _pair("perf", "--no-perf", "libllama's internal performance timings."),
    _pair("escape", "-e --escape --no-escape", "Read backslash escapes in prompts."),
    _enum("rope_scaling", "", "How RoPE frequencies are scaled.", "none", "linear", "yarn"),
    _float("rope_scale", "", "RoPE scaling factor: expands the context by it.", 0),
    _float("rope_freq_base", "", "RoPE base frequency; the model's own when unset.", 0),
    _float("rope_freq_scale", "", "RoPE frequency scaling: expands the context by its inverse.", 0),
    _int("yarn_orig_ctx", "", "YaRN: the context the model was trained with; 0 asks the model."),
    _float("yarn_ext_factor", "", "YaRN: extrapolation mix; 0 is full interpolation."),
    _float("yarn_attn_factor", "", "YaRN: attention magnitude."),
    _float("yarn_beta_slow", "", "YaRN: high correction dimension."),
    _float("yarn_beta_fast", "", "YaRN: low correction dimension."),
    _pair("kv_offload", "-kvo --kv-offload -nkvo --no-kv-offload", "Keep the KV cache on the GPU."),
    _pair("repack", "-nr --no-repack", "Repack weights into the CPU's own layout."),
    _bare("no_host", "", "Bypass the host buffer so that extra buffers can be used."),
    _enum(
        "cache_type_k", "-ctk", "Type of the KV cache's keys.", *CACHE_TYPES, default="f16", candidates=("f16", "q8_0"),
    ),
    _enum(
        "cache_type_v", "-ctv", "Type of the KV cache's values.", *CACHE_TYPES, default="f16",
        candidates=("f16", "q8_0"),
    ),
    _text("rpc", "", "RPC servers as host:port; unprotected, loopback only.", "list"),
    _enum(
        "load_mode", "-lm", "How the model file is read; auto maps it unless a device cannot.",
        "auto", "none", "mmap", "mlock", "mmap+mlock", "dio", default="auto", candidates=("none", "mmap"),
    ),
    _enum("lazy_mode", "-lzm", "Read rows of very large tensors from disk when needed.", "on", "auto", "off"),
    _enum("numa", "", "NUMA placement; pointless on a single-node board.", "distribute", "isolate", "numactl"),
    _text("device", "-dev", "Devices to offload to, as llama-server lists them; none keeps all on the CPU.", "list"),
    _text("override_tensor", "-ot", "Buffer types for tensors by name, as pattern=type,…"),
    _bare("cpu_moe", "-cmoe", "Keep all expert weights in the CPU's memory."),
    _int("n_cpu_moe", "-ncmoe", "Keep the expert weights of the first N layers on the CPU.", 0, LAYERS),
    _int("n_cpu_ffn", "-ncffn", "Keep the dense feed-forward weights of the first N layers on the CPU.", 0, LAYERS),
    _int(
        "gpu_layers", "-ngl --n-gpu-layers", "Layers on the GPU; auto is all on a CUDA build.",
        choices=("auto", "all"), default="auto",
    ),
    _enum("split_mode", "-sm", "How the model is split over several GPUs.", "none", "layer", "row", "tensor"),
    _text("tensor_split", "-ts", "Share of the model for each GPU, as 3,1.", "list"),
    _int("main_gpu", "-mg", "The GPU to use when the model is not split."),
    Option(
        "fit", "enum", "llama.cpp's own fitting; orin-deploy's budget replaces it.", "-fit",
        default="off", choices=("on", "off"),
        owned="the context is fitted by orin-deploy's own budget, so -fit stays off",
    ),
    _bare("check_tensors", "", "Check tensor data for invalid values while loading."),
    _text("override_kv", "", "Override model metadata, as KEY=TYPE:VALUE,…"),
    _pair("op_offload", "--no-op-offload", "Offload operations on host tensors to the device."),
    _text("lora", "", "LoRA adapter files, comma-separated."),
    _text("lora_scaled", "", "LoRA adapters with a scale, as FILE:SCALE,…"),
    _text("control_vector", "", "Control vector files, comma-separated."),
    _text("control_vector_scaled", "", "Control vectors with a scale, as FILE:SCALE,…"),
    _text(
        "control_vector_layer_range", "", "First and last layer of the control vectors.",
        form="two", pattern="[0-9]+[ ,][0-9]+", shape="two layer numbers, such as 4,20",
    ),
)  # fmt: skip

LOGGING = (
    _bare("verbose", "-v --log-verbose", "Log everything, for debugging."),
    _bare("offline", "", "Never use the network."),
    # The buffer sizes that verify compares with the budget are logged from 4 on.
    _int(
        "verbosity", "-lv --log-verbosity", "How much is logged: 4 (what verify reads) or 5 (debug).", 4, 5, default=4,
    ),
    _pair("log_prefix", "--no-log-prefix", "Prefix log lines with their level."),
    _pair("log_timestamps", "--no-log-timestamps", "Prefix log lines with the time."),
)  # fmt: skip

SAMPLING = (
    _text("samplers", "", "Samplers in order, separated by semicolons."),
    _int("seed", "-s", "Random seed; -1 takes a new one each time.", -1, 2**32 - 1),
    _text("sampler_seq", "--sampling-seq", "Samplers in order, one letter each."),
    _bare("ignore_eos", "", "Go on after the end-of-stream token."),
    _float("temp", "--temperature", "Sampling temperature.", 0),
    _int("top_k", "", "Sample from the K likeliest tokens; 0 is off."),
    _float("top_p", "", "Sample from the likeliest tokens up to this sum; 1 is off.", 0, 1),
    _float("min_p", "", "Drop tokens below this share of the likeliest; 0 is off.", 0, 1),
    _float("top_nsigma", "--top-n-sigma", "Keep tokens within N sigma of the best; -1 is off.", -1),
    _float("xtc_probability", "", "Chance that XTC acts; 0 is off.", 0, 1),
    _float("xtc_threshold", "", "XTC threshold; 1 is off.", 0, 1),
    _float("typical", "--typical-p", "Locally typical sampling; 1 is off.", 0, 1),
    _int("repeat_last_n", "", "Tokens looked back on for repeats; 0 is off."),
    _float("repeat_penalty", "", "Penalty on repeats; 1 is off.", 0.01),
    _float("presence_penalty", "", "Penalty on tokens that are present; 0 is off."),
    _float("frequency_penalty", "", "Penalty on tokens by their count; 0 is off."),
    _float("dry_multiplier", "", "DRY repetition penalty; 0 is off.", 0),
    _float("dry_base", "", "DRY base value.", 0),
    _int("dry_allowed_length", "", "Longest repeat that DRY allows."),
    _int("dry_penalty_last_n", "", "Tokens DRY looks back on; 0 is off."),
    _text("dry_sequence_breaker", "", "A text that ends DRY's repeats; none for no breaker."),
    _float("adaptive_target", "", "Adaptive-p: aim at this probability; negative is off.", -1, 1),
    _float("adaptive_decay", "", "Adaptive-p: how slowly the target adapts.", 0, 0.99),
    _float("dynatemp_range", "", "Dynamic temperature range; 0 is off.", 0),
    _float("dynatemp_exp", "", "Dynamic temperature exponent.", 0),
    _int("mirostat", "", "Mirostat version; 0 is off.", 0, 2),
    _float("mirostat_lr", "", "Mirostat learning rate.", 0),
    _float("mirostat_ent", "", "Mirostat target entropy.", 0),
    _text("logit_bias", "-l", "Bias of a token, as 15043+1."),
    _text("grammar", "", "A grammar that constrains the answer."),
    _text("grammar_file", "", "File with a grammar."),
    _text("json_schema", "-j", "A JSON schema that constrains the answer."),
    _text("json_schema_file", "-jf", "File with a JSON schema."),
    _bare("backend_sampling", "-bs", "Sample on the device (experimental)."),
)  # fmt: skip

SPECULATION = (
    _enum("spec_draft_type_k", "-ctkd --cache-type-k-draft", "Type of the draft's cached keys.", *CACHE_TYPES),
    _enum("spec_draft_type_v", "-ctvd --cache-type-v-draft", "Type of the draft's cached values.", *CACHE_TYPES),
    _int("spec_draft_threads", "-td --threads-draft", "CPU threads of the draft for generation.", 1, 1024),
    _int("spec_draft_threads_batch", "-tbd --threads-batch-draft", "CPU threads of the draft for batches.", 1, 1024),
    _text("spec_draft_override_tensor", "-otd --override-tensor-draft", "Buffer types for the draft's tensors."),
    _bare("spec_draft_cpu_moe", "-cmoed --cpu-moe-draft", "Keep the draft's expert weights on the CPU."),
    _int(
        "spec_draft_n_cpu_moe", "--spec-draft-ncmoe -ncmoed --n-cpu-moe-draft",
        "Keep the draft's expert weights of the first N layers on the CPU.", 0, LAYERS,
    ),
    _int("spec_draft_n_max", "", "Tokens drafted at most.", 0, 1024, candidates=(2, 3, 4, 6, 8)),
    _int("spec_draft_n_min", "", "Tokens drafted at least.", 0, 1024),
    _float("spec_synth_len", "", "Pretend an acceptance length (benchmarks only: the text is invalid)."),
    _text("spec_synth_rates", "", "Pretend acceptance rates (benchmarks only: the text is invalid).", "list"),
    _float("spec_draft_p_split", "--draft-p-split", "Probability at which the draft branches.", 0, 1),
    Option(
        "spec_draft_p_min", "float", "Stop drafting below this probability.", "--draft-p-min",
        low=0, high=1, candidates=(0.0, 0.4, 0.6, 0.75),
    ),
    _pair("spec_draft_backend_sampling", "--no-spec-draft-backend-sampling", "Sample the draft on its device."),
    _text("spec_draft_device", "-devd --device-draft", "Devices of the draft; none keeps it on the CPU.", "list"),
    _int(
        "spec_draft_ngl", "-ngld --gpu-layers-draft --n-gpu-layers-draft", "Draft layers on the GPU.",
        choices=("auto", "all"),
    ),
    # --model-draft first: builds from before the renaming know it too.
    _text("spec_draft_model", "--model-draft -md --spec-draft-model", "The draft model."),
    _text(
        "spec_type", "", "Kinds of speculation, comma-separated.", "list",
        choices=(
            "none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
            "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
        ),
        synonyms=(
            ("draft", "draft-simple"), ("eagle3", "draft-eagle3"), ("mtp", "draft-mtp"), ("dflash", "draft-dflash"),
            ("dspark", "draft-dspark"),
        ),
    ),
    _int("spec_ngram_mod_n_min", "", "ngram-mod: tokens drafted at least.", 0, 1024),
    _int("spec_ngram_mod_n_max", "", "ngram-mod: tokens drafted at most.", 0, 1024),
    _int("spec_ngram_mod_n_match", "", "ngram-mod: length of the lookup.", 1, 1024),
    *(
        row
        for kind in ("simple", "map-k", "map-k4v")
        for row in (
            _int(f"spec_ngram_{kind.replace('-', '_')}_size_n", "", f"ngram-{kind}: length of the lookup.", 1, 1024),
            _int(f"spec_ngram_{kind.replace('-', '_')}_size_m", "", f"ngram-{kind}: length of the draft.", 1, 1024),
            _int(f"spec_ngram_{kind.replace('-', '_')}_min_hits", "", f"ngram-{kind}: hits needed.", 1),
        )
    ),
    _text("lookup_cache_static", "-lcs", "Static lookup cache file, never updated."),
    _text("lookup_cache_dynamic", "-lcd", "Dynamic lookup cache file, updated by generation."),
    _bare("spec_default", "", "llama.cpp's default speculation (ngram-mod)."),
)  # fmt: skip

SERVING = (
    _int("kv_unified_per_slot", "", "Context limit of a slot in a unified cache.", 1),
    _int("ctx_checkpoints", "-ctxcp --swa-checkpoints", "Context checkpoints kept for each slot."),
    _int("checkpoint_min_step", "-cms", "Tokens between context checkpoints; 0 is no minimum."),
    # The engine's own 8192 MiB would come out of the same memory as weights and context on a board. 0: all of it
    # goes to the context; a profile with room to spare raises it.
    _int("cache_ram", "-cram", "MiB for the prompt cache; 0 is off.", 0, default=0),
    _pair("kv_unified", "-kvu --kv-unified -no-kvu --no-kv-unified", "One KV buffer for all slots."),
    _pair("cache_idle_slots", "--no-cache-idle-slots", "Move idle slots to the prompt cache; needs cache_ram."),
    _pair("context_shift", "--no-context-shift", "Drop the oldest tokens when the context is full."),
    _text("reverse_prompt", "-r", "Stop at this text."),
    _bare("special", "-sp", "Send special tokens too."),
    _pair("warmup", "--no-warmup", "Run once empty after loading."),
    _bare("spm_infill", "", "Infill as suffix, prefix, middle."),
    _enum("pooling", "", "Pooling of embeddings.", "none", "mean", "cls", "last", "rank"),
    _int(
        "parallel", "-np", "Slots: requests served at once; they share the context.",
        1, 256, default=1, candidates=(1, 2, 4),
    ),
    _pair("cont_batching", "-cb --cont-batching -nocb --no-cont-batching", "Continuous batching."),
    _text("mmproj", "-mm", "Multimodal projector file."),
    _pair("mmproj_auto", "--no-mmproj --no-mmproj-auto", "Use a projector when there is one."),
    _pair("mmproj_offload", "--no-mmproj-offload", "Keep the projector on the GPU."),
    _text("mmproj_device", "-mmdev", "Device of the projector; none is the CPU."),
    _int("image_min_tokens", "", "Tokens of an image at least.", 1),
    _int("image_max_tokens", "", "Tokens of an image at most.", 1),
    _int("mtmd_batch_max_tokens", "", "Image tokens encoded at once.", 1),
    _float("video_fps", "", "Frames of a video per second.", 0),
    _int("video_timestamp_interval", "", "Milliseconds between timestamps of a video."),
    _text("video_ffmpeg_dir", "", "Folder of ffmpeg and ffprobe."),
    _text("alias", "-a", "Model names the API answers to, comma-separated.", "list"),
    _text("tags", "", "Model tags, for information.", "list"),
    _int("embd_normalize", "", "Norm of embeddings: -1 none, 0 max, 1 taxicab, 2 euclidean.", -1),
    _text(
        "host", "", "Address to listen on; any but loopback needs an API key.", default="127.0.0.1",
        pattern=r"(?!.*\.sock$)[0-9A-Za-z:_%-]+(\.[0-9A-Za-z_%-]+)*", shape="one address or host name",
    ),
    _int("port", "", "Port to listen on.", 1, 65535, default=8080),
    _bare("reuse_port", "", "Let several sockets share the port."),
    _text("path", "", "Folder of static files to serve."),
    _text("cors_origins", "", "Origins allowed by CORS."),
    _text("cors_methods", "", "Methods allowed by CORS."),
    _text("cors_headers", "", "Headers allowed by CORS."),
    _pair("cors_credentials", "--no-cors-credentials", "Allow credentials by CORS."),
    _text("ui_config", "--webui-config", "Defaults of the web UI, as JSON."),
    _text("ui_config_file", "--webui-config-file", "File with defaults of the web UI."),
    _pair("ui", "--webui --no-ui --no-webui", "Serve the web UI where the build has one."),
    _bare("embedding", "--embeddings", "Serve embeddings only."),
    _bare("rerank", "--reranking", "Serve the rerank endpoint."),
    *_owned("a key on a command line can be read by every user: put it in a file and set api_key_file", "--api-key"),
    _text("api_key_file", "", "File of API keys, one a line."),
    _text("chat_template_kwargs", "", "Values for the chat template, as a JSON object."),
    _int("timeout", "-to", "Seconds a read or write may take.", 1),
    _int("sse_ping_interval", "", "Seconds between pings of a stream; -1 is off.", -1),
    _int("threads_http", "", "Threads that serve HTTP requests.", 1, 1024),
    _pair("cache_prompt", "--no-cache-prompt", "Reuse the common start of prompts."),
    _int("cache_reuse", "", "Smallest chunk reused by shifting the cache; 0 is off.", candidates=(0, 256)),
    _bare("metrics", "", "Serve Prometheus metrics."),
    _bare("props", "", "Let POST /props change settings."),
    _text("slot_save_path", "", "Folder for saved slots."),
    _text("media_path", "", "Folder of media files that requests may name."),
    _pair("jinja", "--no-jinja", "Use the Jinja chat template."),
    _enum("reasoning_format", "", "Where thoughts are returned.", "none", "deepseek", "deepseek-legacy", "auto"),
    _enum("reasoning", "-rea", "Let the model think.", "on", "off", "auto"),
    _text("reasoning_effort", "", "Effort for the template: default, minimal, low, medium, high …"),
    _int("reasoning_budget", "", "Tokens for thinking; -1 is no limit, 0 none.", -1),
    _text("reasoning_budget_message", "", "Text put in when the thinking budget is used up."),
    _pair("reasoning_preserve", "--no-reasoning-preserve", "Keep thoughts of earlier messages."),
    _text("chat_template", "", "A built-in template's name or a Jinja template."),
    _text("chat_template_file", "", "File with a Jinja template."),
    _pair("skip_chat_parsing", "--no-skip-chat-parsing", "Return the whole answer as content."),
    _pair("prefill_assistant", "--no-prefill-assistant", "Go on from a last message of the assistant."),
    _float("slot_prompt_similarity", "-sps", "Likeness of prompts at which a slot is used again; 0 is off.", 0, 1),
    _bare("lora_init_without_apply", "", "Load LoRA adapters, apply them by request."),
    _int("sleep_idle_seconds", "", "Unload the model after so many idle seconds.", 1),
    _text("log_prompts_dir", "", "Folder to log prompts to, for debugging."),
)  # fmt: skip

OWNED = (
    *_owned(
        "it prints and exits, it does not serve",
        "--help -h --usage", "--version", "--cache-list -cl", "--completion-bash", "--list-devices",
    ),
    *_owned(
        "orin-deploy fetches models itself: give --model a reference",
        "--model-url -mu", "--docker-repo -dr", "--hf-repo -hf -hfr", "--hf-file -hff", "--mmproj-url -mmu",
        "--spec-draft-hf -hfd -hfrd --hf-repo-draft", "--embd-gemma-default", "--fim-qwen-1.5b-default",
        "--fim-qwen-3b-default", "--fim-qwen-7b-default", "--fim-qwen-7b-spec", "--fim-qwen-14b-spec",
        "--fim-qwen-30b-default", "--gpt-oss-20b-default", "--gpt-oss-120b-default", "--vision-gemma-4b-default",
        "--vision-gemma-12b-default",
    ),
    *_owned("a token on a command line can be read by every user: set HF_TOKEN in the environment", "--hf-token -hft"),
    *_owned("the process is pinned from outside, every thread of it: set placement.cpus",
        "--cpu-mask -C", "--cpu-range -Cr", "--cpu-mask-batch -Cb", "--cpu-range-batch -Crb",
    ),
    *_owned(
        "llama-server reads it and never uses it: a draft is pinned by its own process",
        "--spec-draft-cpu-mask -Cd --cpu-mask-draft", "--spec-draft-cpu-range -Crd --cpu-range-draft",
        "--spec-draft-cpu-strict --cpu-strict-draft",
        "--spec-draft-prio --prio-draft", "--spec-draft-poll --poll-draft",
        "--spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft",
        "--spec-draft-cpu-strict-batch --cpu-strict-batch-draft", "--spec-draft-prio-batch --prio-batch-draft",
        "--spec-draft-poll-batch --poll-batch-draft",
    ),
    *_owned(
        "llama.cpp's own fitting stays off: set ctx_size or memory.limit_mib", "--fit-target -fitt", "--fit-ctx -fitc",
    ),
    *_owned("it has no effect any more", "--defrag-thold -dt"),
    *_owned(
        "orin-deploy keeps the log and reads it",
        "--log-disable", "--log-file", "--log-jsonl --no-log-jsonl", "--log-colors",
    ),
    *_owned("verify reads /slots", "--slots --no-slots"),
    *_owned("verify asks the endpoint at its root", "--api-prefix"),
    *_owned("the engine is built without TLS: put a proxy in front", "--ssl-key-file", "--ssl-cert-file"),
    *_owned(
        "a deployment serves one model", "--models-dir", "--models-preset", "--models-max",
        "--models-autoload --no-models-autoload",
    ),
    *_owned(
        "it lets whoever reaches the port run programs on this machine",
        "--tools", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json",
        "--agent -ag --agent -no-ag --no-agent",
        "--ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy",
    ),
)  # fmt: skip

BUILD = (
    Option(
        "build.source", "str", "The engine's source: a package, a git URL, a tree or an archive.",
        default="package:llama-cpp-python==0.3.36",
    ),
    Option("build.engine", "str", "A folder of ready binaries to use as they are; auto builds one.", auto=True),
    Option(
        "build.toolchain", "str",
        "What compiles: native, or a GNU triplet, with which `orin-deploy build` builds for it.",
        default="native", pattern="native|[a-z0-9_]+-linux-gnu[a-z0-9_]*",
        shape="native, or a triplet such as aarch64-linux-gnu",
    ),
    Option(
        "build.cuda", "enum", "The CUDA backend; auto is on where a toolkit is.", default="auto",
        choices=("on", "off", "auto"),
    ),
    # Never "native" and never empty: both end up asking a driver that a build machine does not have.
    Option(
        "build.cuda_architectures", "list", "CMAKE_CUDA_ARCHITECTURES; auto is the board's.", default="auto", auto=True,
        pattern=r"[1-9][0-9]{1,2}[af]?(-real|-virtual)?",
        shape="architecture numbers such as 87 (Orin), 72 (Xavier), 110 (Thor)",
    ),
    # BLAS speeds up large prompt batches on the CPU only, at the price of one more library and its own thread pool.
    Option(
        "build.blas", "bool",
        "OpenBLAS for prompts on the CPU; off, since it never helps generation or a GPU.", default=False,
    ),
    Option(
        "build.arm_arch", "str", "GGML_CPU_ARM_ARCH; auto is taken from the CPU's features.", default="auto", auto=True,
        pattern=r"armv[89](\.[0-9]+)?-a(\+[a-z0-9_-]+)*", shape="an Arm architecture such as armv8.2-a+dotprod+fp16",
    ),
    Option(
        "build.fa_quants", "list", "K-V type pairs compiled for CUDA flash attention; auto is what the caches use.",
        default="auto", auto=True, choices=("all",),
        pattern="({0})-({0})".format("|".join(FA_TYPES)), shape="K-V pairs such as q8_0-q8_0",
    ),
    Option(
        "build.jobs", "int", "Compilers at once; auto fits them to free memory.", default="auto",
        auto=True, low=1, high=1024,
    ),
    Option(
        "build.extra_targets", "list",
        "Further programs of the engine; with a test among them its tests are configured.",
        pattern="[A-Za-z][A-Za-z0-9_-]*", shape="names of its CMake targets such as llama-perplexity",
    ),
    Option("build.cmake", "map", "Further cmake variables, passed as -DNAME=VALUE."),
)  # fmt: skip

POWER = (
    Option(
        "power.mode", "str", "The power mode: max, keep, or a mode's name or watts.", default="keep", cost="reboot",
        choices=("max", "keep"), pattern="[A-Za-z0-9][A-Za-z0-9_.-]*", shape="a mode's name such as MAXN, or 25W",
    ),
    Option("power.clocks", "enum", "Clocks pinned by jetson_clocks.", default="keep", choices=("on", "keep")),
    Option(
        "power.fan", "str", "The fan's profile, of those in nvfancontrol.conf.", default="keep", choices=("keep",),
        pattern="[A-Za-z0-9][A-Za-z0-9_-]*", shape="a profile's name such as cool",
    ),
)  # fmt: skip

PLACEMENT = (
    Option(
        "placement.cpus", "str", "CPUs the server may use.", default="auto", auto=True,
        pattern=CPUS, shape='CPU numbers such as "0-3,6"',
    ),
    Option("placement.reserve_cpus", "int", "CPUs left to the system.", default=0, low=0, high=1024),
    # Only a draft-simple draft: the other kinds share tensors with the target and stay in its process.
    Option(
        "placement.draft", "enum", "Where the draft computes: in the server, or in a process of its own.",
        default="auto", choices=("inline", "process", "auto"),
    ),
    Option(
        "placement.draft_cpus", "str", "CPUs of a process of the draft's own; none leaves it to placement.draft.",
        default="none", pattern=f"none|auto|{CPUS}", shape='none, auto, or CPU numbers such as "8-11"',
    ),
    Option(
        "placement.draft_device", "str", "What the draft's own process computes on, as ggml names it.",
        default="auto", auto=True, pattern="CPU|CUDA[0-9]", shape="CPU or CUDA0",
    ),
    Option(
        "placement.draft_port", "int", "Loopback port of the draft's own process.", default=50052, low=1, high=65535,
    ),
)  # fmt: skip

DRAFT = (
    # Not llama-server's --draft of old, which was a number of tokens.
    Option(
        "draft", "str", "The draft: a model reference, auto, optional, none, or a kind that needs no draft model.",
        default="auto", choices=("auto", "optional", "none"), shape="a model reference or a kind such as ngram-mod",
    ),
    Option("speculation.workload", "map", "What is served most: a workload's name and its weight."),
    Option("speculation.concurrency", "int", "Requests at once that it must pay for.", default=1, low=1, high=256),
    Option(
        "speculation.measure_s", "int", "Seconds draft=auto may measure; 0: use records only.", default=180, low=0,
        high=86400,
    ),
)  # fmt: skip

MEMORY = (
    Option("memory.reserve_mib", "int", "MiB left free for the system.", default=512, low=0, high=INT_MAX),
    Option(
        "memory.limit_mib", "int", "MiB a deployment may take; auto is what is available.", default="auto",
        auto=True, low=1, high=INT_MAX,
    ),
)  # fmt: skip

SERVICE = (
    Option(
        "service.manager", "enum", "What keeps the server running.", default="auto", choices=("systemd",
        "process", "auto"),
    ),
    Option(
        "service.user", "str", "The user the server runs as.", default="auto", auto=True,
        pattern="[a-z_][a-z0-9_-]*", shape="a user name",
    ),
    Option(
        "service.start_timeout_s", "int", "Seconds to become ready; auto grows with the model.",
        default="auto", auto=True, low=1, high=86400,
    ),
    Option("service.restart_delay_s", "int", "Seconds before a restart.", default=5, low=0, high=3600),
)  # fmt: skip

SERVER = (*LOADING, *LOGGING, *(replace(row, cost="request") for row in SAMPLING), *SPECULATION, *SERVING)
OWN = (*(replace(row, cost="rebuild") for row in BUILD), *POWER, *PLACEMENT, *DRAFT, *MEMORY, *SERVICE)


@dataclass(frozen=True)
class Old:
    """A name that llama-server does not know, and what is written today.

    `keys` are the keys it sets now; {kind} in one stands for the n-gram kind in use. `fate` is "removed" (llama-server
    knew it once), "never" (people guess it), "foreign" (another tool's) or "" (its own, but elsewhere), and `why` says
    more. `values` are what its values are today ("true" is also the bare name's, "" is no setting at all); without
    them a value stays as it is.
    """

    keys: tuple[str, ...]
    fate: str
    why: str
    values: tuple[tuple[str, str], ...] = ()
    hint: str = ""

    @property
    def today(self) -> str:
        """What to write instead, in words."""
        return self.hint or " and ".join(self.keys)

    @property
    def is_switch(self) -> bool:
        """Whether the name may stand without a value."""
        return "true" in dict(self.values)


def _old(fate: str, why: str, hint: str = "", values: dict[str, str] | None = None, **names: str) -> dict[str, Old]:
    """Rows of one fate, by name: the keys of today, separated by blanks."""
    pairs = tuple((values or {}).items())
    return {name: Old(tuple(keys.split()), fate, why, pairs, hint) for name, keys in names.items()}


_LOAD_MODE = "load_mode (auto, none, mmap, mlock, mmap+mlock or dio)"
_MODES = "load_mode took its place in 2026 (pull request 20834), and llama-server rejects it since b10884 (28334)"
_EXITS = 'llama-server exits with "the argument has been removed" since April 2026 (pull request 22397)'
_GUESSED = "llama-server never had an option of that name"
_BINDING = "a word of llama-cpp-python"
_OLLAMA = "a word of Ollama"
_VLLM = "a word of vLLM"
_KOBOLD = "a word of KoboldCpp"
_SGLANG = "a word of SGLang"
_REQUEST = "a word of llama-server's requests and environment"
_SPECULATIVE = "it never was a setting of the server: in a request it has been ignored since 2026"
_ON = {"true": "on", "false": "off"}
_GGML_TYPES = {
    "0": "f32", "1": "f16", "2": "q4_0", "3": "q4_1", "6": "q5_0", "7": "q5_1", "8": "q8_0", "20": "iq4_nl",
    "30": "bf16",
}  # fmt: skip
_PER_TYPE = "spec_ngram_simple_{0}, spec_ngram_map_k_{0} or spec_ngram_map_k4v_{0}"
_MAX_OF = "spec_draft_n_max (or spec_ngram_mod_n_max)"
_MIN_OF = "spec_draft_n_min (or spec_ngram_mod_n_min)"

# Names that are gone upstream, that people guess, or that other tools use, and what to write today.
RENAMED: dict[str, Old] = {
    **_old("removed", _EXITS, _MAX_OF, draft="spec_draft_n_max", draft_n="spec_draft_n_max",
           draft_max="spec_draft_n_max"),
    **_old("removed", _EXITS, _MIN_OF, draft_min="spec_draft_n_min", draft_n_min="spec_draft_n_min"),
    **_old("never", _GUESSED, _MAX_OF, draft_n_max="spec_draft_n_max", draft_tokens="spec_draft_n_max",
           spec_draft_max="spec_draft_n_max"),
    **_old("never", "upstream's own docs/speculative.md names it, and no program has it",
           spec_draft_conf_min="spec_draft_p_min"),
    **_old("removed", _EXITS, _PER_TYPE.format("size_n") + ", or spec_ngram_mod_n_match",
           spec_ngram_size_n="spec_ngram_{kind}_size_n"),
    **_old("removed", _EXITS, _PER_TYPE.format("size_m"), spec_ngram_size_m="spec_ngram_{kind}_size_m"),
    **_old("removed", _EXITS, _PER_TYPE.format("min_hits"), spec_ngram_min_hits="spec_ngram_{kind}_min_hits"),
    **_old("never", _GUESSED, "spec_type=ngram-simple and " + _PER_TYPE.format("size_n"),
           speculative_ngram="spec_ngram_{kind}_size_n", ngram="spec_ngram_{kind}_size_n",
           spec_ngram="spec_ngram_{kind}_size_n"),
    **_old("never", _SPECULATIVE, "", None,
           **{f"speculative.{name}": f"spec_draft_{name}" for name in ("n_max", "n_min", "p_min")}),
    **_old("never", _GUESSED, "", None, **{"speculative.type": "spec_type", "speculative.draft": "spec_draft_model"}),
    **_old("removed", _MODES, _LOAD_MODE, {"true": "mmap", "false": "none"}, mmap="load_mode"),
    **_old("removed", _MODES, _LOAD_MODE, {"true": "none", "false": "mmap"}, no_mmap="load_mode"),
    **_old("removed", _MODES, _LOAD_MODE, {"true": "mmap+mlock", "false": ""}, mlock="load_mode"),
    **_old("removed", _MODES, _LOAD_MODE, {"true": "dio", "false": ""}, direct_io="load_mode", dio="load_mode"),
    **_old("removed", _MODES, _LOAD_MODE, {"true": "", "false": "dio"}, no_direct_io="load_mode", ndio="load_mode"),
    **_old("foreign", _BINDING, _LOAD_MODE, {"true": "mmap", "false": "none"}, use_mmap="load_mode"),
    **_old("foreign", _BINDING, _LOAD_MODE, {"true": "mmap+mlock", "false": ""}, use_mlock="load_mode",
           usemlock="load_mode"),
    **_old("foreign", _KOBOLD, _LOAD_MODE, {"true": "none", "false": "mmap"}, nommap="load_mode"),
    **_old("removed", "only the example llama-speculative knows it, llama-server rejects it",
           "placement.cpus (llama-server cannot pin a draft)", spec_draft_cpu_range_batch="placement.cpus",
           Crbd="placement.cpus", cpu_range_batch_draft="placement.cpus"),
    **_old("foreign", _BINDING, n_ctx="ctx_size", n_batch="batch_size", n_ubatch="ubatch_size", n_threads="threads",
           n_threads_batch="threads_batch", model_path="model", model_alias="alias", lora_path="lora",
           clip_model_path="mmproj", rope_scaling_type="rope_scaling", draft_model_num_pred_tokens="spec_draft_n_max",
           last_n_tokens_size="repeat_last_n"),
    **_old("foreign", _BINDING, "", {"true": "on", "false": "off"}, offload_kqv="kv_offload"),
    **_old("removed", "gone since 2023", "cache_type_k and cache_type_v", {"true": "f32", "false": "f16"},
           memory_f32="cache_type_k cache_type_v"),
    **_old("foreign", _BINDING, "", _GGML_TYPES, type_k="cache_type_k", type_v="cache_type_v"),
    **_old("foreign", _BINDING, "spec_draft_model, or spec_type=ngram-simple for llama-prompt-lookup-decoding",
           draft_model="spec_draft_model"),
    **_old("", _REQUEST, n_parallel="parallel", n_slots="parallel", batch="batch_size", ubatch="ubatch_size",
           think_budget="reasoning_budget", think_budget_message="reasoning_budget_message",
           static_path="path", spec_draft_cache_type_k="spec_draft_type_k", spec_draft_cache_type_v="spec_draft_type_v",
           spec_draft_hf_repo="spec_draft_hf", checkpoint_min_spacing_nt="checkpoint_min_step"),
    **_old("", _REQUEST, "", _ON, endpoint_metrics="metrics", endpoint_props="props",
           endpoint_slots="slots"),
    **_old("", _REQUEST, "reasoning_format", think="reasoning_format"),
    **_old("foreign", _OLLAMA, num_ctx="ctx_size", num_gpu="gpu_layers", num_thread="threads", num_batch="batch_size",
           num_predict="predict", num_keep="keep", ollama_num_parallel="parallel", ollama_context_length="ctx_size",
           ollama_kv_cache_type="cache_type_k cache_type_v", stop="reverse_prompt"),
    **_old("foreign", _OLLAMA, "", _ON, ollama_flash_attention="flash_attn"),
    **_old("foreign", _VLLM, max_model_len="ctx_size", served_model_name="alias", max_num_seqs="parallel",
           max_num_batched_tokens="batch_size", num_speculative_tokens="spec_draft_n_max",
           speculative_model="spec_draft_model"),
    **_old("foreign", _VLLM, "spec_type=ngram-simple and spec_ngram_simple_size_n",
           ngram_prompt_lookup_max="spec_ngram_{kind}_size_n", prompt_lookup_max="spec_ngram_{kind}_size_n"),
    **_old("foreign", _VLLM, "cache_type_k and cache_type_v",
           {"auto": "f16", "fp8": "q8_0", "fp8_e4m3": "q8_0", "fp8_e5m2": "q8_0"},
           kv_cache_dtype="cache_type_k cache_type_v"),
    **_old("foreign", _SGLANG, context_length="ctx_size", max_running_requests="parallel",
           speculative_draft_model_path="spec_draft_model", speculative_num_draft_tokens="spec_draft_n_max"),
    **_old("foreign", _SGLANG, "spec_type", {"EAGLE3": "draft-eagle3", "NGRAM": "ngram-simple",
                                             "STANDALONE": "draft-simple"}, speculative_algorithm="spec_type"),
    **_old("foreign", _KOBOLD, contextsize="ctx_size", gpulayers="gpu_layers", blasbatchsize="batch_size",
           blasthreads="threads_batch", draftmodel="spec_draft_model", draftamount="spec_draft_n_max",
           draftgpulayers="spec_draft_ngl", chatcompletionsadapter="chat_template_file"),
    **_old("foreign", _KOBOLD, "", _ON, flashattention="flash_attn"),
    **_old("foreign", _KOBOLD, "", {"0": "f16", "1": "q8_0", "2": "q4_0"}, quantkv="cache_type_k cache_type_v"),
}  # fmt: skip

_DRAFT_CONTEXT = "a draft has the target's context (ctx_size)"
_IK = "an option of the fork ik_llama.cpp"
_ASKED = "what is asked belongs in the request, not in the server"
_TERMINAL = "it is about a terminal, which a server has not"
_VRAM = "memory is one pool here: the budget fits the context to it (memory.limit_mib, memory.reserve_mib)"
_ONE_GPU = "a board has one GPU"
_HEADER = "the model's file says it"

# Names nothing takes the place of, and why.
GONE: dict[str, str] = {
    **dict.fromkeys(("spec_replace", "spec_draft_replace"), "a draft must have the target's vocabulary"),
    **dict.fromkeys(("ctx_size_draft", "cd", "speculative.draft_ctx", "draft_ctx"), _DRAFT_CONTEXT),
    **dict.fromkeys(("p", "prompt", "f", "file", "sys", "system_prompt", "sysf", "system_prompt_file", "spf"), _ASKED),
    **dict.fromkeys(("bf", "binary_file", "image", "audio", "in_prefix", "in_suffix", "chat_format"), _ASKED),
    **dict.fromkeys(("i", "interactive", "cnv", "conversation", "no_conversation", "no_cnv", "st", "single_turn"),
                    _TERMINAL),
    **dict.fromkeys(("ins", "instruct", "cml", "chatml", "co", "color", "mli", "multiline_input", "simple_io"),
                    _TERMINAL),
    **dict.fromkeys(("if", "interactive_first", "display_prompt", "no_display_prompt", "verbose_prompt", "nobrowser"),
                    _TERMINAL),
    **dict.fromkeys(("prompt_cache", "prompt_cache_all", "prompt_cache_ro"),
                    "llama-completion's; a server has cache_prompt and cache_ram"),
    **dict.fromkeys(("gqa", "num_gqa", "mtest"), f"gone since 2023: {_HEADER}"),
    **dict.fromkeys(("nommq", "no_mul_mat_q", "mul_mat_q", "low_vram"), "the engine decides it by itself"),
    **dict.fromkeys(("gan", "grp_attn_n", "gaw", "grp_attn_w"), "self-extend left the server: see rope_scaling"),
    **dict.fromkeys(("tfs", "tfs_z", "penalize_nl", "no_penalize_nl"), "llama.cpp dropped it in 2024"),
    **dict.fromkeys(("logdir", "log_format", "log_enable", "log_new", "log_append"), "orin-deploy keeps the log"),
    **dict.fromkeys(("fmoe", "fused_moe", "rtr", "run_time_repack", "mla", "mla_use", "amb", "ser", "khad", "vhad"),
                    _IK),
    **dict.fromkeys(("gpu_memory_utilization", "mem_fraction_static", "swap_space", "cpu_offload_gb"), _VRAM),
    **dict.fromkeys(("tensor_parallel_size", "tp", "pipeline_parallel_size", "data_parallel_size"), _ONE_GPU),
    **dict.fromkeys(("dtype", "quantization", "trust_remote_code", "load_format", "tokenizer", "tokenizer_mode"),
                    f"{_HEADER}: a GGUF brings its types and its tokenizer"),
    **dict.fromkeys(("enforce_eager", "usecublas", "usevulkan", "useclblast", "usecpu"),
                    "the build decides it (build.cuda)"),
    **dict.fromkeys(("logits_all", "vocab_only", "interrupt_requests", "cache", "cache_size", "cache_type"), _BINDING),
}  # fmt: skip
