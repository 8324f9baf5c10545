//! Which ports of the nodes a service gets.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::{gets_node_ports, needs_check};
use crate::field::{self, Path};
use crate::kind::{at, items, text};

/// Those that there are.
const RANGE: RangeInclusive<i64> = 30_000..=32_767;
const FULL: &str = "range is full";

/// Why a service does not get its ports.
#[derive(Debug, PartialEq, Eq)]
pub enum Denied {
    /// One that a field asks for is not to be had.
    Field(field::Error),
    /// The one for checks is not to be had, or there is none left.
    Internal(String),
    /// A change has the same one twice, for which upstream has no better word.
    Unknown(String),
}

/// Gives a service its ports, and says which those are that it did not have as `old`. `used` are those that services have,
/// and the search for free ones begins at `chance`.
pub fn give(
    service: &mut Value,
    old: Option<&Value>,
    used: &BTreeSet<i64>,
    chance: u32,
) -> Result<BTreeSet<i64>, Denied> {
    let mut taking = Taking { used, taken: BTreeSet::new(), chance };
    let spec = at(service, "spec");
    if matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
        match old {
            Some(old) => change(service, old, &mut taking)?,
            None => begin(service, &mut taking)?,
        }
    }
    let was_checked = old.is_some_and(|old| needs_check(at(old, "spec")));
    if needs_check(at(service, "spec")) && !was_checked {
        let port = match number(&service["spec"]["healthCheckNodePort"]) {
            0 => taking.any().map_err(|why| format!("failed to allocate a HealthCheck NodePort 0: {why}")),
            port => taking
                .take(port)
                .map(|()| port)
                .map_err(|why| format!("failed to allocate requested HealthCheck NodePort {port}: {why}")),
        };
        service["spec"]["healthCheckNodePort"] = json!(port.map_err(Denied::Internal)?);
    }
    Ok(taking.taken)
}

/// The ports of the nodes that a service has.
pub fn of(service: &Value) -> impl Iterator<Item = i64> {
    let checked = needs_check(at(service, "spec")).then(|| number(&service["spec"]["healthCheckNodePort"]));
    node_ports(service).chain(checked).filter(|port| *port != 0)
}

fn node_ports(service: &Value) -> impl Iterator<Item = i64> {
    items(service, "spec.ports").iter().map(|port| number(&port["nodePort"]))
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

struct Taking<'a> {
    used: &'a BTreeSet<i64>,
    taken: BTreeSet<i64>,
    chance: u32,
}

impl Taking<'_> {
    fn take(&mut self, port: i64) -> Result<(), String> {
        if !RANGE.contains(&port) {
            let (first, last) = (RANGE.start(), RANGE.end());
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            ));
        }
        if self.used.contains(&port) || !self.taken.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        Ok(())
    }

    fn any(&mut self) -> Result<i64, &'static str> {
        let count = RANGE.end() - RANGE.start() + 1;
        let mut all = (0..count).map(|i| RANGE.start() + (i64::from(self.chance) + i) % count);
        let free = all.find(|port| !self.used.contains(port) && !self.taken.contains(port));
        let port = free.ok_or(FULL)?;
        self.taken.insert(port);
        Ok(port)
    }

    fn any_for_field(&mut self) -> Result<i64, Denied> {
        self.any().map_err(|why| Denied::Internal(format!("failed to allocate a nodePort: {why}")))
    }

    fn take_for_field(&mut self, port: i64, of: usize) -> Result<(), Denied> {
        let path = Path::new("spec").child("ports").index(of).child("nodePort");
        self.take(port).map_err(|why| Denied::Field(path.invalid(port, why)))
    }
}

/// What serves the same port by several protocols gets one port of the nodes for all of them.
fn begin(service: &mut Value, taking: &mut Taking<'_>) -> Result<(), Denied> {
    let gets_all = gets_node_ports(at(service, "spec"));
    let ports = service["spec"]["ports"].as_array_mut();
    let ports = ports.map(Vec::as_mut_slice).unwrap_or_default();
    let mut shared: BTreeMap<i64, i64> = BTreeMap::new();
    for i in 0..ports.len() {
        let (port, asked) = (number(&ports[i]["port"]), number(&ports[i]["nodePort"]));
        if asked == 0 && !gets_all {
            continue;
        }
        let given = match shared.get(&port) {
            Some(given) if asked == 0 || asked == *given => *given,
            Some(_) => {
                taking.take_for_field(asked, i)?;
                continue;
            }
            None => {
                let same = ports.iter().filter(|other| number(&other["port"]) == port);
                match same.map(|other| number(&other["nodePort"])).find(|asked| *asked != 0) {
                    Some(asked) => taking.take_for_field(asked, i).map(|()| asked)?,
                    None => taking.any_for_field()?,
                }
            }
        };
        shared.insert(port, given);
        ports[i]["nodePort"] = json!(given);
    }
    Ok(())
}

/// A change asks for what the service did not have, and may have several protocols at one port of the nodes.
fn change(service: &mut Value, old: &Value, taking: &mut Taking<'_>) -> Result<(), Denied> {
    let gets_all = gets_node_ports(at(service, "spec"));
    let had: BTreeSet<i64> = node_ports(old).collect();
    let mut seen = BTreeSet::new();
    for (i, port) in service["spec"]["ports"].as_array_mut().into_iter().flatten().enumerate() {
        let mut given = number(&port["nodePort"]);
        if given == 0 && !gets_all {
            continue;
        }
        if given == 0 {
            given = taking.any_for_field()?;
            port["nodePort"] = json!(given);
        } else if !had.contains(&given) && !taking.taken.contains(&given) {
            taking.take_for_field(given, i)?;
        }
        let protocol = text(port, "protocol").to_owned();
        if !seen.insert((protocol.clone(), given)) {
            return Err(Denied::Unknown(format!("duplicate nodePort: {{{protocol} {given}}}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ports as `port/protocol@nodePort`, which has the last part if it asks for one or has one.
    fn service(kind: &str, ports: &str) -> Value {
        let port = |text: &str| {
            let (port, node_port) = text.split_once('@').unwrap_or((text, "0"));
            let (port, protocol) = port.split_once('/').unwrap_or((port, "TCP"));
            let number = |text: &str| text.parse::<i64>().expect("a number");
            json!({"port": number(port), "protocol": protocol, "nodePort": number(node_port)})
        };
        let ports: Vec<Value> = ports.split_whitespace().map(port).collect();
        json!({"spec": {"type": kind, "ports": ports}})
    }

    fn check(mut new: Value, old: Option<&Value>, expected: Result<&[i64], &str>) {
        let used = [30_080, 30_000].into();
        let given = give(&mut new, old, &used, 0);
        match (given, expected) {
            (Ok(_), Ok(expected)) => {
                assert_eq!(node_ports(&new).collect::<Vec<_>>(), expected, "{new}");
            }
            (Err(Denied::Field(error)), Err(expected)) => assert_eq!(error.to_string(), expected),
            (Err(Denied::Internal(why) | Denied::Unknown(why)), Err(expected)) => assert_eq!(why, expected),
            (given, expected) => panic!("{given:?} instead of {expected:?} for {new}"),
        }
    }

    #[test]
    fn rule_3_12_new_services_get_ports_that_nobody_has() {
        let (taken, range) = (
            "provided port is already allocated",
            "provided port is not in the valid range. The range of valid ports is 30000-32767",
        );
        let refused = |i: usize, port: i64, why: &str| {
            format!("spec.ports[{i}].nodePort: Invalid value: {port}: {why}")
        };
        check(service("ClusterIP", "80"), None, Ok(&[0]));
        check(service("NodePort", "80 81"), None, Ok(&[30_001, 30_002]));
        check(service("NodePort", "80 53/UDP 53/TCP"), None, Ok(&[30_001, 30_002, 30_002]));
        check(service("NodePort", "53/UDP 53/TCP@30053"), None, Ok(&[30_053, 30_053]));
        check(service("NodePort", "53/UDP@30053 53/TCP@30054"), None, Ok(&[30_053, 30_054]));
        check(service("LoadBalancer", "80 81@30081"), None, Ok(&[30_001, 30_081]));
        check(service("NodePort", "80@30080"), None, Err(&refused(0, 30_080, taken)));
        check(service("NodePort", "80 81@80"), None, Err(&refused(1, 80, range)));
        check(service("NodePort", "53/UDP@30053 54@30053"), None, Err(&refused(1, 30_053, taken)));
        // Who wants no ports gets none, and what it asks for all the same is not somebody else's.
        let spared = |ports: &str| {
            let mut service = service("LoadBalancer", ports);
            service["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
            service
        };
        check(spared("80 81@30081"), None, Ok(&[0, 30_081]));
        check(spared("80@30080"), None, Err(&refused(0, 30_080, taken)));
        check(spared("80@80"), None, Err(&refused(0, 80, range)));
    }

    #[test]
    fn rule_3_12_changed_services_keep_their_ports() {
        let old = service("NodePort", "80@30080 81@30081");
        check(service("NodePort", "80@30080 82"), Some(&old), Ok(&[30_080, 30_001]));
        check(
            service("NodePort", "80@30000"),
            Some(&old),
            Err("spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated"),
        );
        check(service("NodePort", "53/UDP@30053 54@30053"), Some(&old), Ok(&[30_053, 30_053]));
        check(service("NodePort", "53@30053 54@30053"), Some(&old), Err("duplicate nodePort: {TCP 30053}"));
    }

    #[test]
    fn rule_3_12_ports_for_checks_are_nobody_elses() {
        let checked = |port: i64| {
            let mut service = service("LoadBalancer", "80@30081");
            service["spec"]["externalTrafficPolicy"] = json!("Local");
            service["spec"]["healthCheckNodePort"] = json!(port);
            service
        };
        let given = |port: i64, old: Option<&Value>| {
            let mut new = checked(port);
            let taken = give(&mut new, old, &[30_080].into(), 90);
            taken.map(|_| number(&new["spec"]["healthCheckNodePort"]))
        };
        let refused = |port: i64, why: &str| {
            Err(Denied::Internal(format!("failed to allocate requested HealthCheck NodePort {port}: {why}")))
        };
        assert_eq!(given(31_000, None), Ok(31_000));
        assert_eq!(given(0, None), Ok(30_090));
        let range = "provided port is not in the valid range. The range of valid ports is 30000-32767";
        assert_eq!(given(80, None), refused(80, range));
        for port in [30_080, 30_081] {
            assert_eq!(given(port, None), refused(port, "provided port is already allocated"));
        }
        assert_eq!(given(30_080, Some(&checked(30_080))), Ok(30_080), "it has it already");
        assert!(given(30_080, Some(&service("LoadBalancer", "80@30081"))).is_err());
        assert_eq!(of(&checked(31_000)).collect::<Vec<_>>(), [30_081, 31_000]);
    }
}
