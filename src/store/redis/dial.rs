//! Opens the byte stream to a Redis server: a unix socket, TCP, or TLS over TCP.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::connect::Access;
use crate::clock;
use crate::store::net::dial::{Stream, boxed, connect};
use crate::store::net::tls::no_tls;
use crate::store::redis::address::Endpoint;
use crate::store::{Fault, FaultKind};

/// The remedy for a server without TLS.
const PLAIN: &str = "write redis:// if that is meant";

/// A stream that is being opened.
pub type Dialing = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, Fault>> + Send>>;

/// Opens a stream to the server that is named. The caller limits the time to the one that is given.
/// A simulated server takes the place of [`dial`] here, and of nothing else.
pub type Dial = Arc<dyn Fn(Access, Duration) -> Dialing + Send + Sync>;

/// Opens a stream to the server that `access` names. The caller limits the time to `limit`.
pub fn dial(access: Access, limit: Duration) -> Dialing {
    Box::pin(async move {
        match &access.endpoint {
            Endpoint::Unix(path) => boxed(UnixStream::connect(path).await),
            Endpoint::Tcp { host, port, tls } => {
                let stream = connect(host, *port, limit).await?;
                match (&access.trust, tls) {
                    (Some(trust), true) => {
                        let mut handshake = Box::pin(trust.handshake(host, stream, PLAIN));
                        let shaken = clock::until(clock::now() + limit / 2, &mut handshake).await;
                        if shaken.is_none() && speaks_plainly(host, *port, limit / 4).await {
                            return Err(no_tls(PLAIN));
                        }
                        boxed(Ok(match shaken {
                            Some(shaken) => shaken?,
                            None => handshake.await?,
                        }))
                    }
                    (None, true) => {
                        Err(Fault::new(FaultKind::Unfit, "no issuer is trusted for TLS"))
                    }
                    (_, false) => boxed(Ok(stream)),
                }
            }
        }
    })
}

/// Whether a Redis server without TLS listens there. It waits for the end of the line that a TLS
/// handshake is to it.
async fn speaks_plainly(host: &str, port: u16, limit: Duration) -> bool {
    let first = async {
        let mut stream = connect(host, port, limit).await.ok()?;
        stream.write_all(b"PING\r\n").await.ok()?;
        stream.read_u8().await.ok()
    };
    // An answer, or an error: a password is missing, or the server is in protected mode.
    matches!(
        clock::until(clock::now() + limit, Box::pin(first)).await,
        Some(Some(b'+' | b'-'))
    )
}
