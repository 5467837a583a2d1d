"""`facts`, `gguf` and `version`: what the machine, a model and the program are."""

from __future__ import annotations

import platform

from orin_deploy import __version__
from orin_deploy.cli.console import Console, mib
from orin_deploy.cli.documents import budget_document, model_document
from orin_deploy.cli.show_memory import show_budget
from orin_deploy.deploy.lookup import Found, find_model, profile_folders
from orin_deploy.deploy.record import plain
from orin_deploy.facts.device import Cpu, Device, Jetson, Memory, Tool
from orin_deploy.facts.gguf_types import Tensor
from orin_deploy.facts.inspect import inspect
from orin_deploy.facts.jetson import notes
from orin_deploy.facts.model import Model
from orin_deploy.facts.power import PowerState
from orin_deploy.host import Host
from orin_deploy.intent.fit import alone
from orin_deploy.intent.placement import cpu_text


def facts(console: Console) -> None:
    device = inspect(Host())
    console.table(_machine_rows(device))
    console.document(plain(device))


def _machine_rows(device: Device) -> list[tuple[str, str]]:
    jetson = device.jetson
    rows = [
        ("machine", f"{device.machine}, {device.os or 'unknown system'}, kernel {device.kernel or 'unknown'}"),
        ("init", "systemd" if device.systemd else "no systemd: servers run as supervised processes"),
        ("container", device.container or "no"),
    ]
    if jetson is not None:
        rows += [
            ("board", jetson.model or "unknown"),
            ("module", _module(jetson) or f"unknown ({', '.join(jetson.compatible)})"),
            (
                "L4T",
                f"{jetson.l4t or '?'} (JetPack {jetson.jetpack or '?'}, CUDA {jetson.jetpack_cuda or '?'})",
            ),
        ]
        rows += [("power", _power(device.power))] if device.power else []
        rows += [("note", note) for note in notes(jetson)]
    return rows + _cpu_rows(device.cpu) + _memory_rows(device.memory) + _tool_rows(device)


def _power(power: PowerState) -> str:
    modes = ", ".join(mode.name for mode in power.table.modes) if power.table else "no table"
    return f"{power.current or 'unknown mode'} (of {modes})"


def _module(jetson: Jetson) -> str | None:
    """The module, super or not, and where it is told."""
    if jetson.module is None:
        return None
    return f"{jetson.module}{', super' if jetson.is_super else ''} (by {jetson.module_from or 'the device tree'})"


def _cpu_rows(cpu: Cpu) -> list[tuple[str, str]]:
    clusters = " | ".join(cpu_text(cluster.cpus) for cluster in cpu.clusters) or "unknown"
    return [
        ("CPU", cpu.model or "unknown"),
        ("CPUs", f"{cpu_text(cpu.online)} online of {cpu_text(cpu.present)}, {cpu_text(cpu.usable)} usable here"),
        ("clusters", clusters if cpu.clusters_from == "none" else f"{clusters} (from {cpu.clusters_from})"),
    ]


def _memory_rows(memory: Memory) -> list[tuple[str, str]]:
    rows = [("memory", f"{mib(memory.available)} available of {mib(memory.total)}" if memory.total else "unknown")]
    if memory.cgroup_limit is not None:
        rows.append(("cgroup", f"{mib(memory.cgroup_limit)} limit, {mib(memory.cgroup_used or 0)} used"))
    if memory.hugepages_total:
        rows.append(("huge pages", f"{mib(memory.hugepages_total)} set aside, of no use to llama.cpp"))
    if memory.swap_total:
        rows.append(("swap", f"{mib(memory.swap_total)}, of it zram {mib(memory.zram_total)}"))
    return rows


def _tool_rows(device: Device) -> list[tuple[str, str]]:
    tools = device.toolchain
    named = {"C++": tools.cxx, "cmake": next(iter(tools.cmakes), None), "ninja": tools.ninja, "ccache": tools.ccache}
    rows = [(name, _tool(tool)) for name, tool in named.items()]
    for toolkit in tools.cuda:
        rows.append(("CUDA", f"{toolkit.version_text} at {toolkit.root}{'' if toolkit.on_path else ' (not on PATH)'}"))
    return rows if tools.cuda else [*rows, ("CUDA", "none")]


def _tool(tool: Tool | None) -> str:
    return "none" if tool is None else f"{tool.version_text} at {tool.path}"


def version(console: Console) -> None:
    host = Host()
    engines = sorted(path.parent.parent.name for path in (host.data / "engines").glob("*/bin/llama-server"))
    console.table(
        [
            ("orin-deploy", __version__),
            ("Python", platform.python_version()),
            ("data", str(host.data)),
            ("engines", ", ".join(name[:12] for name in engines) or "none"),
        ]
    )
    console.document(
        {"orin_deploy": __version__, "python": platform.python_version(), "data": str(host.data), "engines": engines}
    )


def gguf(reference: str, ctx_size: int | None, tensors: bool, folder: str | None, console: Console) -> None:
    """Header facts, and the memory the model needs at a context on this machine's CPU."""
    host = Host()
    found = find_model(host, reference, profile_folders(host, folder), None, console.events().progress)
    model = found.model
    context = ctx_size or min(model.n_ctx_train, 4096) or 4096
    device = inspect(host)
    budget = alone(model, context, device)
    console.table(_model_rows(model))
    if tensors:
        console.say("Tensors")
        console.table(
            [(each.name, each.type, " x ".join(map(str, each.dims)), mib(each.bytes)) for each in _tensors(found)]
        )
    beyond = (
        f" (beyond the {model.n_ctx_train} tokens the model was trained for)" if context > model.n_ctx_train else ""
    )
    console.say(f"At a context of {context}{beyond}, one slot, KV f16:")
    show_budget(budget, console, device.memory.total)
    document = model_document(model) | {"ctx_size": context, "budget": budget_document(budget)}
    if tensors:
        document["tensors"] = plain(_tensors(found))
    console.document(document)


def _tensors(found: Found) -> list[Tensor]:
    return [tensor for header in found.headers for tensor in header.tensors]


def _model_rows(model: Model) -> list[tuple[str, str]]:
    heads = sorted({layer.n_head_kv for layer in model.layers}, reverse=True)
    types = ", ".join(f"{name} {mib(size)}" for name, size in model.tensor_types)
    rows = [
        ("model", model.name or model.reference),
        ("known from", model.known_from),
        ("architecture", model.architecture),
        ("parameters", f"{model.n_params:,}" if model.n_params else "unknown"),
        (
            "file",
            f"{model.file_type or 'unknown type'}, {mib(model.file_bytes)}, parts: {model.parts}",
        ),
        ("tensors", types or "unknown"),
        ("layers", f"{model.n_layer} of {model.n_head} heads, {'/'.join(map(str, heads))} for keys and values"),
        ("embedding", f"{model.n_embd}, feed-forward {model.n_ff}"),
        ("context", f"{model.n_ctx_train} tokens in training"),
        ("vocabulary", f"{model.n_vocab} tokens, {model.tokenizer or 'unknown'} / {model.pre_tokenizer or 'default'}"),
        ("chat template", "yes" if model.chat_template else "no"),
    ]
    if model.n_expert:
        rows.append(("experts", f"{model.n_expert}, {model.n_expert_used} used"))
    if model.sliding_window:
        rows.append(("window", f"{model.sliding_window} tokens"))
    return rows
