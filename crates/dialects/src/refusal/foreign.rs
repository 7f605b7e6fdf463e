//! Refusals in other languages than English, as gateways for one country word them.
//!
//! Responsible for Chinese, Japanese, Korean, Russian and some languages of western Europe. Looks only for a subject
//! and a lack in one sentence, so it is used only if no English rule applies.

use super::words::cut;
use model::adaptation::Adaptation::{self, Flattened, Placement, ToolChoice, Tools};

/// What a message in another language than English refuses.
pub(super) fn classify(text: &str) -> Option<Adaptation> {
    let text = cut(text).to_lowercase();
    text.split(['。', '.', '！', '!', '\n', ';', '；']).find_map(|sentence| {
        let has = |list: &[&str]| list.iter().any(|term| sentence.contains(term));
        let found = FOREIGN.iter().find(|row| has(row.subject) && has(row.lack) && !has(row.but_not));
        found.map(|row| row.refusal)
    })
}

/// A refusal in another language than English: a word of each list in one sentence.
pub(super) struct Foreign {
    pub(super) refusal: Adaptation,
    pub(super) subject: &'static [&'static str],
    pub(super) lack: &'static [&'static str],
    pub(super) but_not: &'static [&'static str],
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the tests, and by people"))]
    pub(super) example: &'static str,
}

const LACK: &[&str] = &[
    "不支持",
    "未支持",
    "未开启",
    "未启用",
    "不可用",
    "无法使用",
    "不支援",
    "サポートしていません",
    "サポートされていません",
    "対応していません",
    "非対応",
    "使用できません",
    "利用できません",
    "지원하지 않",
    "지원되지 않",
    "не поддержива",
    "unterstützt kein",
    "nicht unterstützt",
    "ne prend pas en charge",
    "ne supporte pas",
    "pas pris en charge",
    "no admite",
    "no soporta",
    "no es compatible con",
    "não suporta",
    "non supporta",
];

/// In the order of precedence. Chinese, Japanese, Korean, Russian and some of western Europe.
pub(super) const FOREIGN: &[Foreign] = &[
    Foreign {
        refusal: Flattened,
        subject: &[
            "角色: tool",
            "角色：tool",
            "角色 tool",
            "tool 角色",
            "tool角色",
            "工具消息",
            "ツールメッセージ",
        ],
        lack: LACK,
        but_not: &[],
        example: "不支持的消息角色: tool",
    },
    Foreign {
        refusal: Placement,
        subject: &["system", "系统消息", "システムメッセージ", "시스템 메시지"],
        lack: &["开头", "首位", "第一条", "最前", "先頭", "最初", "첫 번째", "처음"],
        but_not: &[],
        example: "system 消息必须位于消息列表的开头",
    },
    Foreign {
        refusal: ToolChoice,
        subject: &["tool_choice", "工具选择"],
        lack: LACK,
        but_not: &["流式", "找不到"],
        example: "该模型不支持 tool_choice 参数",
    },
    Foreign {
        refusal: Tools,
        subject: &[
            "工具",
            "函数调用",
            "ツール",
            "関数呼び出し",
            "도구",
            "함수 호출",
            "инструмент",
            "вызов функций",
            "вызов инструментов",
            "werkzeug",
            "funktionsaufruf",
            "outils",
            "appels de fonction",
            "appel de fonction",
            "herramientas",
            "llamadas a funciones",
            "ferramentas",
            "strumenti",
            "function call",
            "tool call",
            "tool use",
            "tools",
        ],
        lack: LACK,
        but_not: &[
            "类型",
            "名称",
            "的参数",
            "可选参数",
            "流式",
            "图片",
            "图像",
            "消息",
            "角色",
            "数量",
            "并行",
            "内置",
            "联网",
            "ストリーミング",
            "タイプ",
            "種類",
            "名前",
            "並列",
            "組み込み",
            "画像",
            "유형",
            "이름",
            "스트리밍",
            "병렬",
            " тип",
            " имя",
            "потоков",
            "паралл",
            "parallel",
            "stream",
            "typ",
            "custom",
            "built-in",
        ],
        example: "该模型不支持工具调用",
    },
];

/// A result, in other languages than English: the stem of its word.
const RESULT: &str = "ergebnis|antwort|rückgabe|résultat|réponse|resultado|respuesta|resposta|risultato|risposta|результат|ответ|结果|\
    結果|响应|回應|消息|応答|결과|응답|wynik|sonuç|resultaat";
/// A tool or its call.
const CALL: &str = "tool|werkzeug|funktion|aufruf|outil|fonction|appel|herramienta|función|funcion|llamada|ferramenta|função|\
    chamada|strumento|funzione|chiamata|инструмент|функци|вызов|工具|函数|函數|调用|調用|ツール|関数|呼び出し|도구|함수|호출|narzędzi|araç";
/// A denial. Short words have blanks around them.
const NEGATION: &str = " ohne | kein| nicht | fehlt| fehlen| aucun| sans | pas | manqu| no | ningun| ningún| sin | falta| nenhum| sem | não |\
    nessun| senza | non | без | нет | не |отсутств|没有|沒有|缺少|不匹配|未找到|找不到|不存在|ありません|存在しない|見つかりません|없|않| bez | brak |\
    yok| geen | zonder ";
/// That a model cannot use tools, or a picture in a result.
const UNSUPPORTED: &str = "unterstütz|prend pas en charge|pris en charge|admite|soporta|suporta|supporta|поддерж|支持|支援|サポート|\
    対応して|지원|bild|image|imagen|изображ|图片|画像";
/// Arguments of a call, and what is wrong with their JSON.
const ARGUMENTS: &str = "argument|parameter|paramètre|parámetro|parâmetro|parametr|аргумент|параметр|参数|參數|引数|인수|인자|매개변수";
const INVALID: &str = "ungültig|kein gültig|nicht gültig|fehlerhaft|defekt|kaputt|invalide|non valide|pas valide|pas un |pas du |inválid|\
    no válid|no son|no es |non valid|недопуст|некоррект|неверн|невалид|не является|ошибка|不是|无效|無效|非法|解析|错误|無効|不正|\
    ではありません|올바르지|유효하지|아닙니다";

/// Whether one of `terms`, which `|` separates, occurs in `text`.
fn has(text: &str, terms: &str) -> bool {
    terms.split('|').any(|term| text.contains(term))
}

/// The text in lower case, with blanks in place of marks.
fn plain(text: &str) -> String {
    let letters = cut(text).to_lowercase();
    let letters = letters.chars().map(|letter| if letter.is_alphanumeric() { letter } else { ' ' });
    std::iter::once(' ').chain(letters).chain([' ']).collect()
}

/// Whether a text denies that a result has a call, or a call a result. Only a suspicion.
pub(super) fn is_pair(text: &str) -> bool {
    let text = plain(text);
    has(&text, RESULT) && has(&text, CALL) && has(&text, NEGATION) && !has(&text, UNSUPPORTED)
}

/// Whether a text says that the arguments of a call are no JSON. Only a suspicion.
pub(super) fn is_of_arguments(text: &str) -> bool {
    let text = plain(text);
    has(&text, "json")
        && has(&text, ARGUMENTS)
        && has(&text, CALL)
        && has(&text, INVALID)
        && !has(&text, "schema|response format|模式|схем")
}
