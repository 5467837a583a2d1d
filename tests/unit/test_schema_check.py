"""The quick look at a profile: never kinder than jsonschema, and enough for every file that ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.intent import schema, yaml_text
from orin_deploy.intent.profile import search_path
from orin_deploy.intent.schema_check import fits

FOLDER = search_path(None, {})[-1]
PROFILES = sorted((*FOLDER.glob("*.yaml"), *FOLDER.glob("_shared/*.yaml")))
ENTRIES = sorted(FOLDER.glob("models/*.yaml"))
SCALARS = st.sampled_from(
    [None, True, False, 0, 1, -1, 2, 0.5, 8.0, 2**40, -(2**40), "", "on", "off", "auto", "f16", "0-3", "x y", "a" * 70]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def _schema_of(path: Path) -> schema.Schema:
    return schema.entry_schema() if path in ENTRIES else schema.profile_schema()


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every mapping or list inside, with each of its keys or positions."""
    keys = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [(data, key) for key in keys] + [place for key in keys for place in _places(data[key])]


@pytest.mark.parametrize("path", [*PROFILES, *ENTRIES], ids=lambda path: str(path.relative_to(FOLDER)))
def test_what_ships_needs_no_second_look(path: Path) -> None:
    assert fits(yaml_text.read(path).data, _schema_of(path))


@given(st.data(), st.sampled_from([*PROFILES, *ENTRIES]))
def test_it_is_never_kinder_than_jsonschema(data: st.DataObject, path: Path) -> None:
    """Any value put in any place, and any key beside others or missing."""
    document, made = yaml_text.read(path).data, _schema_of(path)
    holder, key = data.draw(st.sampled_from(_places(document)))
    match data.draw(st.sampled_from(["replace", "remove", "add"])):
        case "replace":
            holder[key] = data.draw(VALUES)
        case "remove":
            del holder[key]
        case _ if isinstance(holder, dict):
            holder[data.draw(st.sampled_from(["x", "port", "name", "model", "sources", "9", "a-b"]))] = data.draw(
                VALUES
            )
    if fits(document, made):
        jsonschema.validate(document, made, jsonschema.Draft202012Validator)


RULES: tuple[schema.Schema, ...] = (
    {"type": "object"}, {"type": "array"}, {"type": "string"}, {"type": "integer"}, {"type": "number"},
    {"type": ["string", "integer"]}, {"type": ["string", "number", "boolean"]}, {"minimum": 1}, {"maximum": 1},
    {"minLength": 1}, {"minLength": 2}, {"pattern": "^a+$"}, {"pattern": "b"}, {"minItems": 1},
    {"enum": [True, False, "on", "off"]}, {"enum": [1, "a"]}, {"enum": ["auto"]},
    {"anyOf": [{"minimum": 2}, {"enum": [0]}]},
    {"items": {"type": "integer"}}, {"properties": {"a": {"type": "integer"}}}, {"required": ["a"]},
    {"properties": {"a": {}}, "additionalProperties": False}, {"additionalProperties": {"type": "string"}},
    {"propertyNames": {"pattern": "^a$"}}, {"$ref": "#/properties/b", "properties": {"b": {"maximum": 1}}},
)  # fmt: skip
SAMPLES: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, -1, 0.0, 0.5, 1.0, 1.5, "", "a", "aa", "b", "on", "auto", "ab\n", [], ["a"], [1],
    [True], [1, "a"], {}, {"a": 1}, {"a": "x"}, {"a": True}, {"b": 1}, {"b": "x"}, {"a": 1, "b": 2},
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_it_is_never_kinder_about_one_rule(rule: schema.Schema) -> None:
    validator = jsonschema.Draft202012Validator(rule)
    taken = [value for value in SAMPLES if fits(value, rule)]
    assert taken, "or the quick look is none"
    assert [value for value in taken if not validator.is_valid(value)] == []
    assert len(taken) < len(SAMPLES)


def test_what_it_does_not_understand_is_left_to_jsonschema() -> None:
    assert fits({"a": 1}, {"type": "object"})
    assert not fits({"a": 1}, {"type": "object", "minProperties": 1})
