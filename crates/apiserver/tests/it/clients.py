"""Asks a server what programs with Python's Kubernetes client ask it; prints a line for every part that went well."""

import threading

from kubernetes import client, config, dynamic, watch

NAMESPACE = "default"


def job(name):
    container = client.V1Container(name="c", image="i", command=["true"])
    template = client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", containers=[container]))
    spec = client.V1JobSpec(template=template, suspend=True)
    return client.V1Job(metadata=client.V1ObjectMeta(name=name), spec=spec)


def refused(code, reason, act):
    """Whether something is refused as Kubernetes refuses it."""
    try:
        act()
    except client.ApiException as error:
        assert error.status == code and reason in error.body, error
    else:
        raise AssertionError(f"not refused: {reason}")


def objects(core, batch):
    made = batch.create_namespaced_job(NAMESPACE, job("a"))
    assert made.spec.parallelism == 1 and made.metadata.uid, made
    refused(409, "AlreadyExists", lambda: batch.create_namespaced_job(NAMESPACE, job("a")))
    refused(404, "NotFound", lambda: batch.read_namespaced_job("missing", NAMESPACE))
    bad = job("b")
    bad.spec.parallelism = -1
    refused(422, "spec.parallelism", lambda: batch.create_namespaced_job(NAMESPACE, bad))
    found = batch.list_namespaced_job(NAMESPACE, field_selector="metadata.name=a")
    assert [item.metadata.name for item in found.items] == ["a"], found


def patches(core, batch):
    """A dictionary goes as a strategic merge patch, a list as a JSON patch."""
    changed = batch.patch_namespaced_job("a", NAMESPACE, {"spec": {"parallelism": 3}})
    assert changed.spec.parallelism == 3, changed
    operations = [{"op": "replace", "path": "/spec/parallelism", "value": 4}]
    changed = batch.patch_namespaced_job("a", NAMESPACE, operations)
    assert changed.spec.parallelism == 4, changed
    changed = batch.patch_namespaced_job_status("a", NAMESPACE, {"status": {"active": 1}})
    assert changed.status.active == 1, changed


def pages(core, batch):
    for i in range(7):
        meta = client.V1ObjectMeta(name=f"page-{i}", labels={"of": "pages"})
        core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=meta, data={"i": str(i)}))
    names, token = [], None
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, label_selector="of=pages", limit=3, _continue=token)
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue
        if not token:
            break
    assert names == [f"page-{i}" for i in range(7)], names


def watches(core, batch):
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    seen, stream = [], watch.Watch()

    def follow():
        for event in stream.stream(core.list_namespaced_config_map, NAMESPACE, resource_version=version, timeout_seconds=20):
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                stream.stop()

    follower = threading.Thread(target=follow)
    follower.start()
    core.create_namespaced_config_map(NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="w")))
    core.patch_namespaced_config_map("w", NAMESPACE, {"data": {"a": "1"}})
    core.delete_namespaced_config_map("w", NAMESPACE)
    follower.join(30)
    assert seen == [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")], seen


def dynamically(core, batch):
    """Discovery by group and version, and server-side apply."""
    jobs = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="batch/v1", kind="Job")
    body = client.ApiClient().sanitize_for_serialization(job("applied"))
    body.update({"apiVersion": "batch/v1", "kind": "Job"})
    applied = jobs.server_side_apply(body=body, name="applied", namespace=NAMESPACE, field_manager="python")
    assert applied.metadata.managedFields[0].manager == "python", applied
    jobs.delete(name="applied", namespace=NAMESPACE, body={"propagationPolicy": "Background"})
    refused(404, "NotFound", lambda: jobs.get(name="applied", namespace=NAMESPACE))


def main():
    config.load_kube_config()
    core, batch = client.CoreV1Api(), client.BatchV1Api()
    for part in (objects, patches, pages, watches, dynamically):
        part(core, batch)
        print("ok", part.__name__)


if __name__ == "__main__":
    main()
