//! A TCP connection's way to a server, which a test can block or cut.

use std::net::SocketAddr;
use std::pin::pin;

use futures_util::future::select;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::RUNTIME;

/// The fate of the bytes that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// Bytes stay where they are. Nobody is told.
    Blocked,
}

/// Passes connections on to a server, until a test blocks or cuts them. Dropping the value ends all
/// of them.
pub struct Relay {
    pub address: SocketAddr,
    way: watch::Sender<Way>,
    /// Counts the cuts: a connection ends at the next one.
    cuts: watch::Sender<u64>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    /// Starts a relay to the server at `to`.
    pub fn start(to: SocketAddr) -> Self {
        let listener = RUNTIME.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (way, cuts) = (watch::Sender::new(Way::Open), watch::Sender::new(0));
        let (ways, cut) = (way.clone(), cuts.clone());
        let task = RUNTIME.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass_on(client, to, ways.subscribe(), cut.subscribe()));
            }
        });
        Self { address, way, cuts, task }
    }

    /// Holds back every byte from now on, in both directions. Connections stay open, and new ones
    /// are accepted.
    pub fn block(&self) {
        self.way.send_replace(Way::Blocked);
    }

    /// Passes all bytes on, also those that have waited.
    pub fn unblock(&self) {
        self.way.send_replace(Way::Open);
    }

    /// Ends all connections.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn pass_on(
    client: TcpStream,
    to: SocketAddr,
    way: watch::Receiver<Way>,
    mut cuts: watch::Receiver<u64>,
) {
    let Ok(server) = TcpStream::connect(to).await else { return };
    // A side that has no more to say ends the connection.
    let [up, down] = [(&client, &server), (&server, &client)];
    let (up, down) = (pin!(copy(up, way.clone())), pin!(copy(down, way)));
    select(select(up, down), pin!(cuts.changed())).await;
}

/// Passes bytes on until a side has no more.
async fn copy((from, to): (&TcpStream, &TcpStream), mut way: watch::Receiver<Way>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        if from.readable().await.is_err() || way.wait_for(|way| *way == Way::Open).await.is_err() {
            return;
        }
        let read = match from.try_read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let mut rest = &buffer[..read];
        if rest.is_empty() {
            return;
        }
        while !rest.is_empty() {
            if to.writable().await.is_err() {
                return;
            }
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}
