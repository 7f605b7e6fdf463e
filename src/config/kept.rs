//! Settings that need a restart: what a running program bound, opened or reserved at its start. Restores those values
//! and returns which keys would have changed; all other settings are reloaded.

use super::Config;
use super::file::File;
use super::target::Target;
use serde_json::Value;

/// Restores in `file` what a program that runs with `running` cannot change; returns the dotted keys that were
/// different.
pub(super) fn keep(file: &mut File, running: &Config) -> Vec<String> {
    let wanted = as_json(file);
    file.listen.proxy = running.listen.proxy;
    file.listen.admin = running.listen.admin;
    file.listen.probes = running.listen.probes;
    file.listen.tls.handshakes = running.listen.tls.handshakes;
    if file.listen.tls.is_on() != running.listen.tls.is_on() {
        file.listen.tls = running.listen.tls.clone();
    }
    file.admin.own_token.clone_from(&running.admin.own_token);
    // Its bounds belong to tables that are full already, and its lifetimes to entries in them.
    file.store = running.store.clone();
    file.upstream.remember = running.upstream.remember;
    // The settings with which a connection was accepted hold for its lifetime, which can be hours.
    file.limits.connections = running.limits.connections;
    // Running requests hold reservations of it.
    file.limits.total_bytes = running.limits.total_bytes;
    file.limits.header_timeout = running.limits.header_timeout;
    file.limits.stall_timeout = running.limits.stall_timeout;
    // Running requests would still write to the old one.
    file.audit = running.audit.clone();
    file.telemetry.traces = running.telemetry.traces.clone();
    file.record = running.record.clone();
    file.log.format = running.log.format;
    if is_demo(&file.upstream.url) != is_demo(&running.upstream.url) {
        // The simulated model is started and ended with the program.
        file.upstream.url = running.upstream.url.clone();
    }
    let mut keys = Vec::new();
    differing(&wanted, &as_json(file), &mut Vec::new(), &mut keys);
    keys
}

fn is_demo(target: &Target) -> bool {
    !matches!(target, Target::Url(_))
}

/// Only numbers, strings and lists, which JSON can always represent.
fn as_json(file: &File) -> Value {
    serde_json::to_value(file).unwrap_or_default()
}

/// Adds the dotted keys under which two tables differ.
fn differing(one: &Value, other: &Value, path: &mut Vec<String>, keys: &mut Vec<String>) {
    if one == other {
        return;
    }
    let (Value::Object(one), Value::Object(other)) = (one, other) else { return keys.push(path.join(".")) };
    let only_there = other.keys().filter(|key| !one.contains_key(*key));
    for key in one.keys().chain(only_there) {
        path.push(key.clone());
        let at = |table: &serde_json::Map<String, Value>| table.get(key).cloned().unwrap_or_default();
        differing(&at(one), &at(other), path, keys);
        path.pop();
    }
}
