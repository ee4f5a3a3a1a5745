//! What a transaction tells others once it has committed: the messages that it publishes.
//!
//! The engine that runs it appends them to its output, and the front that gets the output sends
//! them: so what is aborted or tried again is told once, or not at all.
//!
//! Layout, numbers little-endian, one after the other: kind (1 byte: 0 a message, 1 a message on a
//! sharded channel), where the reply stands that tells its number of receivers (4), length of the
//! channel (4), length of the message (4), both.

use crate::connection::encode::{Protocol, Reply};
use crate::shared::Shared;
use crate::transactions::output::OutputHead;

const HEAD_LEN: usize = 13;
/// The reply of a PUBLISH until its receivers are known.
pub const NO_RECEIVERS: &[u8] = b":0\r\n";

/// What the commands of a transaction have told so far.
#[derive(Debug, Default)]
pub struct News(Vec<u8>);

impl News {
    /// A message is published; its reply stands at `reply` of the output.
    pub fn publish(&mut self, sharded: bool, reply: usize, channel: &[u8], message: &[u8]) {
        self.0.push(u8::from(sharded));
        for number in [reply, channel.len(), message.len()] {
            self.0.extend_from_slice(&(number as u32).to_le_bytes());
        }
        self.0.extend_from_slice(channel);
        self.0.extend_from_slice(message);
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Sends what a committed transaction tells in `output`, and completes its replies.
pub fn send(shared: &Shared, output: &mut Vec<u8>) {
    let news = OutputHead::news(output);
    if news.is_empty() {
        return;
    }
    let (mut rest, mut receivers) = (news, Vec::new());
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD_LEN>() {
        let number = |at: usize| -> usize {
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
        };
        let Some((channel, behind)) = behind.split_at_checked(number(5)) else { break };
        let Some((message, behind)) = behind.split_at_checked(number(9)) else { break };
        rest = behind;
        receivers.push((
            number(1),
            match head[0] {
                0 => shared.pubsub.publish(channel, message),
                _ => shared.pubsub.publish_sharded(channel, message),
            },
        ));
    }
    // From the last to the first: what stands behind moves.
    for (at, count) in receivers.into_iter().rev() {
        let mut reply = Vec::new();
        Reply::new(&mut reply, Protocol::Resp2).integer(count as i64);
        if output.get(at..).is_some_and(|rest| rest.starts_with(NO_RECEIVERS)) {
            output.splice(at..at + NO_RECEIVERS.len(), reply);
        }
    }
}
