//! The only place that speaks to GitHub.

pub mod outbound;
