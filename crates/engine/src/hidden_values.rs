//! Hidden values in hidden exchanges. A call may be blocked after the values were put back into it, for example
//! because a person declined it. It is then sent to the model with the placeholders again.

use bytes::Bytes;
use model::plan::placeholders::Placeholders;

/// `exchange`, JSON objects joined by commas, with placeholders for the `values` hidden from a message up to `message`
/// on, also within arguments, which are JSON in a string.
pub(super) fn hide_in(exchange: &Bytes, values: &Placeholders, message: usize) -> Bytes {
    let Ok(text) = std::str::from_utf8(exchange) else { return exchange.clone() };
    let list = format!("[{text}]");
    let hidden = values.hide_in(&list, message);
    match hidden.as_deref().and_then(|list| list.strip_prefix('[')?.strip_suffix(']')) {
        Some(hidden) => Bytes::copy_from_slice(hidden.as_bytes()),
        None => exchange.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_hidden_in_arguments_too_and_the_rest_stays_as_written() {
        let mut values = Placeholders::default();
        for (at, value) in ["anna@x.de", "a\"b\nc"].into_iter().enumerate() {
            values.hide(value, at, |_| Some(format!("[V_{at}]")));
        }
        let exchange = |one: &str, other: &str| {
            Bytes::from(format!(
                r#"{{"role":"assistant", "tool_calls":[{{"function":{{"arguments":"{{ \"to\":\"{one}\",\"n\":1.0, \"k\":\"{other}\"}}"}}}}]}},{{"role":"tool","content":"not {one}"}}"#
            ))
        };
        let with = exchange("anna@x.de", r#"a\\\"b\\nc"#);
        assert_eq!(hide_in(&with, &values, 1), exchange("[V_0]", "[V_1]"));
        assert_eq!(hide_in(&with, &values, 0), exchange("[V_0]", r#"a\\\"b\\nc"#));
        let without = exchange("b@x.de", "");
        assert_eq!(hide_in(&without, &values, 1).as_ptr(), without.as_ptr());
    }
}
