//! Stories: what people do on an issue and what they read there, over real HTTP between the bot and a localhub.

mod bad_input;
mod doors;
mod lld;
mod world;
