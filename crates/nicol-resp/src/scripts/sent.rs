//! What a client sent of a command whose plan has more, for those who look at slow commands.

/// The arguments that a client sent of those in a plan of the command `name`.
pub fn sent<'a>(name: &str, mut args: Vec<&'a [u8]>) -> Vec<&'a [u8]> {
    let (first, rest) = match name {
        "eval" | "eval_ro" | "evalsha" | "evalsha_ro" => {
            // Without keys it has one of the front's own, at the end.
            if args.get(4).is_some_and(|keys| *keys == [0; 4]) {
                args.pop();
            }
            (2..3, 5)
        }
        "fcall" | "fcall_ro" => (1..2, 5),
        "function" => (0..0, 3),
        // What is drawn begins with the last one.
        "hrandfield" | "spop" | "srandmember" | "zrandmember" => {
            args.pop();
            (0..0, 0)
        }
        // The second one says how records are named.
        "sort" | "sort_ro" => (0..1, 2),
        _ => (0..0, 0),
    };
    let first = args.get(first).unwrap_or_default();
    first.iter().chain(args.iter().skip(rest)).copied().collect()
}
