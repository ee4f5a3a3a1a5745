//! Stores that run single operations and no transactions: which commands they take.

use super::commands::{Action, Data, Local, Spec};
use super::parse::Command;
use super::plan::Op;

/// Why a store of single operations refuses `command`; `None`: it takes it.
pub fn refusal(spec: &Spec, command: &Command<'_>) -> Option<Vec<u8>> {
    let takes = match spec.action {
        Action::Data(Data::Plain(Op::Get)) => true,
        // Without options.
        Action::Data(Data::Set) => command.len() == 3,
        // Of one key.
        Action::Data(Data::Plain(Op::Del | Op::Exists)) => command.len() == 2,
        Action::Data(_) => false,
        Action::Local(Local::Multi | Local::Exec | Local::Discard | Local::Watch) => false,
        Action::Local(_) => true,
    };
    let name = spec.name.to_uppercase();
    (!takes).then(|| {
        format!(
            "ERR this store runs single operations and not this {name}: it takes GET key, SET key \
             value, DEL key and EXISTS key"
        )
        .into_bytes()
    })
}
