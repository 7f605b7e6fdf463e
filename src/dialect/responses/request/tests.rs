//! Tests.

use super::*;

#[test]
fn an_input_in_another_case_is_left_to_whoever_reads_it() {
    let read = |body: &str| parse(body.as_bytes()).map(|request| request.messages.len());
    assert_eq!(read(r#"{"previous_response_id":"resp_1"}"#), Ok(0));
    assert_eq!(read(r#"{"previous_response_id":"resp_1","inPut":"q"}"#), Err(Fault::NoMessages));
    assert_eq!(read(r#"{"input":"q","Input":"p"}"#), Err(Fault::Duplicate));
}
