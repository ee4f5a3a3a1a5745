use super::*;

const TABLES: TablesHeader = TablesHeader { hash_seed: 3, life: 9 };

/// A run of this test, empty.
fn run(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("nicol-tables-{name}-{}", std::process::id()));
    let _gone = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

type Records = Vec<(Key, Version, Vec<u8>)>;

fn sample(count: u64) -> Records {
    let record = |number| (Key(number), Version(number + 1), vec![number as u8; 3_000]);
    (0..count).map(record).collect()
}

/// Saves records; the nonce of the tables.
fn save(run: &Path, records: &[(Key, Version, Vec<u8>)]) -> u64 {
    let borrowed = records.iter().map(|(key, version, value)| (*key, *version, &value[..]));
    write_tables(run, TABLES, borrowed).unwrap().nonce
}

fn load(run: &Path, nonce: u64) -> Result<(Records, u64), TablesError> {
    let mut records = Vec::new();
    let mut each = |key, version, value: &[u8]| records.push((key, version, value.to_vec()));
    let tables = read_tables(run, nonce, &mut each)?;
    assert_eq!((tables.header, tables.records), (TABLES, records.len() as u64));
    Ok((records, tables.repaired))
}

#[test]
fn tables_survive_their_files() {
    let dir = run("whole");
    for count in [0, 1, 500] {
        assert_eq!(has_tables(&dir), count > 0);
        let records = sample(count);
        let nonce = save(&dir, &records);
        assert_eq!(load(&dir, nonce).unwrap(), (records, 0));
    }
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_damaged_block_is_read_from_the_copy_and_refused_if_both_are() {
    let dir = run("damaged");
    let records = sample(300);
    let nonce = save(&dir, &records);
    let paths = NAMES.map(|name| dir.join(name));
    let good = fs::read(&paths[0]).unwrap();
    assert_eq!(good, fs::read(&paths[1]).unwrap());
    let mut at = (0..good.len()).step_by(good.len() / 150).collect::<Vec<_>>();
    at.extend([0, 9, 15, 30, 39, header::LEN, header::LEN + 5, good.len() - 1]);
    for byte in at {
        let mut bad = good.clone();
        bad[byte] ^= 0x10;
        for path in &paths {
            fs::write(path, &bad).unwrap();
            let (found, repaired) = load(&dir, nonce).unwrap();
            assert_eq!((found.len(), repaired > 0), (300, path == &paths[0]), "byte {byte}");
            assert_eq!(found, records);
            fs::write(path, &good).unwrap();
        }
        paths.iter().for_each(|path| fs::write(path, &bad).unwrap());
        let told = load(&dir, nonce).unwrap_err().to_string();
        for path in &paths {
            assert!(told.contains(&path.display().to_string()), "{told}");
        }
        paths.iter().for_each(|path| fs::write(path, &good).unwrap());
    }
    // One of the two is enough, but not a part of one.
    fs::remove_file(&paths[0]).unwrap();
    let (found, repaired) = load(&dir, nonce).unwrap();
    assert!(found == records && repaired > 0, "{repaired} blocks of a missing file");
    // Tables that were saved at another time are whole, and not these.
    let other = save(&dir, &sample(3));
    assert!(matches!(load(&dir, nonce), Err(TablesError::Damaged { .. })));
    fs::write(&paths[0], &good).unwrap();
    assert_eq!(load(&dir, nonce).unwrap().0, records);
    assert_eq!(load(&dir, other).unwrap().0, sample(3));
    fs::remove_file(&paths[0]).unwrap();
    fs::write(&paths[1], &good[..good.len() - 16]).unwrap();
    assert!(matches!(load(&dir, nonce), Err(TablesError::Damaged { .. })));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_cannot_be_read_is_read_from_the_copy_and_refused_if_both_cannot() {
    let dir = run("unreadable");
    let records = sample(300);
    let paths = NAMES.map(|name| dir.join(name));
    for path in &paths {
        let nonce = save(&dir, &records);
        // A folder is opened, and then refuses to be read, as a bad sector does.
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
        let (found, repaired) = load(&dir, nonce).unwrap();
        assert_eq!((found, repaired > 0), (records.clone(), path == &paths[0]));
        fs::remove_dir(path).unwrap();
    }
    let nonce = save(&dir, &records);
    paths
        .iter()
        .for_each(|path| fs::remove_file(path).and_then(|()| fs::create_dir(path)).unwrap());
    let told = load(&dir, nonce);
    assert!(matches!(&told, Err(TablesError::Io(_))), "{told:?}");
    fs::remove_dir_all(&dir).unwrap();
}
