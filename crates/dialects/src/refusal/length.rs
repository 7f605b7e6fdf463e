//! Context overflow errors in unknown wordings, by their structure: the input or the context, a unit of length, and an
//! excess over a limit, or two numbers of tokens and a limit. Sizes of the output, rates, prices and plans are none.

use super::simple::SimpleText;

/// What a request sends to the model.
const INPUT: &str = "prompt|prompts|input|inputs|messages|conversation|chat history|sequence|sequences|dialogue|\
    transcript|message history|message list|chat|your history|n tokens|num tokens|you sent|you passed|tokens in|tokens in request|tokens in the request|tokens in your request";
/// Words that may mean the input, where no output is mentioned.
const REQUEST: &str = "request|requested|text|total tokens|token count|content";
/// What the model writes.
const OUTPUT: &str = "max tokens|maximum tokens|max completion tokens|max output tokens|max new tokens|completion tokens|\
    output tokens|new tokens|completion|generation|output";
const UNIT: &str = "token|tokens|tok|toks|context length|context window|context size|context limit|context len|context exceed*|\
    context overflow*|context budget|n ctx|num ctx|model len|model length|input length|prompt length|sequence length|\
    messages length|input size|prompt size|window|length of input|length of prompt|length of the input|\
    length of the prompt";
const EXCESS: &str = "exceed*|overflow*|surpass*|too long|too large|too many|too big|longer than|larger than|greater than|\
    more than|higher than|bigger than|beyond|above|over the|over by|full|exhausted|no longer fit*|must be below|not fit|doesnt fit|cannot fit|cant fit|\
    no room|not enough|reduce|shorten*|truncate|less than|at most|must be <|>|out of context|run out|\
    ran out|reached";
const LIMIT: &str = "max|maximum|limit|limits|limited|window|capacity|allowed|allows|accepts|accept|supports|support|supported|ceiling|cap|at most|up to|\
    configured|available|size|length|len|n ctx|num ctx|threshold|less than|fewer than|must be|must have|hold|holds|\
    can read|reads|fit|fits|most|memory|can take|takes";
/// Words that are an excess and a limit at once.
const TOO_LONG: &str = "too long|too many|too large|too big|exceed*|overflow*|full|exhausted|no longer fit*|not fit|\
    doesnt fit|cannot fit|cant fit|reduce|longer than|>";
/// Of rates, prices and plans, of time, and of sizes that are no context.
const OTHER: &str = "per minute|per min|per hour|per day|per second|per month|tpm|tpd|rpm|rate limit*|rate limited|quota|\
    credit|credits|balance|afford|billing|max budget|budget has|budget limit|spending|budget tokens|thinking|reasoning|plan|subscription|tier|throttl*|deadline|\
    timeout|timed out|concurrency|schema|schemas|array too long|string too long|stop sequences|cache key|\
    logprobs";
/// Parts of a request that a shorter history does not shorten; an error about the whole may name them too.
const PARTS: &str = "image|images|audio|file|files|bytes|mb|kb|tools|tool|function|functions|cached|document|embedding|\
    embeddings";
/// Words for a length without a unit.
const LENGTH: &str = "too long|max length|maximum length|no longer fit*";
/// The least number that can be a length of a context.
const LEAST: u64 = 256;

/// A unit of length in any language, also within a name.
const UNITS: &str = "token|jeton|токен|トークン|令牌|토큰|seq len|seqlen";
/// What else has two counts in tokens: a vocabulary, a lower limit, a key, an output in other languages than English.
const COUNTED: &str = "vocab|token id|logit bias|token bias|at least|minimum|min tokens|access token|token expire|expired|token type|\
    salida|sortie|ausgabe|saída|вывод|输出|輸出|出力|출력|mindestens|au moins|al menos|pelo menos|не менее|至少|minut|минут|\
    sekund|segundo|seconde| tag | jour| día| час|сутки|天|分钟|分鐘|remaining|verbleib|restant";

/// Whether a refusal compares two lengths, in any language: a unit, the two counts, and nothing of a rate or an output.
pub(super) fn compares_lengths(text: &str) -> bool {
    let simple = SimpleText::new(text);
    let mut counts: Vec<u64> = simple.numbers().filter(|number| *number >= LEAST).collect();
    counts.sort_unstable();
    counts.dedup();
    let lowered = super::words::cut(text).to_lowercase();
    let is_foreign_other = FOREIGN_OTHER.iter().any(|term| lowered.contains(term));
    let is_part = simple.says(PARTS) && !simple.says("context|prompt|total");
    counts.len() == 2
        && simple.contains(UNITS)
        && !simple.says(OTHER)
        && !simple.says(OUTPUT)
        && !simple.contains(COUNTED)
        && !is_part
        && !is_foreign_other
}

/// Whether `text` says that the input is longer than the model's context.
pub(super) fn says_too_long(text: &str) -> bool {
    let simple = SimpleText::new(text);
    let is_whole = simple.says("context|prompt|total");
    if simple.says(OTHER) || (simple.says(PARTS) && !is_whole) {
        return false;
    }
    let (input, output) = (simple.says(INPUT), simple.says(OUTPUT));
    let lengths = || simple.numbers().filter(|number| *number >= LEAST).count();
    // Two lengths in tokens and no word of an output: the longer one is that of the input.
    let are_compared = || simple.says("tokens|tok|toks") && lengths() >= 2;
    let is_of_input =
        input || (!output && (simple.says("context|window") || simple.says(REQUEST) || are_compared()));
    let is_length = simple.says(UNIT) || (input && simple.says(LENGTH) && !is_of_a_part(&simple));
    if !is_of_input || !is_length {
        return is_foreign(text);
    }
    let has_limit = simple.says(LIMIT);
    let has_excess = simple.says(EXCESS) && (has_limit || simple.says(TOO_LONG));
    has_excess || (has_limit && lengths() >= 2)
}

/// Whether a length is one of a name, an id or another short text.
fn is_of_a_part(simple: &SimpleText) -> bool {
    simple.says("name|names|id|ids|key|field|string") || simple.numbers().any(|number| number < LEAST)
}

/// The input of a model, in other languages than English.
const FOREIGN_SUBJECT: &[&str] = &[
    "上下文",
    "输入",
    "輸入",
    "提示词",
    "prompt",
    "对话",
    "コンテキスト",
    "入力",
    "プロンプト",
    "컨텍스트",
    "입력",
    "프롬프트",
    "контекст",
    "запрос",
    "contexto",
    "contexte",
    "kontext",
    "entrada",
    "eingabe",
];

/// That something is too long or too much.
const FOREIGN_EXCESS: &[&str] = &[
    "超过",
    "超出",
    "超長",
    "超长",
    "超限",
    "过长",
    "過長",
    "过大",
    "大于",
    "超え",
    "超過",
    "長すぎ",
    "초과",
    "너무 길",
    "넘",
    "превыш",
    "supera ",
    "übersteigt",
    "слишком длин",
    "excede",
    "demasiado larg",
    "dépasse",
    "trop long",
    "überschreitet",
    "zu lang",
];

/// What else may be too much, and shortening the input does not help.
const FOREIGN_OTHER: &[&str] = &[
    "每分钟",
    "每秒",
    "每天",
    "限流",
    "频率",
    "额度",
    "余额",
    "配额",
    "并发",
    "图片",
    "图像",
    "文件",
    "工具",
    "参数值",
    "毎分",
    "分あたり",
    "レート",
    "분당",
    "요금",
    "в минуту",
    "квот",
    "por minuto",
    "cuota",
    "par minute",
    "quota",
    "pro minute",
    "超时",
    "max_tokens",
];

/// The same in other languages than English: a length of the input, and an excess.
fn is_foreign(text: &str) -> bool {
    let text = super::words::cut(text).to_lowercase();
    let has = |list: &[&str]| list.iter().any(|term| text.contains(term));
    !text.is_ascii() && has(FOREIGN_SUBJECT) && has(FOREIGN_EXCESS) && !has(FOREIGN_OTHER)
}
