//! The doors: a public one for webhooks, a private one and a control socket for the people who run the server.
//!
//! The public door verifies a delivery on its raw bytes, has it committed to disk and answers 202; it
//! parses nothing and starts nothing. The private door stays on loopback, the socket in the data directory, and both want
//! a secret, because models' programs run on this machine and as our user: the socket the server's token, the pages a
//! session that came of a link which the socket gave.

pub mod control;
mod metrics;
mod pages;
mod private;
mod public;
mod relay;
mod roles;
mod room;
mod serving;
pub mod settle;
mod token;

pub use metrics::{NAMES, Observed};
pub use pages::paths;
pub use private::{Operator, private};
pub use public::{Deliveries, Door, Refusals, public};
pub use relay::Relay;
pub use roles::roles;
pub use serving::{Bounds, serve};
pub use token::{Token, token_file};
