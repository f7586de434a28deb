"""The schemas of Kubernetes' and the Spark operator's objects, as strict as an API server asked to validate strictly.

They come from the operator's published models (package kubeflow-spark-api, generated from the same types as its
custom resource definitions). A model leaves out what only the definitions say, the words that a few fields allow: they
are added here.
"""

from typing import Any

import jsonschema
from kubeflow_spark_api import models
from pydantic import BaseModel

MODELS: dict[tuple[str, str], type[BaseModel]] = {
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"): models.SparkV1beta2SparkApplication,
    ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication"): models.SparkV1beta2ScheduledSparkApplication,
    ("v1", "ServiceAccount"): models.IoK8sApiCoreV1ServiceAccount,
    ("v1", "PersistentVolumeClaim"): models.IoK8sApiCoreV1PersistentVolumeClaim,
}
QUANTITY = r"^[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[mkMGTPE]|[eE][+-]?\d+)?$"
NARROWER: dict[tuple[str, str], dict[str, Any]] = {
    ("SparkV1beta2SparkApplicationSpec", "type"): {"enum": ["Java", "Python", "Scala", "R"]},
    ("SparkV1beta2SparkApplicationSpec", "mode"): {"enum": ["cluster", "client"]},
    ("SparkV1beta2SparkApplicationSpec", "pythonVersion"): {"enum": ["2", "3"]},
    ("SparkV1beta2RestartPolicy", "type"): {"enum": ["Never", "Always", "OnFailure"]},
    ("SparkV1beta2RestartPolicy", "onFailureRetryInterval"): {"minimum": 1},
    ("SparkV1beta2RestartPolicy", "onSubmissionFailureRetryInterval"): {"minimum": 1},
    ("SparkV1beta2DriverSpec", "cores"): {"minimum": 1},
    ("SparkV1beta2ExecutorSpec", "cores"): {"minimum": 1},
    ("SparkV1beta2ExecutorSpec", "instances"): {"minimum": 1},
    ("SparkV1beta2ScheduledSparkApplicationSpec", "concurrencyPolicy"): {"enum": ["Allow", "Forbid", "Replace"]},
}
# What spark-submit takes of memory: the JVM's way of writing it.
MEMORY = {"pattern": r"^\d+([kKmMgGtT][bB]?)?$"}


def faults(document: dict[str, Any]) -> list[str]:
    """What is wrong with an object, one line each; unknown fields are. Raises KeyError when its kind is not known."""
    model = MODELS[document["apiVersion"], document["kind"]]
    validator = jsonschema.Draft202012Validator(_strict(model.model_json_schema(by_alias=True), model.__name__))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


def _strict(schema: dict[str, Any], name: str) -> dict[str, Any]:
    definitions = schema.pop("$defs", {})
    strict = {each: _closed(each, definition) for each, definition in definitions.items()}
    strict["IoK8sApimachineryPkgApiResourceQuantity"] = {
        "anyOf": [{"type": "string", "pattern": QUANTITY}, {"type": "integer"}]
    }
    strict["IoK8sApimachineryPkgUtilIntstrIntOrString"] = {"type": ["string", "integer"]}
    return {**_closed(name, schema), "$defs": strict}


def _closed(name: str, definition: dict[str, Any]) -> dict[str, Any]:
    """An object may have the properties named, and no field may be null."""
    properties = {
        field: {**_without_null(each), **_narrower(name, field)}
        for field, each in definition.get("properties", {}).items()
    }
    closed = {"additionalProperties": False, "properties": properties} if properties else {}
    return {**definition, **closed}


def _narrower(name: str, field: str) -> dict[str, Any]:
    if name in {"SparkV1beta2DriverSpec", "SparkV1beta2ExecutorSpec"} and field in {"memory", "memoryOverhead"}:
        return MEMORY
    return NARROWER.get((name, field), {})


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    choices = [each for each in field.get("anyOf", []) if each != {"type": "null"}]
    return {**field, "anyOf": choices} if choices else field
