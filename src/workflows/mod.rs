//! The workflows. Adding one is a file here and two lines below.

pub mod lld;

use crate::{engine::AnyWorkflow, rounds::Desk};

/// Every workflow there is, in the order `/help` shows them.
pub static ALL: &[&dyn AnyWorkflow<Desk>] = &[&lld::Lld];
