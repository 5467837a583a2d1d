"""The architectures whose graph is replayed tensor by tensor, measured against the engine for each of them.

Others are reckoned by the graph of their nearest relative, chosen by their tensors.
"""

from __future__ import annotations

# fmt: off
REPLAYED = frozenset(
    {
        "arcee", "bailingmoe", "bailingmoe2", "bailingmoe3", "bloom", "chatglm", "codeshell", "cogvlm", "cohere2",
        "cohere2moe", "command-r", "dbrx", "deci", "deepseek", "deepseek2", "dots1", "ernie4_5", "ernie4_5-moe",
        "exaone", "exaone-moe", "exaone4", "falcon-h1", "gemma", "gemma2", "gemma3", "glm4", "glm4moe", "gpt-oss",
        "gpt2", "gptneox", "granite", "granite_swa", "granitehybrid", "granitemoe", "grovemoe", "hunyuan-dense",
        "hunyuan-moe", "hunyuan_vl", "hy_v3", "internlm2", "jais", "jais2", "jamba", "laguna", "lfm2", "lfm2moe",
        "llama", "llama4", "maincoder", "mamba", "mamba2", "maple", "mellum", "mimo2", "minicpm", "minicpm3",
        "minimax-m2", "mistral3", "mistral4", "mpt", "nanbeige", "nemotron", "nemotron_h", "nemotron_h_moe", "olmo",
        "olmo2", "olmoe", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3", "phimoe", "plamo",
        "plamo3", "pockettts", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen35", "qwen35moe", "qwen3moe",
        "qwen3next", "qwen3tts", "qwen3vl", "qwen3vlmoe", "seed_oss", "smollm3", "stablelm", "starcoder2", "xverse",
    }
)
# fmt: on
