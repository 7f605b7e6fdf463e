//! The codes of the admin API's errors: a closed list, each with its status.

use hyper::http::StatusCode;

macro_rules! codes {
    ($($name:ident = $code:literal, $status:ident;)*) => {
        /// See the file's head.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Code {
            $($name,)*
        }

        impl Code {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name,)*];

            /// As the answer has it.
            pub(super) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// The answer's status.
            pub(super) fn status(self) -> StatusCode {
                match self {
                    $(Self::$name => StatusCode::$status,)*
                }
            }
        }
    };
}

codes! {
    BadAnswer = "bad_answer", BAD_REQUEST;
    BadId = "bad_id", BAD_REQUEST;
    BadQuery = "bad_query", BAD_REQUEST;
    BadRequest = "bad_request", BAD_REQUEST;
    ConfigurationRefused = "configuration_refused", BAD_REQUEST;
    RequestUnreadable = "request_unreadable", BAD_REQUEST;
    Unauthorized = "unauthorized", UNAUTHORIZED;
    CrossSiteRefused = "cross_site_refused", FORBIDDEN;
    HostRefused = "host_refused", FORBIDDEN;
    ConfirmationAnswered = "confirmation_answered", NOT_FOUND;
    ConfirmationUnknown = "confirmation_unknown", NOT_FOUND;
    ConversationUnknown = "conversation_unknown", NOT_FOUND;
    NotFound = "not_found", NOT_FOUND;
    NotStopped = "not_stopped", NOT_FOUND;
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED;
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT;
    FileRefused = "file_refused", CONFLICT;
    StopsOff = "stops_off", CONFLICT;
    TooManyStops = "too_many_stops", CONFLICT;
    ConfirmationExpired = "confirmation_expired", GONE;
    ConfirmationGone = "confirmation_gone", GONE;
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE;
    Internal = "internal", INTERNAL_SERVER_ERROR;
    StoreAway = "store_away", SERVICE_UNAVAILABLE;
    TooManyReaders = "too_many_readers", SERVICE_UNAVAILABLE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_errors_lists_every_code_with_its_status_and_no_other() {
        let page = include_str!("../../docs/errors.md");
        let section = page.split_once("\n## Errors of the admin API\n").unwrap().1;
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let listed: Vec<(&str, &str)> =
            rows.map(|(code, rest)| (code, rest.split_once(" |").unwrap().0)).collect();
        let known: Vec<(&str, String)> =
            Code::ALL.iter().map(|code| (code.as_str(), code.status().as_u16().to_string())).collect();
        let known: Vec<(&str, &str)> = known.iter().map(|(code, status)| (*code, status.as_str())).collect();
        assert_eq!(listed, known);
    }
}
