//! What a cluster brings along: Job, CronJob, garbage collection, namespaces, scheduling.
