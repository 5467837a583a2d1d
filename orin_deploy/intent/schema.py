"""The JSON Schemas of profiles and catalogue entries, generated from the option table, and checking against them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from orin_deploy.errors import UsageError
from orin_deploy.facts.draft import BY_MODEL
from orin_deploy.intent import options
from orin_deploy.intent.board_facts import BOARD, POWER_MODE, POWER_TABLES
from orin_deploy.intent.option_table import INT_MAX, Option
from orin_deploy.intent.schema_check import fits
from orin_deploy.intent.yaml_text import Document, Problem, Where

Schema: TypeAlias = dict[str, Any]
Rows: TypeAlias = Mapping[str, Option]

_FIELDS = (
    Option("description", "str", "One sentence: which machine, which use."),
    Option("include", "list", "Shared parts or profiles to start from, by name or path; own values win."),
)

_MODEL = (
    Option("model.architecture", "str", "general.architecture of the header."),
    Option("model.title", "str", "general.name of the header."),
    Option("model.n_params", "int", "Parameters.", low=1, high=2**53),
    Option("model.file_type", "str", "Quantization, as in Q4_K_M."),
    *(
        Option(f"model.{key}", "int", help, low=low, high=INT_MAX)
        for key, low, help in (
            ("n_layer", 1, "Layers."),
            ("n_embd", 1, "Embedding size."),
            ("n_ff", 0, "Feed-forward size."),
            ("n_head", 1, "Query heads."),
            ("n_head_kv", 1, "Key and value heads of a layer."),
            ("head_size", 1, "Elements of a key or value head."),
            ("n_vocab", 1, "Tokens of the vocabulary."),
            ("n_ctx_train", 1, "Training context in tokens."),
        )
    ),
    Option("model.rope_base", "float", "RoPE base frequency.", low=0),
    Option("model.tokenizer", "str", "tokenizer.ggml.model of the header."),
    Option("model.pre_tokenizer", "str", "tokenizer.ggml.pre of the header."),
    Option("model.chat_template", "bool", "Whether the file brings a chat template."),
    *(
        Option(f"model.{key}", "int", help, low=0, high=2**53)
        for key, help in (
            ("tensor_bytes", "Bytes of all tensors, where the size of the file is not known."),
            ("token_embd_bytes", "Bytes of the token embedding."),
            ("output_bytes", "Bytes of the output matrix; 0 when it is the token embedding."),
            ("largest_tensor_bytes", "Bytes of the largest tensor."),
        )
    ),
)  # fmt: skip

_ENTRY = (
    Option("description", "str", "One sentence about the model."),
    Option("licence", "str", "SPDX name, or the licence's own."),
    Option("references", "list", "Where the files are, alternatives in order; file names are added."),
    Option("files", "map", "The files of the model, in order."),
    Option("files.name", "str", "File name below each reference."),
    Option("files.size", "int", "Bytes.", low=1, high=2**53),
    Option("files.sha256", "str", "SHA-256 of the file.", pattern="[0-9a-f]{64}", shape="64 hexadecimal digits"),
    Option("sampling", "map", "Sampling presets by name."),
    Option("drafts", "list", "Names of the entries that can draft for this model, the best first."),
    Option("draft", "map", "What the model is as a draft."),
    Option("draft.kind", "enum", "The kind of speculation.", choices=BY_MODEL),
    Option("draft.block_size", "int", "The most tokens it was trained to draft at once.", low=1, high=1024),
    Option("draft.target_layers", "list", "Numbers of the target's layers that it reads."),
    Option("draft.confidence_head", "bool", "Whether it says how sure it is of each token."),
)

PROFILE_ROWS: Rows = {
    **{name: row for row in options.OPTIONS.values() if row.owned is None for name in options.names(row)},
    **{row.key: row for row in (*_FIELDS, *BOARD)},
    **{f"board.{table}{row.key.removeprefix('mode')}": row for table in POWER_TABLES for row in POWER_MODE},
}
ENTRY_ROWS: Rows = {row.key: row for row in (*_ENTRY, *_MODEL)}


def node(option: Option) -> Schema:
    """The schema of one option's value."""
    match option.kind:
        case "int" | "float":
            inner: Schema = {"type": "integer" if option.kind == "int" else "number"}
            inner |= {} if option.low is None else {"minimum": option.low}
            inner |= {} if option.high is None else {"maximum": option.high}
            inner = {"anyOf": [inner, {"enum": list(option.words)}]} if option.words else inner
        case "bool":
            inner = {"enum": [True, False, "on", "off"]}
        case "enum":
            inner = {"enum": list(option.choices)}
        case "list":
            inner = _list_node(option)
        case "map":
            inner = {"type": "object"}
        case _:
            inner = _text_node(option.pattern, option.words)
    return {"description": option.help, **inner}


def _text_node(pattern: str | None, words: tuple[str, ...] = ()) -> Schema:
    if pattern is None:
        return {"type": ["string", "integer"], "minLength": 1}
    return {"type": ["string", "integer"], "pattern": f"^({'|'.join((pattern, *words))})$"}


def _list_node(option: Option) -> Schema:
    if option.pattern is None and not option.choices:
        item: Schema = {"type": ["string", "number"], "minLength": 1}
        return {"anyOf": [{"type": "array", "items": item, "minItems": 1}, item]}
    words = (*option.choices, *dict(option.synonyms))
    one = "|".join(filter(None, (option.pattern, *words)))
    item = {"type": ["string", "integer"], "pattern": f"^({one})$"}
    text = {"type": ["string", "integer"], "pattern": f"^(({one})( *[,;] *({one}))*{'|auto' if option.auto else ''})$"}
    return {"anyOf": [{"type": "array", "items": item, "minItems": 1}, text]}


def _object(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "additionalProperties": False, **more, "properties": properties}


def _section(rows: Rows | tuple[Option, ...], name: str, **more: Any) -> Schema:
    found = rows if isinstance(rows, tuple) else tuple(dict.fromkeys(rows.values()))
    return _object({row.key.partition(".")[2]: node(row) for row in found if row.section == name}, **more)


def _power_node() -> Schema:
    rows = {row.key.partition(".")[2]: node(row) for row in POWER_MODE}
    rows["masks"] |= _object({key.removeprefix("masks."): rows.pop(key) for key in list(rows) if "." in key})
    mode = _object(rows, required=["id", "name", "cores", "masks"])
    return {"description": "Power modes, as nvpmodel.conf has them.", "type": "array", "minItems": 1, "items": mode}


@cache
def profile_schema() -> Schema:
    """The schema of a profile, which editors read too; shipped as profiles/schema.json."""
    properties: Schema = {row.key: node(row) for row in _FIELDS}
    properties["board"] = _section(BOARD, "board", description="Facts of the board, each with its source.")
    properties["board"]["properties"]["sources"]["additionalProperties"] = {"type": "string", "minLength": 1}
    properties["board"]["properties"] |= dict.fromkeys(POWER_TABLES, _power_node())
    properties["draft"] = node(options.OPTIONS["draft"])
    for name in ("build", "power", "placement", "speculation", "memory", "service"):
        properties[name] = _section(PROFILE_ROWS, name)
    properties["build"]["properties"]["cmake"] |= {
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }
    properties["speculation"]["properties"]["workload"] |= {"additionalProperties": {"type": "number", "minimum": 0}}
    for name, row in PROFILE_ROWS.items():
        if row.section == "server" and row.key in options.OPTIONS:
            alias = {"$ref": f"#/properties/{row.key}", "deprecated": True}
            properties[name] = node(row) if name == row.key else alias
    return _titled("orin-deploy profile", _object(properties))


@cache
def entry_schema() -> Schema:
    """The schema of a catalogue entry; shipped as profiles/models/schema.json."""
    properties = {row.key: node(row) for row in _ENTRY if "." not in row.key}
    file = {row.key.partition(".")[2]: node(row) for row in _ENTRY if row.section == "files"}
    properties["files"] = {"type": "array", "minItems": 1, "items": _object(file, required=["name"])}
    needed = ["architecture", "n_layer", "n_embd", "n_head", "n_head_kv", "head_size", "n_vocab", "n_ctx_train"]
    properties["model"] = _section(_MODEL, "model", required=needed)
    presets = _object({row.key: node(row) for row in options.OPTIONS.values() if row.cost == "request"})
    properties["sampling"] |= {"additionalProperties": presets}
    properties["draft"] = _section(_ENTRY, "draft", required=["kind"])
    layer = {"type": "integer", "minimum": 0}
    properties["draft"]["properties"]["target_layers"] = {"type": "array", "minItems": 1, "items": layer}
    required = ["description", "licence", "references", "files", "model"]
    return _titled("orin-deploy catalogue entry", _object(properties, required=required))


def _titled(title: str, schema: Schema) -> Schema:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def text(schema: Schema) -> str:
    """A schema as the text of the file that is shipped."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def validate(document: Document, schema: Schema, rows: Rows, stranger: Callable[[Where], str]) -> list[Problem]:
    """All that is wrong with a document, in the order of its lines.

    `rows` say in words what a key may hold; `stranger` says what to write for a key that the schema does not have.
    """
    if not isinstance(document.data, dict):
        return document.problems or [document.problem((), "must hold keys and values")]
    found: dict[Problem, None] = dict.fromkeys(document.problems)
    for error in () if fits(document.data, schema) else _errors(document.data, schema):
        where: Where = tuple(error.absolute_path)
        if error.validator == "additionalProperties":
            extras = [key for key in error.instance if key not in error.schema["properties"]]
            found |= dict.fromkeys(document.problem((*where, key), stranger((*where, key))) for key in extras)
        elif error.validator == "required":
            missing = [key for key in error.validator_value if key not in error.instance]
            found |= dict.fromkeys(document.problem(where, f"lacks {key}") for key in missing)
        elif "propertyNames" not in error.absolute_schema_path:  # reading the values says it better
            found[document.problem(where, _wrong(error.instance, where, rows))] = None
    return sorted(found, key=lambda problem: problem.line or 0)


def _errors(data: Any, schema: Schema) -> Iterator[Any]:
    from jsonschema import Draft202012Validator  # 50 ms here, and a second on a slow board

    return Draft202012Validator(schema).iter_errors(data)


def _wrong(value: Any, where: Where, rows: Rows) -> str:
    row = rows.get(".".join(part for part in where if isinstance(part, str)))
    shown = options.shown(value)
    if row is None:
        return f"cannot be {shown}"
    return f"cannot be {shown}: " + (
        "it holds further keys" if row.kind == "map" else f"allowed is {options.allowed(row)}"
    )


def closest(where: Where, known: Mapping[str, Any]) -> str:
    """What to say of a key that a mapping of these keys does not have."""
    from difflib import get_close_matches

    near = get_close_matches(str(where[-1]).replace("-", "_"), known, n=1, cutoff=0.5)
    return f"is no key here; did you mean {near[0]}?" if near else f"is no key here; there are {', '.join(known)}"


def stranger_in_profile(where: Where) -> str:
    """What to write for a key that a profile cannot hold: the right spelling, today's name, or the nearest."""
    key = ".".join(map(str, where))
    if where[0] == "board":
        rows = BOARD if len(where) == 2 else POWER_MODE
        return closest(where, {row.key.rpartition(".")[2]: row for row in rows})
    try:
        option = options.find(key)
    except UsageError as error:
        near = None if len(where) > 1 or options.nearest(key) else closest(where, profile_schema()["properties"])
        return near if near and "did you mean" in near else f"{error.message}; {error.hint}"
    if option.owned is not None:
        return f"cannot be set: {option.owned}"
    return f"is written {option.key} in a profile"
