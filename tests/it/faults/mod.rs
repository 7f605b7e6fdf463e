//! Everything that can go wrong between three sockets, one test for each fault: clients and upstreams that stop, send
//! slowly, break off, declare wrong lengths or attack, and a machine that runs out of something. The built program
//! runs between a client and an upstream that the test controls byte by byte. Whatever happens: memory stays bounded,
//! the next request is answered, and a broken message never looks complete.

mod bombs;
mod crowds;
mod cuts;
mod ends;
mod escapes;
mod hand;
mod http2;
mod labels;
mod lengths;
mod memory;
mod protocol;
mod reload;
mod secrets;
mod slow;
mod smuggling;
mod stalled;
mod targets;
