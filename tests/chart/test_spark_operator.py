"""The Spark operator's manifests: what the operator takes, what they name, what they ask of Spark and of our jobs."""

import shutil
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from quintet_kit.options import settings_of
from quintet_spark.__main__ import main
from quintet_spark.jobs.settings import ReportSettings, StreamSettings

from tests.chart import operator_crd
from tests.chart.operator_schema import faults

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "spark-operator" / "manifests"
DOCUMENT = (ROOT / "docs" / "spark-operator.md").read_text()
BASE = [
    document
    for name in yaml.safe_load((MANIFESTS / "base" / "kustomization.yaml").read_text())["resources"]
    for document in yaml.safe_load_all((MANIFESTS / "base" / name).read_text())
]
SPARK_KINDS = ("SparkApplication", "ScheduledSparkApplication")
Document = dict[str, Any]


def named(document: Document) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


def rendered(folder: str) -> list[Document]:
    """What kustomize makes of a folder. kubectl brings it along."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl here to render kustomizations")
    done = subprocess.run([kubectl, "kustomize", MANIFESTS / folder], capture_output=True, check=True, timeout=60)
    return list(yaml.safe_load_all(done.stdout))


def specs(documents: list[Document]) -> dict[str, Document]:
    """What is to be run, by name."""
    found = [document for document in documents if document["kind"] in SPARK_KINDS]
    return {each["metadata"]["name"]: each["spec"].get("template", each["spec"]) for each in found}


APPLICATIONS = specs(BASE)
every_application = pytest.mark.parametrize("name", APPLICATIONS)


@pytest.mark.parametrize("document", BASE, ids=named)
class TestEveryObject:
    """One object of the base, as it is written."""

    def test_is_what_its_schema_says(self, document: Document) -> None:
        if document["apiVersion"].startswith("rbac."):
            assert set(document) <= {"apiVersion", "kind", "metadata", "rules", "roleRef", "subjects"}
            return
        assert faults(document) == []

    def test_says_what_it_belongs_to(self, document: Document) -> None:
        labels = document["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "quintet-spark"
        assert labels["app.kubernetes.io/part-of"] == "quintet"


needs_definitions = pytest.mark.skipif(
    not operator_crd.is_there(), reason="the Spark operator's definitions could not be fetched: make crd"
)


def of_operator(documents: list[Document]) -> list[Document]:
    return [each for each in documents if each["kind"] in SPARK_KINDS]


@needs_definitions
class TestTheOperatorsDefinition:
    """What an API server would hold against our applications."""

    @pytest.mark.parametrize("document", of_operator(BASE), ids=named)
    def test_allows_the_base(self, document: Document) -> None:
        assert operator_crd.faults(document) == []

    @pytest.mark.parametrize("folder", ["base", "overlays/example"])
    def test_allows_what_kustomize_renders(self, folder: str) -> None:
        documents = of_operator(rendered(folder))
        assert {each["kind"] for each in documents} == set(SPARK_KINDS)
        assert [fault for each in documents for fault in operator_crd.faults(each)] == []

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("mode", "clustered"),
            ("restartPolicy.type", "Sometimes"),
            ("restartPolicy.onFailureRetryInterval", 0),
            ("driver.cores", 0),
            ("driver.memory", 512),
            ("driver.memories", "1g"),
            ("driver.volumeMounts", [{"name": "lake"}]),
            ("volumes", [{"name": "lake", "persistentVolumeClaim": {"claim": "lake"}}]),
            ("sparkVersion", None),
            ("podDisruption", {}),
        ],
    )
    def test_refuses_what_is_wrong(self, path: str, value: object) -> None:
        document = deepcopy(next(each for each in BASE if each["kind"] == "SparkApplication"))
        *parents, last = path.split(".")
        place = document["spec"]
        for parent in parents:
            place = place[parent]
        place[last] = value
        assert any(last in fault for fault in operator_crd.faults(document))


@pytest.mark.parametrize("folder", ["base", "overlays/example"])
def test_kustomize_renders_what_the_schema_allows(folder: str) -> None:
    documents = rendered(folder)
    assert [named(each) for each in sorted(documents, key=named)] == [named(each) for each in sorted(BASE, key=named)]
    others = (each for each in documents if not each["apiVersion"].startswith("rbac."))
    assert [fault for each in others for fault in faults(each)] == []


def test_the_example_changes_what_it_says() -> None:
    documents = rendered("overlays/example")
    assert {document["metadata"]["namespace"] for document in documents} == {"quintet"}
    changed = specs(documents)
    assert {spec["image"] for spec in changed.values()} == {"registry.example.com/quintet-spark:0.1.0"}
    for name in ("quintet-archive", "quintet-rollup"):
        before, after = APPLICATIONS[name]["arguments"], changed[name]["arguments"]
        different = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        assert different == [("--endpoint=quintet-core:50051", "--endpoint=quintet-core.quintet.svc:50051")]
    (binding,) = (document for document in documents if document["kind"] == "RoleBinding")
    assert binding["subjects"][0]["namespace"] == "quintet"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "restartPolicies"), {"type": "Always"}),
        (("spec", "restartPolicy", "type"), "Sometimes"),
        (("spec", "driver", "memory"), "1Gi"),
        (("spec", "driver", "cores"), "1"),
        (("spec", "executor", "securityContext", "readonlyRootFilesystem"), True),
        (("spec", "executor", "instances"), 0),
        (("spec", "mainApplicationFile"), None),
        (("spec", "sparkConf", "spark.dynamicAllocation.enabled"), False),
        (("spec", "arguments"), "archive"),
    ],
)
def test_the_schema_finds_what_an_api_server_would(path: tuple[str, ...], value: object) -> None:
    (archive,) = (
        yaml.safe_load(yaml.safe_dump(each)) for each in BASE if each["metadata"]["name"] == "quintet-archive"
    )
    place = archive
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert faults(archive)


@every_application
class TestEveryApplication:
    """One application, streaming or scheduled."""

    def test_names_only_what_there_is(self, name: str) -> None:
        spec = APPLICATIONS[name]
        accounts = {each["metadata"]["name"] for each in BASE if each["kind"] == "ServiceAccount"}
        claims = {each["metadata"]["name"] for each in BASE if each["kind"] == "PersistentVolumeClaim"}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for role in ("driver", "executor"):
            assert spec[role]["serviceAccount"] in accounts
            assert {mount["name"] for mount in spec[role]["volumeMounts"]} == set(volumes)
        assert {
            each["persistentVolumeClaim"]["claimName"] for each in volumes.values() if "persistentVolumeClaim" in each
        } <= claims
        for secret in (each["secret"]["secretName"] for each in volumes.values() if "secret" in each):
            assert f"create secret generic {secret} " in DOCUMENT

    def test_runs_as_nobody_in_particular_and_writes_where_it_may(self, name: str) -> None:
        spec = APPLICATIONS[name]
        for role in ("driver", "executor"):
            container, pod = spec[role]["securityContext"], spec[role]["podSecurityContext"]
            assert container["allowPrivilegeEscalation"] is False
            assert container["readOnlyRootFilesystem"] is True
            assert container["capabilities"] == {"drop": ["ALL"]}
            assert container["seccompProfile"] == pod["seccompProfile"] == {"type": "RuntimeDefault"}
            assert container["runAsNonRoot"] is pod["runAsNonRoot"] is True
            assert pod["runAsUser"] == pod["fsGroup"] == 185
            mounts = {mount["mountPath"] for mount in spec[role]["volumeMounts"]}
            assert mounts >= {"/tmp", "/opt/spark/work-dir", "/lake"}
            assert any(mount["name"].startswith("spark-local-dir-") for mount in spec[role]["volumeMounts"])

    def test_has_resources_and_limits(self, name: str) -> None:
        for role in ("driver", "executor"):
            assert {"cores", "coreLimit", "memory", "memoryOverhead"} <= set(APPLICATIONS[name][role])
        assert all(
            "sizeLimit" in volume["emptyDir"] for volume in APPLICATIONS[name]["volumes"] if "emptyDir" in volume
        )

    def test_is_started_by_a_file_that_the_image_is_said_to_hold(self, name: str) -> None:
        spec = APPLICATIONS[name]
        place = spec["mainApplicationFile"].removeprefix("local://")
        assert place in DOCUMENT
        assert (ROOT / "spark-operator" / Path(place).name).is_file()
        assert spec["sparkConf"]["spark.pyspark.python"] in DOCUMENT
        assert f'"pyspark=={spec["sparkVersion"]}"' in (ROOT / "pyproject.toml").read_text()
        assert spec["image"] in DOCUMENT

    def test_gives_arguments_that_the_job_takes(self, name: str, tmp_path: Path) -> None:
        job, *arguments = APPLICATIONS[name]["arguments"]
        command = main.commands[job]
        assert f"quintet-{job}" == name
        with command.make_context(job, with_files_in(arguments, tmp_path)) as context:
            settings = settings_of(ReportSettings if job == "report" else StreamSettings, context.params)
        mounts = {mount["mountPath"] for mount in APPLICATIONS[name]["driver"]["volumeMounts"]}
        assert settings.spark_lake in mounts
        for option in arguments:
            if "-file=" in option:
                assert str(Path(option.partition("=")[2]).parent) in mounts

    def test_is_scraped_where_spark_serves(self, name: str) -> None:
        spec = APPLICATIONS[name]
        driver, conf = spec["driver"], spec["sparkConf"]
        assert driver["annotations"]["prometheus.io/path"] == conf["spark.metrics.conf.*.sink.prometheusServlet.path"]
        assert driver["serviceAnnotations"]["prometheus.io/path"] == "/metrics/executors/prometheus"
        assert {driver[of]["prometheus.io/port"] for of in ("annotations", "serviceAnnotations")} == {"4040"}
        assert conf["spark.ui.prometheus.enabled"] == "true"


def with_files_in(arguments: list[str], folder: Path) -> list[str]:
    """Options that name files of a pod, naming files that are here."""

    def here() -> Iterator[str]:
        for argument in arguments:
            option, _, value = argument.partition("=")
            if option.endswith("-file"):
                (folder / Path(value).name).write_text("")
                yield f"{option}={folder / Path(value).name}"
            else:
                yield argument

    return list(here())


def test_an_option_that_a_job_does_not_have_is_found() -> None:
    with pytest.raises(click.NoSuchOption):
        main.commands["archive"].make_context("archive", ["--lakes=/lake"])


def test_the_streams_differ_in_their_job_alone() -> None:
    archive, rollup = (yaml.safe_dump(APPLICATIONS[f"quintet-{job}"]) for job in ("archive", "rollup"))
    assert archive.replace("archive", "rollup") == rollup


def test_streams_start_again_whatever_ended_them() -> None:
    for name in ("quintet-archive", "quintet-rollup"):
        policy = APPLICATIONS[name]["restartPolicy"]
        assert policy["type"] == "Always"
        # The operator starts nothing again without them.
        assert policy["onFailureRetryInterval"] > 0
        assert policy["onSubmissionFailureRetryInterval"] > 0


def test_the_report_knows_no_secret_and_runs_once_at_a_time() -> None:
    (report,) = (each["spec"] for each in BASE if each["kind"] == "ScheduledSparkApplication")
    assert not [volume for volume in report["template"]["volumes"] if "secret" in volume]
    assert report["concurrencyPolicy"] == "Forbid"
    assert len(report["schedule"].split()) == 5
    assert report["template"]["restartPolicy"]["type"] == "OnFailure"


def test_the_lake_takes_many_writers() -> None:
    (lake,) = (each["spec"] for each in BASE if each["kind"] == "PersistentVolumeClaim")
    assert lake["accessModes"] == ["ReadWriteMany"]


def test_only_the_driver_may_ask_kubernetes_and_no_role_may_do_anything() -> None:
    accounts = {each["metadata"]["name"]: each for each in BASE if each["kind"] == "ServiceAccount"}
    (role,) = (each for each in BASE if each["kind"] == "Role")
    (binding,) = (each for each in BASE if each["kind"] == "RoleBinding")
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": role["metadata"]["name"],
    }
    assert [subject["name"] for subject in binding["subjects"]] == ["quintet-spark-driver"]
    assert accounts["quintet-spark-executor"]["automountServiceAccountToken"] is False
    for rule in role["rules"]:
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert "secrets" not in rule["resources"]
