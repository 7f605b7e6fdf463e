//! The difference between the configuration in force and its file: what a restart would change. Shows no secret, since
//! it compares the values of `/config`.

use super::Admin;
use super::answer::Answer;
use super::code::Code;
use axum::extract::State;
use policies::REGISTRY;
use serde_json::{Value, json};
use std::sync::Arc;

/// The page. The file may be on a slow disk, so it is read off the threads that serve requests.
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Answer {
    let shown = tokio::task::spawn_blocking(move || admin.difference()).await;
    shown.unwrap_or_else(|_| {
        let message = "The file cannot be compared: an error of toolrein's own.";
        Answer::error(Code::Internal, message)
    })
}

impl Admin {
    fn difference(&self) -> Answer {
        let path = self.settings.file().map(|path| path.display().to_string());
        match self.settings.in_file(REGISTRY) {
            None => Answer::json(&json!({"path": null, "changed": []})),
            Some(Ok(file)) => {
                let changes = self.settings.effective.changes(&file.effective).into_iter();
                let changed: Vec<Value> = changes
                    .map(|change| json!({"key": change.key, "in_force": change.old, "in_file": change.new}))
                    .collect();
                Answer::json(&json!({"path": path, "changed": changed}))
            }
            Some(Err(problems)) => {
                let problems: Vec<String> = problems.0.iter().map(ToString::to_string).collect();
                let message = format!("The file cannot be used: {}", problems.join("; "));
                Answer::error(Code::FileRefused, &message)
            }
        }
    }
}
