//! Phrases that set instructions aside in languages other than English, one or two rules each. Other rules are in
//! English only.

use super::rules::{Kind, Rule};

/// Instructions to set others aside, in other languages. Written in plain form, folded like the text.
pub(super) const LANGUAGES: &[Rule] = &[
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
