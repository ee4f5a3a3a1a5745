//! The state that a coordinator leaves which dies during a one-sided commit.

use super::*;

#[test]
fn a_half_written_record_tells_whose_lock_it_is_under_and_is_left_out() {
    for design in DESIGNS {
        let table = RemoteTable::new(geometry(design, 64), 64);
        let (whole, torn) = (Key(5), Key(6));
        [whole, torn].iter().for_each(|&key| table.load(key, b"before"));
        let remote = Remote::of(&table);
        let Seen::Record { address, unlocked, .. } = remote.lookup(torn) else {
            panic!("it was loaded");
        };
        let dead = EngineId::host(NodeId(9), 1);
        assert_eq!(table.owner_of(torn), None);
        assert!(remote.lock(address, unlocked, dead));
        // The body of the commit lands, and no new header ever does.
        let mut body = Vec::new();
        let version = unlocked.version().next();
        assert!(remote.geometry.emit_commit(torn, unlocked, version, Some(b"after"), &mut body));
        remote.region.write(remote.geometry.commit_address(address), &body).unwrap();
        let bytes = remote.read(remote.geometry.record_span(address));
        assert_eq!(remote.geometry.reread(torn, address, &bytes), Reread::Torn(Some(dead)));
        let mut walk = remote.geometry.walk(torn);
        let span = remote.read(walk.span());
        assert_eq!(walk.step(&span), Step::Torn(Some(dead)));
        assert_eq!(table.owner_of(torn), Some(dead));
        let mut locked = Vec::new();
        table.for_each_locked(&mut |key, owner| locked.push((key, owner)));
        assert_eq!(locked, [(torn, dead)]);
        let mut records = Vec::new();
        table.for_each(&mut |key, _, _| records.push(key));
        assert_eq!(records, [whole], "nobody may say what it is");
        assert_eq!(table.check(), Vec::<String>::new());
    }
}
