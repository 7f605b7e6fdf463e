//! The structure of injected instructions: marks of templates and roles, hidden markup, images that carry data away,
//! whatever the words are.

use super::rules::{Kind, Rule};

/// Marks of templates and roles, hidden markup, images that carry data away.
pub(super) const STRUCTURES: &[Rule] = &[
    (
        Kind::Template,
        3,
        r"(?:<\|im_start\|>|<\|start_header_id\|>|<\|start\|>|<start_of_turn>|<\|start_of_role\|>) ?(?:system|user|assistant|developer|model|tool|ipython|human)(?:<\|[a-z_]+\|>)?\s*[a-z'0-9]{1,16},? [a-z0-9'$]",
    ),
    (
        Kind::Template,
        1,
        r"<\|(?:im_start|im_end|start_header_id|eot_id|endoftext|begin_of_text|end_of_text|eom_id|start_of_role)\|>|<(?:start|end)_of_turn>",
    ),
    (
        Kind::Template,
        2,
        r"(?:<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|</s>|<\|end\|>|<\|endoftext\|>)\s*(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<\|start\|>|<s>|\[inst\]|<\|user\|>|<\|system\|>)",
    ),
    (Kind::Template, 3, r"<[|] ?(?:system|user|assistant|developer|tool) ?[|]>\s*[a-z']{2,},? [a-z]"),
    (Kind::Template, 3, r"\[inst\]\s*(?:<<sys>>)?\s*[a-z']{2,},? [a-z]"),
    (Kind::Template, 3, r"<<sys>>\s*[a-z']{2,},? [a-z]"),
    (
        Kind::Template,
        3,
        r"</(?:tool_response|tool_result|tool_output|function_results?|function_response|tool_call_result|observation)>\s*<?(?:tool_call|function_calls?|invoke|system|assistant|user|human|instructions?|tool_use|\|)\b",
    ),
    (
        Kind::Template,
        3,
        r#"<(?:tool_call|tool_use|function_call)>\s*\{\s*["']?(?:name|tool|function|arguments)"#,
    ),
    (Kind::Template, 3, r"<(?:antml:)?function_calls>\s*<(?:antml:)?invoke name"),
    (
        Kind::Template,
        3,
        r"\[tool_calls\]\s*\[?\s*\{|<function=[a-z_]+>\s*(?:\{|<parameter)|<\|python_tag\|>|<[|]tool.calls?.begin[|]>",
    ),
    (Kind::Template, 2, r"\naction: ?[a-z_]+\s+action input: ?\S"),
    (Kind::Template, 1, r"\n(?:#+ |\[|<)?(?:human|user)[\]>]?:\s"),
    (Kind::Template, 1, r"\n\n(?:#+ |\[|<)?human[\]>]?:\s"),
    (Kind::Template, 1, r"\n(?:#+ |\[|<)?(?:assistant|ai|claude|chatgpt)[\]>]?:\s"),
    (
        Kind::Template,
        1,
        r"\n(?:#+ |\[|<)?(?:assistant|ai|claude|chatgpt)[\]>]?:\s(?:sure|certainly|of course|okay|ok\b|yes|understood|absolutely|i will|i'll|i have|i am|done|right away)",
    ),
    (
        Kind::Template,
        3,
        r"#{2,} ?[\[(<{](?:system|admin|developer)[ _-]?(?:message|prompt|instructions?|override|note|notice|command|update)s?",
    ),
    (
        Kind::Template,
        1,
        r"#{2,} ?(?:system|admin|developer)[ _-](?:message|override|note|notice|command)s?\b",
    ),
    (
        Kind::Template,
        2,
        r"[\[<({](?:system|admin|developer)[ _-]?(?:message|prompt|instructions?|override|note|notice|command|alert)s?[:\])>}]",
    ),
    (
        Kind::Template,
        2,
        r"(?:begin|start|end)(?: of)? (?:new )?(?:system|admin|hidden|secret) (?:prompt|instructions?|messages?)\b",
    ),
    (
        Kind::Template,
        2,
        r"\n(?:system|admin|developer) ?(?:message|prompt|instructions?|override|note|notice|command)s?: ?[a-z]",
    ),
    (
        Kind::Hidden,
        3,
        r"<!--[\s-]*(?:(?:dear|note|hey|hi|hello|attention|message|instructions?|important|to|for|the|all|any|this)[ :,]*)*@model\b[^>:]*:",
    ),
    (
        Kind::Hidden,
        2,
        r"<!--[\s-]*(?:(?:dear|note|hey|hi|hello|attention|message|instructions?|important|to|for|the|all|any|this)[ :,]*)*(?:@model|assistant|agent|system|system (?:prompt|message|instructions?|note))[:,] [a-z]",
    ),
    (
        Kind::Hidden,
        3,
        r"@hide[^<>]*>\s*\[?(?:system|@model|assistant|agent|attention|important|instructions?|admin|developer|note to|note for|dear|urgent)[a-z ,]*\]?:",
    ),
    (Kind::Hidden, 1, r"@hide[^<>]*>[^<>]*\b(?:you|your|the user|assistant|instructions)\b"),
    (
        Kind::Hidden,
        1,
        r#"(?:alt|title|aria-label|content|summary)=["'](?:system|@model|assistant|attention|instructions?)[a-z ,]*:"#,
    ),
    (
        Kind::Hidden,
        2,
        r"(?:\n|//|#|;|/\*)\s*(?:note (?:to|for) )?@model ?: ?(?:please|you|ignore|do|when|before|send|make|add|include|always|never|must)\b",
    ),
    (
        Kind::Exfiltration,
        3,
        r"!\[[^\]\n]*\]\( ?<?(?:https?:)?//[^)\s]*(?:[{<\[]|%7b|\$\(|placeholder|insert)[^)]*@data",
    ),
    (
        Kind::Exfiltration,
        3,
        r"!\[[^\]\n]*\]\( ?<?(?:https?:)?//[^)\s]*(?:your|the|users?|all|this)[_+-]?(?:conversation|chat|secret|history|private|password|api.?key|session|cookie|credentials?|messages?)",
    ),
    (
        Kind::Exfiltration,
        3,
        r#"<img[^>]*src=["']?(?:https?:)?//[^"'>\s]*(?:[{\[]|%7b|\$\(|placeholder|insert)[^"'>]*@data"#,
    ),
    (Kind::Exfiltration, 1, r"!\[[^\]\n]*\]\( ?<?(?:https?:)?//[^)\s]*\?[^)\s]*="),
    (
        Kind::Exfiltration,
        2,
        r"(?:render|display|include|embed|show|append|insert|output|add|load|fetch)[a-z]* (?:(?:the|this|that|an|following|markdown) )*(?:image|picture|img|link|url)\b[^.]*(?:replac|substitut|fill|encod|append|with the)",
    ),
    (
        Kind::Exfiltration,
        1,
        r"(?:replac|substitut|fill|encod|append)[a-z]* [^.]*(?:with|by|of|the|to) (?:(?:the|your|all|any|user's|user) )*(?:private|secret|sensitive|confidential|conversation|chat|personal)",
    ),
    (
        Kind::Exfiltration,
        2,
        r"(?:send|post|forward|upload|exfiltrat|leak|transmit|append|encod)[a-z]* [^.]*(?:conversation|chat) (?:history|so far|log|transcript|content)s?[^.]*(?:to|at|in|into) (?:https?:|www\.|the (?:url|link|image|address)|[a-z0-9.+]+@)",
    ),
];
