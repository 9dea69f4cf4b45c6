#!/usr/bin/env python3
"""Checks deploy/kubernetes/: each object against Kubernetes' schema for the oldest and newest version named here, unknown fields
refused; and that what names another object, a label, a port or a volume finds it.

InferencePool has no schema in the package: its fields are compared with those of inference.networking.k8s.io/v1.
"""

import pathlib

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = ["1.34", kubernetes_validate.latest_version()]
POOL_FIELDS = {"selector", "targetPorts", "endpointPickerRef"}
PICKER_FIELDS = {"name", "port", "failureMode", "kind", "group"}


def check_pool(pool):
    spec = pool["spec"]
    assert set(spec) == POOL_FIELDS and set(spec["selector"]) == {"matchLabels"}, spec
    assert all(set(port) == {"number"} and 1 <= port["number"] <= 65535 for port in spec["targetPorts"]), spec
    picker = spec["endpointPickerRef"]
    assert set(picker) <= PICKER_FIELDS and set(picker["port"]) == {"number"}, picker
    assert picker["failureMode"] in ("FailOpen", "FailClose"), picker


def check_references(objects):
    deployment = objects["Deployment"]
    template = deployment["spec"]["template"]
    labels, (container,) = template["metadata"]["labels"], template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    selectors = [
        deployment["spec"]["selector"]["matchLabels"],
        objects["Service"]["spec"]["selector"],
        objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        objects["InferencePool"]["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors), selectors
    probes = [container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "readiness", "liveness")]
    named = [port["targetPort"] for port in objects["Service"]["spec"]["ports"]]
    assert all(port in ports for port in probes + named), (probes, named)
    (rule,) = objects["NetworkPolicy"]["spec"]["ingress"]
    numbers = {port["port"] for port in rule["ports"]}
    numbers |= {port["number"] for port in objects["InferencePool"]["spec"]["targetPorts"]}
    numbers.add(int(template["metadata"]["annotations"]["prometheus.io/port"]))
    assert numbers <= set(ports.values()), (numbers, ports)
    assert f"--port={ports['http']}" in container["args"], container["args"]
    volumes = {volume["name"] for volume in template["spec"]["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert volumes == set(mounts), (volumes, mounts)
    assert f"--state-dir={mounts['state']}" in container["args"], container["args"]
    scaled = objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (scaled["kind"], scaled["name"]) == ("Deployment", deployment["metadata"]["name"]), scaled


def main():
    objects = {}
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml")):
        for found in yaml.safe_load_all(path.read_text()):
            objects[found["kind"]] = found
    for kind, found in objects.items():
        if kind == "InferencePool":
            check_pool(found)
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(found, version, strict=True)
    check_references(objects)
    print(f"kubernetes: {', '.join(objects)} for {' and '.join(VERSIONS)}")


main()
