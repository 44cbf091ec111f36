//! What the commands that speak to a running server share.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    config::Settings,
    web::control::{self, ControlMessage, ControlReply},
};

/// Asks the server that must be there for it.
pub(super) async fn ask<T: DeserializeOwned>(
    settings: &Settings,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<T> {
    match post(&settings.data_dir, path, body).await? {
        ControlReply::Done(answer) => Ok(answer),
        ControlReply::Refused(why) => Err(anyhow!(why)),
        ControlReply::Nobody => Err(anyhow!(
            "no server runs on {}, and only a running one can do this: start it with `countersign serve --config {}`",
            settings.data_dir.display(),
            settings.file.display()
        )),
    }
}

/// The same for commands whose answer is a sentence.
pub(super) async fn tell(settings: &Settings, path: &str, body: &impl Serialize) -> anyhow::Result<()> {
    let said: ControlMessage = ask(settings, path, body).await?;
    super::say(said.message);
    Ok(())
}

pub(super) async fn post<T: DeserializeOwned>(
    data: &Path,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<ControlReply<T>> {
    let body = serde_json::to_value(body).context("the question could not be written")?;
    control::ask(data, path, Some(body)).await.context("the server did not answer")
}

/// Who the log says it was.
pub(super) fn me() -> String {
    std::env::var("USER").unwrap_or_else(|_| "someone at the machine".to_owned())
}
