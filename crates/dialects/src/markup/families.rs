//! The table of call markup, by model family: how a block begins, what its body begins with, and how it ends.
//!
//! Only the tags are here: those of the public parsers of vLLM (`tool_parsers`), SGLang (`function_call`) and llama.cpp
//! (`chat.cpp`) in 2026. A new model is a new row, or a tag in one.

use super::look::{self, Look};

/// Where in a text a block may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// Its first tag is a token that no prose contains, or its body is distinctive.
    Anywhere,
    /// At the start of a line.
    Line,
}

/// The markup of one or more model families.
#[derive(Debug)]
pub(super) struct Family {
    /// The models, for people.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests, and by people"))]
    pub(super) models: &'static str,
    pub(super) place: Position,
    /// The first tag.
    pub(super) openers: &'static [&'static str],
    /// Whether what follows the first tag is the body of a call.
    pub(super) body: fn(&str) -> Look,
    /// The last tag. Without one a block ends with its JSON, or with the text.
    pub(super) closers: &'static [&'static str],
    /// Blocks as models write them; tests check that each is removed.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests, and by people"))]
    pub(super) examples: &'static [&'static str],
}

/// Tags that may follow the end of any block and are removed with it: those of enclosing blocks, and ends of
/// messages.
pub(super) const TRAILERS: &[&str] = &[
    "</tool_call>",
    "</tool_calls>",
    "</function>",
    "</function_calls>",
    "</minimax:tool_call>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<｜end▁of▁sentence｜>",
    "<|message_sep|>",
    "<|call|>",
    "<|calls|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|im_end|>",
    "</s>",
];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        models: "Qwen 2.5, 3 and 3-Coder, Hermes, GLM 4.5 and later, ERNIE 4.5, Granite 4, MiMo, Trinity, SmolLM 3",
        place: Position::Anywhere,
        openers: &["<tool_call>"],
        body: look::hermes,
        closers: &["</tool_call>"],
        examples: &[
            "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q\": \"a </tool_call> b\"}}\n</tool_call>",
            "<tool_call>{\"name\":\"search\",\"arguments\":{}}",
            "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n{\"name\": \"b\", \"arguments\": {}}\n</tool_call>",
            "<tool_call>\n<function=search>\n<parameter=q>\nnews\n</parameter>\n</function>\n</tool_call>",
            "<tool_call>search\n<arg_key>q</arg_key>\n<arg_value>news</arg_value>\n</tool_call>",
            "<tool_call>list_files</tool_call>",
            "<tool_call>search(q=\"news\")</tool_call>",
            "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q\": \"cut o",
            "<tool_call>",
        ],
    },
    Family {
        models: "Llama 3.1, Functionary 3.1, Qwen 3-Coder without the outer tag, Step 3.5",
        place: Position::Anywhere,
        openers: &["<function="],
        body: look::function,
        closers: &["</function>"],
        examples: &[
            "<function=search>{\"q\": \"news\"}</function>",
            "<function=search>\n<parameter=q>\nnews\n</parameter>\n</function>\n</tool_call>",
            "<function=list_files>\n</function>",
        ],
    },
    Family {
        models: "Mistral, Ministral, Magistral, Devstral, xLAM",
        place: Position::Anywhere,
        openers: &["[TOOL_CALLS]"],
        body: look::mistral,
        closers: &[],
        examples: &[
            "[TOOL_CALLS][{\"name\": \"search\", \"arguments\": {\"q\": \"]\"}, \"id\": \"abcdefghi\"}]",
            "[TOOL_CALLS] [{\"name\": \"search\", \"arguments\": {}}]</s>",
            "[TOOL_CALLS]search{\"q\": \"news\"}[TOOL_CALLS]fetch{\"u\": 1}",
            "[TOOL_CALLS]deploy{\"to\": \"prod\"}\n[TOOL_CALLS]x_y{\"u\": 1}</s>",
            "[TOOL_CALLS]search[ARGS]{\"q\": \"news\"}",
            "[TOOL_CALLS]search[CALL_ID]abcdefghi[ARGS]{\"q\": \"news\"}",
        ],
    },
    Family {
        models: "Llama 3.1, 3.2 and 3.3",
        place: Position::Anywhere,
        openers: &["<|python_tag|>"],
        body: look::glued,
        closers: &["<|eom_id|>", "<|eot_id|>"],
        examples: &[
            "<|python_tag|>{\"name\": \"search\", \"parameters\": {\"q\": \"news\"}}<|eom_id|>",
            "<|python_tag|>brave_search.call(query=\"news\")",
            "<|python_tag|>import os\nprint(os.listdir())<|eom_id|>",
        ],
    },
    Family {
        models: "Llama 4",
        place: Position::Anywhere,
        openers: &["<|python_start|>"],
        body: look::glued,
        closers: &["<|python_end|>"],
        examples: &["<|python_start|>[search(q=\"news\")]<|python_end|>"],
    },
    Family {
        models: "Kimi K2",
        place: Position::Anywhere,
        openers: &["<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"],
        body: look::kimi_section,
        closers: &["<|tool_calls_section_end|>", "<|tool_call_section_end|>"],
        examples: &[
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{\"q\": \
             \"news\"}<|tool_call_end|><|tool_calls_section_end|>",
        ],
    },
    Family {
        models: "Kimi K2 without the outer tag",
        place: Position::Anywhere,
        openers: &["<|tool_call_begin|>"],
        body: look::kimi_call,
        closers: &["<|tool_call_end|>"],
        examples: &[
            "<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{\"q\": 1}<|tool_call_end|>\
             <|tool_calls_section_end|>",
            "<|tool_call_begin|>functions.x_y:0<|tool_call_argument_begin|>{\"q\": 1}<|tool_call_end|>\n\
             <|tool_call_begin|>functions.deploy:1<|tool_call_argument_begin|>{\"q\": 1}<|tool_call_end|>",
        ],
    },
    Family {
        models: "Kimi K3",
        place: Position::Anywhere,
        openers: &["<|open|>tools<|sep|>"],
        body: look::kimi_tools,
        closers: &["<|close|>tools<|sep|>"],
        examples: &[
            "<|open|>tools<|sep|><|open|>call name=search<|sep|>x<|close|>call<|sep|><|close|>tools<|sep|>",
        ],
    },
    Family {
        models: "Solar Open",
        place: Position::Anywhere,
        openers: &["<|tool_calls|><|tool_call:begin|>", "<|tool_call:begin|>"],
        body: look::solar,
        closers: &["<|tool_call:end|>"],
        examples: &[
            "<|tool_call:begin|>a1b2c3<|tool_call:name|>search<|tool_call:args|>{\"q\": 1}<|tool_call:end|>",
            "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>x_y<|tool_call:args|>{}<|tool_call:end|>\n\
             <|tool_call:begin|>1<|tool_call:name|>deploy<|tool_call:args|>{}<|tool_call:end|><|calls|>",
            "<|tool_call:begin|><|tool_call:name|>search<|tool_call:args|>{\"q\": \"cut o",
        ],
    },
    Family {
        models: "DeepSeek V3, R1 and V3.1 in all spellings that are seen, Step 3",
        place: Position::Anywhere,
        openers: &[
            "<｜tool▁calls▁begin｜>",
            "<｜tool_calls_begin｜>",
            "<｜tool calls begin｜>",
            "<｜tool\\_calls\\_begin｜>",
            "<｜tool▁calls｜>",
        ],
        body: look::deepseek_section,
        closers: &[
            "<｜tool▁calls▁end｜>",
            "<｜tool_calls_end｜>",
            "<｜tool calls end｜>",
            "<｜tool\\_calls\\_end｜>",
            "<｜/tool▁calls｜>",
        ],
        examples: &[
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{\"q\": \"news\"}\n```\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
            "<｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"search\">\
             </steptml:invoke><｜tool_call_end｜>\n<｜tool_calls_end｜>",
        ],
    },
    Family {
        models: "DeepSeek without the outer tag",
        place: Position::Anywhere,
        openers: &["<｜tool▁call▁begin｜>", "<｜tool_call_begin｜>"],
        body: look::deepseek_call,
        closers: &["<｜tool▁call▁end｜>", "<｜tool_call_end｜>"],
        examples: &[
            "<｜tool▁call▁begin｜>search<｜tool▁sep｜>{\"q\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>x_y<｜tool▁sep｜>{\"q\": 1}<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>deploy<｜tool▁sep｜>{}",
        ],
    },
    Family {
        models: "DeepSeek V3.2 and V4",
        place: Position::Anywhere,
        openers: &["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"],
        body: look::deepseek_section,
        closers: &["</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
        examples: &[
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"search\">\n<｜DSML｜parameter name=\"q\" string=\"true\">x\
             </｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        ],
    },
    Family {
        models: "MiniMax M2 and M3",
        place: Position::Anywhere,
        openers: &["<minimax:tool_call>", "]<]minimax[>[<tool_call>"],
        body: look::minimax,
        closers: &["</minimax:tool_call>", "]<]minimax[>[</tool_call>"],
        examples: &[
            "<minimax:tool_call>\n<invoke name=\"search\">\n<parameter name=\"q\">news</parameter>\n</invoke>\n\
             </minimax:tool_call>",
            "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"search\">x]<]minimax[>[</invoke>]<]minimax[>[</tool_call>",
        ],
    },
    Family {
        models: "MiniMax M1, Hunyuan A13B, Jamba, Apriel",
        place: Position::Anywhere,
        openers: &["<tool_calls>"],
        body: look::calls,
        closers: &["</tool_calls>"],
        examples: &[
            "<tool_calls>\n{\"name\": \"a\", \"arguments\": {}}\n{\"name\": \"b\", \"arguments\": {}}\n</tool_calls>",
            "<tool_calls>[{\"name\": \"search\", \"arguments\": {\"q\": 1}}]</tool_calls>",
        ],
    },
    Family {
        models: "OLMo 3, and models trained on Claude's format",
        place: Position::Anywhere,
        openers: &["<function_calls>", "<antml:function_calls>"],
        body: look::calls,
        closers: &["</function_calls>", "</antml:function_calls>"],
        examples: &[
            "<function_calls>\nsearch(q=\"news\")\nfetch(u=1)\n</function_calls>",
            "<function_calls>\n<invoke name=\"search\">\n<parameter name=\"q\">x</parameter>\n</invoke>\n</function_calls>",
        ],
    },
    Family {
        models: "the same and MiniMax without the outer tag, Step 3, DeepSeek V3.2",
        place: Position::Line,
        openers: &["<invoke name=\"", "<steptml:invoke name=\"", "<｜DSML｜invoke name=\""],
        body: look::attribute,
        closers: &["</invoke>", "</steptml:invoke>", "</｜DSML｜invoke>"],
        examples: &[
            "<invoke name=\"search\">\n<parameter name=\"q\">x</parameter>\n</invoke>\n</function_calls>",
        ],
    },
    Family {
        models: "Granite 3, Phi-4-mini",
        place: Position::Anywhere,
        openers: &["<|tool_call|>"],
        body: look::json,
        closers: &["<|/tool_call|>"],
        examples: &[
            "<|tool_call|>[{\"name\": \"search\", \"arguments\": {\"q\": \"news\"}}]",
            "<|tool_call|>[{\"name\": \"search\", \"arguments\": {}}]<|/tool_call|>",
        ],
    },
    Family {
        models: "Granite 20B",
        place: Position::Anywhere,
        openers: &["<function_call>"],
        body: look::json,
        closers: &["</function_call>"],
        examples: &["<function_call> {\"name\": \"search\", \"arguments\": {\"q\": 1}}"],
    },
    Family {
        models: "Command R7B and A",
        place: Position::Anywhere,
        openers: &["<|START_ACTION|>"],
        body: look::json,
        closers: &["<|END_ACTION|>"],
        examples: &[
            "<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"search\"}\n]<|END_ACTION|>",
        ],
    },
    Family {
        models: "Command R and R+",
        place: Position::Line,
        openers: &["Action: ```json"],
        body: look::json,
        closers: &["```"],
        examples: &["Action: ```json\n[\n {\"tool_name\": \"search\", \"parameters\": {}}\n]\n```"],
    },
    Family {
        models: "InternLM 2, Intern-S1",
        place: Position::Anywhere,
        openers: &["<|action_start|>"],
        body: look::plugin,
        closers: &["<|action_end|>"],
        examples: &["<|action_start|><|plugin|>\n{\"name\": \"search\", \"parameters\": {}}<|action_end|>"],
    },
    Family {
        models: "LFM 2",
        place: Position::Anywhere,
        openers: &["<|tool_call_start|>"],
        body: look::list,
        closers: &["<|tool_call_end|>"],
        examples: &["<|tool_call_start|>[search(q=\"news\")]<|tool_call_end|>"],
    },
    Family {
        models: "Seed-OSS, LongCat",
        place: Position::Anywhere,
        openers: &["<seed:tool_call>", "<longcat_tool_call>"],
        body: look::hermes,
        closers: &["</seed:tool_call>", "</longcat_tool_call>"],
        examples: &[
            "<seed:tool_call>\n<function=search>\n<parameter=q>x</parameter>\n</function>\n</seed:tool_call>",
            "<longcat_tool_call>{\"name\": \"search\", \"arguments\": {}}</longcat_tool_call>",
        ],
    },
    Family {
        models: "Apertus, Nemotron",
        place: Position::Anywhere,
        openers: &["<|tools_prefix|>", "<TOOLCALL>"],
        body: look::json,
        closers: &["<|tools_suffix|>", "</TOOLCALL>"],
        examples: &[
            "<|tools_prefix|>[{\"search\": {\"q\": 1}}]<|tools_suffix|>",
            "<TOOLCALL>[{\"name\": \"search\", \"arguments\": {}}]</TOOLCALL>",
        ],
    },
    Family {
        models: "Gemma 4, FunctionGemma",
        place: Position::Anywhere,
        openers: &["<|tool_call>", "<start_function_call>"],
        body: look::gemma,
        closers: &["<tool_call|>", "<end_function_call>"],
        examples: &[
            "<|tool_call>call:search{q:<|\"|>news<|\"|>}<tool_call|>",
            "<start_function_call>call:search{q:<escape>news<escape>}<end_function_call>",
        ],
    },
    Family {
        models: "GigaChat 3",
        place: Position::Anywhere,
        openers: &["function call<|role_sep|>"],
        body: look::json,
        closers: &[],
        examples: &["function call<|role_sep|>\n{\"name\": \"search\", \"arguments\": {}}<|message_sep|>"],
    },
    Family {
        models: "gpt-oss",
        place: Position::Anywhere,
        openers: &[
            "<|channel|>commentary to=",
            "<|channel|>analysis to=",
            "<|start|>assistant to=",
            "<|start|>assistant<|channel|>commentary to=",
            "<|start|>assistant<|channel|>analysis to=",
        ],
        body: look::harmony,
        closers: &["<|call|>"],
        examples: &[
            "<|channel|>commentary to=functions.search <|constrain|>json<|message|>{\"q\": \"news\"}<|call|>",
            "<|start|>assistant<|channel|>commentary to=functions.search json<|message|>{\"q\":1}",
            "<|start|>assistant to=functions.search<|channel|>commentary json<|message|>{\"q\":1}<|call|>",
        ],
    },
    Family {
        models: "gpt-oss where the engine drops its special tokens",
        place: Position::Line,
        openers: &["commentary to=functions.", "analysis to=functions.", "to=functions."],
        body: look::harmony,
        closers: &[],
        examples: &[
            "commentary to=functions.search json{\"q\": \"news\"}",
            "to=functions.x_y json\n{\"q\": \"news\"}",
            "analysis to=functions.search <|constrain|>json<|message|>{\"q\": 1}",
            "to=functions.search 天天 json\n{\"q\": \"news\"}",
        ],
    },
    Family {
        models: "the same, after other text",
        place: Position::Anywhere,
        openers: &["assistantcommentary to=", "assistantanalysis to="],
        body: look::harmony,
        closers: &[],
        examples: &["assistantcommentary to=functions.search {\"q\":1}"],
    },
    Family {
        models: "HyperCLOVA X SEED",
        place: Position::Anywhere,
        openers: &["<|im_start|>assistant -> tool/function_call", "-> tool/function_call\n"],
        body: look::json,
        closers: &["<|im_end|>"],
        examples: &[
            "<|im_start|>assistant -> tool/function_call\n[{\"name\": \"search\", \"arguments\": {\"q\": 1}}]<|im_end|>",
        ],
    },
    Family {
        models: "FireFunction 2, Phi-4-mini",
        place: Position::Line,
        openers: &["functools"],
        body: look::json,
        closers: &[],
        examples: &["functools[{\"name\": \"search\", \"arguments\": {\"q\": 1}}]"],
    },
    Family {
        models: "any model that imitates a history that toolrein has rewritten as text",
        place: Position::Line,
        openers: &["[called "],
        body: look::called,
        closers: &["]"],
        examples: &["[called search with {\"q\": \"]\"}]"],
    },
];
