"""Whether a value surely fits a schema: a quick look, so that jsonschema is imported only where it finds faults."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def fits(value: Any, schema: Schema, root: Schema | None = None) -> bool:
    """True only where jsonschema finds nothing wrong; False also for what is not understood here.

    `root` is the schema that references are looked up in, by default this one.
    """
    root = schema if root is None else root
    return all(_holds(value, keyword, rule, schema, root) for keyword, rule in schema.items())


def _holds(value: Any, keyword: str, rule: Any, schema: Schema, root: Schema) -> bool:
    """One keyword's rule; as in JSON Schema each is about values of one type, and holds for all others."""
    is_number = type(value) in (int, float)
    match keyword:
        case "$schema" | "title" | "description" | "deprecated":
            return True
        case "$ref":
            return fits(value, _at(rule, root), root)
        case "type":
            return any(type(value) in _TYPES[name] for name in ([rule] if isinstance(rule, str) else rule))
        case "enum":
            return any(type(value) is type(each) and value == each for each in rule)
        case "anyOf":
            return any(fits(value, each, root) for each in rule)
        case "minimum":
            return not is_number or value >= rule
        case "maximum":
            return not is_number or value <= rule
        case "minLength":
            return not isinstance(value, str) or len(value) >= rule
        case "pattern":
            return not isinstance(value, str) or re.search(rule, value) is not None
        case "minItems":
            return not isinstance(value, list) or len(value) >= rule
        case "items":
            return not isinstance(value, list) or all(fits(each, rule, root) for each in value)
    return isinstance(value, dict) and _holds_of_keys(value, keyword, rule, schema, root)


def _holds_of_keys(value: dict[Any, Any], keyword: str, rule: Any, schema: Schema, root: Schema) -> bool:
    known = schema.get("properties", {})
    match keyword:
        case "properties":
            return all(fits(each, rule[key], root) for key, each in value.items() if key in rule)
        case "additionalProperties":
            return all(key in known or (rule is not False and fits(each, rule, root)) for key, each in value.items())
        case "propertyNames":
            return all(fits(key, rule, root) for key in value)
        case "required":
            return all(key in value for key in rule)
    return False


def _at(reference: str, root: Schema) -> Schema:
    """The part of the root that a reference as "#/properties/port" names."""
    found = root
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found
