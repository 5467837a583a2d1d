"""The schemas: what ships is what is generated, and they agree with how values are read."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import UsageError
from orin_deploy.intent import options, schema
from orin_deploy.intent.board_facts import BOARD
from orin_deploy.intent.option_table import OWN, SERVER, Option
from orin_deploy.intent.profile import search_path

FOLDER = search_path(None, {})[-1]
ROWS = tuple(row for row in (*SERVER, *OWN, *BOARD) if row.owned is None and row.kind != "map")


def test_what_ships_is_what_is_generated() -> None:
    again = "write schema.text(schema.profile_schema()) and schema.text(schema.entry_schema()) to the files"
    assert (FOLDER / "schema.json").read_text() == schema.text(schema.profile_schema()), again
    assert (FOLDER / "models/schema.json").read_text() == schema.text(schema.entry_schema()), again


def test_they_are_schemas() -> None:
    for made in (schema.profile_schema(), schema.entry_schema()):
        jsonschema.Draft202012Validator.check_schema(made)


def test_every_settable_option_is_in_the_schema_by_every_name() -> None:
    properties = schema.profile_schema()["properties"]
    for row in ROWS:
        section, _, inner = row.key.rpartition(".")
        held = properties[section]["properties"] if section else properties
        assert inner in held
        assert all(name in held for name in options.names(row) if not section)


def test_every_file_names_its_schema() -> None:
    for path in FOLDER.rglob("*.yaml"):
        first = path.read_text().splitlines()[0]
        assert first.startswith("# yaml-language-server: $schema=")
        assert (path.parent / first.partition("=")[2]).is_file()


def _ideas(option: Option) -> st.SearchStrategy[Any]:
    bounds = [
        value for bound in (option.low, option.high) if bound is not None for value in (bound, bound - 1, bound + 1)
    ]
    words = [*option.words, "on", "off", "auto", "0-3", "87", "f16-f16", "p3701-0004", "armv8.2-a+fp16", "1,2", "x", ""]
    scalar = st.sampled_from([*bounds, *words, 4, 0.5, True, False])
    return scalar | st.lists(scalar, max_size=3) | st.none()


@given(st.data(), st.sampled_from(ROWS))
def test_what_is_read_is_in_the_schema(data: st.DataObject, option: Option) -> None:
    raw = data.draw(_ideas(option))
    try:
        options.parse(option, raw)
    except UsageError:
        return
    if not (isinstance(raw, str) and option.kind in ("int", "float")):  # YAML has numbers, --set has text
        if isinstance(raw, str) and raw in ("true", "false"):
            return
        jsonschema.validate(raw, schema.node(option), jsonschema.Draft202012Validator)


@given(st.data(), st.sampled_from(ROWS))
def test_what_the_schema_takes_is_read(data: st.DataObject, option: Option) -> None:
    raw = data.draw(_ideas(option))
    if jsonschema.Draft202012Validator(schema.node(option)).is_valid(raw):
        options.parse(option, raw)


def test_an_error_cannot_hide_behind_another(tmp_path: Any) -> None:
    from orin_deploy.intent import yaml_text

    document = yaml_text.parse("threads: 0\nport: 0\nfoo: 1\nboard: {cuda: 3}\n", "x.yaml")
    found = schema.validate(document, schema.profile_schema(), schema.PROFILE_ROWS, schema.stranger_in_profile)
    assert [problem.line for problem in found] == [1, 2, 3, 4]
    assert [problem.key for problem in found] == ["threads", "port", "foo", "board.cuda"]


@pytest.mark.parametrize("text", ["", "[]", "a", "- a", "42"])
def test_what_is_no_mapping_is_said(text: str) -> None:
    from orin_deploy.intent import yaml_text

    document = yaml_text.parse(text, "x.yaml")
    found = schema.validate(document, schema.profile_schema(), schema.PROFILE_ROWS, schema.stranger_in_profile)
    assert [problem.message for problem in found] == ["must hold keys and values"]
