//! Names of the objects that quota is about, each a type of its own: a flavor is not a resource, a cohort is not a
//! ClusterQueue.

use std::{borrow::Borrow, fmt, sync::Arc};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                $name(name.into())
            }
        }

        impl From<String> for $name {
            fn from(name: String) -> Self {
                $name(name.into())
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name! {
    /// The name of a ClusterQueue.
    ClusterQueueName
}
name! {
    /// The name of a Cohort, which need not exist as an object.
    CohortName
}
name! {
    /// The name of a ResourceFlavor.
    FlavorName
}
name! {
    /// The name of a resource, such as `cpu` or `example.com/gpu`.
    ResourceName
}
name! {
    /// The name of one of a Workload's pod sets.
    PodSetName
}

/// The resource that counts pods. A ClusterQueue that covers it is asked for one per pod.
pub const PODS: &str = "pods";

/// A resource in one of its flavors: what a quota is given for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlavorResource {
    /// The flavor.
    pub flavor: FlavorName,
    /// The resource.
    pub resource: ResourceName,
}

impl FlavorResource {
    /// `resource` in `flavor`.
    pub fn new(flavor: impl Into<FlavorName>, resource: impl Into<ResourceName>) -> Self {
        FlavorResource { flavor: flavor.into(), resource: resource.into() }
    }
}

impl fmt::Display for FlavorResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.resource, self.flavor)
    }
}

/// Which Workload, in the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
}

impl WorkloadKey {
    /// The Workload `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        WorkloadKey { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Which LocalQueue, in the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalQueueKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
}

impl LocalQueueKey {
    /// The LocalQueue `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        LocalQueueKey { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for LocalQueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
