//! The generation of a Claude model, read from its name, and the rules that only some generations have. A model of
//! another name, such as a simulated one, has none of these rules.
//!
//! Source: platform.claude.com, as collected in November 2026, and recorded requests.

/// Family and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation<'a> {
    family: &'a str,
    /// Major and minor number.
    version: (u64, u64),
}

impl<'a> Generation<'a> {
    /// Reads `claude-opus-4-8`, `claude-3-5-haiku-20241022` and the names that gateways derive from them.
    pub(super) fn from_name(model: &'a str) -> Option<Self> {
        let (_, name) = model.split_once("claude-")?;
        let mut parts = name.split(['-', '.', '@', ':']);
        let family = parts.clone().find(|part| part.bytes().all(|byte| byte.is_ascii_lowercase()))?;
        // Longer numbers are dates.
        let mut numbers = parts.by_ref().filter(|part| part.len() < 3).filter_map(|part| part.parse().ok());
        Some(Self { family, version: (numbers.next()?, numbers.next().unwrap_or(0)) })
    }

    /// Whether `tool_choice` may not force a call.
    pub(super) fn refuses_forced_choice(self) -> bool {
        match self.family {
            "opus" => self.version >= (5, 5),
            "fable" | "mythos" => self.version >= (5, 1),
            _ => false,
        }
    }

    /// Whether the last message may not be the beginning of the reply.
    pub(super) fn refuses_prefill(self) -> bool {
        self.version >= (4, 6)
    }

    /// Whether messages may have the role `system`.
    pub(super) fn accepts_system_messages(self) -> bool {
        match self.family {
            "opus" => self.version >= (4, 8),
            family => matches!(family, "fable" | "mythos"),
        }
    }

    /// Whether the model thinks as much as it wants: `thinking.type: adaptive`.
    pub(super) fn has_adaptive_thinking(self) -> bool {
        self.version >= (4, 6)
    }

    /// Whether `thinking.type: enabled`, with a budget, is refused.
    pub(super) fn refuses_thinking_budget(self) -> bool {
        self.version >= (4, 7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_read_from_every_form_of_a_name_and_has_its_rules() {
        for (name, family, version) in [
            ("claude-opus-4-8", "opus", (4, 8)),
            ("claude-opus-5-5", "opus", (5, 5)),
            ("claude-sonnet-4-20250514", "sonnet", (4, 0)),
            ("claude-haiku-4-5-20251001", "haiku", (4, 5)),
            ("claude-3-5-haiku-latest", "haiku", (3, 5)),
            ("anthropic/claude-opus-4.8", "opus", (4, 8)),
            ("us.anthropic.claude-sonnet-4-6-v1:0", "sonnet", (4, 6)),
        ] {
            assert_eq!(Generation::from_name(name), Some(Generation { family, version }), "{name}");
        }
        for (name, forces, has_system) in [
            ("claude-opus-5", true, true),
            ("claude-opus-5-5", false, true),
            ("claude-fable-5", true, true),
            ("claude-fable-5-1", false, true),
            ("claude-mythos-5-1", false, true),
            ("claude-opus-4-7", true, false),
            ("claude-sonnet-5", true, false),
            ("claude-haiku-4-5", true, false),
        ] {
            let generation = Generation::from_name(name).unwrap();
            let has = (!generation.refuses_forced_choice(), generation.accepts_system_messages());
            assert_eq!(has, (forces, has_system), "{name}");
        }
        assert_eq!([Generation::from_name("demo-chat"), Generation::from_name("claude-2.1")], [None, None]);
    }
}
