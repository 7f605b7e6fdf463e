//! What a model is known to refuse, by the adaptations that helped.

use model::adaptation::{Adaptation, Adaptations};

/// What a model is known to refuse, after it accepted a request with these adaptations.
pub fn learned(tried: &[Adaptation]) -> Adaptations {
    let learned: Adaptations = tried.iter().copied().filter(|it| it.refused().is_some()).collect();
    // Where the tools were refused, their choice was too.
    match learned.contains(Adaptation::Tools) {
        true => learned - Adaptation::CHOICES,
        false => learned,
    }
}
