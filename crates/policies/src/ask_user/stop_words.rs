//! Stop words of seven languages: words that say nothing about the topic of a search. Folded like any other word: lower
//! case, no diacritics.

/// English, German, French, Spanish, Italian, Portuguese and Dutch, a line or more for each.
const LISTS: [&str; 7] = [
    "a about after all also an and any are as at be because been before but by can could did do does for from get had \
     has have how i if in into is it its just like me more most my need no not now of on only or other our out over \
     please so some than that the their them then there these they this those to up us use using want was we were what \
     when where which who whom whose why will with would you your find search show tell give list look information info",
    "aber alle allem allen aller alles als also am an auch auf aus bei beim bin bis bist da das dass dein dem den denn \
     der des dich die dies diese dieser dieses dir doch du durch ein eine einem einen einer eines er es euch euer fur \
     hat hatte haben ich ihr im in ist ja kann kein keine man mein mich mir mit muss nach nicht noch nun nur ob oder \
     ohne sehr sein sich sie sind so uber um und uns unser vom von vor wann war warum was wegen weil welche welcher \
     welches wenn wer werden wie wird wo zu zum zur suche finde zeige",
    "a ai au aux avec ce ces cet cette chez comme comment dans de des du elle elles en est et etre eu il ils je la le \
     les leur leurs lui ma mais me meme mes moi mon ne nos notre nous on ou par pas plus pour pourquoi quand que quel \
     quelle quelles quels qui quoi sa sans se ses si son sont sur ta te tes toi ton tu un une vos votre vous y cherche \
     trouve d l n s c j m t qu",
    "a al algo algunos ante con como cual cuales cuando de del desde donde dos e el ella ellas ellos en entre era es \
     esa ese eso esta estan estas este esto estos fue ha hay la las le les lo los mas me mi mis muy no nos o os para \
     pero por porque que quien se segun ser si sin sobre son su sus tambien te tiene todo todos tu tus un una unas uno \
     unos y ya busca encuentra",
    "a ad agli ai al alla alle allo anche che chi ci come con cosa cui da dagli dai dal dalla dalle degli dei del della \
     delle dello di dove e ed era gli ha hanno i il in io la le lei li lo loro lui ma mi mio ne negli nei nel nella \
     nelle no noi non o per perche piu quale quali quando quanto quella quelle quelli quello questa queste questi \
     questo se si sia sono su sua sue sui sul sulla suo suoi ti tra tu tua tuo un una uno vi voi cerca trova",
    "a ao aos as ate com como da das de dela dele delas deles depois do dos e ela elas ele eles em entre era essa esse \
     esta este eu foi ha isso isto ja lhe mais mas me mesmo meu minha muito na nao nas nem no nos nossa nosso num numa \
     o os ou para pela pelas pelo pelos por porque qual quais quando que quem se sem ser seu seus so sua suas tambem te \
     tem teu tua um uma umas uns voce procura encontra",
    "aan al alles als ben bij daar dan dat de der deze die dit doch doen door dus een en er ge geen had heb hebben heeft \
     hem het hier hij hoe hun ik in is ja je kan kon maar me meer men met mij mijn na naar niet niets nog nu of om ons \
     ook op over te tegen toen tot u uit uw van veel voor waar waarom want waren was wat we wel werd wie wij worden \
     zal ze zich zij zijn zo zoek vind",
];

/// Whether `word`, folded, is one.
pub(super) fn is_stop_word(word: &str) -> bool {
    static WORDS: std::sync::LazyLock<std::collections::HashSet<&str>> =
        std::sync::LazyLock::new(|| LISTS.iter().flat_map(|list| list.split_whitespace()).collect());
    WORDS.contains(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stop_word_is_written_as_words_are_folded() {
        for word in LISTS.iter().flat_map(|list| list.split_whitespace()) {
            assert!(word.chars().all(|char| char.is_ascii_lowercase()), "{word}");
            assert!(is_stop_word(word));
        }
        assert!(!is_stop_word("pizza"));
    }
}
