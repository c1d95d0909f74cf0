"""The part of JSON Schema that Grafana's own schema uses, read strictly: a keyword not known here is an error."""

from __future__ import annotations

from collections.abc import Iterator

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {
    "$ref",
    "type",
    "enum",
    "const",
    "anyOf",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "definitions",
}


def find_faults(schema: dict, value: object) -> list[str]:
    """Where a value is not what its schema says, in words."""
    return list(_check(schema, schema, value, "$"))


def _check(top: dict, schema: dict, value: object, place: str) -> Iterator[str]:
    assert set() == set(schema) - _KNOWN, f"a keyword of JSON Schema that is not read here, at {place}"
    if "$ref" in schema:
        yield from _check(top, top["definitions"][schema["$ref"].rpartition("/")[2]], value, place)
    if "anyOf" in schema and all(list(_check(top, one, value, place)) for one in schema["anyOf"]):
        yield f"{place}: {value!r} is none of what is allowed"
    if "type" in schema and not _is_one_of(schema["type"], value):
        yield f"{place}: {value!r} is no {schema['type']}"
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{place}: {value!r} is not among {schema.get('enum') or schema.get('const')}"
    if isinstance(value, dict):
        yield from _check_object(top, schema, value, place)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _check(top, schema["items"], item, f"{place}[{number}]")


def _check_object(top: dict, schema: dict, value: dict, place: str) -> Iterator[str]:
    for name in schema.get("required", []):
        if name not in value:
            yield f"{place}: {name} is missing"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, item in value.items():
        if name in known:
            yield from _check(top, known[name], item, f"{place}.{name}")
        elif others is False:
            yield f"{place}: {name} is not known"
        elif isinstance(others, dict):
            yield from _check(top, others, item, f"{place}.{name}")


def _is_one_of(types: str | list[str], value: object) -> bool:
    names = [types] if isinstance(types, str) else types
    return any(isinstance(value, _TYPES[name]) and _is_no_bool(name, value) for name in names)


def _is_no_bool(name: str, value: object) -> bool:
    return name == "boolean" or not isinstance(value, bool)
