//! What is running on behalf of one owner.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use tokio::task::JoinSet;
use tracing::error;

use crate::flag::Flag;

/// Whether a task of this process has panicked.
static PANICKED: Flag = Flag::new();

/// Waits until a task of this process has panicked: some part of it is gone from then on, which nothing brings back but
/// a new start.
pub async fn panicked() {
    PANICKED.wait().await;
}

/// Tasks that end with their owner: dropping this ends them all at their next wait.
#[derive(Debug, Default)]
pub struct Tasks {
    running: JoinSet<()>,
}

impl Tasks {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `task` until it ends or this is dropped. One that panics is reported by its name, and to who waits for that
    /// ([`panicked`]).
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        // Those that have ended would otherwise be kept until the owner asks.
        while self.running.try_join_next().is_some() {}
        self.running.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                error!(task = name, "a task panicked and is gone");
                PANICKED.set();
            }
        });
    }

    /// Waits until every task has ended by itself.
    pub async fn ended(&mut self) {
        while self.running.join_next().await.is_some() {}
    }

    /// Ends all tasks and waits until they are gone.
    pub async fn stop(&mut self) {
        self.running.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_end_with_their_owner() {
        let (held, mut gone) = tokio::sync::mpsc::channel::<()>(1);
        let mut tasks = Tasks::new();
        tasks.spawn("holds", async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(tasks);
        assert!(gone.recv().await.is_none(), "what the task held was dropped");
    }

    #[tokio::test]
    async fn that_a_task_panicked_is_told() {
        let mut tasks = Tasks::new();
        tasks.spawn("panics", async { panic!("as it is meant to") });
        panicked().await;
        tasks.ended().await;
    }
}
