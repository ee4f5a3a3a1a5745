//! The parser and the procedure are total: any bytes, in any pieces, within their bounds.

use nicol_core::ids::Version;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::txn::Txn;
use nicol_resp::encode::Protocol;
use nicol_resp::parse::{Parser, ProtocolError, RequestLimits, Step};
use nicol_resp::plan::{Bounds, Kind, PlanBuilder};
use nicol_resp::{Database, Limits, PROCEDURE, operation, procedures, row};

type Parsed = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Parses `input`, given in pieces that end at `cuts`.
fn parse(input: &[u8], cuts: &[usize], limits: &RequestLimits) -> Parsed {
    let (mut parser, mut start, mut commands) = (Parser::default(), 0, Vec::new());
    for &end in cuts {
        loop {
            match parser.parse(&input[start..end], limits) {
                Ok(Step::Incomplete) => break,
                Ok(Step::Empty(len)) => start += len,
                Ok(Step::Command(len)) => {
                    let command = parser.command(&input[start..end]);
                    commands.push(command.args(0).map(<[u8]>::to_vec).collect());
                    start += len;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn cuts(len: usize, random: &mut Stream) -> Vec<usize> {
    let mut cuts: Vec<_> = (0..random.below(8)).map(|_| random.below(len as u64 + 1)).collect();
    cuts.push(len as u64);
    cuts.sort_unstable();
    cuts.into_iter().map(|cut| cut as usize).collect()
}

fn limits() -> RequestLimits {
    Limits::default().request(true)
}

#[test]
fn pieces_do_not_change_what_is_parsed() {
    let mut random = Stream::new(1, Purpose::Test, 0);
    for _ in 0..2_000 {
        let (mut input, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..1 + random.below(4) {
            let args: Vec<Vec<u8>> = (0..1 + random.below(4))
                .map(|_| (0..random.below(20)).map(|_| random.bits() as u8).collect())
                .collect();
            input.extend(format!("*{}\r\n", args.len()).into_bytes());
            for arg in &args {
                input.extend(format!("${}\r\n", arg.len()).into_bytes());
                input.extend_from_slice(arg);
                input.extend_from_slice(b"\r\n");
            }
            expected.push(args);
            if random.below(3) == 0 {
                input.extend_from_slice(b"inline 'a b'\r\n\r\n*0\r\n");
                expected.push(vec![b"inline".to_vec(), b"a b".to_vec()]);
            }
        }
        let cuts = cuts(input.len(), &mut random);
        assert_eq!(parse(&input, &cuts, &limits()), (expected.clone(), None));
        let every: Vec<_> = (0..=input.len()).collect();
        assert_eq!(parse(&input, &every, &limits()), (expected, None));
    }
}

#[test]
fn any_bytes_end_in_commands_or_an_error_whatever_their_pieces() {
    let alphabet = b"*$0123456789-\r\n\r\n\r\n\"'\\x aP\0\xff";
    let mut random = Stream::new(2, Purpose::Test, 0);
    let (mut errors, mut commands) = (0, 0);
    for _ in 0..20_000 {
        let input: Vec<u8> =
            (0..random.below(60)).map(|_| *random.pick(alphabet).unwrap()).collect();
        let whole = parse(&input, &[input.len()], &limits());
        let cuts = cuts(input.len(), &mut random);
        assert_eq!(parse(&input, &cuts, &limits()), whole, "{input:?} in pieces {cuts:?}");
        errors += usize::from(whole.1.is_some());
        commands += whole.0.len();
    }
    assert!(errors > 1_000 && commands > 1_000, "{errors} errors and {commands} commands");
}

#[test]
fn limits_hold_from_the_announcement_on() {
    let limits = RequestLimits { request_bytes: 100, arguments: 3, bulk_bytes: 50, ..limits() };
    let outcome = |input: &[u8]| parse(input, &[input.len()], &limits).1;
    assert_eq!(outcome(b"*3\r\n"), None);
    assert_eq!(outcome(b"*4\r\n"), Some(ProtocolError::MultibulkLength));
    assert_eq!(outcome(b"*2000000000\r\n"), Some(ProtocolError::MultibulkLength));
    assert_eq!(outcome(b"*1\r\n$50\r\n"), None);
    assert_eq!(outcome(b"*1\r\n$51\r\n"), Some(ProtocolError::BulkLength));
    let mut two = b"*2\r\n$50\r\n".to_vec();
    two.extend([b'x'; 50]);
    // 4 + 5 + 50 + 2 + 5 + 32 + 2 are 100 bytes.
    assert_eq!(outcome(&[&two[..], b"\r\n$32\r\n"].concat()), None);
    let error = outcome(&[&two[..], b"\r\n$33\r\n"].concat());
    assert_eq!(error, Some(ProtocolError::RequestTooBig));
    assert_eq!(outcome(b"*1\r\n$1\r\nxyz"), Some(ProtocolError::BulkEnd));
}

#[test]
fn the_procedure_refuses_what_no_front_would_send() {
    let mut random = Stream::new(3, Purpose::Test, 0);
    let (mut refused, mut committed) = (0, 0);
    for _ in 0..20_000 {
        let mut plan = PlanBuilder::new();
        for name in ["set", "get", "append", "mset", "del"] {
            let (op, writes) = operation(name).unwrap();
            plan.begin(op, writes);
            plan.key(row(Database::default(), 0, b"k"), b"k");
            match name {
                "set" => [&b"v"[..], &[0; 10]].iter().for_each(|arg| plan.plain(arg)),
                "append" | "mset" => plan.plain(b"w"),
                _ => {}
            }
        }
        let planned = plan.finish(Kind::Batch, Protocol::Resp2, Bounds::values(100), &[], 0);
        let request = planned.request();
        let mut args = request.args.clone();
        for _ in 0..random.below(3) {
            let at = random.below(args.len() as u64) as usize;
            args[at] = random.bits() as u8;
        }
        args.truncate(args.len() - (random.below(40) == 0) as usize * 3);
        let mut txn = Txn::default();
        txn.reset(PROCEDURE, &args);
        request.reads.iter().for_each(|key| _ = txn.read(*key));
        request.writes.iter().for_each(|key| _ = txn.write(*key));
        let record = random.bits().to_le_bytes();
        for index in 0..txn.entries().len() {
            let stored = (random.below(4) == 0).then_some(&record[..]);
            txn.fetched(index, Version(1), stored);
        }
        match procedures().execute(&mut txn) {
            nicol_core::txn::Verdict::Commit => committed += 1,
            _ => refused += 1,
        }
    }
    assert!(refused > 1_000 && committed > 1_000, "{refused} refused, {committed} committed");
}
