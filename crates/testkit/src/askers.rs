//! Many clients of etcd that read one key and watch a range, over few connections: as many Envoys
//! as the machine can hold, as far as etcd sees them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use hyper::Method;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::RUNTIME;

/// The connections of the askers to etcd's nodes.
pub struct Askers {
    connections: Vec<SendRequest<Bytes>>,
}

/// Messages of watches: the time at which each arrived.
pub type News = mpsc::UnboundedReceiver<Instant>;

impl Askers {
    /// Opens this number of connections, to the nodes in turn.
    pub fn connect(nodes: &[SocketAddr], connections: usize) -> Self {
        let connect = async |address: &SocketAddr| {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            // With a small window h2 takes many small messages at once for an attack.
            let (client, connection) = h2::client::Builder::new()
                .initial_connection_window_size(1 << 30)
                .handshake(stream)
                .await
                .unwrap();
            tokio::spawn(connection);
            client
        };
        let connections = RUNTIME.block_on(async {
            let mut all = Vec::new();
            for address in nodes.iter().cycle().take(connections) {
                all.push(connect(address).await);
            }
            all
        });
        Self { connections }
    }

    /// Reads the key through the majority in a closed loop of `at_once` readers. Returns the number
    /// of reads that etcd answered in that time.
    pub fn read_without_pause(&self, key: &str, at_once: usize, time: Duration) -> usize {
        let (count, until) = (Arc::new(AtomicUsize::new(0)), Instant::now() + time);
        let readers = self.connections.iter().cycle().take(at_once).cloned().map(|client| {
            let (count, message) = (Arc::clone(&count), range(key));
            RUNTIME.spawn(async move {
                while Instant::now() < until {
                    let is_answered = read(client.clone(), message.clone()).await;
                    count.fetch_add(usize::from(is_answered), Ordering::Relaxed);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        RUNTIME.block_on(async {
            for reader in readers {
                reader.await.unwrap();
            }
        });
        count.load(Ordering::Relaxed)
    }

    /// Reads the key `rate` times a second, in even steps. Returns the latencies in seconds, and an
    /// endless one for each read that etcd refused.
    pub fn read_at_rate(&self, key: &str, rate: f64, time: Duration) -> Vec<f64> {
        let count = (time.as_secs_f64() * rate) as usize;
        let begin = Instant::now();
        let reads = (0..count).map(|index| {
            let client = self.connections[index % self.connections.len()].clone();
            let message = range(key);
            RUNTIME.spawn(async move {
                let due = begin + Duration::from_secs_f64(index as f64 / rate);
                tokio::time::sleep_until(due.into()).await;
                let is_answered = read(client, message).await;
                if is_answered { due.elapsed().as_secs_f64() } else { f64::INFINITY }
            })
        });
        let reads: Vec<_> = reads.collect();
        RUNTIME.block_on(async {
            let mut latencies = Vec::new();
            for read in reads {
                latencies.push(read.await.unwrap());
            }
            latencies
        })
    }

    /// Opens this number of watches of all keys that begin with `prefix`, and waits until etcd has
    /// confirmed each.
    pub fn watch(&self, prefix: &str, count: usize) -> News {
        let (news, arrives) = mpsc::unbounded_channel();
        let (confirmed, mut is_confirmed) = mpsc::unbounded_channel();
        let message = watch(prefix);
        for client in self.connections.iter().cycle().take(count).cloned() {
            let (news, confirmed, message) = (news.clone(), confirmed.clone(), message.clone());
            RUNTIME.spawn(async move {
                let mut client = client.ready().await.unwrap();
                let request = request("/etcdserverpb.Watch/Watch");
                let (answer, mut sender) = client.send_request(request, false).unwrap();
                sender.send_data(message, false).unwrap();
                let mut body = answer.await.unwrap().into_body();
                let mut is_first = true;
                // A message of this size arrives in one piece.
                while let Some(Ok(data)) = body.data().await {
                    let _ = body.flow_control().release_capacity(data.len());
                    let sent = if std::mem::take(&mut is_first) {
                        confirmed.send(()).is_ok()
                    } else {
                        news.send(Instant::now()).is_ok()
                    };
                    if !sent {
                        return;
                    }
                }
                drop(sender);
            });
        }
        RUNTIME.block_on(async {
            for _ in 0..count {
                is_confirmed.recv().await.unwrap();
            }
        });
        arrives
    }

    /// Writes a key.
    pub fn put(&self, key: &str, value: &[u8]) {
        let message = framed(&[&field(1, key.as_bytes())[..], &field(2, value)].concat());
        let client = self.connections[0].clone();
        assert!(RUNTIME.block_on(call(client, "/etcdserverpb.KV/Put", message)), "a write");
    }
}

/// Waits until each of `count` watches has brought one message. Returns the times since `since`, in
/// seconds.
pub fn arrivals(news: &mut News, count: usize, since: Instant) -> Vec<f64> {
    let all = async {
        let mut times = Vec::with_capacity(count);
        while times.len() < count {
            let at = news.recv().await.unwrap();
            times.push(at.saturating_duration_since(since).as_secs_f64());
        }
        times
    };
    RUNTIME
        .block_on(async { tokio::time::timeout(Duration::from_secs(120), all).await })
        .expect("each watch brings the news")
}

async fn read(client: SendRequest<Bytes>, message: Bytes) -> bool {
    call(client, "/etcdserverpb.KV/Range", message).await
}

/// Returns true if etcd did what it was asked. An etcd with more requests than it can bear refuses
/// some.
async fn call(client: SendRequest<Bytes>, path: &str, message: Bytes) -> bool {
    let mut client = client.ready().await.unwrap();
    let (answer, mut sender) = client.send_request(request(path), false).unwrap();
    sender.send_data(message, true).unwrap();
    let mut body = answer.await.unwrap().into_body();
    while let Some(data) = body.data().await {
        let _ = body.flow_control().release_capacity(data.unwrap().len());
    }
    // A refusal has its status in the headers, and no trailers.
    let trailers = body.trailers().await.unwrap();
    let status = trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
    status.is_some_and(|status| status == "0")
}

fn request(path: &str) -> hyper::Request<()> {
    hyper::Request::builder()
        .method(Method::POST)
        .uri(format!("http://etcd{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("hasleader", "true")
        .body(())
        .unwrap()
}

/// A `RangeRequest` of one key.
fn range(key: &str) -> Bytes {
    framed(&field(1, key.as_bytes()))
}

/// A `WatchRequest` of all keys that begin with `prefix`.
fn watch(prefix: &str) -> Bytes {
    let mut behind = prefix.as_bytes().to_vec();
    *behind.last_mut().unwrap() += 1;
    let create = [field(1, prefix.as_bytes()), field(2, &behind)].concat();
    framed(&field(1, &create))
}

/// A field of a protobuf message with fewer than 128 bytes.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    assert!(value.len() < 128);
    [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat().into()
}
