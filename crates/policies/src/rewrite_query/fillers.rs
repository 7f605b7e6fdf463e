//! Fillers of a query: words that ask for a search instead of saying what is searched for, and openings of questions, at
//! its beginning and end, in six languages. Removes them; never touches what is between.

use super::super::scripts::is_unspaced;
use super::plain::words_in;
use super::recency::begins_with_new;
use regex::Regex;
use std::sync::LazyLock;

/// What a query may begin with; a space is any number of them.
const BEGINNINGS: &[&str] = &[
    // English.
    r"(?:(?:can|could|would|will) you (?:please )?(?:help me (?:to )?)?|i (?:want|need|would like) (?:you )?to |i'd like (?:you )?to |please,? |help me (?:to )?)(?:find(?: me| out)?|search(?: the web| the internet| online)?(?: for)?|look(?: up| for)|get me|give me|show me|tell me|know|learn)(?: (?:some |any |more |all |the )?(?:information|info|details|data)(?: (?:about|on|regarding|for))| about| on)? ",
    r"(?:please |kindly )?(?:find|search|get|give|show|look up)(?: for)?(?: me)?(?: some| any| more| all| the)? (?:information|info|details) (?:about|on|regarding) ",
    r"search(?: the (?:web|internet)| online| google) for ",
    r"(?:i am|i'm|we are|we're) looking for (?:(?:some |any |more )?(?:information|info|details) (?:about|on|regarding) )?",
    r"(?:some |any |more )?(?:information|info) (?:about|on|regarding) ",
    r"tell me (?:more |all )?about ",
    r"please,? ",
    // German.
    r"(?:bitte )?(?:such|suche|finde|find|gib|zeig|zeige|suchen sie|finden sie|geben sie)(?: mir)?(?: bitte)?(?: mir)? (?:mehr |alle )?(?:informationen|infos) (?:über|zu|zum|zur) ",
    r"(?:bitte )?(?:such|suche|suchen sie)(?: mir)?(?: bitte)? (?:im internet |im web |online )?nach ",
    r"ich suche (?:nach )?(?:mehr )?(?:informationen|infos) (?:über|zu|zum|zur) ",
    r"ich suche nach ",
    r"ich (?:möchte|will|würde) (?:gern|gerne)? ?wissen,? ",
    r"(?:mehr )?(?:informationen|infos) (?:über|zu|zum|zur) ",
    r"bitte,? ",
    // French.
    r"s['’]il (?:te|vous) pla[iî]t,? ",
    r"(?:peux-tu|pouvez-vous|pourrais-tu|pourriez-vous|tu peux|vous pouvez) (?:me )?(?:m['’])?(?:trouver|chercher|rechercher|donner) (?:des |les |plus d['’])?(?:informations|infos|renseignements) (?:sur|à propos de|concernant) ",
    r"(?:trouve|trouvez|cherche|cherchez|recherche|recherchez|donne|donnez)(?:-moi)? (?:des |les |plus d['’])?(?:informations|infos|renseignements) (?:sur|à propos de|concernant) ",
    r"je (?:cherche|recherche|voudrais|veux|souhaite) (?:des |les |plus d['’])?(?:informations|infos|renseignements) (?:sur|à propos de|concernant) ",
    r"je (?:voudrais|veux|souhaite) savoir ",
    r"(?:des |plus d['’])?(?:informations|infos|renseignements) (?:sur|à propos de|concernant) ",
    // Spanish.
    r"(?:puedes|podrías|podrias|puede|podría|podria) (?:buscar|buscarme|encontrar|encontrarme|darme|mostrarme) (?:la |más |mas )?(?:información|informacion|datos) (?:sobre|acerca de|de) ",
    r"(?:busca|buscar|búscame|buscame|encuentra|dame|necesito|quiero|busco) (?:la |más |mas )?(?:información|informacion) (?:sobre|acerca de|de) ",
    r"(?:quiero|quisiera|necesito) saber (?:sobre |acerca de )?",
    r"(?:más |mas )?(?:información|informacion) (?:sobre|acerca de) ",
    r"por favor,? ",
    // Italian and Portuguese.
    r"per favore,? ",
    r"(?:puoi|potresti|può|potrebbe) (?:cercare|cercarmi|trovare|trovarmi|darmi) (?:delle |le |più )?informazioni (?:su|sul|sulla|sui|riguardo a) ",
    r"(?:cerca|cercami|trova|trovami|dammi|cerco) (?:delle |le |più )?informazioni (?:su|sul|sulla|sui|riguardo a) ",
    r"(?:pode|você pode|poderia) (?:buscar|procurar|encontrar|me dar) (?:as |mais )?informações (?:sobre|de) ",
    r"(?:busque|procure|encontre|busca|procura) (?:as |mais )?informações (?:sobre|de) ",
];

/// Openings of questions whose answer is the thing that follows: "what are the". Where a question is about something else,
/// as with "how" or "when", its opening says what is searched for.
const QUESTIONS: &[&str] = &[
    r"(?:what|which|who)(?:['’]s| is| are| was| were) (?:the |some of the )",
    r"(?:was|wer|wie|welches?) (?:ist|sind|war|waren|lauten|lautet) (?:der |die |das )",
    r"(?:quels?|quelles?|qui) (?:est|sont|était|étaient) (?:le |la |les |l['’])",
    r"(?:cuál|cual|cuáles|cuales|quién|quien) (?:es|son|era|eran|fue|fueron) (?:el |la |los |las )",
    r"(?:qual|quale|quali|chi) ?(?:è|e|sono|era|erano) (?:il |lo |la |i |gli |le |l['’])",
    r"(?:qual|quais|quem) (?:é|são|era|eram|foi) (?:o |a |os |as )",
];

/// The fewest words after the opening of a question that say what is searched for: "What is the Matrix" does not.
const FEWEST_ASKED: usize = 3;

/// German requests whose verb is at the end: what they begin with, and that verb.
const AROUND: (&str, &str) = (
    r"(?:(?:kannst|könntest) du|(?:können|könnten) sie)(?: mir)?(?: bitte)?(?: mir)? (?:mehr |alle )?(?:informationen|infos) (?:über|zu|zum|zur) ",
    r" (?:suchen|finden|heraussuchen|raussuchen|geben|zeigen)[.!?]?",
);

/// What a query may end with.
const ENDS: &[&str] = &[r",? (?:please|pls|bitte|por favor|per favore|s['’]il (?:te|vous) pla[iî]t)[.!?]?"];

/// Words that are nothing to search for.
const NOTHING: &[&str] = &[
    "it", "this", "that", "them", "these", "those", "me", "das", "dies", "cela", "esto", "eso", "questo",
    "isto",
];

/// Begins many titles: "Please Please Me".
const TITLE: &str = "please please ";

struct Patterns {
    beginnings: Vec<Regex>,
    questions: Vec<Regex>,
    around: Option<(Regex, Regex)>,
    ends: Vec<Regex>,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    // Those that are written here compile: a test holds that.
    let compile = |before: &str, pattern: &str, after: &str| {
        Regex::new(&format!("(?i){before}(?:{}){after}", pattern.replace(' ', " +"))).ok()
    };
    let at_start = |patterns: &[&str]| {
        patterns.iter().filter_map(|pattern| compile("^[ ¿]*", pattern, "")).collect::<Vec<_>>()
    };
    let (beginnings, questions) = (at_start(BEGINNINGS), at_start(QUESTIONS));
    let around = compile("^ *", AROUND.0, "").zip(compile("", AROUND.1, " *$"));
    let ends = ENDS.iter().filter_map(|pattern| compile("", pattern, " *$")).collect();
    Patterns { beginnings, questions, around, ends }
});

/// `query` without fillers at its beginning and end; all of it where nothing else would be left.
pub(super) fn without_fillers(query: &str) -> &str {
    let mut kept = query;
    while let Some(shorter) = shorter(kept).filter(|shorter| says_something(shorter)) {
        kept = shorter;
    }
    kept
}

fn shorter(query: &str) -> Option<&str> {
    if query.trim_start().get(..TITLE.len()).is_some_and(|begins| begins.eq_ignore_ascii_case(TITLE)) {
        return None;
    }
    if let Some((before, after)) = &PATTERNS.around
        && let Some(begins) = before.find(query)
    {
        let rest = &query[begins.end()..];
        return Some(after.find(rest).map_or(rest, |ends| &rest[..ends.start()]));
    }
    // The longest, since one may be the beginning of another.
    let longest = |patterns: &[Regex]| {
        let rest = |pattern: &Regex| query.get(pattern.find(query)?.end()..);
        patterns.iter().filter_map(rest).min_by_key(|rest| rest.len())
    };
    if let Some(rest) = longest(&PATTERNS.beginnings) {
        return Some(rest);
    }
    let is_asked = |rest: &&str| words_in(rest) >= FEWEST_ASKED || begins_with_new(rest);
    if let Some(rest) = longest(&PATTERNS.questions).filter(is_asked) {
        return Some(rest);
    }
    let ends = PATTERNS.ends.iter().find_map(|pattern| pattern.find(query))?;
    Some(&query[..ends.start()])
}

/// Whether there is something to search for in `query`.
fn says_something(query: &str) -> bool {
    let says = |word: &str| {
        let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
        let is_long = word.chars().count() > 2
            || word.chars().any(|letter| letter.is_numeric() || letter.is_uppercase());
        let is_word = is_long || word.chars().any(is_unspaced);
        is_word && !NOTHING.contains(&&*word.to_lowercase())
    };
    words_in(query) > 0 && query.split(' ').any(says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(PATTERNS.beginnings.len(), BEGINNINGS.len());
        assert_eq!(PATTERNS.questions.len(), QUESTIONS.len());
        assert_eq!(PATTERNS.ends.len(), ENDS.len());
        assert!(PATTERNS.around.is_some());
    }

    #[test]
    fn filler_words_are_removed_and_the_subject_of_the_query_stays() {
        for (query, kept) in [
            ("please find me information about solar panels", "solar panels"),
            ("Can you please help me find information on solar panels?", "solar panels?"),
            ("I would like to know about solar panels in Rome, please", "solar panels in Rome"),
            ("search the web for solar panels", "solar panels"),
            ("I'm looking for information about solar panels", "solar panels"),
            ("tell me about the history of Rome", "the history of Rome"),
            ("bitte suche mir Informationen über Solaranlagen in Köln", "Solaranlagen in Köln"),
            ("Kannst du mir bitte Informationen über Solaranlagen suchen?", "Solaranlagen"),
            ("Suche im Internet nach Solaranlagen bitte", "Solaranlagen"),
            ("trouve-moi des informations sur les panneaux solaires", "les panneaux solaires"),
            ("S'il vous plaît, cherchez des informations sur Rome antique", "Rome antique"),
            ("je voudrais savoir comment on fait du pain", "comment on fait du pain"),
            ("por favor busca información sobre paneles solares", "paneles solares"),
            ("¿puedes", "¿puedes"),
            ("puedes buscar información sobre paneles solares", "paneles solares"),
            ("cerca informazioni sui pannelli solari", "pannelli solari"),
            ("procure informações sobre painéis solares", "painéis solares"),
            // Openings of questions.
            ("What are the latest React features?", "latest React features?"),
            ("what's the latest iPhone", "latest iPhone"),
            ("Who is the current president of France?", "current president of France?"),
            ("Can you please tell me what are the newest features of Rust", "newest features of Rust"),
            ("What is the difference between TCP and UDP?", "difference between TCP and UDP?"),
            ("Was sind die neuesten Funktionen von React?", "neuesten Funktionen von React?"),
            ("Quelles sont les dernières nouvelles de Paris ?", "dernières nouvelles de Paris ?"),
            ("¿Cuáles son las últimas noticias de Madrid?", "últimas noticias de Madrid?"),
            ("quali sono le ultime notizie da Roma", "ultime notizie da Roma"),
            ("quais são as notícias mais recentes do Brasil", "notícias mais recentes do Brasil"),
            // Nothing would be left.
            ("please find me information about it", "please find me information about it"),
            ("tell me about them", "tell me about them"),
            ("What is the Matrix", "What is the Matrix"),
            ("What are the odds?", "What are the odds?"),
            // Not fillers.
            ("when is the next solar eclipse in Spain", "when is the next solar eclipse in Spain"),
            ("how is the weather in NYC today", "how is the weather in NYC today"),
            ("What is love by Haddaway", "What is love by Haddaway"),
            ("how to find information in a library", "how to find information in a library"),
            ("Please Please Me album by the Beatles", "Please Please Me album by the Beatles"),
            ("give me novacaine green day", "give me novacaine green day"),
            ("can you feel the love tonight", "can you feel the love tonight"),
            ("pleased to meet you movie", "pleased to meet you movie"),
        ] {
            assert_eq!(without_fillers(query), kept, "{query}");
        }
    }
}
