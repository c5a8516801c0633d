//! rslock, driven by lines on stdin as ../README.md says.

use std::error::Error;
use std::io::{BufRead, stdin};
use std::time::Duration;

use rslock::{Lock, LockError, LockManager};

fn main() -> Result<(), Box<dyn Error>> {
    let mut clients = LockManager::new(std::env::args().skip(1).collect());
    clients.set_retry(1, Duration::from_millis(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lock = None;
    for line in stdin().lock().lines() {
        let line = line?;
        println!("{}", runtime.block_on(answer(&clients, &mut lock, &line)));
    }
    Ok(())
}

async fn answer(clients: &LockManager, lock: &mut Option<Lock>, line: &str) -> String {
    match (line.split(' ').collect::<Vec<_>>().as_slice(), lock.as_ref()) {
        (["acquire", key, ttl], _) => match clients.lock(*key, Duration::from_millis(ttl.parse().unwrap_or(0))).await {
            Ok(taken) => {
                *lock = Some(taken);
                "held".to_owned()
            }
            Err(LockError::Unavailable) => "refused".to_owned(),
            Err(error) => format!("error {error}"),
        },
        (["release"], Some(lock)) => {
            clients.unlock(lock).await;
            "tried".to_owned()
        }
        _ => format!("error {line:?} makes no sense here"),
    }
}
