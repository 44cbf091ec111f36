//! The HTTP servers: a public listener for webhooks, and an operator listener and a control socket for operators.
//!
//! The public listener verifies a delivery's raw bytes, commits the delivery to disk and answers 202. It parses only
//! the ids that order deliveries, and starts no work. The operator listener is bound to loopback, and the control
//! socket is in the data directory. Both require a secret, because model programs run on this machine as our user. The
//! socket requires the server's token. The pages require a session, which is opened by a link from the socket.

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
