//! Requests, as a simulated server reads them.

use tokio::io::{AsyncBufReadExt, AsyncReadExt};

/// Returns the words of the next request; `None` at the end.
pub(in crate::store) async fn request(
    reader: &mut (impl AsyncBufReadExt + Unpin),
) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..length(reader).await? {
        let mut word = vec![0; length(reader).await? + 2];
        reader.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}

async fn length(reader: &mut (impl AsyncBufReadExt + Unpin)) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).await.ok()?;
    line.trim_end().get(1..)?.parse().ok()
}
