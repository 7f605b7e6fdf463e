//! toolrein: a sidecar proxy that keeps agents' tool calls in hand.
