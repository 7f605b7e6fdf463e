//! How the state store that replicas share does, as plain data: what has failed, and whether it is asked.

/// The operation of the shared state store that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOp {
    Connect,
    LookUp,
    /// An update that was not written, or not at once.
    Record,
    Claim,
    /// A reservation.
    Reserve,
    /// A record that is not ours, or broken: it counts as lost.
    Unreadable,
}

impl StoreOp {
    /// As in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::LookUp => "look_up",
            Self::Record => "record",
            Self::Claim => "claim",
            Self::Reserve => "reserve",
            Self::Unreadable => "unreadable",
        }
    }
}

/// The state of the circuit breaker before the shared state store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circuit {
    /// It is asked.
    Closed,
    /// It is probed, and not asked yet.
    HalfOpen,
    /// It is not asked, since it did not answer.
    Open,
}

impl Circuit {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

    /// As in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}
