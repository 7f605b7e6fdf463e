//! The rules: what injected instructions look like, each with its kind and its weight. Written for the kind of text,
//! not for the sample that they are measured on. The folding of what they search is done elsewhere.

use super::fold::fold;
use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use std::sync::LazyLock;

/// What a rule has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Characters that nobody sees.
    Invisible,
    /// Instructions to set others aside.
    Override,
    /// Marks of chat templates, of roles and of tool calls.
    Template,
    /// Text that addresses an assistant rather than a reader.
    Addressed,
    /// Text that a browser would not show.
    Hidden,
    /// An image whose address carries data away.
    Exfiltration,
}

impl Kind {
    /// Every kind.
    pub(super) const ALL: [Self; 6] =
        [Self::Invisible, Self::Override, Self::Template, Self::Addressed, Self::Hidden, Self::Exfiltration];

    /// Its word in metrics and the log.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Invisible => "invisible",
            Self::Override => "override",
            Self::Template => "template",
            Self::Addressed => "addressed",
            Self::Hidden => "hidden_markup",
            Self::Exfiltration => "exfiltration",
        }
    }
}

/// The weights and kinds of the rules that `settled` fits.
pub(super) fn matches(settled: &[u8]) -> impl Iterator<Item = (Kind, u32)> {
    let fitting = SETS.iter().enumerate().flat_map(move |(set, regexes)| {
        regexes.matches(settled).into_iter().map(move |rule| RULES[set][rule])
    });
    fitting.map(|(kind, weight, _)| (kind, weight))
}

/// The end of the first place in `text`, from `from` on, where a rule might fit.
pub(super) fn next_anchor(text: &[u8], from: usize) -> Option<usize> {
    ANCHORS.as_ref()?.shortest_match_at(text, from)
}

/// A kind, a weight and a pattern.
type Rule = (Kind, u32, &'static str);

static SETS: LazyLock<Vec<RegexSet>> =
    LazyLock::new(|| RULES.iter().filter_map(|rules| compiled(rules)).collect());

/// That all compile is tested.
fn compiled(rules: &[Rule]) -> Option<RegexSet> {
    let patterns = rules.iter().map(|(_, _, pattern)| expanded(pattern));
    RegexSetBuilder::new(patterns).unicode(false).size_limit(1 << 25).dfa_size_limit(1 << 23).build().ok()
}

static ANCHORS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let anchors: Vec<String> = ANCHOR_PATTERNS.iter().map(|pattern| expanded(pattern)).collect();
    let all = anchors.join("|");
    RegexBuilder::new(&all).unicode(false).case_insensitive(true).dfa_size_limit(1 << 23).build().ok()
});

/// A pattern with its abbreviations written out, folded like the text that it is to fit.
fn expanded(pattern: &str) -> String {
    let mut pattern = fold(pattern).replace(' ', GAP);
    for (name, meaning) in ABBREVIATIONS {
        pattern = pattern.replace(name, &meaning.replace(' ', GAP));
    }
    if pattern.is_ascii() { pattern } else { format!("(?u:{pattern})") }
}

/// What may stand between two words: white space, marks of comments and quotes.
const GAP: &str = r##"(?:[\s#/>|_,"'-]+)"##;

/// Those that contain others stand first.
const ABBREVIATIONS: &[(&str, &str)] = &[
    (
        "@ignore",
        "(?:ignor(?:e|ing)|disregard(?:ing)?|forget(?:ting)?|overrid(?:e|ing)|overrule|bypass|neglect|dismiss|discard|abandon|@refuse follow(?:ing)?|@refuse obey(?:ing)?|@refuse listen(?:ing)? to|pay no attention to|set aside)",
    ),
    ("@refuse", "(?:do not|don't|stop|no longer|never)"),
    (
        "@any",
        "(?:(?:all|any|every|each|the|your|my|our|these|those|this|that|of|and|or|other|such|existing|current|given|system|user|safety|security|developer|previously|stated|said|mentioned) )",
    ),
    (
        "@former",
        "(?:previous|prior|above|preceding|earlier|existing|initial|original|foregoing|past|former|old|your|system|all other|you (?:were|have been|are) given|(?:given|told|received) (?:before|so far|above|earlier))",
    ),
    ("@orders", "(?:[a-z]{0,3}nstr[a-z]{2,6}ons|prompts?|guidelines|system messages?)"),
    (
        "@weak",
        "(?:[a-z]{0,3}nstr[a-z]{2,6}on|directives?|directions|commands?|orders|rules|context|messages?|text|conversation|content|tasks?|requests?|programming|training|constraints|restrictions|safeguards|safety)",
    ),
    (
        "@model",
        r"(?:(?:ai|a\.i\.|artificial intelligence|virtual|llm|digital) (?:language )?(?:assistant|agent|model|system|chatbot|bot|crawler)s?|(?:large )?language models?|ai|llms?|chatgpt|gpt ?[0-9][a-z0-9. ]*|gpt|claude|gemini|copilot|llama|mistral|deepseek|qwen|grok|chatbots?)",
    ),
    ("@reader", "(?:@model|assistants?|agents?|models?|bots?)"),
    (
        "@hide",
        r"(?:display ?: ?none|visibility ?: ?hidden|font-size ?: ?0|opacity ?: ?0|color ?: ?(?:white|#fff(?:fff)?|transparent)\b|(?:left|top|text-indent) ?: ?-[0-9]{3}|(?:max-)?(?:height|width) ?: ?0|aria-hidden|\bhidden)",
    ),
    (
        "@data",
        "(?:conversation|chat|secret|history|private|message|summary|context|token|password|api.?key|credential|data|email|answer|base64|prompt|user|session|cookie)",
    ),
    ("@first", r"(?:^|\n|[>\x22'.!(\[\]-]) ?"),
];

const RULES: &[&[Rule]] = &[OVERRIDES, STRUCTURES, ADDRESSES, LANGUAGES];

/// Instructions to set others aside, in English.
const OVERRIDES: &[Rule] = &[
    (Kind::Override, 3, r"@ignore @any{0,5}@former(?: [a-z]+){0,2} @orders"),
    (Kind::Override, 2, r"(?:ignore|disregard|forget) @any{0,5}@former(?: [a-z]+){0,2} @weak"),
    (Kind::Override, 1, r"(?:ignore|disregard|forget) (?:all|any|everything|your)(?: of)? @any{0,3}@former"),
    (
        Kind::Override,
        3,
        r"(?:ignore|disregard|forget) (?:all|any|every|the|your)? ?@orders (?:that )?(?:you|above|before|previously|prior|given|so far|from)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignore|disregard|forget) (?:everything|anything|all|what(?:ever)?) (?:that )?(?:you (?:were|have been|had been|know|have learned|are told)|i (?:said|told|asked)|the user (?:said|told|asked|wants))",
    ),
    (
        Kind::Override,
        2,
        r"(?:ignore|disregard|forget) (?:everything|all|anything)(?: that (?:is|was|came))? (?:above|before|prior|previous|previously)",
    ),
    (
        Kind::Override,
        3,
        r"your (?:new|real|actual|true|only|updated|current) (?:instructions?|orders|directives?|objectives?|mission|goal) (?:are|is|now)\b",
    ),
    (
        Kind::Override,
        2,
        r"your (?:new|real|actual|true|only) (?:task|role|job|purpose|priority) (?:is|now)\b",
    ),
    (
        Kind::Override,
        2,
        r"\bnew (?:system |important |urgent |priority |updated )?instructions? ?(?::|\(|for you)",
    ),
    (
        Kind::Override,
        2,
        r"(?:strictly|immediately|only|exactly|must) (?:adhere to|follow|obey|comply with|execute) (?:the |these |this |my )?(?:following |new |below )?(?:instructions?|orders|commands)",
    ),
    (
        Kind::Override,
        1,
        r"(?:adhere to|follow|obey|comply with|execute) (?:the |these |this |my )(?:following |new |below )?(?:instructions?|orders|commands) (?:instead|below|only)",
    ),
    (Kind::Override, 1, r"\bdo\b[^.!?]*\.? instead\b"),
    (
        Kind::Override,
        3,
        r"you are now (?:dan\b|jailbroken|unrestricted|unfiltered|in (?:developer|dan|god|debug|admin|jailbreak|unrestricted|maintenance) mode|an? (?:unrestricted|unfiltered|uncensored|evil) )",
    ),
    (
        Kind::Override,
        2,
        r"(?:you are|you're) no longer (?:bound|restricted|subject|required|limited|an? @model)",
    ),
    (
        Kind::Override,
        2,
        r"(?:pretend|act|behave|respond|imagine) (?:as if |as though |like |that )?you (?:are|have|had|were) (?:no |not |dan\b|un)",
    ),
    (
        Kind::Override,
        3,
        r"(?:reveal|print|output|repeat|show|leak|disclose|tell me|give me|send|expose|share) (?:me )?your (?:(?:full|entire|complete|hidden|secret|initial|original|exact) )*(?:system prompt|system message|system instructions|(?:initial|hidden|secret|original) (?:instructions|prompt))",
    ),
    (Kind::Override, 1, r"(?:system|admin|security|developer|policy) override"),
];

/// Marks of templates and roles, hidden markup, images that carry data away.
const STRUCTURES: &[Rule] = &[
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

/// Text that addresses an assistant.
const ADDRESSES: &[Rule] = &[
    (
        Kind::Addressed,
        2,
        r"(?:message|note|request|instructions?|notice|order|reminder) from (?:me|us|your (?:user|developer|creator|owner|admin|operator|boss)[a-z]*|openai|anthropic|the (?:user|system|developers?|admin[a-z]*))\b[^.!?]*\bto (?:you|the (?:@reader))\b",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:important|urgent|special) (?:message|note|request|instructions?|notice) (?:from|to|for)",
    ),
    (Kind::Addressed, 2, r"\b(?:to|for) you (?:(?:the|my|our|dear) )?(?:@model|assistant|agent)\b"),
    (
        Kind::Addressed,
        2,
        r"before (?:you )?(?:can |could |may |will )?(?:solv|complet|continu|proceed|finish|answer|respond|perform|carry|work|start|help|do)[a-z]* (?:(?:with|on|out|to|the|my|your|this|that|original|main|initial|any|other|user's) )*(?:task|request|question|query|problem|assignment|job)s? (?:that )?(?:i|we|the user) (?:gave|asked|assigned|sent|requested|have given)",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:please|you (?:must|should|need to|have to)|first) do (?:all )?(?:of )?the following(?: [a-z]+)?(?: first|:)",
    ),
    (
        Kind::Addressed,
        2,
        r"(?:after|once|when) (?:you (?:do|have done|did|finish|complete|are done with)|doing|completing) (?:that|this|so|it)[^.!?]* (?:solve|continue|proceed|resume|return|complete|finish)[^.!?]*(?:task|request|question|problem|conversation)",
    ),
    (
        Kind::Addressed,
        2,
        r"(?:should|must|need to|have to|will|please|then|now) (?:use|call|invoke|run|execute|trigger) (?:the |your )tools? [a-z_.]+ (?:tool )?(?:with|to|using|and|for)\b",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:with the following arguments|remember to (?:substitute|replace|fill in) (?:the|all) placeholders)",
    ),
    (Kind::Addressed, 3, r"if you(?:'re| are) (?:an? |the |a large )?(?:@model)[ ,.]"),
    (
        Kind::Addressed,
        1,
        r"(?:attention|dear|hey|hi|hello|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)|reminder (?:to|for)|notice (?:to|for)|important for|warning (?:to|for)):? (?:(?:all|any|the|every|whichever|whatever|my|our|dear|future|other) )*(?:@reader)\b",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:attention|dear|hey|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)|reminder (?:to|for)|notice (?:to|for)):? (?:(?:all|any|the|every|whichever|whatever|my|our|dear) )*(?:@model)[^.\n]*[:,!] ?(?:please|you|ignore|do|when|before|send|make|add|include|always|never|must|if|this|i|we|the user)\b",
    ),
    (
        Kind::Addressed,
        2,
        r"(?:@reader) (?:(?:who|that|which|is|are|may be|might be|currently|now) )*(?:reading|processing|parsing|summari[sz]ing|handling|viewing|analy[sz]ing|interpreting|browsing) (?:this|these|the following|it|my|our)\b",
    ),
    (
        Kind::Addressed,
        1,
        r"on behalf of (?:the|your|a) (?:user|account holder|owner|human|customer|client|person)",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:before continuing|before proceeding|before you (?:continue|proceed))[^.]*(?:you could|could you|please|you (?:should|must|need))",
    ),
    (
        Kind::Addressed,
        2,
        r"as an? @model(?: [a-z]+)? (?:you|your) (?:must|should|need|have to|are required|are obliged|task|job|goal|duty)",
    ),
    (Kind::Addressed, 1, r"@first@model ?:\s?[a-z]"),
    (Kind::Addressed, 1, r"@first(?:system|admin) ?:\s?[a-z]+ [a-z]+ [a-z]"),
    (
        Kind::Addressed,
        2,
        r"(?:do not|don't|never|must not|without) (?:mention|tell|reveal|disclos|inform|notify|alert|warn)[a-z]* (?:(?:about|any of|of) )?(?:this (?:comment|message|instruction|note|text|request|step|to)|these (?:instructions|steps)|(?:to )?the (?:user|human|owner|customer|operator)|anyone)",
    ),
    (
        Kind::Addressed,
        1,
        r"without (?:asking|confirming with|checking with|asking for permission from) (?:the )?(?:user|human|me)\b",
    ),
    (
        Kind::Addressed,
        1,
        r"the user (?:(?:has|have|already) )*(?:authori[sz]ed|approved|confirmed|consented|permitted|wants you|asked you|instructed you)",
    ),
    (
        Kind::Addressed,
        1,
        r"<(?:information|important|system|instructions?|admin|urgent|attention|secret|hidden|override)>",
    ),
    (Kind::Addressed, 1, r"(?:important|attention|urgent|warning) ?!{2,}"),
];

/// Instructions to set others aside, in other languages. Written as they are, folded like the text.
const LANGUAGES: &[Rule] = &[
    // French.
    (
        Kind::Override,
        3,
        r"(?:ignore[zr]?|oubli(?:e|ez|er)|ne (?:tiens|tenez) (?:pas|plus) compte|neglige[zr]?|ne (?:suis|suivez) (?:pas|plus))(?: [a-z']+){0,5} (?:instructions?|consignes?|directives?|ordres|regles)(?: [a-z]+){0,2} (?:precedent|anterieur|ci dessus|initial|recu|donne)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignore[zr]?|oubli(?:e|ez|er)) (?:tout ce qui precede|(?:tes|vos|les|toutes) (?:precedentes|anciennes) (?:instructions|consignes))",
    ),
    // German.
    (
        Kind::Override,
        3,
        r"(?:ignorier|vergiss|vergesst|missacht|uberge|beacht)[a-z]*(?: [a-z]+){0,4} (?:vorherig|bisherig|vorangegangen|vorangehend|obig|fruher|vorig|ursprunglich)[a-z]* (?:anweisung|instruktion|befehl|vorgabe|anordnung|prompt|regel)",
    ),
    // Spanish, Portuguese, Italian, Romanian.
    (
        Kind::Override,
        3,
        r"(?:ignor[ae]|olvid[ae]|descart[ae]|desestim[ae]|omit[ae]|hag?[az]s? caso(?: omiso)?)[a-z]*(?: [a-z]+){0,5} (?:instruccion|indicacion|orden|directric|regla)e?s?(?: [a-z]+){0,3} (?:anterior|previ|precedent|arriba|recibid|inicial|dad)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignor[ae]|olvid[ae])[a-z]*(?: [a-z]+){0,4} (?:anteriores|previas) (?:instrucciones|indicaciones|ordenes)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignor[ae]|esque[cç][ae]|desconsider[ae]|desprez[ae])[a-z]*(?: [a-z]+){0,5} (?:instruco|orde|orientaco|diretriz|comando|regra)[a-z]*(?: [a-z]+){0,3} (?:anterior|previa|precedent|acima|recebid|inicia)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignor[ai]|dimentic[ah]|trascur[ai]|non (?:seguire|tenere conto))[a-z]*(?: [a-z]+){0,5} (?:istruzion|indicazion|ordin|direttiv|regol)[a-z]*(?: [a-z]+){0,2} (?:precedent|anterior|sopra|ricevut|inizial)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignor[ai]|dimentic[ah])[a-z]*(?: [a-z]+){0,4} (?:precedenti|vecchie) (?:istruzioni|indicazioni|direttive)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignor[ai]|uita)[a-z]*(?: [a-z]+){0,3} (?:instructiun|comen)[a-z]*(?: [a-z]+){0,2} (?:anterio|preceden)",
    ),
    // Dutch, Swedish, Danish, Norwegian, Finnish.
    (
        Kind::Override,
        3,
        r"(?:negeer|vergeet)(?: [a-z]+){0,4} (?:vorige|eerdere|voorgaande|bovenstaande)(?: [a-z]+)? (?:instructie|opdracht|aanwijzing|prompt|regel)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignorera|ignorer|glom|glem|bortse fran|se bort fra)(?: [a-z]+){0,4} (?:tidigare|foregaende|tidligere|forrige|foregaende|forega[a-z]+)(?: [a-z]+)? (?:instruktion|instruks|anvisning|order|beskeder)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ohita|unohda)(?: [a-z]+){0,3} (?:aiemma|aikaisemma|edelli)[a-z]* (?:ohje|kasky)",
    ),
    // Polish, Czech, Russian, Ukrainian.
    (
        Kind::Override,
        3,
        r"(?:zignoruj|ignoruj|zapomnij|pomin)(?: [a-z]+){0,4} (?:poprzedni|wczesniejsz|powyzsz|dotychczas)[a-z]* (?:instrukcj|polece|wytyczn|zasad)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignoruj|zapomen)[a-z]*(?: [a-z]+){0,4} (?:predchoz|drivejsi|vyse)[a-z]* (?:pokyn|instrukc|prikaz)",
    ),
    (
        Kind::Override,
        3,
        r"(?:игнорир|забудь|не обращай|отбрось|не следуй|he следуй|не выполняй)[^.\n]{0,40}(?:предыдущ|прежн|предшеств|ранее|вышe|bышe|все |bсе |cтары)[^.\n]{0,30}(?:инструкц|указани|команд|правил|промпт|сообщени)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ігнор|забудь|не зважай|не виконуй)[^.\n]{0,40}(?:попередн|раніш|вище|всі )[^.\n]{0,30}(?:інструкц|вказівк|команд|правил)",
    ),
    // Turkish, Arabic, Persian, Hebrew, Hindi.
    (
        Kind::Override,
        3,
        r"(?:onceki|yukaridaki|tum|butun)[^.\n]{0,24}(?:talimat|yonerge|komut|kural)[^.\n]{0,20}(?:yok say|yoksay|gormezden|unut|dikkate alma|goz ardi)",
    ),
    (Kind::Override, 3, r"(?:تجاهل|انس|لا تتبع|تجاوز)[^.\n]{0,30}(?:التعليمات|الأوامر|الإرشادات|تعليمات|أوامر)"),
    (Kind::Override, 3, r"(?:دستور|دستورالعمل)[^.\n]{0,20}(?:قبلی|پیشین|بالا)[^.\n]{0,16}(?:نادیده|فراموش)"),
    (Kind::Override, 3, r"(?:התעלם|התעלמי|שכח)[^.\n]{0,24}(?:הוראות|ההוראות|הנחיות)"),
    (
        Kind::Override,
        3,
        r"(?:पिछले|पूर्व|पहले|सभी|पिछली)[^।\n]{0,40}(?:निर्देश|आदेश)[^।\n]{0,30}(?:अनदेखा|नज़रअंदाज़|नजरअंदाज|भूल|अनदेखी)",
    ),
    // Chinese, Japanese, Korean.
    (
        Kind::Override,
        3,
        r"(?:忽略|无视|無視|忘记|忘記|忘掉|忽视|忽視|不要理会|不要遵循|不要遵守|抛弃|丢弃|不用管|别管)[^。\n]{0,12}(?:之前|以前|先前|上述|上面|前面|以上|此前|原有|原来|所有|全部|一切|你收到|系统)[^。\n]{0,12}(?:指令|指示|命令|提示|要求|规则|規則|说明|說明|设定|設定|对话|對話|内容)",
    ),
    (
        Kind::Override,
        3,
        r"(?:以前|これまで|上記|前|先|今まで|すべて|全て|全部|元)[^。\n]{0,10}(?:指示|命令|プロンプト|ルール|指令)[^。\n]{0,8}(?:無視|忘れ|従わ|破棄)",
    ),
    (
        Kind::Override,
        3,
        r"(?:이전|앞선|위의|지금까지|기존|모든)[^.\n]{0,12}(?:지시|명령|프롬프트|지침|규칙)[^.\n]{0,10}(?:무시|잊)",
    ),
    // Vietnamese, Indonesian, Malay.
    (
        Kind::Override,
        3,
        r"(?:bo qua|quen)(?: [a-z]+){0,4} (?:huong dan|chi dan|chi thi|menh lenh|lenh)(?: [a-z]+){0,2} (?:truoc|tren)",
    ),
    (
        Kind::Override,
        3,
        r"(?:abaikan|lupakan)(?: [a-z]+){0,3} (?:instruksi|perintah|petunjuk|arahan)(?: [a-z]+){0,2} (?:sebelum|di atas|terdahulu)",
    ),
];

/// Where the rules might fit, cheap to find. Read over the text as it is, not settled: between words stands anything
/// short that is no letter, and the letter of an escape.
const ANCHOR_PATTERNS: &[&str] = &[
    r"(?:ignor(?:e|ing)|forget|overrid(?:e|ing)|bypass|neglect|dismiss|discard|abandon)[^a-z]{1,4}[nrt]?(?:all|any|ever|the|your|my|our|prev|prior|above|these|those|what|preced|earlier|initial)",
    r"disregard|pay no attention|overrule|jailbr|unfiltered|uncensored",
    r"(?:prior|vious|above|preceding|earlier|your|system|original|initial|new|following|these|hidden|secret|this|other|my|the)[^a-z]{1,4}[nrt]?(?:[a-z]{0,3}nstructions|iunstr|prompt|guideline|orders|directive|commands)[^a-z]",
    r"your[^a-z]{1,4}[nrt]?(?:new|real|actual|true|only)[^a-z]{1,4}",
    r"system[^a-z]{0,3}(?:message|override|note|notice|command|prompt)",
    r"[^a-z]ai[^a-z]{1,4}(?:assistant|agent|model|system|language|:)",
    r"language[^a-z]{1,4}model|chatgpt|[^a-z]gpt|claude|gemini|[^a-z]llms?[^a-z]|copilot|chatbot",
    r"assistants?[^a-z]{1,4}(?:is|who|that|which|reading|are|:)|(?:agents?|bots?|models?)[^a-z]{1,4}(?:is|who|that|reading|are)[^a-z]{1,4}reading",
    r"(?:assistant|human)[\]>]?[\x22']?\s?:",
    r"(?:message|note|request|instructions?|notice)[^a-z]{1,4}from[^a-z]{1,4}(?:me|us|your|the)[^a-z]",
    r"(?:task|request|question|problem)s?[^a-z]{1,4}(?:that[^a-z]{1,4})?(?:i|the user)[^a-z]{1,4}(?:gave|asked|assigned)",
    r"the[^a-z]{1,4}tools?[^a-z]{1,4}[a-z_]+[^a-z]{1,4}(?:with|to|using|and|for)[^a-z]|the[^a-z]{1,4}placeholders",
    r"(?:mention|tell|inform|notify|reveal|alert|warn|disclos)[a-z]{0,4}[^a-z]{1,4}(?:about[^a-z]{1,4})?(?:this|these|the[^a-z]{1,4}user|the[^a-z]{1,4}human|anyone)",
    r"im_start|im_end|start_header_id|eot_id|endoftext|\|(?:system|user|assistant|end|start|message|channel|developer|tool)\|",
    r"_of_turn|\[/?inst\]|<sys>|tool_call|tool_response|tool_result|tool_output|function_call|function_result|invoke name|python_tag|<function=|tool.calls?.begin|action input",
    r"<!--[^a-z]{0,4}(?:ai|llm|assistant|agent|system|note to|dear|attention|instruction)[^a-z]",
    r"display\s?:\s?none|visibility\s?:\s?hidden|font-size\s?:\s?0|opacity\s?:\s?0[^.]|(?:left|top|text-indent)\s?:\s?-[0-9]{3}|color\s?:\s?(?:white|#fff|transparent)[^<>]{0,40}>",
    r"\]\( ?<?(?:https?:)?//[^)\s]*(?:[?{<\[]|%7b|\$\()|<img[^>]*src[^>]*(?:[{\[]|%7b|\$\()",
    r"conversation[^a-z]{1,4}(?:history|so far|log|transcript)|chat[^a-z]{1,4}(?:history|log|transcript)",
    // Other languages.
    r"consignes|precedentes|anweisung|instruktion|befehle|vorgaben|nstruccion|indicacion|directrices|nstrucoes|orientacoes|diretrizes|istruzion|indicazion|direttive|instructiun",
    r"instructies|opdrachten|aanwijzing|instruks|anvisning|ohjeet|ohjei|instrukcj|polecen|wytyczn|pokyn|instrukc|talimat|yonerge|instruksi|perintah|petunjuk|huong dan|chi thi|chi dan",
    r"инструкц|указани|інструкц|вказівк|команды|правила|تعليمات|الأوامر|أوامر|الإرشادات|دستور|הוראות|הנחיות|निर्देश|आदेश",
    r"指令|指示|命令|提示|要求|规则|規則|说明|說明|设定|設定|对话|プロンプト|ルール|지시|명령|프롬프트|지침|규칙",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles() {
        assert_eq!(SETS.len(), RULES.len());
        assert!(ANCHORS.is_some());
    }
}
