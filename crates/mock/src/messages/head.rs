//! The headers that the rules of a Messages request depend on: the version of the API and the betas.

/// The version that refuses sampling parameters; earlier versions accept them.
const WITHOUT_SAMPLING: &str = "2026-10-21";
/// The version that most clients name.
const FIRST: &str = "2023-06-01";

/// `anthropic-version` and `anthropic-beta` of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    version: Option<String>,
    betas: Vec<String>,
}

impl RequestHead {
    /// Reads both from all headers of a request, whose names are in lower case. Several lines of betas add up.
    pub fn from_headers<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut head = Self::default();
        for (name, value) in headers {
            match name {
                "anthropic-version" => head.version = Some(value.trim().to_owned()),
                "anthropic-beta" => head.betas.extend(value.split(',').map(|beta| beta.trim().to_owned())),
                _ => {}
            }
        }
        head
    }

    /// The value of `anthropic-version`, if the request has one.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Whether the version is one that the API has.
    pub(super) fn has_known_version(&self) -> bool {
        self.version().is_some_and(|version| [FIRST, WITHOUT_SAMPLING].contains(&version))
    }

    /// Whether the version refuses sampling parameters, citations of user texts and documents of the assistant.
    pub(super) fn is_without_sampling(&self) -> bool {
        self.version() == Some(WITHOUT_SAMPLING)
    }

    /// Whether a beta whose name begins with `prefix` is on.
    pub(super) fn has_beta(&self, prefix: &str) -> bool {
        self.betas.iter().any(|beta| beta.starts_with(prefix))
    }
}
