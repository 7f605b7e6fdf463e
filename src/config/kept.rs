//! What a running program keeps of its first configuration until it is restarted: what it bound, opened or reserved at
//! its start. Puts those values back and says which keys would have changed; what is read anew is everything else.

use super::Config;
use super::file::File;
use super::target::Target;
use serde_json::Value;

/// Puts into `file` what a program that runs with `running` cannot change; the dotted keys that it had otherwise.
pub(super) fn keep(file: &mut File, running: &Config) -> Vec<String> {
    let wanted = as_json(file);
    file.listen = running.listen.clone();
    // Its bounds are those of tables that are full already, and its lifetimes those of entries in them.
    file.ledger = running.ledger.clone();
    file.upstream.remember = running.upstream.remember;
    // What a connection was accepted with holds for as long as it lives, and they live for hours.
    file.limits.connections = running.limits.connections;
    // Bytes are reserved of it by requests that run.
    file.limits.total_bytes = running.limits.total_bytes;
    file.limits.header_timeout = running.limits.header_timeout;
    file.limits.stall_timeout = running.limits.stall_timeout;
    // Requests that run would still write to the old one.
    file.audit = running.audit.clone();
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

/// Numbers, strings and lists alone: nothing that JSON could refuse.
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
