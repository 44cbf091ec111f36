//! The doors: a public one for webhooks, a private one and a control socket for the people who run the server.
//!
//! The public door verifies a delivery on its raw bytes, has it committed to disk and answers 202; it
//! parses nothing and starts nothing. The private door stays on loopback, the socket in the data directory, and both want
//! a secret, because models' programs run on this machine and as our user: the socket the server's token, the pages a
//! session that came of a link which the socket gave.

mod body_buffer;
pub mod control;
pub mod held_calls;
mod listener;
mod metrics;
mod operator;
mod pages;
mod relay;
mod roles;
mod server_token;
mod webhook;

pub use listener::{ConnectionLimits, serve};
pub use metrics::{METRIC_DESCRIPTIONS, MetricSources};
pub use operator::{OperatorContext, operator_router};
pub use pages::paths;
pub use relay::WebhookRelay;
pub use roles::{RoleState, role_states};
pub use server_token::{ServerToken, token_file};
pub use webhook::{DeliveryOutcomeCounter, WebhookContext, WebhookRefusalLog, webhook_router};
