//! What scripts do as a part of transactions: budgets, keys that nobody declared, events, rights,
//! and the scripts that libraries for Redis send.

use std::time::{Duration, Instant};

use crate::support::{Client, command, serve, text};

fn ask(client: &mut Client, words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
    client.send(&command(&words));
    text(&client.reply()).replace("\r\n", " ").trim_end().to_owned()
}

fn eval(client: &mut Client, script: &str) -> String {
    ask(client, &["EVAL", script, "0"])
}

const SPENT: &str =
    "-ERR the script takes too long (limit 5000000 instructions, 250 ms): it had no effect";

#[test]
fn a_script_that_does_not_end_is_ended_and_has_no_effect() {
    let server = serve(|config| config.threads = 2);
    let (mut client, mut other) = (Client::connect(&server), Client::connect(&server));
    let loops = [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local f f = function() return xpcall(function() while true do end end, f) end f()",
        "while true do coroutine.wrap(function() while true do end end)() end",
        "local co = coroutine.create(function() while true do end end) \
         while true do coroutine.resume(co) end",
        "while true do pcall(redis.call, 'get', 'x') end",
        "while true do redis.pcall('nosuch') end",
        "local s = string.rep('x', 1000000) while true do s = s:upper() end",
        "local s = '' while true do s = string.rep('x', 10000000) end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k .. 'x'] end}) \
         while true do pcall(function() return t.x end) end",
        "while true do loadstring(string.rep('x=1 ', 1000)) end",
    ];
    for script in loops {
        let begun = Instant::now();
        let found = eval(&mut client, &format!("redis.call('set', 'mark', '1') {script}"));
        let took = begun.elapsed();
        assert_eq!(found, SPENT, "{script}");
        assert!(took < Duration::from_secs(3), "{script} took {took:?}");
        assert_eq!(ask(&mut other, &["EXISTS", "mark"]), ":0", "{script}");
    }
    // A script behind it has a budget of its own, and a MULTI has one for all of its scripts.
    assert_eq!(eval(&mut client, "for i = 1, 100000 do end return 'fine'"), "$4 fine");
    ask(&mut client, &["MULTI"]);
    ask(&mut client, &["SET", "mark", "1"]);
    ask(&mut client, &["EVAL", "redis.call('set', 'mark', '2') while true do end", "0"]);
    assert_eq!(ask(&mut client, &["EXEC"]), SPENT);
    assert_eq!(ask(&mut other, &["EXISTS", "mark"]), ":0");
}

#[test]
fn a_script_that_takes_memory_gets_no_more_than_its_share() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    let greedy = [
        "local t = {} for i = 1, 100000000 do t[i] = {i} end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 600000000)",
        "return cjson.decode(string.rep('[1,', 10000000))",
    ];
    for script in greedy {
        let found = eval(&mut client, script);
        let refused = found.contains("memory") || found == SPENT;
        assert!(refused, "{script}: {}", &found[..found.len().min(200)]);
    }
    assert_eq!(eval(&mut client, "return #string.rep('x', 1000000)"), ":1000000");
    let large = eval(
        &mut client,
        "local t = {} for i = 1, 5000 do t[i] = string.rep('x', 1000) end return t",
    );
    assert!(large.starts_with("-ERR transaction is too large"), "{}", &large[..100]);
}

#[test]
fn keys_need_not_be_declared_however_many_they_are() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    let many = "for i = 1, 3000 do redis.call('set', 'k' .. i, i) end return 'done'";
    assert_eq!(eval(&mut client, many), "$4 done");
    let chain = "local sum = 0 for i = 1, 3000 do \
                 sum = sum + redis.call('incrby', 'k' .. i, 1) end return sum";
    assert_eq!(eval(&mut client, chain), format!(":{}", 3000 * 3001 / 2 + 3000));
    assert_eq!(ask(&mut client, &["GET", "k3000"]), "$4 3001");
    // Each key names the next: a run finds out about them one by one.
    for key in 1..20 {
        ask(&mut client, &["SET", &format!("n{key}"), &format!("n{}", key + 1)]);
    }
    let walk = "local at, steps = 'n1', 0 while at do at = redis.call('get', at) steps = steps + 1 \
                end return steps";
    assert_eq!(eval(&mut client, walk), ":20");
    // What a run does without its records is forgotten, whatever it leads to.
    let odd = "for i = 1, 40 do if not redis.call('get', 'k' .. i) then error('lost') end end \
               return redis.call('get', 'k40')";
    assert_eq!(eval(&mut client, odd), "$2 41");
    let both = "for i = 1, 40 do redis.call('sort', 'l' .. i, 'by', 'w_*', 'get', 'k*') \
                redis.call('rpush', 'l' .. i, i) end return redis.call('llen', 'l40')";
    assert_eq!(eval(&mut client, both), ":1");
    assert_eq!(eval(&mut client, both), ":2");
}

#[test]
fn large_lists_and_streams_are_reached_from_scripts() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    // So many elements that they stand in pages, and so many pages that records are guessed.
    let fill = "for l = 1, 8 do for i = 1, 100 do \
                redis.call('rpush', 'list' .. l, i, string.rep('x', 100)) end end \
                return redis.call('llen', 'list8')";
    assert_eq!(eval(&mut client, fill), ":200");
    let sum = "local sum = 0 for l = 1, 8 do for i = 1, 50 do \
               sum = sum + redis.call('lpop', 'list' .. l) redis.call('lpop', 'list' .. l) end \
               redis.call('rpush', 'list' .. l, 'end') end return sum";
    assert_eq!(eval(&mut client, sum), format!(":{}", 8 * 50 * 51 / 2));
    assert_eq!(ask(&mut client, &["LRANGE", "list7", "-1", "-1"]), "*1 $3 end");
    assert_eq!(ask(&mut client, &["LLEN", "list7"]), ":101");
    let stream = "for i = 1, 5 do redis.call('xadd', 's', i .. '-1', 'f', i) end \
                  local read = redis.call('xread', 'streams', 's', '3-1') \
                  return {redis.call('xlen', 's'), read[1][2][1][1]}";
    assert_eq!(eval(&mut client, stream), "*2 :5 $3 4-1");
}

#[test]
fn time_stands_still_and_what_is_drawn_differs_between_scripts() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    let still = "local a = redis.call('time') for i = 1, 400000 do end \
                 local b = redis.call('time') return tostring(a[1] == b[1] and a[2] == b[2])";
    assert_eq!(eval(&mut client, still), "$4 true");
    ask(&mut client, &["SADD", "s", "a", "b", "c", "d", "e", "f", "g", "h"]);
    let draw = "return tostring(math.random()) .. table.concat(redis.call('srandmember', 's', 8)) \
                .. redis.call('srandmember', 's')";
    let drawn: std::collections::BTreeSet<_> = (0..20).map(|_| eval(&mut client, draw)).collect();
    assert!(drawn.len() > 15, "{drawn:?}");
}

#[test]
fn what_a_script_writes_is_told_and_wakes_and_expires() {
    let server = serve(|config| config.threads = 2);
    let clients: [Client; 4] = std::array::from_fn(|_| Client::connect(&server));
    let [mut writer, mut listener, mut waiter, mut tracker] = clients;
    ask(&mut writer, &["CONFIG", "SET", "notify-keyspace-events", "KA"]);
    ask(&mut listener, &["PSUBSCRIBE", "*"]);
    waiter.send(&command(&[b"BLPOP", b"queue", b"5"]));
    ask(&mut tracker, &["HELLO", "3"]);
    ask(&mut tracker, &["CLIENT", "TRACKING", "ON"]);
    ask(&mut tracker, &["GET", "kept"]);
    std::thread::sleep(Duration::from_millis(60));
    let script = "redis.call('rpush', 'queue', 'job') redis.call('set', 'kept', 1) \
                  redis.call('set', 'short', 1, 'px', 300) redis.call('publish', 'news', 'hi') \
                  return redis.call('exists', 'short')";
    assert_eq!(eval(&mut writer, script), ":1");
    let popped = text(&waiter.reply()).replace("\r\n", " ");
    assert_eq!(popped, "*2 $5 queue $3 job ");
    let stale = text(&tracker.reply()).replace("\r\n", " ");
    assert!(stale.starts_with(">2 $10 invalidate *1 $4 kept"), "{stale}");
    let mut told = String::new();
    for _ in 0..6 {
        told += &text(&listener.reply()).replace("\r\n", " ");
    }
    let wanted = ["__keyspace@0__:queue $5 rpush", "__keyspace@0__:kept $3 set", "news $2 hi"];
    assert!(wanted.iter().all(|wanted| told.contains(wanted)), "{told}");
    let short = ["__keyspace@0__:short $3 set", "__keyspace@0__:short $6 expire"];
    assert!(short.iter().all(|wanted| told.contains(wanted)), "{told}");
    // Nobody touches the key: it is freed since the front was told of its deadline.
    let until = Instant::now() + Duration::from_secs(4);
    while ask(&mut writer, &["DBSIZE"]) != ":1" {
        assert!(Instant::now() < until, "{}", ask(&mut writer, &["DBSIZE"]));
        std::thread::sleep(Duration::from_millis(50));
    }
    // A script that fails before its end publishes nothing that it does not keep.
    assert!(
        eval(&mut writer, "redis.call('publish', 'news', 'no') while true do end")
            .starts_with("-ERR")
    );
    assert_eq!(ask(&mut writer, &["PUBLISH", "news", "yes"]), ":1");
    let mut behind = String::new();
    while !behind.contains("news") {
        behind = text(&listener.reply()).replace("\r\n", " ");
    }
    assert!(behind.contains("news $3 yes"), "{behind}");
}

#[test]
fn a_script_has_the_rights_of_its_user() {
    let server = serve(|_| {});
    let (mut root, mut user) = (Client::connect(&server), Client::connect(&server));
    let rules = ["ACL", "SETUSER", "u", "on", ">secret", "~a*", "&c*", "+@all", "-set"];
    ask(&mut root, &rules);
    ask(&mut user, &["AUTH", "u", "secret"]);
    for (script, error) in [
        ("return redis.call('set','a','1')", "can't run this command or subcommand"),
        ("return redis.call('get','b')", "can't access at least one of the keys"),
        ("return redis.call('publish','x','m')", "can't publish to the channel"),
    ] {
        let found = eval(&mut user, script);
        assert!(found.contains(&format!("-ERR The user executing the script {error}")), "{found}");
        let free = eval(&mut root, script);
        assert!(!free.contains("The user executing"), "{free}");
    }
    let checks = "return {tostring(redis.acl_check_cmd('get','b')), \
                  tostring(redis.acl_check_cmd('get','a')), tostring(redis.acl_check_cmd('set','a','1'))}";
    assert_eq!(eval(&mut user, checks), "*3 $5 false $4 true $5 false");
    assert!(ask(&mut user, &["EVAL", "return 1", "1", "b"]).starts_with("-NOPERM"));
    assert_eq!(ask(&mut user, &["EVAL", "return 1", "1", "a"]), ":1");
    ask(&mut root, &["ACL", "SETUSER", "u", "-@scripting"]);
    assert!(eval(&mut user, "return 1").starts_with("-NOPERM"));
}

#[test]
fn slow_scripts_are_kept_as_they_were_sent() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    ask(&mut client, &["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    ask(&mut client, &["EVAL", "return redis.call('set', KEYS[1], ARGV[1])", "1", "key", "value"]);
    let log = ask(&mut client, &["SLOWLOG", "GET", "1"]);
    assert!(
        log.contains("$4 eval $42 return redis.call('set', KEYS[1], ARGV[1]) $3 key $5 value"),
        "{log}"
    );
    let info = ask(&mut client, &["INFO", "commandstats"]);
    assert!(info.contains("cmdstat_eval:calls=1"), "{info}");
}

/// A lock is released by its owner only, as redis-py and others do.
const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                       return redis.call('del', KEYS[1]) else return 0 end";

/// A bucket of tokens that fills with time.
const BUCKET: &str = "
local rate, capacity, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(state[1]) or capacity
local at = tonumber(state[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - at) * rate)
local allowed = tokens >= wanted
if allowed then tokens = tokens - wanted end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate) * 2)
return { allowed and 1 or 0, tostring(math.floor(tokens)) }";

/// Adds a job to a queue: its data as a hash, its place in a list or among those that are delayed.
const ADD_JOB: &str = "
local prefix = KEYS[1]
local args = cmsgpack.unpack(ARGV[1])
local id = redis.call('INCR', prefix .. 'id')
local key = prefix .. id
redis.call('HMSET', key, 'name', args[1], 'data', cjson.encode(args[2]), 'delay', args[3])
if args[3] > 0 then
  redis.call('ZADD', prefix .. 'delayed', args[3], id)
else
  redis.call('LPUSH', prefix .. 'wait', id)
end
redis.call('PUBLISH', prefix .. 'added', cjson.encode({ id = id }))
return id";

/// Takes a job: those whose delay is over come first.
const TAKE_JOB: &str = "
local prefix, now = KEYS[1], tonumber(ARGV[1])
for _, id in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'delayed', 0, now, 'LIMIT', 0, 10)) do
  redis.call('ZREM', prefix .. 'delayed', id)
  redis.call('RPUSH', prefix .. 'wait', id)
end
local id = redis.call('RPOPLPUSH', prefix .. 'wait', prefix .. 'active')
if not id then return nil end
local data = cjson.decode(redis.call('HGET', prefix .. id, 'data'))
return { id, data.to, redis.call('LLEN', prefix .. 'active') }";

#[test]
fn the_scripts_of_locks_limits_and_queues_run() {
    let server = serve(|_| {});
    let mut client = Client::connect(&server);
    ask(&mut client, &["SET", "lock", "me", "NX", "PX", "10000"]);
    assert_eq!(ask(&mut client, &["EVAL", RELEASE, "1", "lock", "you"]), ":0");
    assert_eq!(ask(&mut client, &["EVAL", RELEASE, "1", "lock", "me"]), ":1");
    assert_eq!(ask(&mut client, &["EXISTS", "lock"]), ":0");

    let mut allowed = 0;
    for _ in 0..8 {
        let found = ask(&mut client, &["EVAL", BUCKET, "1", "bucket", "0.001", "5", "1"]);
        allowed += u32::from(found.starts_with("*2 :1"));
    }
    assert_eq!(allowed, 5, "a bucket of five tokens that fills slowly");

    let pack = "return cmsgpack.pack({ARGV[1], {to = ARGV[2]}, tonumber(ARGV[3])})";
    for (number, (to, delay)) in [("a", "0"), ("b", "500"), ("c", "0")].into_iter().enumerate() {
        client.send(&command(&[
            b"EVAL",
            pack.as_bytes(),
            b"0",
            b"mail",
            to.as_bytes(),
            delay.as_bytes(),
        ]));
        let packed = client.reply();
        let start = packed.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let packed = &packed[start..packed.len() - 2];
        client.send(&command(&[b"EVAL", ADD_JOB.as_bytes(), b"1", b"bull:q:", packed]));
        assert_eq!(text(&client.reply()), format!(":{}\r\n", number + 1));
    }
    let mut take = |now: &str| ask(&mut client, &["EVAL", TAKE_JOB, "1", "bull:q:", now]);
    assert_eq!(take("100"), "*3 $1 1 $1 a :1");
    assert_eq!(take("600"), "*3 $1 2 $1 b :2");
    assert_eq!(take("600"), "*3 $1 3 $1 c :3");
    assert_eq!(take("600"), "$-1");
}
