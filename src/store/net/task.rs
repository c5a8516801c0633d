//! Requests that go on though their caller may be gone.

use crate::store::{Fault, FaultKind, Pending};

/// Starts `work`, which goes on though its caller may be gone. `failed` makes an answer of the
/// fault of a task that did not end.
pub(in crate::store) fn started<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
    failed: impl FnOnce(Fault) -> T + 'static,
) -> Pending<T> {
    let task = tokio::spawn(work);
    Box::pin(async move { task.await.unwrap_or_else(|_| failed(stopped())) })
}

/// The fault of a request whose task did not end.
pub(in crate::store) fn stopped() -> Fault {
    Fault::new(FaultKind::Unknown, "rlock gave the request up")
}
