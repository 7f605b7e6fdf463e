//! The names of the calls of one message by their ids, for results that become text. Some models give several calls the
//! same id: their results come in the order of the calls.

use std::collections::HashMap;

/// The names of each id, the last call's first.
#[derive(Debug, Default)]
pub struct NamesById(HashMap<String, Vec<String>>);

impl NamesById {
    /// Of calls in order, each with its id and its name.
    pub fn new(calls: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut names: HashMap<String, Vec<String>> = HashMap::new();
        for (id, name) in calls {
            names.entry(id).or_default().push(name);
        }
        names.values_mut().for_each(|of_id| of_id.reverse());
        Self(names)
    }

    /// The name of the first call with this id that has no result yet; of the last one where each has a result.
    pub fn take(&mut self, id: &str) -> Option<String> {
        let open = self.0.get_mut(id)?;
        if open.len() > 1 { open.pop() } else { open.last().cloned() }
    }
}
