//! The sockets that a server accepts connections on.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpSocket, UnixListener};

/// Length of the accept queue: a burst of connections waits instead of being reset.
const BACKLOG: u32 = 4096;

/// Sockets that listen, one or more.
pub struct Listeners {
    sockets: Vec<Listener>,
    /// Of the UNIX socket that the server made.
    _file: Option<SocketFile>,
}

/// A socket that listens.
pub enum Listener {
    /// TCP, at this bound address.
    Tcp(TcpListener, IpAddr),
    /// A UNIX socket.
    Unix(UnixListener),
}

/// Where a server can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address and a port.
    Tcp(SocketAddr),
    /// The path of a UNIX socket; empty if it has none.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// A socket's file, removed when this is dropped.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::debug!(%error, path = %self.0.display(), "cannot remove the socket");
        }
    }
}

impl Listeners {
    /// Listens on the first address of `host` that can be bound. Fails with the last address's error.
    pub async fn bind(host: &str, port: u16) -> io::Result<Self> {
        let mut refused = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        for address in tokio::net::lookup_host((host, port)).await? {
            match listen(address) {
                Ok(listener) => return Self::of_tcp(listener),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn of_tcp(listener: TcpListener) -> io::Result<Self> {
        Ok(Self { sockets: vec![Listener::of_tcp(listener)?], _file: None })
    }

    /// Listens on a UNIX socket at a path. The file of a server that is gone is replaced.
    pub fn bind_unix(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        Ok(Self { sockets: vec![Listener::Unix(listener)], _file: Some(SocketFile(path.to_owned())) })
    }

    /// Accepts on sockets that another process listens on.
    pub fn inherit(sockets: InheritedSockets) -> io::Result<Self> {
        let listener = |socket| match socket {
            InheritedSocket::Tcp(listener) => Listener::of_tcp(TcpListener::from_std(listener)?),
            InheritedSocket::Unix(listener) => UnixListener::from_std(listener).map(Listener::Unix),
        };
        let sockets = sockets.0.into_iter().map(listener).collect::<io::Result<_>>()?;
        Ok(Self { sockets, _file: None })
    }

    /// Where they can be reached.
    pub fn addresses(&self) -> io::Result<Vec<ListenAddress>> {
        self.sockets.iter().map(Listener::address).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Listener> {
        self.sockets.iter()
    }
}

/// Sockets that a service manager listens on for this process: systemd's `LISTEN_FDS`.
pub struct InheritedSockets(Vec<InheritedSocket>);

enum InheritedSocket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl InheritedSockets {
    /// Takes them, `None` if there are none. They are no longer in the environment then, which only a process with one
    /// thread may change: call it before any other starts. Fails at one that is no listening stream.
    pub fn take() -> io::Result<Option<Self>> {
        let mut passed = ListenFd::from_env();
        let sockets =
            (0..passed.len()).filter_map(|index| InheritedSocket::take(&mut passed, index).transpose());
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        Ok((!sockets.is_empty()).then_some(Self(sockets)))
    }
}

impl InheritedSocket {
    /// `None` where it was taken before.
    fn take(passed: &mut ListenFd, index: usize) -> io::Result<Option<Self>> {
        // Each fails where the socket is of the other kind, and leaves it.
        if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
            listener.set_nonblocking(true)?;
            return Ok(Some(Self::Tcp(listener)));
        }
        let Some(listener) = passed.take_unix_listener(index)? else { return Ok(None) };
        listener.set_nonblocking(true)?;
        Ok(Some(Self::Unix(listener)))
    }
}

impl Listener {
    fn of_tcp(listener: TcpListener) -> io::Result<Self> {
        let bound = listener.local_addr()?.ip();
        Ok(Self::Tcp(listener, bound))
    }

    fn address(&self) -> io::Result<ListenAddress> {
        match self {
            Self::Tcp(listener, _) => listener.local_addr().map(ListenAddress::Tcp),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                Ok(ListenAddress::Unix(address.as_pathname().map(Path::to_owned).unwrap_or_default()))
            }
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A new server can bind the port while old connections are in TIME_WAIT.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whether a path is a socket that no process listens on.
fn is_abandoned(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let answer = std::os::unix::net::UnixStream::connect(path);
    is_socket && answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
