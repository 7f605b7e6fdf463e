//! Recency: whether a query asks for what is new, and whether it names a time already. Word lists of several languages;
//! changes nothing.

use super::super::scripts::is_unspaced;

/// Words for what is new: English, German, French, Spanish, Italian, Portuguese, Dutch, Russian. Only forms that mean
/// nothing else: "le dernier film" of a director may be old.
const NEW: &[&str] = &[
    "latest",
    "newest",
    "current",
    "currently",
    "recent",
    "recently",
    "aktuell",
    "aktuelle",
    "aktuellen",
    "aktueller",
    "aktuelles",
    "aktuellste",
    "aktuellsten",
    "neueste",
    "neuesten",
    "neuester",
    "neuestes",
    "neuste",
    "neusten",
    "jüngste",
    "jüngsten",
    "derzeit",
    "derzeitige",
    "derzeitigen",
    "récent",
    "récente",
    "récents",
    "récentes",
    "récemment",
    "actuel",
    "actuelle",
    "actuels",
    "actuelles",
    "actuellement",
    "dernières",
    "dernieres",
    "reciente",
    "recientes",
    "recientemente",
    "actuales",
    "actualmente",
    "últimas",
    "ultimas",
    "últimos",
    "ultimos",
    "recente",
    "recenti",
    "recentes",
    "attuale",
    "attuali",
    "attualmente",
    "atual",
    "atuais",
    "atualmente",
    "nieuwste",
    "huidige",
    "последние",
    "последних",
    "новейшие",
    "актуальные",
    "текущие",
];
/// The same in Chinese, Japanese and Korean, which need no space around them.
const NEW_UNSPACED: &[&str] = &["最新", "最近", "目前", "当前", "現在", "최신", "최근", "현재"];
/// Phrases by which a query names another time, or none.
const OTHER_TIMES: &[&str] = &[
    "last year",
    "previous year",
    "next year",
    "years ago",
    "year ago",
    "last decade",
    "century",
    "all time",
    "history",
    "historical",
    "letztes jahr",
    "letzten jahr",
    "letzten jahres",
    "vorjahr",
    "nächstes jahr",
    "nächsten jahr",
    "jahrhundert",
    "geschichte",
    "année dernière",
    "an dernier",
    "année prochaine",
    "an prochain",
    "siècle",
    "histoire",
    "año pasado",
    "año próximo",
    "próximo año",
    "siglo",
    "historia",
    "anno scorso",
    "anno prossimo",
    "secolo",
    "storia",
    "ano passado",
    "próximo ano",
    "século",
    "história",
    "vorig jaar",
    "volgend jaar",
    "прошлом году",
    "следующем году",
];
/// Words beside which "current" is that of a wire or of water.
const ELECTRIC: &[&str] = &[
    "voltage",
    "electric",
    "electrical",
    "electricity",
    "alternating",
    "direct",
    "eddy",
    "inrush",
    "leakage",
    "circuit",
    "transformer",
    "sensor",
    "ampere",
    "amperes",
    "amps",
    "ocean",
    "rip",
    "river",
    "dc",
    "ac",
];
/// Years that a query may name.
const YEARS: std::ops::RangeInclusive<u64> = 1900..=2199;

/// Whether `query` asks for what is new and names no time.
pub(super) fn needs_year(query: &str) -> bool {
    let lower = query.to_lowercase();
    let words = || lower.split(|letter: char| !letter.is_alphanumeric() && letter != '\'');
    let is_new = |word: &str| NEW.contains(&word);
    let is_electric = words().any(|word| ELECTRIC.contains(&word));
    let mut new = words().filter(|word| is_new(word) && !(is_electric && *word == "current"));
    let asks = new.next().is_some() || NEW_UNSPACED.iter().any(|word| lower.contains(word));
    asks && !names_year(query) && !names_other_time(&lower)
}

/// Whether `query` begins with a word for what is new.
pub(super) fn begins_with_new(query: &str) -> bool {
    let first = query.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    NEW.contains(&&*first.to_lowercase())
}

/// Whether a phrase of [`OTHER_TIMES`] is in `lower`, as words.
fn names_other_time(lower: &str) -> bool {
    let words: Vec<&str> = lower.split(|letter: char| !letter.is_alphanumeric()).collect();
    let text = format!(" {} ", words.join(" "));
    OTHER_TIMES.iter().any(|phrase| text.contains(&format!(" {phrase} ")))
}

/// Whether `query` names a year: four digits, a digit of another script, or the character for year.
fn names_year(query: &str) -> bool {
    let is_other = |letter: char| letter.is_numeric() && !letter.is_ascii_digit() && !is_unspaced(letter);
    let numbers = query.split(|letter: char| !letter.is_ascii_digit()).filter(|number| number.len() == 4);
    let mut years = numbers.filter_map(|number| number.parse().ok());
    years.any(|number: u64| YEARS.contains(&number))
        || query.contains(['年', '년'])
        || query.contains(is_other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_year_is_wanted_in_several_languages_where_no_time_is_named() {
        for (query, expected) in [
            ("the latest release of Rust", true),
            ("Latest, greatest releases", true),
            ("aktuelle Nachrichten aus Berlin", true),
            ("dernières nouvelles de Paris", true),
            ("últimas noticias de Madrid", true),
            ("notizie recenti da Roma", true),
            ("последние новости из Москвы", true),
            ("东京最新的天气预报", true),
            ("최신 뉴스 서울 날씨", true),
            ("latest release of 2024", false),
            ("latest releases 2024-25", false),
            ("latest releases ２０２４", false),
            ("2024年最新的天气预报", false),
            ("latest news from last year", false),
            ("aktuelle Zahlen und Vorjahr", false),
            ("release of the Rust language", false),
            ("translates the text to French", false),
            ("electric current in a wire", false),
            ("difference between nominal and actual voltage", false),
            ("scène ultime du film Titanic", false),
            ("alternating current and voltage", false),
            ("current president of France", true),
            ("the latest sensor of an ocean", true),
            ("latest of 12345 and 1066", true),
        ] {
            assert_eq!(needs_year(query), expected, "{query}");
        }
    }
}
