//! `nicol serve --listen unix:PATH`: a socket in the file system.

mod live;

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use live::client::{Client, kill};
use live::{Live, live_with};

/// A path of this name with nothing there. Paths of sockets are short.
fn path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("nicol-{name}-{}.sock", std::process::id()));
    let _gone = fs::remove_file(&path);
    path
}

fn serve(path: &Path, more: &[&str]) -> Command {
    let listen = format!("unix:{}", path.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_nicol"));
    command.args(["serve", "--records", "10000", "--threads", "1", "--listen", &listen]).args(more);
    command
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asks the server to end, and waits for it.
fn end(server: &mut Live) {
    let id = server.process.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
}

#[test]
fn every_system_that_serves_is_reached_by_a_path() {
    for system in ["xenic", "minos-b:synch", "minos-o:renf", "prism-kv"] {
        let path = path(&format!("of-{}", system.replace(':', "-")));
        let (mut server, address) = live_with(serve(&path, &[]).args(["--system", system]));
        assert_eq!(address, format!("unix:{}", path.display()));
        let mut client = Client::open(&address);
        assert_eq!(client.ask("SET k v"), [Some("OK".to_owned())]);
        assert_eq!(client.ask("GET k"), [Some("v".to_owned())]);
        end(&mut server);
        assert!(!path.exists(), "{system} leaves {}", path.display());
    }
}

#[test]
fn a_killed_server_s_socket_is_replaced_and_a_living_one_s_refused_in_words() {
    let path = path("killed");
    let (server, _) = live_with(&mut serve(&path, &[]));
    kill(server);
    assert!(fs::metadata(&path).unwrap().file_type().is_socket(), "a killed server leaves it");
    assert!(UnixStream::connect(&path).is_err());
    let (mut server, address) = live_with(&mut serve(&path, &[]));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner alone may connect");
    let second = serve(&path, &[]).output().unwrap();
    assert_eq!(second.status.code(), Some(3), "{}", told(&second));
    let words = "another server listens there; give another path";
    assert!(
        told(&second).contains(words) && told(&second).contains("--listen"),
        "{}",
        told(&second)
    );
    // The first one has not noticed.
    assert_eq!(Client::open(&address).ask("PING"), [Some("PONG".to_owned())]);
    end(&mut server);
    assert!(!path.exists());
    fs::write(&path, "data").unwrap();
    let refused = serve(&path, &[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{}", told(&refused));
    assert!(told(&refused).contains("no socket"), "{}", told(&refused));
    assert_eq!(fs::read(&path).unwrap(), b"data");
    fs::remove_file(&path).unwrap();
    // A path that the kernel would cut, and one that leads nowhere.
    let long = serve(&path.with_file_name("x".repeat(120)), &[]).output().unwrap();
    assert_eq!(long.status.code(), Some(2), "{}", told(&long));
    assert!(told(&long).contains("at most 107 bytes"), "{}", told(&long));
    let nowhere = serve(Path::new("/no/such/folder/n.sock"), &[]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(3), "{}", told(&nowhere));
}

#[test]
fn clients_are_told_the_path() {
    let path = path("told");
    // Without a port to protect, no password is needed; one that is given is asked for.
    let (_server, address) = live_with(&mut serve(&path, &["--password", "secret"]));
    let mut client = Client::open(&address);
    assert!(client.send("GET k\r\n"));
    assert_eq!(client.line(), "-NOAUTH Authentication required.");
    assert_eq!(client.ask("AUTH secret"), [Some("OK".to_owned())]);
    let info = client.ask("INFO server").remove(0).unwrap();
    assert!(info.contains("\r\ntcp_port:0\r\n"), "{info}");
    let shown = path.display();
    assert!(info.contains(&format!("\r\nlistener0:name=unix,bind={shown}\r\n")), "{info}");
    let list = client.ask("CLIENT LIST").remove(0).unwrap();
    assert!(list.contains(&format!(" addr={shown}:0 laddr={shown}:0 ")), "{list}");
    assert!(list.contains(" flags=U "), "{list}");
    let set = client.ask("CONFIG GET unixsocket");
    assert_eq!(set, [Some("unixsocket".to_owned()), Some(shown.to_string())]);
    assert_eq!(client.ask("CONFIG GET port")[1].as_deref(), Some("0"));
}
