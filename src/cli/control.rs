//! Sends requests to a running server, for several commands.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    config::Settings,
    web::control::{self, ControlMessage, ControlReply},
};

/// Sends a request to the running server; fails if no server runs.
pub(super) async fn call_server<T: DeserializeOwned>(
    settings: &Settings,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<T> {
    match post_to_server(&settings.data_dir, path, body).await? {
        ControlReply::Done(answer) => Ok(answer),
        ControlReply::Refused(why) => Err(anyhow!(why)),
        ControlReply::NotRunning => Err(anyhow!(
            "no server runs on {}, and this command needs one: start it with `countersign serve --config {}`",
            settings.data_dir.display(),
            settings.file.display()
        )),
    }
}

/// Sends a request and prints the message that the server returns.
pub(super) async fn call_and_print(
    settings: &Settings,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<()> {
    let reply: ControlMessage = call_server(settings, path, body).await?;
    super::print_line(reply.message);
    Ok(())
}

pub(super) async fn post_to_server<T: DeserializeOwned>(
    data: &Path,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<ControlReply<T>> {
    let body = serde_json::to_value(body).context("could not encode the request")?;
    control::call_server(data, path, Some(body)).await.context("the server did not answer")
}

pub(super) fn operator_name() -> String {
    std::env::var("USER").unwrap_or_else(|_| "someone at the machine".to_owned())
}
