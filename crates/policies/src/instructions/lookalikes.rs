//! Letters of other scripts that look like a Latin one, from the confusables of Unicode's UTS 39: Cyrillic, Greek,
//! Armenian, Cherokee, Coptic, Lisu and others. Letters that NFKC already makes Latin ones (full width, mathematical) are
//! not among them, nor are signs, digits and marks.

use std::sync::LazyLock;

/// The Latin letter that `character` looks like, in lower case.
pub(super) fn latin(character: char) -> Option<char> {
    let at = SORTED.binary_search_by_key(&character, |(from, _)| *from).ok()?;
    Some(SORTED[at].1)
}

static SORTED: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let pairs = LOOKALIKES.iter().flat_map(|(latin, others)| others.chars().map(|other| (other, *latin)));
    let mut pairs: Vec<(char, char)> = pairs.collect();
    pairs.sort_unstable();
    pairs
});

/// A Latin letter and its lookalikes. Capitals that look like I are under i, where UTS 39 has them under l: here a
/// word is recognised by its small letters.
const LOOKALIKES: &[(char, &str)] = &[
    ('a', "\u{251}\u{391}\u{3b1}\u{410}\u{430}\u{13aa}\u{15c5}\u{237a}\u{a4ee}\u{102a0}\u{16f40}"),
    (
        'b',
        "\u{184}\u{392}\u{412}\u{42c}\u{13cf}\u{13f4}\u{1472}\u{15af}\u{15f7}\u{a4d0}\u{a7b4}\u{10282}\
         \u{102a1}\u{10301}",
    ),
    (
        'c',
        "\u{421}\u{441}\u{13df}\u{1d04}\u{2ca4}\u{2ca5}\u{a4da}\u{abaf}\u{102a2}\u{10302}\u{10415}\
         \u{1043d}\u{1051c}\u{1f74c}",
    ),
    ('d', "\u{501}\u{13a0}\u{13e7}\u{146f}\u{15de}\u{15ea}\u{a4d2}\u{a4d3}"),
    (
        'e',
        "\u{395}\u{415}\u{435}\u{4bd}\u{13ac}\u{212e}\u{22ff}\u{2d39}\u{a4f0}\u{ab32}\u{10286}\u{118a6}\
         \u{118ae}",
    ),
    (
        'f',
        "\u{3dc}\u{584}\u{15b4}\u{1e9d}\u{a4dd}\u{a798}\u{a799}\u{ab35}\u{10287}\u{102a5}\u{10525}\
         \u{118a2}\u{118c2}\u{1d213}",
    ),
    ('g', "\u{18d}\u{261}\u{50c}\u{581}\u{13c0}\u{13f3}\u{1d83}\u{a4d6}"),
    ('h', "\u{397}\u{41d}\u{4bb}\u{570}\u{13bb}\u{13c2}\u{157c}\u{2c8e}\u{a4e7}\u{102cf}"),
    (
        'i',
        "\u{131}\u{196}\u{269}\u{26a}\u{399}\u{3b9}\u{406}\u{456}\u{4c0}\u{4cf}\u{13a5}\u{2373}\u{2c92}\
         \u{a647}\u{ab75}\u{118c3}",
    ),
    ('j', "\u{37f}\u{3f3}\u{408}\u{458}\u{13ab}\u{148d}\u{a4d9}\u{a7b2}"),
    ('k', "\u{39a}\u{41a}\u{13e6}\u{16d5}\u{2c94}\u{a4d7}\u{10518}"),
    (
        'l',
        "\u{1c0}\u{13de}\u{14aa}\u{16c1}\u{2cd0}\u{2d4f}\u{a4e1}\u{a4f2}\u{1028a}\u{10309}\u{1041b}\
         \u{10526}\u{118a3}\u{118b2}\u{16f16}\u{16f28}\u{1d22a}",
    ),
    ('m', "\u{39c}\u{3fa}\u{41c}\u{13b7}\u{15f0}\u{16d6}\u{2c98}\u{a4df}\u{102b0}\u{10311}"),
    ('n', "\u{39d}\u{578}\u{57c}\u{2c9a}\u{a4e0}\u{10513}"),
    (
        'o',
        "\u{39f}\u{3bf}\u{3c3}\u{41e}\u{43e}\u{555}\u{585}\u{b20}\u{d20}\u{101d}\u{10ff}\u{12d0}\u{1d0f}\
         \u{1d11}\u{2c9e}\u{2c9f}\u{2d54}\u{a4f3}\u{ab3d}\u{10292}\u{102ab}\u{10404}\u{1042c}\u{104c2}\
         \u{104ea}\u{10516}\u{118b5}\u{118c8}\u{118d7}",
    ),
    ('p', "\u{3a1}\u{3c1}\u{420}\u{440}\u{13e2}\u{146d}\u{2374}\u{2ca2}\u{2ca3}\u{a4d1}\u{10295}"),
    ('q', "\u{51b}\u{563}\u{566}\u{2d55}"),
    (
        'r',
        "\u{1a6}\u{433}\u{13a1}\u{13d2}\u{1587}\u{1d26}\u{2c85}\u{a4e3}\u{ab47}\u{ab48}\u{ab81}\u{104b4}\
         \u{16f35}\u{1d216}",
    ),
    (
        's',
        "\u{1bd}\u{405}\u{455}\u{54f}\u{13d5}\u{13da}\u{a4e2}\u{a731}\u{abaa}\u{10296}\u{10420}\u{10448}\
         \u{118c1}\u{16f3a}",
    ),
    ('t', "\u{3a4}\u{422}\u{13a2}\u{2ca6}\u{a4d4}\u{10297}\u{102b1}\u{10315}\u{118bc}\u{16f0a}\u{1f768}"),
    (
        'u',
        "\u{28b}\u{3c5}\u{54d}\u{57d}\u{1200}\u{144c}\u{1d1c}\u{a4f4}\u{a79f}\u{ab4e}\u{ab52}\u{104ce}\
         \u{104f6}\u{118b8}\u{118d8}\u{16f42}",
    ),
    (
        'v',
        "\u{3bd}\u{474}\u{475}\u{13d9}\u{142f}\u{1d20}\u{2d38}\u{a4e6}\u{a6df}\u{aba9}\u{1051d}\u{11706}\
         \u{118a0}\u{118c0}\u{16f08}\u{1d20d}",
    ),
    (
        'w',
        "\u{26f}\u{461}\u{51c}\u{51d}\u{561}\u{13b3}\u{13d4}\u{1d21}\u{a4ea}\u{ab83}\u{1170a}\u{1170e}\
         \u{1170f}",
    ),
    (
        'x',
        "\u{3a7}\u{425}\u{445}\u{1541}\u{157d}\u{166d}\u{16b7}\u{2cac}\u{2d5d}\u{a4eb}\u{a7b3}\u{10290}\
         \u{102b4}\u{10317}\u{10527}",
    ),
    (
        'y',
        "\u{263}\u{28f}\u{3a5}\u{3b3}\u{423}\u{443}\u{4ae}\u{4af}\u{10e7}\u{13a9}\u{13bd}\u{1d8c}\
         \u{1eff}\u{2ca8}\u{a4ec}\u{ab5a}\u{102b2}\u{118a4}\u{118dc}\u{16f43}",
    ),
    ('z', "\u{396}\u{13c3}\u{1d22}\u{a4dc}\u{ab93}\u{118a9}\u{118c4}"),
];
