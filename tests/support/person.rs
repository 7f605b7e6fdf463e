//! A simulated operator at the admin port, who sees the calls that wait and answers them. Decides nothing: tests say
//! what is answered.

use super::client::{Request, Response};
use super::program::{ADMIN_TOKEN, Toolrein};
use super::until;
use serde_json::Value;

/// See the file's head. May be sent to another thread.
#[derive(Clone)]
pub struct Person {
    page: String,
}

impl Person {
    /// The settings that the operator needs.
    pub const SETTINGS: &'static str = "admin.token_env = \"TOKEN_OF_THE_TESTS\"\n";

    /// An operator at the admin port of `program`.
    pub fn at(program: &Toolrein) -> Self {
        Self { page: format!("{}/api/confirmations", program.admin_url()) }
    }

    /// The calls that wait now.
    pub fn list(&self) -> Vec<Value> {
        let list = self.ask("GET", "", "").json();
        assert_eq!(list["object"], "list");
        list["data"].as_array().unwrap().clone()
    }

    /// The calls that wait, once it is `count` of them.
    pub fn sees(&self, count: usize) -> Vec<Value> {
        until("calls to wait", || Some(self.list()).filter(|list| list.len() == count))
    }

    /// Answers the call under `token`.
    pub fn says(&self, token: &Value, approve: bool) -> Response {
        let token = token.as_str().unwrap();
        self.ask("POST", &format!("/{token}"), &format!("{{\"approve\": {approve}}}"))
    }

    /// Answers the next call that waits.
    ///
    /// # Panics
    /// If the answer is not taken.
    pub fn answers(&self, approve: bool) -> Value {
        let call = self.sees(1).remove(0);
        let taken = self.says(&call["token"], approve);
        assert_eq!(taken.status, 200, "{}", taken.text());
        call
    }

    /// Asks the page with the token.
    pub fn ask(&self, method: &str, suffix: &str, body: &str) -> Response {
        let request = Request::new(method, &format!("{}{suffix}", self.page), body);
        request.header("authorization", &format!("Bearer {ADMIN_TOKEN}")).send()
    }

    /// Asks the page with another token, or none.
    pub fn asks_as(&self, token: Option<&str>, method: &str, suffix: &str, body: &str) -> Response {
        let request = Request::new(method, &format!("{}{suffix}", self.page), body);
        match token {
            Some(token) => request.header("authorization", &format!("Bearer {token}")).send(),
            None => request.send(),
        }
    }
}
