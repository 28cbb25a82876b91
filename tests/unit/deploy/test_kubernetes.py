"""The manifests of the bridge are valid, agree with each other and with the bridge, and lock its pods down."""

import re
import shlex
import subprocess
import tomllib
from importlib import metadata
from typing import Any

import boto3
import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from leanops.domain.event.shards import Shard, parse_shard
from leanops.settings import OUTSIDE, SETTINGS, load_settings
from leanops.usecases.bridge.bridge import GOODBYE_S
from leanops.usecases.bridge.inflight import BridgeRules
from tests.support.places import ROOT

FOLDER = ROOT / "deploy/kubernetes"
ANSWER_S = 15
"""How long a call to SQS waits for its answer."""


def manifests() -> dict[str, dict[str, Any]]:
    """Every document by its kind; each kind stands once."""
    documents = [one for path in sorted(FOLDER.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())]
    found = {document["kind"]: document for document in documents}
    assert len(found) == len(documents)
    return found


MANIFESTS = manifests()
SET = MANIFESTS["StatefulSet"]["spec"]
POD = SET["template"]["spec"]
[BRIDGE] = POD["containers"]
VARIABLES = {one["name"]: one["value"] for one in BRIDGE["env"]}
CONFIG = MANIFESTS["ConfigMap"]["data"]


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_is_valid_to_the_letter(kind: str) -> None:
    kubernetes_validate.validate(MANIFESTS[kind], kubernetes_validate.latest_version(), strict=True)


def test_a_manifest_with_a_slip_is_noticed() -> None:
    wrong = {**MANIFESTS["Service"], "spec": {**MANIFESTS["Service"]["spec"], "clusterIp": "None"}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_everything_the_bridge_needs_is_there() -> None:
    assert set(MANIFESTS) == {"ConfigMap", "PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet"}


def test_there_are_as_many_pods_as_shards_and_each_finds_its_own() -> None:
    [shard] = [word.partition("=")[2] for word in BRIDGE["args"] if word.startswith("--shard=")]
    given = shard.replace("$(SHARDS)", VARIABLES["SHARDS"])
    hosts = [f"{MANIFESTS['StatefulSet']['metadata']['name']}-{number}" for number in range(SET["replicas"])]

    assert [parse_shard(given, host) for host in hosts] == [
        Shard(number, SET["replicas"]) for number in range(SET["replicas"])
    ]


def test_probes_ask_for_what_the_bridge_answers_where_it_listens() -> None:
    ports = {port["name"]: port["containerPort"] for port in BRIDGE["ports"]}
    probes = {name: BRIDGE[name]["httpGet"] for name in ("livenessProbe", "readinessProbe", "startupProbe")}

    assert {name: probe["path"] for name, probe in probes.items()} == {
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
        "startupProbe": "/healthz",
    }
    assert {ports[probe["port"]] for probe in probes.values()} == {8080}
    assert {"--port=8080", "--host=0.0.0.0"} <= set(BRIDGE["args"])
    assert MANIFESTS["Service"]["spec"]["ports"][0]["targetPort"] in ports
    assert SET["template"]["metadata"]["annotations"]["prometheus.io/port"] == "8080"


def test_a_pod_has_more_time_to_end_than_a_drain_takes() -> None:
    drain = int(CONFIG["LEANOPS_BRIDGE_DRAIN_S"])

    assert POD["terminationGracePeriodSeconds"] > drain + GOODBYE_S + BridgeRules.last_receipts_s + ANSWER_S


def test_pods_run_without_root_and_without_rights() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["runAsUser"] > 0
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert POD["automountServiceAccountToken"] is False
    assert BRIDGE["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_pod_asks_for_memory_and_cpu_and_has_a_limit_of_memory() -> None:
    assert {"cpu", "memory"} <= set(BRIDGE["resources"]["requests"])
    assert "memory" in BRIDGE["resources"]["limits"]


def test_a_pod_keeps_nothing_so_that_another_count_of_shards_leaves_nothing_behind() -> None:
    assert "volumeClaimTemplates" not in SET
    assert "initContainers" not in POD
    assert [set(volume) for volume in POD["volumes"]] == [{"name", "emptyDir"}]
    assert [mount["mountPath"] for mount in BRIDGE["volumeMounts"]] == ["/tmp"]


def test_the_bridge_leads_to_aws_and_looks_for_no_home() -> None:
    assert CONFIG["LEANOPS_AWS_BUCKET"]
    assert "LEANOPS_HOME" not in {*CONFIG, *VARIABLES}


def test_the_region_is_given_by_the_name_that_boto3_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: value for name, value in CONFIG.items() if name.startswith("AWS_")}
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    assert boto3.Session().region_name in given.values()


def test_both_clouds_lend_the_service_account_their_rights() -> None:
    annotations = MANIFESTS["ServiceAccount"]["metadata"]["annotations"]

    assert set(annotations) == {"iam.gke.io/gcp-service-account", "eks.amazonaws.com/role-arn"}


def test_names_and_labels_agree() -> None:
    labels = SET["template"]["metadata"]["labels"]
    names = {document["metadata"]["name"] for document in MANIFESTS.values()}

    assert names == {"leanops-bridge"}
    assert SET["serviceName"] in names
    assert POD["serviceAccountName"] in names
    assert SET["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["Service"]["spec"]["clusterIP"] == "None"
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_every_variable_is_a_setting_with_a_value_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: value for name, value in {**CONFIG, **VARIABLES}.items() if name.startswith("LEANOPS_")}
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    load_settings(None)

    assert set(given) <= {setting.variable for setting in SETTINGS.values()} | OUTSIDE
    assert POD["enableServiceLinks"] is False


def test_no_secret_is_written_down_and_one_may_be_left_out() -> None:
    secrets = [one["secretRef"] for one in BRIDGE["envFrom"] if "secretRef" in one]

    assert "Secret" not in MANIFESTS
    assert secrets == [{"name": "leanops-bridge", "optional": True}]
    assert not [name for name in CONFIG if any(word in name for word in ("KEY", "PASSWORD", "SECRET", "TOKEN"))]


def dockerfile() -> list[str]:
    """Its instructions, continued lines joined."""
    text = (ROOT / "deploy/container/Dockerfile").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_installs_by_the_lock_with_hashes_and_runs_the_bridge_without_root() -> None:
    lines = dockerfile()
    installs = [line for line in lines if "pip install" in line]

    assert all("--require-hashes -r bridge.lock" in line or "--no-index" in line for line in installs)
    assert f"USER {POD['securityContext']['runAsUser']}" in lines
    assert [line for line in lines if line.startswith(("ENTRYPOINT", "CMD"))] == [
        'ENTRYPOINT ["leanops"]',
        'CMD ["bridge", "--host=0.0.0.0"]',
    ]


def image_packages() -> set[str]:
    """The names of what the image installs."""
    awk = ["awk", "-f", ROOT / "deploy/container/bridge-lock.awk", ROOT / "requirements.lock"]
    lock = subprocess.run(awk, check=True, capture_output=True, text=True).stdout
    return {line.partition("==")[0] for line in lock.splitlines() if re.match(r"[A-Za-z0-9]", line)}


def required_by(name: str) -> set[str]:
    """What a package asks for here, without any extra."""
    wanted = [Requirement(one) for one in metadata.requires(name) or []]
    return {canonicalize_name(one.name) for one in wanted if not one.marker or one.marker.evaluate({"extra": ""})}


def test_the_image_has_what_a_bridge_to_aws_needs_and_no_spark() -> None:
    names = image_packages()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["cluster"], *extras["gcp"]]

    assert {canonicalize_name(Requirement(one).name) for one in asked} | {"boto3", "setuptools"} <= names
    assert {"botocore", "s3transfer", "jmespath", "grpcio", "psycopg-binary"} <= names
    # Some are in the lock for other systems than this one.
    here = names & {canonicalize_name(one.name) for one in metadata.distributions()}
    assert {name: left for name in here if (left := required_by(name) - names)} == {}


def test_the_image_has_nothing_that_only_spark_the_tests_and_the_linters_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {canonicalize_name(Requirement(one).name) for one in (*extras["embedded"], *extras["dev"])}
    theirs = {"py4j", "virtualenv", "nodeenv", "responses", "xmltodict", "werkzeug", "jsonschema", "pluggy", "pathspec"}

    assert image_packages().isdisjoint(asked | theirs)


def test_the_image_copies_only_what_is_in_the_repository() -> None:
    copied = [shlex.split(line)[1:-1] for line in dockerfile() if line.startswith("COPY") and "--from" not in line]

    assert [name for names in copied for name in names if not (ROOT / name).exists()] == []
