//! What one pod asks for: from its template to the amounts that quota counts.
//!
//! Three steps. [`PodResources::read`] takes a template apart, [`PodResources::adjust`] fills in what the cluster would
//! fill in when the pod is created (QM-20), and [`PodResources::total`] adds up what the pod needs at once (QM-21).
//! [`count`] then turns that into the amounts that are charged, by the administrator's exclusions and transformations
//! (QM-22, QM-23).

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, LimitRange, Pod, PodSpec},
    apimachinery::pkg::api::resource,
};
use types::{Amount, Quantity};

use super::names::ResourceName;
use crate::field::{self, Path, Value};

/// How much of each resource.
pub type List = BTreeMap<String, Quantity>;

/// What something asks for, and what it may use at most.
#[derive(Debug, Clone, PartialEq, Default)]
struct Bounds {
    requests: List,
    limits: List,
}

/// The resources of a pod: those of its containers, those of the pod as a whole, and its overhead.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodResources {
    /// The init containers, and whether each goes on running beside the others.
    init_containers: Vec<(Bounds, bool)>,
    containers: Vec<Bounds>,
    pod: Option<Bounds>,
    overhead: List,
}

/// What the LimitRanges of a namespace say together: the narrowest bounds, and the first default (QM-20).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Limits {
    container: Option<Range>,
    pod: Option<Range>,
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Range {
    max: List,
    min: List,
    default: List,
    default_request: List,
}

/// What an administrator counts instead of a resource (QM-23).
#[derive(Debug, Clone, PartialEq)]
pub struct Transformation {
    /// The resource that pods ask for.
    pub input: String,
    /// Whether it is counted, too.
    pub keep_input: bool,
    /// A resource whose amount multiplies the input, where the pod asks for it.
    pub multiply_by: Option<String>,
    /// What is counted for each of the input.
    pub outputs: List,
}

/// Which resources are counted, and as what.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Accounting {
    /// Resources whose names start like this are not counted.
    pub exclude_prefixes: Vec<String>,
    /// What is counted instead of others.
    pub transformations: Vec<Transformation>,
}

impl PodResources {
    /// Takes a pod's resources apart. Quantities that are none are reported with their paths.
    pub fn read(spec: &PodSpec, path: &Path) -> Result<PodResources, field::Errors> {
        let mut reader = Reader { errors: Vec::new() };
        let init = spec.init_containers.iter().flatten().enumerate().map(|(index, container)| {
            let restarts = container.restart_policy.as_deref() == Some("Always");
            (reader.container(container, &path.child("initContainers").index(index)), restarts)
        });
        let init_containers = init.collect();
        let containers = spec.containers.iter().enumerate();
        let containers = containers
            .map(|(index, it)| reader.container(it, &path.child("containers").index(index)))
            .collect();
        let pod = spec.resources.as_ref().map(|resources| {
            let path = path.child("resources");
            reader.bounds(resources.requests.as_ref(), resources.limits.as_ref(), &path)
        });
        let overhead = reader.list(spec.overhead.as_ref(), &path.child("overhead"));
        let resources = PodResources { init_containers, containers, pod, overhead };
        if reader.errors.is_empty() { Ok(resources) } else { Err(reader.errors) }
    }

    /// Takes apart what a pod has: as long as a change of its containers is not carried out, at least what they were given
    /// before, and nothing else where the node can never carry it out.
    pub fn of(pod: &Pod) -> Result<PodResources, field::Errors> {
        let Some(spec) = &pod.spec else { return Ok(PodResources::default()) };
        let mut resources = PodResources::read(spec, &Path::new("spec"))?;
        let Some(status) = &pod.status else { return Ok(resources) };
        let pending = status.conditions.iter().flatten().find(|it| it.type_ == "PodResizePending");
        let is_infeasible = pending.is_some_and(|it| it.reason.as_deref() == Some("Infeasible"));
        let lists = [&status.container_statuses, &status.init_container_statuses];
        let statuses: BTreeMap<&str, &ContainerStatus> =
            lists.into_iter().flatten().flatten().map(|it| (it.name.as_str(), it)).collect();
        let main = spec.containers.iter().zip(&mut resources.containers);
        let init = spec.init_containers.iter().flatten().zip(&mut resources.init_containers);
        let lasting = init.filter(|(_, (_, restarts))| *restarts).map(|(it, (bounds, _))| (it, bounds));
        for (container, bounds) in main.chain(lasting) {
            let Some(status) = statuses.get(container.name.as_str()) else { continue };
            let Some(given) = &status.resources else { continue };
            let mut reader = Reader { errors: Vec::new() };
            let mut given =
                reader.bounds(given.requests.as_ref(), given.limits.as_ref(), &Path::new("status"));
            let path = Path::new("status").child("allocatedResources");
            raise(&mut given.requests, &reader.list(status.allocated_resources.as_ref(), &path));
            if !is_infeasible {
                raise(&mut given.requests, &bounds.requests);
                raise(&mut given.limits, &bounds.limits);
            }
            *bounds = given;
        }
        Ok(resources)
    }

    /// Fills in what the cluster would: the overhead of the runtime class, the defaults of LimitRanges, and limits for
    /// requests that are missing.
    pub fn adjust(&mut self, runtime_overhead: Option<&List>, limits: &Limits) {
        if let Some(overhead) = runtime_overhead
            && self.overhead.is_empty()
        {
            self.overhead.clone_from(overhead);
        }
        let containers =
            self.init_containers.iter_mut().map(|(bounds, _)| bounds).chain(&mut self.containers);
        for bounds in containers {
            bounds.fill(limits.container.as_ref());
        }
        if let Some(pod) = &mut self.pod {
            pod.fill(limits.pod.as_ref());
        }
    }

    /// What the pod needs at once; what the pod as a whole asks for takes the place of the sum.
    pub fn total(&self) -> List {
        let mut total = self.of_whole(|bounds| &bounds.requests);
        add(&mut total, &self.overhead);
        total
    }

    /// What the pod may use at once, of what it or any of its containers is limited in.
    pub(crate) fn limits(&self) -> List {
        let mut limits = self.of_whole(|bounds| &bounds.limits);
        for (name, overhead) in &self.overhead {
            if let Some(limit) = limits.get_mut(name).filter(|limit| !limit.is_zero()) {
                *limit += overhead;
            }
        }
        limits
    }

    /// What the pod as a whole says, and of the rest what its containers have at the same time.
    fn of_whole(&self, of: impl Fn(&Bounds) -> &List) -> List {
        let mut total = self.at_once(&of);
        for (name, quantity) in self.pod.iter().flat_map(of) {
            if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
                total.insert(name.clone(), quantity.clone());
            }
        }
        total
    }

    /// Adds up what containers have at the same time. Init containers run one after the other, before the others, beside
    /// those init containers that go on running.
    fn at_once(&self, of: impl Fn(&Bounds) -> &List) -> List {
        let mut total = List::new();
        for bounds in &self.containers {
            add(&mut total, of(bounds));
        }
        let mut lasting = List::new();
        let mut starting = List::new();
        for (bounds, restarts) in &self.init_containers {
            let mut now = of(bounds).clone();
            add(&mut now, &lasting);
            if *restarts {
                add(&mut total, of(bounds));
                lasting.clone_from(&now);
            }
            raise(&mut starting, &now);
        }
        raise(&mut total, &starting);
        total
    }

    /// Requests that exceed their limits (QM-27).
    pub fn above_own_limits(&self, path: &Path) -> field::Errors {
        let pod = self.pod.iter().map(|bounds| (path.child("resources"), bounds));
        self.containers_at(path)
            .chain(pod)
            .filter_map(|(path, bounds)| {
                let names = greater(&bounds.requests, &bounds.limits);
                invalid(&path, &names, "requests must not exceed its limits")
            })
            .collect()
    }

    /// Resources out of the bounds that LimitRanges set (QM-27).
    pub fn out_of_range(&self, limits: &Limits, path: &Path) -> field::Errors {
        let mut errors = Vec::new();
        let mut check = |path: &Path, least: &List, most: &List, range: &Range| {
            let above = "requests must not be above the limitRange max";
            errors.extend(invalid(path, &greater(most, &range.max), above));
            let below = "requests must not be below the limitRange min";
            errors.extend(invalid(path, &greater(&range.min, least), below));
        };
        if let Some(range) = &limits.container {
            for (path, bounds) in self.containers_at(path) {
                let mut least = bounds.requests.clone();
                merge(&mut least, &bounds.limits, |least, limit| *least = limit.clone().min(least.clone()));
                let mut most = bounds.requests.clone();
                raise(&mut most, &bounds.limits);
                check(&path, &least, &most, range);
            }
        }
        if let Some(range) = &limits.pod {
            let total = self.total();
            check(path, &total, &total, range);
        }
        errors
    }

    fn containers_at(&self, path: &Path) -> impl Iterator<Item = (Path, &Bounds)> {
        let (init, main) = (path.child("initContainers"), path.child("containers"));
        let init =
            self.init_containers.iter().enumerate().map(move |(index, (it, _))| (init.index(index), it));
        init.chain(self.containers.iter().enumerate().map(move |(index, it)| (main.index(index), it)))
    }
}

impl Bounds {
    fn fill(&mut self, range: Option<&Range>) {
        if let Some(range) = range {
            keep_first(&mut self.limits, &range.default);
            keep_first(&mut self.requests, &range.default_request);
        }
        keep_first(&mut self.requests, &self.limits);
    }
}

impl Limits {
    /// What all of `ranges` say together. Quantities that are none are reported with their paths.
    pub fn summarize<'a>(ranges: impl IntoIterator<Item = &'a LimitRange>) -> Result<Limits, field::Errors> {
        let mut limits = Limits::default();
        let mut reader = Reader { errors: Vec::new() };
        for item in ranges.into_iter().filter_map(|range| range.spec.as_ref()).flat_map(|spec| &spec.limits) {
            let range = match item.type_.as_str() {
                "Container" => limits.container.get_or_insert_default(),
                "Pod" => limits.pod.get_or_insert_default(),
                _ => continue,
            };
            let path = Path::new("spec").child("limits");
            let narrower = |most: &mut Quantity, other: &Quantity| *most = other.clone().min(most.clone());
            merge(&mut range.max, &reader.list(item.max.as_ref(), &path.child("max")), narrower);
            raise(&mut range.min, &reader.list(item.min.as_ref(), &path.child("min")));
            keep_first(&mut range.default, &reader.list(item.default.as_ref(), &path.child("default")));
            let requests = reader.list(item.default_request.as_ref(), &path.child("defaultRequest"));
            keep_first(&mut range.default_request, &requests);
        }
        if reader.errors.is_empty() { Ok(limits) } else { Err(reader.errors) }
    }
}

/// The amounts that one pod is charged for.
pub fn count(total: &List, accounting: &Accounting) -> BTreeMap<ResourceName, Amount> {
    let excluded = |name: &str| accounting.exclude_prefixes.iter().any(|prefix| name.starts_with(prefix));
    let asked: BTreeMap<&str, Decimal> = total
        .iter()
        .filter(|(name, _)| !excluded(name))
        .map(|(name, it)| (name.as_str(), Decimal::of(it)))
        .collect();
    let mut kept: BTreeMap<&str, Decimal> = BTreeMap::new();
    let mut generated: BTreeMap<&str, Decimal> = BTreeMap::new();
    for (&name, &input) in &asked {
        let Some(it) = accounting.transformations.iter().find(|it| it.input == name) else {
            kept.insert(name, input);
            continue;
        };
        let factor = it.multiply_by.as_deref().and_then(|by| asked.get(by).copied());
        let scaled = factor.map_or(input, |factor| input.times(factor));
        for (output, each) in &it.outputs {
            let sum = generated.entry(output).or_default();
            *sum = sum.plus(scaled.times(Decimal::of(each)));
        }
        if it.keep_input {
            kept.insert(name, input);
        }
    }
    // A negative factor is an allowance against other outputs, but never against what was asked for directly.
    for (name, amount) in generated {
        let sum = kept.entry(name).or_default();
        *sum = sum.plus(amount.max(Decimal::default()));
    }
    kept.into_iter().map(|(name, amount)| (name.into(), amount.to_amount(name).or_zero())).collect()
}

/// A number of billionths, wide enough to multiply quantities. What is finer than a thousandth is rounded up before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Decimal(i128);

const ONE: i128 = 1_000_000_000;
const MILLI: i128 = ONE / 1000;

impl Decimal {
    fn of(quantity: &Quantity) -> Decimal {
        if quantity.is_integer() {
            Decimal(i128::from(quantity.units_saturating()) * ONE)
        } else {
            Decimal(i128::from(quantity.millis_saturating()) * MILLI)
        }
    }

    fn times(self, other: Decimal) -> Decimal {
        // The larger one is divided first where the product would not fit.
        let product = self.0.checked_mul(other.0).map(|product| product / ONE);
        Decimal(product.unwrap_or_else(|| (self.0 / ONE).saturating_mul(other.0)))
    }

    fn plus(self, other: Decimal) -> Decimal {
        Decimal(self.0.saturating_add(other.0))
    }

    fn to_amount(self, resource: &str) -> Amount {
        let unit = if resource == "cpu" { MILLI } else { ONE };
        let rounded = self.0 / unit + i128::from(self.0 % unit > 0);
        Amount::new(i64::try_from(rounded).unwrap_or(if rounded > 0 { i64::MAX } else { i64::MIN }))
    }
}

/// Reads quantities, and remembers those that are none.
struct Reader {
    errors: field::Errors,
}

impl Reader {
    fn container(&mut self, container: &Container, path: &Path) -> Bounds {
        let Some(resources) = &container.resources else { return Bounds::default() };
        self.bounds(resources.requests.as_ref(), resources.limits.as_ref(), &path.child("resources"))
    }

    fn bounds(
        &mut self,
        requests: Option<&BTreeMap<String, resource::Quantity>>,
        limits: Option<&BTreeMap<String, resource::Quantity>>,
        path: &Path,
    ) -> Bounds {
        Bounds {
            requests: self.list(requests, &path.child("requests")),
            limits: self.list(limits, &path.child("limits")),
        }
    }

    fn list(&mut self, given: Option<&BTreeMap<String, resource::Quantity>>, path: &Path) -> List {
        let mut list = List::new();
        for (name, quantity) in given.into_iter().flatten() {
            match Quantity::try_from(quantity) {
                Ok(quantity) => {
                    list.insert(name.clone(), quantity);
                }
                Err(error) => {
                    self.errors.push(path.key(name).invalid(quantity.0.as_str(), error.to_string()));
                }
            }
        }
        list
    }
}

fn merge(into: &mut List, from: &List, both: impl Fn(&mut Quantity, &Quantity)) {
    for (name, quantity) in from {
        match into.get_mut(name) {
            Some(there) => both(there, quantity),
            None => {
                into.insert(name.clone(), quantity.clone());
            }
        }
    }
}

fn add(into: &mut List, from: &List) {
    merge(into, from, |there, more| *there += more);
}

fn raise(into: &mut List, from: &List) {
    merge(into, from, |there, other| *there = other.clone().max(there.clone()));
}

fn keep_first(into: &mut List, from: &List) {
    merge(into, from, |_, _| {});
}

/// The resources of which `one` has more than `other`, where both say something.
fn greater<'a>(one: &'a List, other: &List) -> Vec<&'a str> {
    let more = |(name, quantity): (&'a String, &Quantity)| {
        let bound = Amount::from_quantity(name, other.get(name)?);
        (Amount::from_quantity(name, quantity) > bound).then_some(name.as_str())
    };
    one.iter().filter_map(more).collect()
}

fn invalid(path: &Path, names: &[&str], detail: &str) -> Option<field::Error> {
    (!names.is_empty()).then(|| path.invalid(Value::json(&names), detail))
}
