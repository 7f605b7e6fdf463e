//! Phrases of injected instructions in English: to set others aside, and whom they address. Written for the kind of
//! text, not for the sample that it is measured on; a space means any gap between words.

use super::rules::{Kind, Rule};

/// Instructions to set others aside, in English.
pub(super) const OVERRIDES: &[Rule] = &[
    (Kind::Override, 3, r"@ignore @any{0,5}@former(?: [a-z]+){0,2} @orders"),
    (Kind::Override, 2, r"(?:ignore|disregard|forget) @any{0,5}@former(?: [a-z]+){0,2} @weak"),
    (Kind::Override, 1, r"(?:ignore|disregard|forget) (?:all|any|everything|your)(?: of)? @any{0,3}@former"),
    (
        Kind::Override,
        3,
        r"(?:ignore|disregard|forget) (?:all|any|every|the|your)? ?@orders (?:that )?(?:you|above|before|previously|prior|given|so far|from)",
    ),
    (
        Kind::Override,
        3,
        r"(?:ignore|disregard|forget) (?:everything|anything|all|what(?:ever)?) (?:that )?(?:you (?:were|have been|had been|know|have learned|are told)|i (?:said|told|asked)|the user (?:said|told|asked|wants))",
    ),
    (
        Kind::Override,
        2,
        r"(?:ignore|disregard|forget) (?:everything|all|anything)(?: that (?:is|was|came))? (?:above|before|prior|previous|previously)",
    ),
    (
        Kind::Override,
        3,
        r"your (?:new|real|actual|true|only|updated|current) (?:instructions?|orders|directives?|objectives?|mission|goal) (?:are|is|now)\b",
    ),
    (
        Kind::Override,
        2,
        r"your (?:new|real|actual|true|only) (?:task|role|job|purpose|priority) (?:is|now)\b",
    ),
    (
        Kind::Override,
        2,
        r"\bnew (?:system |important |urgent |priority |updated )?instructions? ?(?::|\(|for you)",
    ),
    (
        Kind::Override,
        2,
        r"(?:strictly|immediately|only|exactly|must) (?:adhere to|follow|obey|comply with|execute) (?:the |these |this |my )?(?:following |new |below )?(?:instructions?|orders|commands)",
    ),
    (
        Kind::Override,
        1,
        r"(?:adhere to|follow|obey|comply with|execute) (?:the |these |this |my )(?:following |new |below )?(?:instructions?|orders|commands) (?:instead|below|only)",
    ),
    (Kind::Override, 1, r"\bdo\b[^.!?]*\.? instead\b"),
    (
        Kind::Override,
        3,
        r"you are now (?:dan\b|jailbroken|unrestricted|unfiltered|in (?:developer|dan|god|debug|admin|jailbreak|unrestricted|maintenance) mode|an? (?:unrestricted|unfiltered|uncensored|evil) )",
    ),
    (
        Kind::Override,
        2,
        r"(?:you are|you're) no longer (?:bound|restricted|subject|required|limited|an? @model)",
    ),
    (
        Kind::Override,
        2,
        r"(?:pretend|act|behave|respond|imagine) (?:as if |as though |like |that )?you (?:are|have|had|were) (?:no |not |dan\b|un)",
    ),
    (
        Kind::Override,
        3,
        r"(?:reveal|print|output|repeat|show|leak|disclose|tell me|give me|send|expose|share) (?:me )?your (?:(?:full|entire|complete|hidden|secret|initial|original|exact) )*(?:system prompt|system message|system instructions|(?:initial|hidden|secret|original) (?:instructions|prompt))",
    ),
    (Kind::Override, 1, r"(?:system|admin|security|developer|policy) override"),
];

/// Text that addresses an assistant.
pub(super) const ADDRESSES: &[Rule] = &[
    (
        Kind::Addressed,
        2,
        r"(?:message|note|request|instructions?|notice|order|reminder) from (?:me|us|your (?:user|developer|creator|owner|admin|operator|boss)[a-z]*|openai|anthropic|the (?:user|system|developers?|admin[a-z]*))\b[^.!?]*\bto (?:you|the (?:@reader))\b",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:important|urgent|special) (?:message|note|request|instructions?|notice) (?:from|to|for)",
    ),
    (Kind::Addressed, 2, r"\b(?:to|for) you (?:(?:the|my|our|dear) )?(?:@model|assistant|agent)\b"),
    (
        Kind::Addressed,
        2,
        r"before (?:you )?(?:can |could |may |will )?(?:solv|complet|continu|proceed|finish|answer|respond|perform|carry|work|start|help|do)[a-z]* (?:(?:with|on|out|to|the|my|your|this|that|original|main|initial|any|other|user's) )*(?:task|request|question|query|problem|assignment|job)s? (?:that )?(?:i|we|the user) (?:gave|asked|assigned|sent|requested|have given)",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:please|you (?:must|should|need to|have to)|first) do (?:all )?(?:of )?the following(?: [a-z]+)?(?: first|:)",
    ),
    (
        Kind::Addressed,
        2,
        r"(?:after|once|when) (?:you (?:do|have done|did|finish|complete|are done with)|doing|completing) (?:that|this|so|it)[^.!?]* (?:solve|continue|proceed|resume|return|complete|finish)[^.!?]*(?:task|request|question|problem|conversation)",
    ),
    (
        Kind::Addressed,
        2,
        r"(?:should|must|need to|have to|will|please|then|now) (?:use|call|invoke|run|execute|trigger) (?:the |your )tools? [a-z_.]+ (?:tool )?(?:with|to|using|and|for)\b",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:with the following arguments|remember to (?:substitute|replace|fill in) (?:the|all) placeholders)",
    ),
    (Kind::Addressed, 3, r"if you(?:'re| are) (?:an? |the |a large )?(?:@model)[ ,.]"),
    (
        Kind::Addressed,
        1,
        r"(?:attention|dear|hey|hi|hello|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)|reminder (?:to|for)|notice (?:to|for)|important for|warning (?:to|for)):? (?:(?:all|any|the|every|whichever|whatever|my|our|dear|future|other) )*(?:@reader)\b",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:attention|dear|hey|note (?:to|for)|message (?:to|for)|instructions? (?:to|for)|reminder (?:to|for)|notice (?:to|for)):? (?:(?:all|any|the|every|whichever|whatever|my|our|dear) )*(?:@model)[^.\n]*[:,!] ?(?:please|you|ignore|do|when|before|send|make|add|include|always|never|must|if|this|i|we|the user)\b",
    ),
    (
        Kind::Addressed,
        2,
        r"(?:@reader) (?:(?:who|that|which|is|are|may be|might be|currently|now) )*(?:reading|processing|parsing|summari[sz]ing|handling|viewing|analy[sz]ing|interpreting|browsing) (?:this|these|the following|it|my|our)\b",
    ),
    (
        Kind::Addressed,
        1,
        r"on behalf of (?:the|your|a) (?:user|account holder|owner|human|customer|client|person)",
    ),
    (
        Kind::Addressed,
        1,
        r"(?:before continuing|before proceeding|before you (?:continue|proceed))[^.]*(?:you could|could you|please|you (?:should|must|need))",
    ),
    (
        Kind::Addressed,
        2,
        r"as an? @model(?: [a-z]+)? (?:you|your) (?:must|should|need|have to|are required|are obliged|task|job|goal|duty)",
    ),
    (Kind::Addressed, 1, r"@first@model ?:\s?[a-z]"),
    (Kind::Addressed, 1, r"@first(?:system|admin) ?:\s?[a-z]+ [a-z]+ [a-z]"),
    (
        Kind::Addressed,
        2,
        r"(?:do not|don't|never|must not|without) (?:mention|tell|reveal|disclos|inform|notify|alert|warn)[a-z]* (?:(?:about|any of|of) )?(?:this (?:comment|message|instruction|note|text|request|step|to)|these (?:instructions|steps)|(?:to )?the (?:user|human|owner|customer|operator)|anyone)",
    ),
    (
        Kind::Addressed,
        1,
        r"without (?:asking|confirming with|checking with|asking for permission from) (?:the )?(?:user|human|me)\b",
    ),
    (
        Kind::Addressed,
        1,
        r"the user (?:(?:has|have|already) )*(?:authori[sz]ed|approved|confirmed|consented|permitted|wants you|asked you|instructed you)",
    ),
    (
        Kind::Addressed,
        1,
        r"<(?:information|important|system|instructions?|admin|urgent|attention|secret|hidden|override)>",
    ),
    (Kind::Addressed, 1, r"(?:important|attention|urgent|warning) ?!{2,}"),
];
