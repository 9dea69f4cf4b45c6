//! The commit of an upload: small files with their content, large ones by their checksum.

use serde_json::{Value, json};

use super::folder::LocalFile;
use crate::error::Error;
use crate::id::ModelId;
use crate::remote::Remote;

/// Makes one commit of these files.
pub(super) async fn commit(
    remote: &Remote,
    id: &ModelId,
    regular: &[&LocalFile],
    large: &[&LocalFile],
) -> Result<(), Error> {
    let summary = "Upload with mlx-omnibus";
    let mut lines = vec![line("header", &json!({"summary": summary, "description": ""}))];
    for file in regular {
        let content = file.base64()?;
        lines.push(line("file", &json!({"path": file.name, "encoding": "base64", "content": content})));
    }
    for file in large {
        let value = json!({"path": file.name, "algo": "sha256", "oid": file.sha256, "size": file.bytes});
        lines.push(line("lfsFile", &value));
    }
    remote.post(&remote.api(id, "commit"), lines.concat(), "application/x-ndjson", &id.repository).await?;
    Ok(())
}

fn line(key: &str, value: &Value) -> String {
    format!("{}\n", json!({"key": key, "value": value}))
}
