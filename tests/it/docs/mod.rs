//! The documentation is true: every link leads somewhere, tables of keys and of metrics are what the program says, and
//! commands and programs in the pages run against the built program in front of the simulated model. TOML blocks are
//! checked in `tests/it/check`. With `UPDATE_DOCS=1` the tables are written instead of compared.

use crate::support;

mod clients;
mod commands;
mod customers;
mod links;
mod pages;
mod sandbox;
mod site;
mod tables;
