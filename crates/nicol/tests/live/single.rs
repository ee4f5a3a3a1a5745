//! What every served system of single operations takes, and refuses in words.

use super::client::Client;

/// Asks the server at `address` for all of it.
pub fn takes_single_operations_only(address: &str) {
    let mut client = Client::open(address);
    let mut ask = |line: &str| client.ask(line).remove(0);
    assert_eq!(ask("GET k"), None);
    assert_eq!(ask("SET k one").as_deref(), Some("OK"));
    assert_eq!(ask("EXISTS k").as_deref(), Some("1"));
    assert_eq!(ask("GET k").as_deref(), Some("one"));
    assert_eq!(ask("DBSIZE").as_deref(), Some("1"));
    assert_eq!(ask("SET k two").as_deref(), Some("OK"));
    assert_eq!(ask("GET k").as_deref(), Some("two"));
    assert_eq!(ask("DEL k").as_deref(), Some("1"));
    assert_eq!(ask("DEL k").as_deref(), Some("0"));
    assert_eq!(ask("EXISTS k").as_deref(), Some("0"));
    assert_eq!(ask("DBSIZE").as_deref(), Some("0"));
    // Any bytes are a key, and commands may be pipelined.
    assert!(client.send("*3\r\n$3\r\nSET\r\n$3\r\na\r\n\r\n$1\r\nv\r\n"));
    assert!(client.send("*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n"));
    assert_eq!([client.line(), client.line(), client.line()], ["+OK", "$1", "v"]);
    for refused in [
        "INCR n",
        "APPEND k v",
        "MSET a 1 b 2",
        "MGET a b",
        "DEL a b",
        "EXISTS a b",
        "SET k v EX 5",
        "EXPIRE k 5",
        "MULTI",
        "EXEC",
        "WATCH k",
    ] {
        assert!(client.send(&format!("{refused}\r\n")));
        let line = client.line();
        let says = line.starts_with("-ERR this store runs single operations and not this ")
            && line.contains("SET key value");
        assert!(says, "{refused}: {line}");
    }
    assert_eq!(client.ask("PING"), [Some("PONG".to_owned())]);
}
