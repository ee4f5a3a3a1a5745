//! The events of keys are those of `redis-server`, sent once a transaction has committed.

use std::time::Duration;

use crate::support::party::Party;
use crate::support::redis::redis;
use crate::support::serve;

/// Commands, in groups whose events are compared.
const TALK: &[&str] = &[
    "SET a 1 ; SET a 2 ; SET a 3 EX 100 ; SET a 4 KEEPTTL ; SET a 5 NX ; SET b 1 PX 100000",
    "SETNX n 1 ; SETNX n 2 ; SETEX e 100 v ; PSETEX e 100000 v ; GETSET n 3 ; SET n 4 GET",
    "MSET m1 a m2 b m1 c ; MSETNX m3 a m4 b ; MSETNX m3 a m5 b ; APPEND a x ; SETRANGE a 1 y",
    "SETRANGE a 0 z ; INCR i ; DECR i ; INCRBY i 5 ; DECRBY i 2 ; INCRBYFLOAT i 1.5",
    "GETEX a EX 50 ; GETEX a PERSIST ; GETEX a ; GETDEL a ; GETDEL none ; EXPIRE b 100",
    "PEXPIRE b 100000 ; EXPIREAT b 99999999999 ; PERSIST b ; PERSIST b ; EXPIRE b -1 ; EXPIRE b 5",
    "SETBIT t 7 1 ; BITOP NOT u t ; BITOP AND u none ; DEL t u none ; UNLINK n none ; DEL none",
    "SET a 1 ; RENAME a b ; RENAMENX b c ; SET d 1 ; RENAMENX c d ; COPY d f ; COPY d f REPLACE",
    "COPY d f ; MOVE d 1 ; SELECT 1 ; MOVE d 0 ; SET x 1 ; DEL x ; SELECT 0 ; RENAME d f",
    "HSET h f 1 g 2 ; HSET h f 1 ; HSETNX h f 1 ; HSETNX h i 1 ; HMSET h f 3 ; HINCRBY h f 2",
    "HINCRBYFLOAT h f 1.5 ; HDEL h none ; HDEL h f g ; HDEL h i ; HGETALL h",
    "LPUSH l a b ; RPUSH l c ; LPUSHX l d ; RPUSHX none d ; LINSERT l BEFORE a z ; LSET l 0 y",
    "LINSERT l BEFORE none z ; LREM l 0 none ; LREM l 0 y ; LTRIM l 0 -2 ; LPOP l ; RPOP l 1",
    "LPOP l 9 ; LPOP none ; RPUSH l a b c ; LMOVE l k LEFT RIGHT ; LMOVE l l RIGHT LEFT",
    "RPOPLPUSH l k ; LMOVE l k RIGHT RIGHT ; LMPOP 2 none k LEFT COUNT 2 ; LMPOP 1 k RIGHT",
    "RPUSH l a b c d e ; BLPOP none l 1 ; BRPOP l 1 ; BLMOVE l k LEFT LEFT 1 ; BRPOPLPUSH l k 1",
    "BLMPOP 1 1 k LEFT ; LTRIM l 5 9 ; LPOP k",
    "SADD s a b c ; SADD s a ; SREM s none ; SREM s a ; SMOVE s r b ; SMOVE s r none ; SADD r c",
    "SMOVE s r c ; SADD s 1 2 3 ; SPOP s ; SPOP s 0 ; SPOP s 9 ; SINTERSTORE q r none ; SADD s c",
    "SINTERSTORE q r s ; SUNIONSTORE q r s ; SDIFFSTORE q r s ; SDIFFSTORE q r r ; DEL r s",
    "ZADD z 1 a 2 b ; ZADD z 1 a ; ZADD z XX 5 none ; ZADD z INCR 2 a ; ZINCRBY z 3 a",
    "ZREM z none ; ZREM z a ; ZADD z 1 a 3 c 4 d 5 e ; ZREMRANGEBYRANK z 0 0 ; ZPOPMIN z",
    "ZREMRANGEBYSCORE z 9 10 ; ZREMRANGEBYSCORE z 3 3 ; ZPOPMAX z ; ZADD w 1 a 2 b 3 c",
    "ZUNIONSTORE z 1 w ; ZINTERSTORE z 2 w none ; ZDIFFSTORE z 1 w ; ZRANGESTORE z w 0 1",
    "ZRANGESTORE z w 9 9 ; ZMPOP 1 w MIN ; BZPOPMIN w 1 ; BZPOPMAX w 1 ; ZADD w 1 a 2 b",
    "BZMPOP 1 1 w MAX ; ZREMRANGEBYLEX w - + ; GEOADD g 1 2 p ; GEOSEARCHSTORE y g FROMMEMBER p \
     BYRADIUS 1 km ASC ; GEOSEARCHSTORE y g FROMLONLAT 50 50 BYRADIUS 1 m ASC",
    "BITFIELD t SET u8 0 5 GET u8 0 ; PFADD x a b ; PFADD x a ; PFMERGE y x ; RPUSH l 2 1 3",
    "SORT l STORE s ; SORT none STORE s ; SORT l",
    "GET none ; MGET none g2 ; EXISTS none ; HGET none f ; LRANGE none 0 1 ; TTL none ; STRLEN none",
    "MULTI ; SET m 1 ; LPUSH m x ; RPUSH ml x ; PUBLISH __keyevent@0__:own me ; DEL m ; EXEC",
    "MULTI ; SET m 1 ; DISCARD ; MULTI ; SET m 1 ; NOSUCH ; EXEC",
];

#[test]
fn events_are_those_of_redis() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|config| config.threads = 2);
    let mut both = [&server.address().to_string(), &redis].map(|address| Party::open(address, 2));
    let (mut events, mut wrong) = (0, Vec::new());
    for chosen in ["KEA", "KEAmn", "Elshz", "K$gx"] {
        for party in &mut both {
            party.ask(0, &format!("CONFIG SET notify-keyspace-events {chosen}"));
            party.ask(1, "PSUBSCRIBE __key*");
        }
        for words in TALK {
            let [here, there] = both.each_mut().map(|party| {
                party.ask(0, words);
                let heard = party.rest(1);
                // Lines without those of lengths.
                let heard = heard.replace("*4 $8 pmessage $6 __key* ", "\n");
                let line = |line: &str| {
                    let parts: Vec<_> =
                        line.split(' ').filter(|part| !part.starts_with('$')).collect();
                    parts.join(" ")
                };
                heard.split('\n').map(line).collect::<Vec<_>>()
            });
            if here != there {
                wrong.push(format!("{chosen}: {words}\n{here:?}\nredis:\n{there:?}"));
            }
            events += here.len();
        }
        for party in &mut both {
            party.ask(1, "PUNSUBSCRIBE");
            for database in [1, 0] {
                let keys = "a b c d e f g h i k l m n q r s t u w x y z ml m1 m2 m3 m4";
                party.ask(0, &format!("SELECT {database} ; DEL {keys}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(events > 400, "{events} events");
}

#[test]
fn a_key_that_expires_is_told_of() {
    let server = serve(|config| config.threads = 2);
    let mut party = Party::open(&server.address().to_string(), 2);
    party.ask(0, "CONFIG SET notify-keyspace-events Ex");
    party.ask(1, "SUBSCRIBE __keyevent@3__:expired");
    party.ask(0, "SELECT 3 ; SET k v PX 30 ; SET other v PX 30");
    std::thread::sleep(Duration::from_millis(600));
    let heard = party.rest(1);
    for key in ["$1 k", "$5 other"] {
        let event = format!("*3 $7 message $22 __keyevent@3__:expired {key}");
        assert_eq!(heard.matches(&event).count(), 1, "{heard}");
    }
}

#[test]
fn a_choice_is_read_and_shown_as_redis_does() {
    let Some((_redis, redis)) = redis() else { return };
    let server = serve(|_| {});
    let mut both = [&server.address().to_string(), &redis].map(|address| Party::open(address, 1));
    for chosen in ["KEA", "g$lshzxetdmn", "KEAmn", "Kn", "Ex", "Kq", "En", "m", "A", "K$", "Kt"] {
        let words = format!(
            "CONFIG SET notify-keyspace-events {chosen} ; CONFIG GET notify-keyspace-events"
        );
        let [here, there] = both.each_mut().map(|party| party.ask(0, &words));
        assert_eq!(here, there, "{chosen}");
    }
}
