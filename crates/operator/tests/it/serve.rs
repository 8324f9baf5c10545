//! Metrics and health over HTTP.

use std::time::Duration;

use operator::serve::serve;
use reconcile::{Clock, Tasks};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::world::World;

/// Everybody can connect, and who says nothing does not take from the operator what it needs to keep the Lease.
#[tokio::test]
async fn who_says_nothing_is_not_listened_to_for_long() -> anyhow::Result<()> {
    let mut tasks = Tasks::new();
    let client = World::embedded_cluster().await?;
    let operator = operator::observe(client, operator::Settings::default(), Clock::system(), &mut tasks);
    let at = serve(operator, TcpListener::bind("127.0.0.1:0").await?, &mut tasks)?;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(at).await?);
    }
    let mut asks = TcpStream::connect(at).await?;
    asks.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(60), asks.read_to_string(&mut answer)).await??;
    assert!(answer.ends_with("ok"), "{answer}");
    let mut word = [0];
    let ended = silent[0].read(&mut word);
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), ended).await??, 0, "it is given up");
    Ok(())
}
