//! Messages to clients that answer no request.

use std::sync::Arc;

use crate::connection::encode::{Protocol, Reply};

/// The channel on which clients of version 2 are told for others what these must forget.
const INVALIDATIONS: &[u8] = b"__redis__:invalidate";

/// A message, and the channel on which it was published.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    pub channel: Vec<u8>,
    pub message: Vec<u8>,
}

/// What a client that keeps copies must forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stale {
    Keys(Vec<Vec<u8>>),
    All,
}

/// A message to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// To a subscriber of the channel.
    Message(Arc<Published>),
    /// To a subscriber of a pattern that the channel fits.
    Matched(Arc<[u8]>, Arc<Published>),
    /// To a subscriber of the sharded channel.
    Sharded(Arc<Published>),
    /// To a client that keeps copies, or to the one that is told in its place.
    Invalidate { stale: Stale, in_place: bool },
    /// To a client that sees every command: a line.
    Shown(Arc<[u8]>),
    /// The client of this number, which was told in its place, is gone.
    RedirectBroken(u64),
}

impl Push {
    /// Bytes of its names and contents.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message(sent) | Self::Sharded(sent) => sent.channel.len() + sent.message.len(),
            Self::Matched(pattern, sent) => pattern.len() + sent.channel.len() + sent.message.len(),
            Self::Shown(line) => line.len(),
            Self::Invalidate { stale: Stale::Keys(keys), .. } => keys.iter().map(Vec::len).sum(),
            Self::Invalidate { stale: Stale::All, .. } | Self::RedirectBroken(_) => 0,
        }
    }

    /// Writes it, if the client's protocol has a way to say it; `listens`: it has subscribed to
    /// something.
    pub fn write(&self, protocol: Protocol, listens: bool, out: &mut Vec<u8>) {
        let mut reply = Reply::new(out, protocol);
        let mut parts = |parts: &[&[u8]]| {
            reply.push(parts.len());
            parts.iter().for_each(|part| reply.bulk(part));
        };
        match (self, protocol) {
            (Self::Message(sent), _) => parts(&[b"message", &sent.channel, &sent.message]),
            (Self::Matched(pattern, sent), _) => {
                parts(&[b"pmessage", pattern, &sent.channel, &sent.message]);
            }
            (Self::Sharded(sent), _) => parts(&[b"smessage", &sent.channel, &sent.message]),
            (Self::Shown(line), _) => reply.line_of(line),
            (Self::Invalidate { stale, .. }, Protocol::Resp3) => {
                reply.push(2);
                reply.bulk(b"invalidate");
                stale.write(&mut reply);
            }
            (Self::Invalidate { stale, in_place: true }, Protocol::Resp2) if listens => {
                reply.push(3);
                reply.bulk(b"message");
                reply.bulk(INVALIDATIONS);
                stale.write(&mut reply);
            }
            (Self::RedirectBroken(client), Protocol::Resp3) => {
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.integer(*client as i64);
            }
            (Self::Invalidate { .. } | Self::RedirectBroken(_), Protocol::Resp2) => {}
        }
    }
}

impl Stale {
    fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Self::All => reply.null(),
            Self::Keys(keys) => {
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
        }
    }
}
