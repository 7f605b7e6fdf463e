//! Prefilter of the rules: words that are cheap to find in a whole text and mark where a rule might match.

/// Where the rules might match. Searched in the text before normalisation: between words there may be anything short
/// that is no letter, and the letter of an escape.
pub(super) const CANDIDATE_PATTERNS: &[&str] = &[
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
