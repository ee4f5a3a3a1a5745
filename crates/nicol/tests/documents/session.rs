//! A server and one client of it, as a page shows them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The server that a page has started last, and the connection of its client.
pub struct Session {
    folder: PathBuf,
    server: Option<Child>,
    client: Option<BufReader<TcpStream>>,
}

impl Session {
    /// A page's session, whose server runs in `folder`.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), server: None, client: None }
    }

    /// Starts `nicol serve` with `args` at a free port, in place of a server that runs.
    pub fn serve(&mut self, args: &[&str]) -> Result<(), String> {
        self.stop();
        let mut server = Command::new(super::NICOL)
            .arg("serve")
            .args(args)
            .current_dir(&self.folder)
            .envs([("NICOL_LISTEN", "127.0.0.1:0"), ("NICOL_RECORDS", "10000")])
            .env("NICOL_MAX_MEMORY", "300mb")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(server.stderr.take().unwrap());
        self.server = Some(server);
        let mut all = String::new();
        loop {
            let mut line = String::new();
            if told.read_line(&mut line).unwrap_or(0) == 0 {
                self.stop();
                return Err(all.trim().to_owned());
            }
            let port = line
                .split_once(" on 127.0.0.1:")
                .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
            if let Some(port) = port {
                // Whatever else it tells must not fill the pipe.
                std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
                let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                self.client = Some(BufReader::new(stream));
                return Ok(());
            }
            all.push_str(&line);
        }
    }

    /// Ends the server as `kill -9` does.
    pub fn kill(&mut self) -> Result<(), String> {
        self.stop().ok_or_else(|| "no server runs on this page".to_owned())
    }

    fn stop(&mut self) -> Option<()> {
        self.client = None;
        let mut server = self.server.take()?;
        server.kill().unwrap();
        server.wait().unwrap();
        Some(())
    }

    /// Sends a command, and compares the reply with what the page shows.
    pub fn ask(&mut self, command: &str, shown: &[String]) -> Result<(), String> {
        let client = self.client.as_mut().ok_or("no server runs on this page")?;
        let mut words = split(super::uncommented(command));
        if words.first().is_some_and(|word| word == "-p") {
            words.drain(..2);
        }
        let mut request = format!("*{}\r\n", words.len());
        for word in &words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        client.get_mut().write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let reply = reply(client).map_err(|error| error.to_string())?;
        let shown = shown.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n");
        let same = reply == shown.trim_end();
        same.then_some(()).ok_or_else(|| format!("the reply is {reply}"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The words of a command; double quotes keep one together.
fn split(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for next in command.chars() {
        match next {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().expect("there is one").push(next),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The next reply, as redis-cli prints it in a terminal.
fn reply(from: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at(line.len().min(1));
    Ok(match kind {
        "$" if rest == "-1" => "(nil)".to_owned(),
        "*" if rest == "-1" => "(nil)".to_owned(),
        "$" => {
            let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
            from.read_exact(&mut bytes)?;
            format!("\"{}\"", String::from_utf8_lossy(&bytes[..bytes.len() - 2]))
        }
        ":" => format!("(integer) {rest}"),
        "-" => format!("(error) {rest}"),
        "*" => {
            let count: usize = rest.parse().unwrap();
            let items = (1..=count).map(|at| Ok(format!("{at}) {}", reply(from)?)));
            items.collect::<std::io::Result<Vec<_>>>()?.join("\n")
        }
        _ => rest.to_owned(),
    })
}
