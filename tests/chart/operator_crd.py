"""The Spark operator's custom resource definitions, as strict as an API server that is asked to validate strictly.

`tools/ensure_operator_crd.sh` fetches them as its project publishes them.
"""

from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

FOLDER = Path(__file__).resolve().parents[2] / ".venv" / "spark-operator-crd"
Schema = dict[str, Any]


def is_there() -> bool:
    """Whether they could be fetched."""
    return (FOLDER / "checksum").is_file()


def faults(document: dict[str, Any]) -> list[str]:
    """What is wrong with an object of the operator's, one line each; unknown fields are."""
    group, _, version = document["apiVersion"].partition("/")
    validator = jsonschema.Draft202012Validator(_schema(group, version, document["kind"]))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@cache
def _schema(group: str, version: str, kind: str) -> Schema:
    """Raises FileNotFoundError or StopIteration for what the operator does not define."""
    path = FOLDER / f"{group}_{kind.lower()}s.yaml"
    # The C one: there are 12 000 lines.
    definition = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["spec"]
    assert definition["names"]["kind"] == kind
    schema = next(each["schema"] for each in definition["versions"] if each["name"] == version and each["served"])
    strict: Schema = _strict(schema["openAPIV3Schema"])
    return strict


def _strict(schema: Any) -> Any:
    """Of OpenAPI's dialect what Kubernetes uses of it, as JSON Schema; objects may have the properties named."""
    if not isinstance(schema, dict):
        return schema
    strict: Schema = {name: value for name, value in schema.items() if not name.startswith("x-kubernetes-")}
    for name in ("items", "additionalProperties"):
        if name in schema:
            strict[name] = _strict(schema[name])
    if "properties" in schema:
        strict["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            strict.setdefault("additionalProperties", False)
    if schema.get("nullable"):
        strict["type"] = [schema["type"], "null"]
    return strict
