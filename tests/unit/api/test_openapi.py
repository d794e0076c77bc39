"""What people and generators of clients read: each field is described, each call has a name and a good example."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast.api import ApiSettings
from holdfast.api.openapi.examples import BODIES
from holdfast.api.processes.models import ProcessInput
from holdfast.api.sessions.models import FileWrite
from support.api_host import application

Operation = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def app() -> Any:
    return application(ApiSettings())[0]


@pytest.fixture(scope="module")
def schema(app: Any) -> dict[str, Any]:
    found: dict[str, Any] = app.openapi()
    return found


def operations(schema: dict[str, Any]) -> Iterator[Operation]:
    for path, found in schema["paths"].items():
        for verb, operation in found.items():
            yield verb.upper(), path, operation


def test_every_field_is_described(schema: dict[str, Any]) -> None:
    bare = [
        f"{model}.{name}"
        for model, definition in schema["components"]["schemas"].items()
        for name, field in definition.get("properties", {}).items()
        if not field.get("description")
    ]
    assert bare == [], "say what they are, in their models or in api/openapi/described.py"


def test_every_parameter_is_described(schema: dict[str, Any]) -> None:
    bare = [
        f"{verb} {path}: {one['name']}"
        for verb, path, operation in operations(schema)
        for one in operation.get("parameters", ())
        if not (one.get("description") or one["schema"].get("description"))
    ]
    assert bare == []


def test_every_call_has_a_name_that_people_can_read(schema: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _verb, _path, operation in operations(schema)]
    assert len(set(ids)) == len(ids)
    assert [one for one in ids if not re.fullmatch(r"[a-z]+(_[a-z]+){1,3}", one)] == []
    assert set(BODIES) <= set(ids), "examples of what there is"


def test_every_call_has_an_example(schema: dict[str, Any]) -> None:
    for verb, path, operation in operations(schema):
        assert operation["summary"], path
        source = operation["x-codeSamples"][0]["source"]
        words = shlex.split(source.replace("\\\n", " "))
        assert words[0] == "curl" and not re.search(r"[{}]", words[words.index("-H") - 1 if "-H" in words else -1]), (
            source
        )
        assert ("Authorization: Bearer $HOLDFAST_API_KEY" in words) == bool(operation.get("security")), source
        assert "-X" in words or ("-d" in words or "--data-binary" in words) == (verb == "POST"), source


def test_bodies_of_examples_are_valid(app: Any, schema: dict[str, Any]) -> None:
    by_name = {model.__name__: model for model in every_model(BaseModel)}
    by_hand: dict[str, type[BaseModel]] = {"write_file": FileWrite, "write_process_stdin": ProcessInput}
    checked = 0
    for _verb, _path, operation in operations(schema):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is None:
            continue
        example = BODIES[operation["operationId"]]
        text = json.dumps(content["schema"])
        named = re.search(r"#/components/schemas/(\w+)", text)
        model = by_hand.get(operation["operationId"]) or by_name[named[1] if named else ""]
        model.model_validate_json(json.dumps(example))
        assert content["example"] == example
        checked += 1
    assert checked > 25


def every_model(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from every_model(model)
