//! Every decision Ferry takes, as pure functions over [`types`].
//!
//! A rule reads its arguments and returns a value: a list of field errors, a plan, a new status. It does no IO, keeps
//! no state and knows no clock; time is an argument called `now`. So the same rule serves the embedded API server, a
//! webhook on a real cluster, the simulation and the tests.
//!
//! - [`field`]: what is wrong with a field, and how Kubernetes says it.
//! - [`names`]: the syntax of names, labels and the like.
//! - [`meta`]: object metadata and selectors.
//! - [`wire`]: typed objects and the JSON that they came from; [`semantic`]: when two of them are the same.
//! - [`mod@write`]: what becomes of a write.
//! - [`difference`]: how two structures differ, as messages show it.
//! - [`kind`]: what differs from kind to kind in a write.
//! - [`pod`]: the pod template, as far as users of Jobs meet it.
//! - [`pem`]: certificates and keys as text, the way Go reads them.
//! - [`node_health`]: nodes that are not heard of, and when pods leave them.
//! - [`pod_gc`]: pods that nobody will delete.
//! - [`job`]: the Job API and the Job controller's decision.
//! - [`node`]: what a node does with its pods, and what their status says.
//! - [`cron`]: when a CronJob starts Jobs; [`cron_job`]: what its controller does.
//! - [`deployment`]: how one template takes the place of another.
//! - [`disruption`]: how many of the pods that a budget guards may be made to go.
//! - [`events`]: which events are told, and which only counted.
//! - [`garbage`]: who owns whom, and what follows when an owner goes.
//! - [`namespace_deletion`]: what is told about a namespace that is being deleted.
//! - [`dispatch`]: which worker cluster runs a Workload, and what has to be done about it.
//! - [`replicas`]: so many pods of one kind; [`stateful_set`]: with an identity each; [`daemon_set`]: one on each node.
//! - [`revisions`]: the templates that were wanted before.
//! - [`dns`]: the names of a cluster.
//! - [`endpoint_slice`]: where the pods of a service are; [`service`]: where what is sent to it goes on.
//! - [`resource_quota`]: what the objects of a namespace use of its quotas.
//! - [`schedule`]: which node a pod goes to, and why it goes nowhere.
//! - [`quota`]: queues, quota, flavors and preemption: who gets in, as Kueue decides it.
//! - [`provisioning`]: the check that asks a cluster autoscaler for nodes.
//! - [`framework`]: Jobs of any kind, and the Workloads that stand for them.
//! - [`workload`]: a Workload's life, from its queue to its end.
//! - [`visibility`]: who waits in a queue, and where, as users are shown it.

pub mod conversion;
pub mod cron;
pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod difference;
pub mod dispatch;
pub mod disruption;
pub mod dns;
pub mod endpoint_slice;
pub mod events;
pub mod field;
pub mod framework;
pub mod garbage;
pub mod job;
pub mod kind;
pub mod meta;
pub mod names;
pub mod namespace_deletion;
pub mod node;
pub mod node_health;
pub mod pem;
pub mod pod;
pub mod pod_gc;
pub mod protection;
pub mod provisioning;
pub mod quota;
pub mod rbac;
pub mod repeated;
pub mod replicas;
pub mod resource_quota;
pub mod revisions;
pub mod schedule;
pub mod semantic;
pub mod service;
pub mod stateful_set;
pub mod visibility;
pub mod webhook;
pub mod wire;
pub mod workload;
pub mod write;
