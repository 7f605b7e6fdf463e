//! The answers to a transaction: one command after the other, with nothing of others between them. A user without the right
//! to transactions has each command run by itself.

use ::redis::Value;

/// What became of the commands of a transaction.
#[derive(Debug, PartialEq)]
pub(super) enum Transaction {
    /// Their answers.
    Executed(Vec<Value>),
    /// Their answers, where each ran by itself: the server's code for why.
    Apart(Vec<Value>, String),
    /// None of them counts: the server's code, where it gave one.
    Refused(Option<String>),
}

impl Transaction {
    /// Takes the answers to `MULTI`, to so many commands, and to `EXEC`.
    pub(super) fn read(answers: &mut impl Iterator<Item = Value>, commands: usize) -> Self {
        let code = |answer: &Value| match answer {
            Value::ServerError(error) => Some(error.code().to_owned()),
            _ => None,
        };
        let begun = answers.next().as_ref().and_then(code);
        let each: Vec<Value> = answers.by_ref().take(commands).collect();
        let (refused, end) = (each.iter().find_map(code), answers.next());
        match (begun, end) {
            (Some(_), _) if refused.is_some() => Self::Refused(refused),
            (Some(why), _) if each.len() == commands => Self::Apart(each, why),
            (None, Some(Value::Array(executed))) if executed.len() == commands => {
                let refused = executed.iter().find_map(code);
                if refused.is_some() { Self::Refused(refused) } else { Self::Executed(executed) }
            }
            (_, end) => Self::Refused(refused.or_else(|| end.as_ref().and_then(code))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::redis::parse_redis_value;

    fn error(code: &str) -> Value {
        parse_redis_value(format!("-{code} no\r\n").as_bytes()).unwrap()
    }

    #[test]
    fn a_transaction_is_executed_whole_refused_or_run_command_by_command() {
        let (ok, queued) = (Value::Okay, Value::SimpleString("QUEUED".to_owned()));
        let number = Value::Int;
        for (answers, expected) in [
            (
                vec![ok.clone(), queued.clone(), queued.clone(), Value::Array(vec![number(1), number(2)])],
                Transaction::Executed(vec![number(1), number(2)]),
            ),
            (
                vec![error("NOPERM"), number(1), number(2), error("ERR")],
                Transaction::Apart(vec![number(1), number(2)], "NOPERM".to_owned()),
            ),
            (
                vec![ok.clone(), queued.clone(), error("NOPERM"), error("EXECABORT")],
                Transaction::Refused(Some("NOPERM".to_owned())),
            ),
            (
                vec![ok.clone(), queued.clone(), queued.clone(), Value::Array(vec![number(1), error("OOM")])],
                Transaction::Refused(Some("OOM".to_owned())),
            ),
            (vec![error("NOPERM"), number(1), error("OOM")], Transaction::Refused(Some("OOM".to_owned()))),
            (
                vec![ok, queued.clone(), queued, error("EXECABORT")],
                Transaction::Refused(Some("EXECABORT".to_owned())),
            ),
            (vec![], Transaction::Refused(None)),
        ] {
            assert_eq!(Transaction::read(&mut answers.clone().into_iter(), 2), expected, "{answers:?}");
        }
    }
}
