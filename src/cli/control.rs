//! What the commands that speak to a running server share.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    config::Settings,
    web::control::{self, ControlMessage, ControlReply},
};

/// Asks the server that must be there for it.
pub(super) async fn call_server<T: DeserializeOwned>(
    settings: &Settings,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<T> {
    match post_to_server(&settings.data_dir, path, body).await? {
        ControlReply::Done(answer) => Ok(answer),
        ControlReply::Refused(why) => Err(anyhow!(why)),
        ControlReply::NotRunning => Err(anyhow!(
            "no server runs on {}, and only a running one can do this: start it with `countersign serve --config {}`",
            settings.data_dir.display(),
            settings.file.display()
        )),
    }
}

/// The same for commands whose answer is a sentence.
pub(super) async fn call_and_print(
    settings: &Settings,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<()> {
    let said: ControlMessage = call_server(settings, path, body).await?;
    super::print_line(said.message);
    Ok(())
}

pub(super) async fn post_to_server<T: DeserializeOwned>(
    data: &Path,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<ControlReply<T>> {
    let body = serde_json::to_value(body).context("the question could not be written")?;
    control::call_server(data, path, Some(body)).await.context("the server did not answer")
}

/// Who the log says it was.
pub(super) fn operator_name() -> String {
    std::env::var("USER").unwrap_or_else(|_| "someone at the machine".to_owned())
}
