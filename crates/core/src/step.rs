//! The vocabulary between the core and whoever drives it: calls out, replies in, a result at the end.
//!
//! Whatever takes a round trip is an `async fn`: the compiler turns it into the state machine that we would
//! otherwise write by hand, and its checks stay in one function, in the order that makes them safe. Nothing
//! runs it but [`Task`]: there is no executor, no waker and no I/O. Where the network is needed it awaits
//! [`Context::call`], the task stops there, and [`Step::Call`] tells the driver what to send.
//! [`Task::resume`] takes the task itself, so that a reply cannot be used twice. A request and the work that
//! nobody waits for differ in their result alone.
//!
//! A caller can leave at any time. A task whose call may have changed something elsewhere goes on without it,
//! so that somebody learns what came of that; any other stops where it is.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::host::Host;
use crate::secret::redacted;

/// An answer to the caller.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Header fields, names in lower case. The values are ours: ASCII without line breaks.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
}

/// A request that Envoy must send for us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Over HTTP.
    Http(HttpCall),
    /// A unary call over gRPC.
    Grpc(GrpcCall),
}

/// A request over HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpCall {
    /// The Envoy cluster.
    pub cluster: Rc<str>,
    /// `GET` or `POST`.
    pub method: &'static str,
    /// `http` or `https`, for `:scheme`.
    pub scheme: Rc<str>,
    /// The `:authority`.
    pub authority: Rc<str>,
    /// The path with its query.
    pub path: String,
    /// Further header fields.
    pub headers: Vec<(&'static str, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// When Envoy gives up.
    pub timeout: Duration,
}

/// A unary call over gRPC.
#[derive(Clone, PartialEq, Eq)]
pub struct GrpcCall {
    /// The Envoy cluster, which speaks HTTP/2.
    pub cluster: Rc<str>,
    /// The `:authority`; the cluster's name where there is none.
    pub authority: Option<Rc<str>>,
    /// The full name of the service: `etcdserverpb.KV`.
    pub service: &'static str,
    /// The method: `Range`.
    pub method: &'static str,
    /// Metadata of the call.
    pub metadata: Vec<(&'static str, &'static str)>,
    /// The message, encoded.
    pub message: Vec<u8>,
    /// When Envoy gives up.
    pub timeout: Duration,
}

/// What came of a [`Call`].
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// An upstream answered over HTTP.
    Http {
        /// Its status.
        status: u16,
        /// Whether its content type is JSON.
        json: bool,
        /// Its whole body.
        body: Vec<u8>,
    },
    /// An upstream answered over gRPC: with a message, or with a status that is not `OK`. Envoy makes timeouts
    /// and connections that failed into a status, too.
    Grpc(Result<Vec<u8>, GrpcStatus>),
    /// Nobody answered: refused, reset, timed out, no such cluster.
    Failed(CallFailure),
}

/// The status of a gRPC call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("gRPC status {0}")]
pub struct GrpcStatus(pub u32);

/// Why there was no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// Envoy would not send it: no such cluster, no healthy endpoint, too many requests.
    #[error("the call could not be sent")]
    NotSent,
    /// The connection ended before the reply did, or the reply was too long.
    #[error("the reply was cut off")]
    CutOff,
}

/// What becomes of a call when the caller leaves for whom it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenCallerLeaves {
    /// It only asks: it is cancelled, and its task with it.
    Cancel,
    /// It may change something, or others wait for it too: it and its task go on.
    GoOn,
}

// Header fields, bodies and messages hold tokens and credentials: of them only names and lengths are printed.

impl fmt::Debug for Response {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &names(&self.headers))
            .field("body", &redacted(&self.body))
            .finish()
    }
}

impl fmt::Debug for HttpCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, method, scheme, authority, path, headers, body, timeout } = self;
        formatter
            .debug_struct("HttpCall")
            .field("cluster", cluster)
            .field("request", &format_args!("{method} {scheme}://{authority}{path}"))
            .field("headers", &names(headers))
            .field("body", &redacted(body))
            .field("timeout", timeout)
            .finish()
    }
}

impl fmt::Debug for GrpcCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("GrpcCall")
            .field("cluster", &self.cluster)
            .field("method", &format_args!("/{}/{}", self.service, self.method))
            .field("message", &redacted(&self.message))
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { status, json, body } => formatter
                .debug_struct("Http")
                .field("status", status)
                .field("json", json)
                .field("body", &redacted(body))
                .finish(),
            Self::Grpc(Ok(message)) => {
                formatter.debug_tuple("Grpc").field(&redacted(message)).finish()
            }
            Self::Grpc(Err(status)) => formatter.debug_tuple("Grpc").field(status).finish(),
            Self::Failed(failure) => formatter.debug_tuple("Failed").field(failure).finish(),
        }
    }
}

fn names<'h>(headers: &'h [(&'static str, String)]) -> Vec<&'h str> {
    headers.iter().map(|(name, _)| *name).collect()
}

/// What the driver does next.
#[must_use]
pub enum Step<T> {
    /// Send this, then give the reply to [`Task::resume`].
    Call(Call, Task<T>),
    /// It is over.
    Done(T),
    /// It is over without a result: what came next was for a caller who has left.
    Stopped,
}

/// How far a task has come.
#[must_use]
pub enum Progress<T> {
    /// A call is under way; its reply belongs to [`Task::resume`].
    Waiting(Task<T>),
    /// It is over.
    Done(T),
    /// As [`Step::Stopped`].
    Stopped,
}

impl<T> Step<T> {
    /// Goes on until a call is under way or there is nothing left to do. `send` sends a call; one that cannot
    /// be sent has failed at once.
    pub fn run(
        mut self,
        mut send: impl FnMut(&Call, WhenCallerLeaves) -> Result<(), CallFailure>,
    ) -> Progress<T> {
        loop {
            match self {
                Self::Call(call, task) => match send(&call, task.when_caller_leaves()) {
                    Ok(()) => return Progress::Waiting(task),
                    Err(failure) => self = task.resume(Reply::Failed(failure)),
                },
                Self::Done(result) => return Progress::Done(result),
                Self::Stopped => return Progress::Stopped,
            }
        }
    }
}

/// What a task and its driver share: the call that it waits for, the reply, and whether anybody waits for it.
struct Shared {
    call: Option<Call>,
    reply: Option<Reply>,
    when_caller_leaves: WhenCallerLeaves,
    caller_has_left: bool,
    traceparent: Option<String>,
}

/// What an `async fn` is given besides its own arguments: the host, and a way to call out.
#[derive(Clone)]
pub struct Context {
    host: Rc<dyn Host>,
    shared: Rc<RefCell<Shared>>,
}

impl Context {
    /// The world.
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Asks, and stops here until the driver brings the reply. Should the caller leave meanwhile, or have left,
    /// there is nobody to ask for: the task ends here.
    pub fn call(&self, call: Call) -> impl Future<Output = Reply> + use<> {
        self.wait_for(call, WhenCallerLeaves::Cancel)
    }

    /// The same for a call that may change something: the task goes on with its reply, whether anybody still
    /// waits for the outcome or not.
    pub fn call_to_the_end(&self, call: Call) -> impl Future<Output = Reply> + use<> {
        self.wait_for(call, WhenCallerLeaves::GoOn)
    }

    /// Ends the task here if its caller has left: to be awaited before anything that cannot be taken back.
    pub fn still_wanted(&self) -> impl Future<Output = ()> + use<> {
        let shared = Rc::clone(&self.shared);
        poll_fn(
            move |_| if shared.borrow().caller_has_left { Poll::Pending } else { Poll::Ready(()) },
        )
    }

    fn wait_for(
        &self,
        call: Call,
        when_caller_leaves: WhenCallerLeaves,
    ) -> impl Future<Output = Reply> + use<> {
        let shared = Rc::clone(&self.shared);
        let mut unsent = Some(call);
        poll_fn(move |_| {
            let mut shared = shared.borrow_mut();
            if shared.caller_has_left && when_caller_leaves == WhenCallerLeaves::Cancel {
                return Poll::Pending;
            }
            if let Some(mut call) = unsent.take() {
                if let (Call::Http(call), Some(parent)) = (&mut call, &shared.traceparent) {
                    call.headers.push(("traceparent", parent.clone()));
                }
                shared.call = Some(call);
                shared.when_caller_leaves = when_caller_leaves;
                return Poll::Pending;
            }
            shared.reply.take().map_or(Poll::Pending, Poll::Ready)
        })
    }
}

/// Something under way, stopped at a call.
pub struct Task<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    shared: Rc<RefCell<Shared>>,
}

impl<T> Task<T> {
    /// Runs `begin` to its first call, or to its end. Every call over HTTP that is made for it carries
    /// `traceparent`, its place in a trace.
    pub fn start<F>(
        host: Rc<dyn Host>,
        traceparent: Option<String>,
        begin: impl FnOnce(Context) -> F,
    ) -> Step<T>
    where
        F: Future<Output = T> + 'static,
    {
        let shared = Rc::new(RefCell::new(Shared {
            call: None,
            reply: None,
            when_caller_leaves: WhenCallerLeaves::Cancel,
            caller_has_left: false,
            traceparent,
        }));
        let future = Box::pin(begin(Context { host, shared: Rc::clone(&shared) }));
        Self { future, shared }.advance()
    }

    /// Goes on with the reply to the call that it stopped at.
    pub fn resume(self, reply: Reply) -> Step<T> {
        self.shared.borrow_mut().reply = Some(reply);
        self.advance()
    }

    /// What becomes of the call that is under way when the caller leaves.
    pub fn when_caller_leaves(&self) -> WhenCallerLeaves {
        self.shared.borrow().when_caller_leaves
    }

    /// Notes that the caller has left. The task itself, if it has to go on without; `None` if it is over.
    pub fn caller_left(self) -> Option<Self> {
        self.shared.borrow_mut().caller_has_left = true;
        (self.when_caller_leaves() == WhenCallerLeaves::GoOn).then_some(self)
    }

    fn advance(mut self) -> Step<T> {
        let mut waiting = std::task::Context::from_waker(Waker::noop());
        match self.future.as_mut().poll(&mut waiting) {
            Poll::Ready(result) => Step::Done(result),
            Poll::Pending => {
                let call = self.shared.borrow_mut().call.take();
                // Without a call it awaits what nobody will bring.
                call.map_or(Step::Stopped, |call| Step::Call(call, self))
            }
        }
    }
}

#[cfg(test)]
mod tests;
