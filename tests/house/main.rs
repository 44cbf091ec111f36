//! The rules of the house, checked from outside: its floors, its lists, its papers, the contract of its engine.

mod docs;
mod engine_contract;
mod floors;
mod listed;
