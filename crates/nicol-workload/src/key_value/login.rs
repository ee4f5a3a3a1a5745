//! The Login functions of two microservices as lists of gets and sets. [MINOS24 VIII-C, AMB-27]
//!
//! The lists are those of the functions' public sources (DeathStarBench, `UserHandler::Login` of
//! `socialNetwork` and `mediaMicroservices`) for a user who is not cached. Assumed: a login finds
//! nothing in the cache, so that it also writes; the document store is asked by one get; every one
//! of these records is in the replicated store.

use super::{Drawn, PIECES_MAX, Record, Request};

/// Whose Login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// Social network: gets the cached login, then the user; sets the cached login.
    Social,
    /// Media microservices: gets the cached password, salt and user id, then the user; sets the
    /// cached salt, password and user id.
    Media,
}

/// A record of a user.
const USER: u64 = 0;
const LOGIN: u64 = 1;
const PASSWORD: u64 = 1;
const SALT: u64 = 2;
const USER_ID: u64 = 3;

impl Login {
    /// Records of a user at most.
    pub(super) const RECORDS_MAX: u64 = 4;

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Social => "login-social",
            Self::Media => "login-media",
        }
    }

    /// Its gets, and then its sets.
    const fn steps(self) -> (&'static [u64], &'static [u64]) {
        match self {
            Self::Social => (&[LOGIN, USER], &[LOGIN]),
            Self::Media => (&[PASSWORD, SALT, USER_ID, USER], &[SALT, PASSWORD, USER_ID]),
        }
    }

    /// The login of the user with these records.
    pub(super) fn drawn(self, of_user: impl Fn(u64) -> Record) -> Drawn {
        let (gets, sets) = self.steps();
        let gets = gets.iter().map(|record| Request::Get(of_user(*record).key));
        let sets = sets.iter().map(|record| Request::Put(of_user(*record)));
        let mut pieces = [None; PIECES_MAX];
        pieces.iter_mut().zip(gets.chain(sets)).for_each(|(piece, next)| *piece = Some(next));
        let [first, then @ ..] = pieces;
        match first {
            Some(request) => Drawn { kind: 0, request, then },
            None => panic!("a login begins with a get"),
        }
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{Key, TableId};

    use super::*;

    #[test]
    fn a_login_reads_before_it_writes_what_it_has_read() {
        let record = |number| Record { key: Key::new(TableId(1), number), number };
        for (service, gets, sets) in [(Login::Social, 2, 1), (Login::Media, 4, 3)] {
            let drawn = service.drawn(record);
            let pieces = [Some(drawn.request)].into_iter().chain(drawn.then).flatten();
            let pieces: Vec<Request> = pieces.collect();
            let reads = pieces.iter().take_while(|piece| matches!(piece, Request::Get(_)));
            assert_eq!((reads.count(), pieces.len()), (gets, gets + sets));
            for piece in &pieces[gets..] {
                let Request::Put(Record { key, .. }) = *piece else { panic!("{piece:?}") };
                assert!(pieces.contains(&Request::Get(key)), "{key:?}");
            }
        }
    }
}
