//! What was said in a request, for its span: messages, arguments and results as texts. Plain data; the code that
//! fills it in redacts and bounds it.

/// See the file's head. Lists of messages are JSON in the form of OpenTelemetry's semantic conventions.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Instructions beside the messages.
    pub instructions: Option<String>,
    pub input: Option<String>,
    /// Older messages of the input that are left out.
    pub input_left_out: u64,
    pub output: Option<String>,
    /// The contents of each judged call, in their order.
    pub calls: Vec<CallContents>,
    /// Results that are new in the request.
    pub results: Vec<ResultContents>,
}

/// What a call says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallContents {
    pub arguments: Option<String>,
    /// toolrein's own result, which the model read instead of the tool's.
    pub result: Option<String>,
}

/// The result of a tool.
#[derive(Clone, Debug)]
pub struct ResultContents {
    pub tool: String,
    /// The call's id; empty where it has none.
    pub id: String,
    pub text: String,
}
