//! Ingresses, addresses, ranges of them, and slices of endpoints.

use serde_json::{Value, json};

use super::{changed, refused};

#[test]
fn the_class_of_an_ingress_is_said_twice_only_if_it_is_the_same() {
    let ingress = |annotation: &str| {
        json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": annotation}},
            "spec": {"ingressClassName": "nginx", "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}})
    };
    let of = |object: Value, expected: &[&str]| {
        refused("networking.k8s.io/v1", "Ingress", true, object, expected);
    };
    of(ingress("nginx"), &[]);
    of(
        ingress("other"),
        &[
            "annotations.kubernetes.io/ingress.class: Invalid value: \"other\": must match `ingressClassName` when both are \
            specified",
        ],
    );
    let host = json!({"spec": {"rules": [{"host": "010.0.0.1"}]}});
    of(host, &["spec.rules[0].host: Invalid value: \"010.0.0.1\": must be a DNS name, not an IP address"]);
}

#[test]
fn an_address_says_whose_it_is_for_good() {
    let address = |owner: Value| json!({"metadata": {"name": "10.96.0.9"}, "spec": {"parentRef": owner}});
    let of = |owner: Value, expected: &[&str]| {
        refused("networking.k8s.io/v1", "IPAddress", false, address(owner), expected);
    };
    let owner = json!({"resource": "services", "namespace": "n", "name": "s"});
    of(owner.clone(), &[]);
    of(Value::Null, &["spec.parentRef: Required value"]);
    of(
        json!({"group": "A", "namespace": "a/b"}),
        &[
            "spec.parentRef.group: Invalid value: \"A\"",
            "spec.parentRef.resource: Required value",
            "spec.parentRef.name: Required value",
            "spec.parentRef.namespace: Invalid value: \"a/b\": may not contain '/'",
        ],
    );
    changed(
        "networking.k8s.io/v1",
        "IPAddress",
        address(owner),
        &[("/spec/parentRef/name", json!("t"))],
        &[
            r#"spec.parentRef: Invalid value: {"Group":"","Resource":"services","Namespace":"n","Name":"t"}: field is immutable"#,
        ],
    );
}

#[test]
fn a_range_has_one_network_of_each_family() {
    let range = |cidrs: Value| json!({"spec": {"cidrs": cidrs}});
    let of = |cidrs: Value, expected: &[&str]| {
        refused("networking.k8s.io/v1", "ServiceCIDR", false, range(cidrs), expected);
    };
    of(json!(["10.0.0.0/24", "2001:db8::/64"]), &[]);
    of(json!([]), &["spec.cidrs: Required value: at least one CIDR required"]);
    of(
        json!(["10.0.0.1/24"]),
        &["spec.cidrs[0]: Invalid value: \"10.0.0.1/24\": must not have bits set beyond"],
    );
    of(
        json!(["10.0.0.0/24", "10.1.0.0/24"]),
        &[
            r#"spec.cidrs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one IP for each IP family"#,
        ],
    );
    of(
        json!(["10.0.0.0/24", "2001:db8::/64", "x"]),
        &[
            r#"spec.cidrs: Invalid value: {"CIDRs":["10.0.0.0/24","2001:db8::/64","x"]}: may only hold up to 2 values"#,
        ],
    );
    for (second, expected) in [
        ("2001:db8::/64", None),
        ("x", Some("spec.cidrs[1]: Invalid value: \"x\": must be a valid CIDR value")),
        (
            "10.1.0.0/24",
            Some("spec.cidrs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more"),
        ),
    ] {
        let change = [("/spec/cidrs", json!(["10.0.0.0/24", second]))];
        let expected: Vec<&str> = expected.into_iter().collect();
        let old = range(json!(["10.0.0.0/24"]));
        changed("networking.k8s.io/v1", "ServiceCIDR", old, &change, &expected);
    }
}

#[test]
fn endpoints_are_of_the_type_of_their_slice() {
    let of = |kind: &str, address: &str, expected: &[&str]| {
        let slice = json!({"addressType": kind, "endpoints": [{"addresses": [address]}]});
        refused("discovery.k8s.io/v1", "EndpointSlice", true, slice, expected);
    };
    of("FQDN", "a.b", &[]);
    of("FQDN", "a.b.", &[]);
    of("FQDN", "", &["endpoints[0].addresses[0]: Required value"]);
    of(
        "FQDN",
        "localhost",
        &[
            "endpoints[0].addresses[0]: Invalid value: \"localhost\": should be a domain with at least two segments",
        ],
    );
    let long = format!("{}.b", "a".repeat(64));
    of("FQDN", &long, &["endpoints[0].addresses[0]: Invalid value"]);
    of("IPv6", "2001:db8::1", &[]);
    of(
        "IPv6",
        "2001:DB8::1",
        &[
            "endpoints[0].addresses[0]: Invalid value: \"2001:DB8::1\": must be in canonical form (\"2001:db8::1\")",
        ],
    );
    of("IPv6", "10.0.0.1", &["endpoints[0].addresses: Invalid value: \"10.0.0.1\": must be an IPv6 address"]);
    of("IPv4", "010.0.0.1", &[]);
    of(
        "IPv4",
        "fe80::1",
        &[
            "endpoints[0].addresses: Invalid value: \"fe80::1\": must be an IPv4 address",
            "endpoints[0].addresses[0]: Invalid value: \"fe80::1\": may not be in the link-local range",
        ],
    );
}
