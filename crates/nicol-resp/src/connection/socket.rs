//! Sockets of either kind: with an address and a port, or in the file system.

use std::fs::{self, File};
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use crate::connection::address::Address;
use crate::connection::tls::{Session, Tls};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 1_024;
/// The users who may connect to a socket in the file system: its owner.
const MODE: u32 = 0o600;

/// A socket that takes connections.
#[derive(Debug)]
pub enum Listener {
    /// At an address and a port.
    Tcp(TcpListener),
    /// In the file system, at the path of the address.
    Unix(UnixListener, Address),
}

/// A client's socket without TLS.
#[derive(Debug)]
enum Plain {
    /// At an address and a port.
    Tcp(TcpStream),
    /// In the file system, at the path of the address.
    Unix(UnixStream, Address),
}

/// A client's socket.
#[derive(Debug)]
pub struct Stream {
    socket: Plain,
    tls: Option<Session>,
}

/// The file of a socket. Dropped, it removes the file, unless another one has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: Arc<Path>,
    /// The device and the number that the file has there.
    file: (u64, u64),
}

/// Listens at `address`; returns the file that this has made, if any.
///
/// # Errors
/// What the system says; of a path: that a server listens there, or that it is no socket.
pub fn listen(address: &Address) -> io::Result<(Listener, Option<SocketFile>)> {
    match address {
        Address::Tcp(address) => {
            let socket = listening(bind_tcp(*address)?)?;
            Ok((Listener::Tcp(TcpListener::from_std(socket.into())), None))
        }
        Address::Unix(path) => {
            let (socket, file) = bind(path)?;
            let listener = UnixListener::from_std(socket.into());
            Ok((Listener::Unix(listener, address.clone()), Some(file)))
        }
    }
}

/// Could this process listen at `address` now? Nothing is left there.
///
/// # Errors
/// As [`listen`].
pub fn check(address: &Address) -> io::Result<()> {
    match address {
        Address::Tcp(address) => bind_tcp(*address).map(drop),
        Address::Unix(path) => {
            let _alone = lock_folder(path)?;
            clear(path)
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<Socket> {
    let kind = Domain::for_address(address);
    let socket = Socket::new(kind, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listening(socket: Socket) -> io::Result<Socket> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Takes `path` for a socket that listens.
fn bind(path: &Arc<Path>) -> io::Result<(Socket, SocketFile)> {
    let _alone = lock_folder(path)?;
    clear(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(&**path)?)?;
    let found = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.clone(), file: (found.dev(), found.ino()) };
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    // Before the lock is released: the next process would take the socket for a stale one.
    Ok((listening(socket)?, file))
}

/// Keeps other servers from taking or removing a socket in the folder of `path`.
fn lock_folder(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")))?;
    folder.lock()?;
    Ok(folder)
}

/// Removes the socket at `path` that a server has left behind, as one that was killed does.
fn clear(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let what = "something is there that is no socket";
        return Err(Error::new(ErrorKind::AlreadyExists, what));
    }
    // It must not wait: a server that takes no connections for a moment lives as well.
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(()) => Err(in_use()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(in_use()),
        Err(error) => Err(error),
    }
}

fn in_use() -> Error {
    Error::new(ErrorKind::AddrInUse, "another server listens there")
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // What cannot be removed the next start replaces.
        let Ok(_alone) = lock_folder(&self.path) else { return };
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Where it listens, with the real port.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(_, address) => Ok(address.clone()),
        }
    }

    /// The next connection that waits.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                listener.accept().map(|(stream, _)| Stream::plain(Plain::Tcp(stream)))
            }
            Self::Unix(listener, address) => {
                let (stream, _) = listener.accept()?;
                Ok(Stream::plain(Plain::Unix(stream, address.clone())))
            }
        }
    }
}

impl Stream {
    fn plain(socket: Plain) -> Self {
        Self { socket, tls: None }
    }

    /// The descriptor of the socket.
    pub fn descriptor(&self) -> RawFd {
        match &self.socket {
            Plain::Tcp(stream) => stream.as_raw_fd(),
            Plain::Unix(stream, _) => stream.as_raw_fd(),
        }
    }

    /// Speaks TLS from the first byte on. In the file system nobody else can listen: there it stays
    /// plain.
    pub fn secure(&mut self, tls: &Tls) -> io::Result<()> {
        if let Plain::Tcp(_) = self.socket {
            self.tls = Some(tls.accept()?);
        }
        Ok(())
    }

    /// Where the client is, and where it has reached the server.
    pub fn ends(&self) -> io::Result<(Address, Address)> {
        match &self.socket {
            Plain::Tcp(stream) => Ok((stream.peer_addr()?.into(), stream.local_addr()?.into())),
            // A client's end has no name of its own.
            Plain::Unix(_, address) => Ok((address.clone(), address.clone())),
        }
    }

    /// Whether a read of `len` bytes into room for `room` has emptied the socket.
    pub fn is_drained(&self, len: usize, room: usize) -> bool {
        self.tls.is_none() && len < room
    }

    /// Whether something that was written is not sent yet.
    pub fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(Session::has_unsent)
    }

    /// Sends at once, and looks whether the client still lives after a silence of `keepalive`. In
    /// the file system there is nothing to set: the kernel knows when a client is gone.
    pub fn prepare(&self, keepalive: Duration) -> io::Result<()> {
        let Plain::Tcp(stream) = &self.socket else { return Ok(()) };
        stream.set_nodelay(true)?;
        SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(keepalive))
    }

    /// Ends one direction, or both.
    pub fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.say_farewell(&mut self.socket)?;
        }
        match &self.socket {
            Plain::Tcp(stream) => stream.shutdown(how),
            Plain::Unix(stream, _) => stream.shutdown(how),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.read(&mut self.socket, buffer),
            None => self.socket.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => tls.write(&mut self.socket, bytes),
            None => self.socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.send(&mut self.socket))
    }
}

impl Read for Plain {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream, _) => stream.read(buffer),
        }
    }
}

impl Write for Plain {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream, _) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the poll watches of a socket.
macro_rules! source {
    ($name:ident) => {
        impl Source for $name {
            fn register(
                &mut self,
                registry: &Registry,
                token: Token,
                interests: Interest,
            ) -> io::Result<()> {
                match self {
                    Self::Tcp(socket) => socket.register(registry, token, interests),
                    Self::Unix(socket, _) => socket.register(registry, token, interests),
                }
            }

            fn reregister(
                &mut self,
                registry: &Registry,
                token: Token,
                interests: Interest,
            ) -> io::Result<()> {
                match self {
                    Self::Tcp(socket) => socket.reregister(registry, token, interests),
                    Self::Unix(socket, _) => socket.reregister(registry, token, interests),
                }
            }

            fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
                match self {
                    Self::Tcp(socket) => socket.deregister(registry),
                    Self::Unix(socket, _) => socket.deregister(registry),
                }
            }
        }
    };
}

source!(Listener);
source!(Plain);

impl Source for Stream {
    fn register(&mut self, to: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.register(to, token, interests)
    }

    fn reregister(&mut self, to: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.socket.reregister(to, token, interests)
    }

    fn deregister(&mut self, from: &Registry) -> io::Result<()> {
        self.socket.deregister(from)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net;

    use super::*;

    /// A path of a test, where nothing is.
    fn path(name: &str) -> Arc<Path> {
        let path = std::env::temp_dir().join(format!("nicol-{name}-{}", std::process::id()));
        let _gone = fs::remove_file(&path);
        path.into()
    }

    #[test]
    fn a_socket_that_was_left_is_replaced_and_one_that_lives_is_not() {
        let path = path("left");
        let address = Address::Unix(path.clone());
        // It outlives its listener, as after `kill -9`.
        drop(net::UnixListener::bind(&path).unwrap());
        let (listener, file) = listen(&address).unwrap();
        assert!(net::UnixStream::connect(&path).is_ok());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        let second = listen(&address).unwrap_err();
        assert_eq!(
            (second.kind(), second.to_string().contains("listens")),
            (ErrorKind::AddrInUse, true)
        );
        // That has harmed nothing.
        assert!(net::UnixStream::connect(&path).is_ok());
        drop(listener);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_socket_stays_and_so_does_the_socket_of_another() {
        let path = path("other");
        let address = Address::Unix(path.clone());
        fs::write(&path, "data").unwrap();
        let refused = listen(&address).unwrap_err();
        assert!(refused.to_string().contains("no socket"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"data");
        fs::remove_file(&path).unwrap();
        let (_listener, file) = listen(&address).unwrap();
        // Somebody has removed it, and another server has taken the path.
        fs::rename(&path, path.with_extension("moved")).unwrap();
        let other = net::UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(net::UnixStream::connect(&path).is_ok(), "it is not ours to remove");
        drop(other);
        fs::remove_file(&path).unwrap();
        fs::remove_file(path.with_extension("moved")).unwrap();
    }
}
