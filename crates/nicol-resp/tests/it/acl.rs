//! Users: what each may do, who is told what, and the file that keeps them. Replies about rights
//! are those of the `redis-server` of this machine; without one installed, these tests say so and
//! pass.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::support::redis::redis;
use crate::support::{Client, command, serve, text};
use nicol_core::rng::{Purpose, Stream};
use nicol_resp::{Server, ServerConfig, StartError};

const COMMAND_DENIED: &str = "-NOPERM this user has no permissions to run the";
const KEY_DENIED: &str =
    "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n";

fn ask(client: &mut Client, words: &str) -> String {
    let words: Vec<_> = words.split(' ').map(str::as_bytes).collect();
    client.send(&command(&words));
    text(&client.reply())
}

#[test]
fn a_user_may_do_what_its_rules_say_and_no_more() {
    let server = serve(|_| {});
    let (mut admin, mut user) = (Client::connect(&server), Client::connect(&server));
    let rules = "on >pw ~k* %R~r* +@read +@transaction +set +client|id";
    assert_eq!(ask(&mut admin, &format!("ACL SETUSER alice {rules}")), "+OK\r\n");
    assert_eq!(ask(&mut admin, "SET r1 x"), "+OK\r\n");
    assert!(ask(&mut user, "AUTH alice wrong").starts_with("-WRONGPASS"));
    assert!(ask(&mut user, "AUTH bob pw").starts_with("-WRONGPASS"));
    assert_eq!(ask(&mut user, "AUTH alice pw"), "+OK\r\n");
    assert!(ask(&mut user, "ACL WHOAMI").starts_with(COMMAND_DENIED));
    assert_eq!(ask(&mut user, "SET k1 v"), "+OK\r\n");
    assert_eq!(ask(&mut user, "GET r1"), "$1\r\nx\r\n");
    assert_eq!(ask(&mut user, "SET r1 y"), KEY_DENIED);
    assert_eq!(ask(&mut user, "MGET k1 other"), KEY_DENIED);
    assert_eq!(ask(&mut user, "WATCH other"), KEY_DENIED);
    assert_eq!(ask(&mut user, "DEL k1"), format!("{COMMAND_DENIED} 'del' command\r\n"));
    assert_eq!(
        ask(&mut user, "CLIENT KILL 1"),
        format!("{COMMAND_DENIED} 'client|kill' command\r\n")
    );
    assert!(ask(&mut user, "CLIENT ID").starts_with(':'));
    // A pipeline: what is allowed has its effect.
    user.send(b"SET k2 a\r\nSET q b\r\nGET k2\r\n");
    user.expect(format!("+OK\r\n{KEY_DENIED}$1\r\na\r\n").as_bytes());
    assert_eq!(ask(&mut user, "MULTI"), "+OK\r\n");
    assert_eq!(ask(&mut user, "SET k3 v"), "+QUEUED\r\n");
    assert_eq!(ask(&mut user, "GET q"), KEY_DENIED);
    assert!(ask(&mut user, "EXEC").starts_with("-EXECABORT"));
    assert_eq!(ask(&mut user, "GET k3"), "$-1\r\n");
    // What it may do changes at once, and it is gone when it is removed.
    assert_eq!(ask(&mut admin, "ACL SETUSER alice +del %W~q"), "+OK\r\n");
    assert_eq!(ask(&mut user, "DEL k1 q"), ":1\r\n");
    assert!(ask(&mut admin, "CLIENT LIST").contains("user=alice "));
    assert_eq!(ask(&mut admin, "ACL DELUSER alice nobody"), ":1\r\n");
    user.send(b"GET k2\r\n");
    assert!(user.is_closed(), "its client is closed");
    assert!(ask(&mut Client::connect(&server), "AUTH alice pw").starts_with("-WRONGPASS"));
}

#[test]
fn what_was_refused_is_in_the_log() {
    let server = serve(|_| {});
    let (mut admin, mut user) = (Client::connect(&server), Client::connect(&server));
    ask(&mut admin, "ACL SETUSER u on nopass ~k +get +multi");
    ask(&mut user, "HELLO 2 AUTH u any");
    for words in ["GET q", "GET q", "SET k v", "MULTI", "GET p", "AUTH u x"] {
        ask(&mut user, words);
    }
    assert!(ask(&mut admin, "AUTH nobody x").starts_with("-WRONGPASS"));
    admin.send(b"ACL LOG\r\n");
    let log = text(&admin.reply());
    let entries: Vec<_> = log.split("\r\ncount\r\n").skip(1).collect();
    assert_eq!(entries.len(), 4, "{log}");
    let of = |entry: &str| {
        let parts: Vec<_> = entry.split("\r\n").filter(|part| !part.starts_with('$')).collect();
        (parts[0].to_owned(), [parts[2], parts[4], parts[6], parts[8]].join(" "))
    };
    let entries: Vec<_> = entries.into_iter().map(of).collect();
    let expected = [
        (":1", "auth toplevel AUTH nobody"),
        (":1", "key multi p u"),
        (":1", "command toplevel set u"),
        (":2", "key toplevel q u"),
    ];
    for (entry, (count, told)) in entries.iter().zip(expected) {
        assert_eq!((entry.0.as_str(), entry.1.as_str()), (count, told), "{log}");
    }
    assert!(log.contains("cmd=get user=u"), "{log}");
    assert_eq!(ask(&mut admin, "ACL LOG RESET"), "+OK\r\n");
    assert_eq!(ask(&mut admin, "ACL LOG"), "*0\r\n");
}

#[test]
fn users_outlive_the_server_in_their_file() {
    let folder = std::env::temp_dir().join(format!("nicol-acl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("users.acl");
    std::fs::write(&file, "user alice on >pw ~a* +@all\n\nuser default on >secret ~* &* +@all\n")
        .unwrap();
    let config = |config: &mut ServerConfig| config.acl_file = Some(file.clone());
    let server = serve(config);
    let mut client = Client::connect(&server);
    assert!(ask(&mut client, "GET a").starts_with("-NOAUTH"));
    assert_eq!(ask(&mut client, "AUTH secret"), "+OK\r\n");
    assert_eq!(ask(&mut client, "ACL SETUSER bob on nopass ~b (~c +get)"), "+OK\r\n");
    assert_eq!(ask(&mut client, "ACL SAVE"), "+OK\r\n");
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(!kept.contains("secret") && kept.contains("user bob on nopass ~b"), "{kept}");
    let list = ask(&mut client, "ACL LIST");
    drop(server);
    let server = serve(config);
    let (mut client, mut alice) = (Client::connect(&server), Client::connect(&server));
    ask(&mut client, "AUTH secret");
    assert_eq!(ask(&mut client, "ACL LIST"), list);
    assert_eq!(ask(&mut alice, "AUTH alice pw"), "+OK\r\n");
    // A file with an error changes nothing; a good one closes the clients of users that it changes.
    std::fs::write(&file, "user alice on nopass ~* +@all\nuser bob +nosuch\n").unwrap();
    let refused = ask(&mut client, "ACL LOAD");
    let why = "users.acl:2: rule '+nosuch': Unknown command or category name in ACL";
    assert!(refused.starts_with("-ERR ") && refused.contains(why), "{refused}");
    assert_eq!(ask(&mut client, "ACL LIST"), list);
    let config = ServerConfig {
        acl_file: Some(file.clone()),
        ..ServerConfig::new("127.0.0.1:0".parse().unwrap())
    };
    let error = Server::check(&config).unwrap_err().to_string();
    assert!(error.ends_with(why), "{error}");
    std::fs::write(&file, "user alice on nopass ~* +@all\n").unwrap();
    assert_eq!(ask(&mut client, "ACL LOAD"), "+OK\r\n");
    assert!(alice.is_closed());
    assert!(ask(&mut client, "ACL LIST").starts_with("*2\r\n"), "the default user stays");
    // Two places that give the default user different passwords are not guessed between.
    std::fs::write(&file, "user default on >one ~* +@all\n").unwrap();
    let with = |password: &str| ServerConfig { password: Some(password.into()), ..config.clone() };
    assert!(Server::check(&with("one")).is_ok());
    assert!(matches!(Server::check(&with("two")), Err(StartError::AclPassword { .. })));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn guesses_of_users_are_paced_as_those_of_passwords() {
    let server = serve(|_| {});
    let mut admin = Client::connect(&server);
    ask(&mut admin, "ACL SETUSER u on >pw +@all");
    let mut client = Client::connect(&server);
    let begun = Instant::now();
    for guess in ["AUTH u x", "AUTH v x", "HELLO 3 AUTH u y", "AUTH w x", "AUTH u z", "AUTH x x"] {
        assert!(ask(&mut client, guess).starts_with("-WRONGPASS"), "{guess}");
    }
    assert!(begun.elapsed().as_millis() >= 150, "the sixth waits");
}

/// Commands of both servers.
fn names(client: &mut Client) -> BTreeSet<String> {
    client.send(b"COMMAND LIST\r\n");
    let list = text(&client.reply());
    let names = list.split("\r\n").skip(1).filter(|word| !word.starts_with('$'));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn categories_are_those_of_redis() {
    let Some((_redis, address)) = redis() else { return };
    let server = serve(|_| {});
    let (mut ours, mut theirs) = (Client::connect(&server), Client::open(&address).unwrap());
    assert_eq!(ask(&mut ours, "ACL CAT"), ask(&mut theirs, "ACL CAT"));
    let mut known = names(&mut ours);
    for category in ask(&mut ours, "ACL CAT").split("\r\n").skip(2).step_by(2) {
        let list = ask(&mut ours, &format!("ACL CAT {category}"));
        known.extend(list.split("\r\n").skip(2).step_by(2).map(str::to_owned));
    }
    for category in ask(&mut ours, "ACL CAT").split("\r\n").skip(2).step_by(2) {
        let of = |client: &mut Client| {
            let list = ask(client, &format!("ACL CAT {category}"));
            let names = list.split("\r\n").skip(2).step_by(2).map(str::to_owned);
            // A subcommand that came with Redis 7.2.
            names.filter(|n| known.contains(n) && n != "client|setinfo").collect::<BTreeSet<_>>()
        };
        assert_eq!(of(&mut ours), of(&mut theirs), "{category}");
    }
}

const RULES: &[&str] = &[
    "on",
    "off",
    "nopass",
    "resetpass",
    ">p",
    "<p",
    ">q",
    "reset",
    "allkeys",
    "resetkeys",
    "~*",
    "~a",
    "~b*",
    "%R~c*",
    "%W~c*",
    "%W~d",
    "%RW~a",
    "&*",
    "&x",
    "resetchannels",
    "allchannels",
    "+@all",
    "-@all",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@string",
    "-@keyspace",
    "+@keyspace",
    "+get",
    "-get",
    "+set",
    "-set",
    "+client",
    "-client",
    "+client|id",
    "-client|id",
    "+config|get",
    "-config",
    "+select|1",
    "+select",
    "-select",
    "+@dangerous",
    "-@dangerous",
    "+@connection",
    "-@connection",
    "+@slow",
    "-@fast",
    "+@transaction",
    "+nosuch",
    "-nosuch",
    "+@nosuch",
    "%Z~a",
    "nosuch",
    "+client|nosuch",
    "-select|1",
    "+client|id|x",
    "!abc",
    "#abc",
    "clearselectors",
    "(+get ~x)",
    "(+@write %W~c* -set)",
    "(+nosuch)",
    "(~a",
    "+object|freq",
    "-object",
    "+acl|cat",
    "sanitize-payload",
];

const REQUESTS: &[&str] = &[
    "get a",
    "get b1",
    "get c1",
    "get d",
    "get x",
    "set a 1",
    "set b1 1",
    "set c1 1",
    "set d 1",
    "set d 1 get",
    "mget a b",
    "mset a 1 b 2",
    "del a",
    "del c1 d",
    "exists d",
    "type c",
    "strlen x",
    "incr d",
    "append d x",
    "rename a b",
    "copy c1 d",
    "copy d c1",
    "getset d 1",
    "getdel d",
    "getex d",
    "ttl a",
    "expire d 1",
    "persist c",
    "touch d",
    "object freq d",
    "object help",
    "watch a",
    "client id",
    "client list",
    "client kill 1",
    "config get x",
    "config set a b",
    "select 1",
    "select 2",
    "ping",
    "hello",
    "auth x",
    "multi",
    "exec",
    "acl cat",
    "acl list",
    "acl whoami",
    "dbsize",
    "info",
    "time",
    "command count",
    "wait 0 0",
    "nosuch",
    "get",
    "setrange a 0 x",
    "getrange c1 0 1",
    "msetnx d 1",
    "unlink d",
    "incrbyfloat a 1",
    "psetex d 1 1",
    "setnx d 1",
    "echo x",
];

/// Random users have the same rights there and here, rule by rule.
#[test]
fn rights_of_random_users_are_those_of_redis() {
    let Some((_redis, address)) = redis() else { return };
    let server = serve(|_| {});
    let (mut ours, mut theirs) = (Client::connect(&server), Client::open(&address).unwrap());
    let mut random = Stream::new(11, Purpose::Test, 0);
    let (mut allowed, mut denied) = (0, 0);
    for user in 0..60 {
        let mut rules = Vec::new();
        for _ in 0..12 {
            let some: Vec<_> =
                (0..=random.below(2)).map(|_| *random.pick(RULES).unwrap()).collect();
            let words = format!("ACL SETUSER u{user} {}", some.join(" "));
            rules.push(some.join(" "));
            assert_eq!(ask(&mut ours, &words), ask(&mut theirs, &words), "{rules:?}");
        }
        for request in REQUESTS {
            let words = format!("ACL DRYRUN u{user} {request}");
            let (here, there) = (ask(&mut ours, &words), ask(&mut theirs, &words));
            assert_eq!(here, there, "{rules:?}: {request}");
            allowed += u32::from(here == "+OK\r\n");
            denied += u32::from(here.contains("no permissions"));
        }
        // The rules of commands are shown as they were given; the rest is shown as there.
        let shown = |client: &mut Client| {
            let told = ask(client, &format!("ACL GETUSER u{user}"));
            let end = told.find("commands\r\n").unwrap();
            let keys = told.find("$4\r\nkeys\r\n").unwrap();
            let selectors = told.find("selectors\r\n").unwrap();
            [told[..end].to_owned(), told[keys..selectors].to_owned()]
        };
        assert_eq!(shown(&mut ours), shown(&mut theirs), "{rules:?}");
    }
    assert!(allowed > 300 && denied > 300, "{allowed} {denied}");
}
