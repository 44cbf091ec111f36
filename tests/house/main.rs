//! What holds for the house as a whole: its floors, its lists, its papers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod docs;
mod floors;
mod listed;
