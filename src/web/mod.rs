//! The doors: a public one for webhooks, a private one and a control socket for the people who run the server.
//!
//! The public door verifies a delivery on its raw bytes, has it committed to disk and answers 202; it
//! parses nothing and starts nothing. The private door stays on loopback, the socket in the data directory, and both ask
//! for the server's token, because models' programs run on this machine and as our user.

pub mod control;
mod private;
mod public;
mod roles;
mod room;
mod serving;
mod token;

pub use private::{Operator, private};
pub use public::{Door, Refusals, public};
pub use roles::roles;
pub use serving::{Bounds, serve};
pub use token::{Token, token_file};
