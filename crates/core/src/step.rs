//! The vocabulary between the core and its driver: calls go out, replies come in, a result ends it.
//!
//! Every operation that needs a round trip is an `async fn`. The compiler turns it into a state
//! machine, and its checks stay in one function, in the order that makes them safe. Only [`Task`]
//! polls it: there is no executor, no waker and no I/O. When the function awaits [`Context::call`],
//! the task stops, and [`Step::Call`] tells the driver what to send. [`Task::resume`] consumes the
//! task, so a reply cannot be used twice. A request and background work differ only in the type of
//! their result.
//!
//! A caller can leave at any time. A task whose call may have changed something elsewhere goes on
//! without its caller, so that the outcome is audited. Every other task stops.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::host::Host;
use crate::secret::redacted;

/// A response to the caller.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Header fields with names in lower case. The filter makes the values: ASCII without line
    /// breaks.
    pub headers: Vec<(&'static str, String)>,
    /// The body. Empty if there is none.
    pub body: Vec<u8>,
}

/// A request that Envoy sends for the core.
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
    /// How long Envoy waits for the answer.
    pub timeout: Duration,
}

/// A unary call over gRPC.
#[derive(Clone, PartialEq, Eq)]
pub struct GrpcCall {
    /// The Envoy cluster, which speaks HTTP/2.
    pub cluster: Rc<str>,
    /// The `:authority`; `None` for the cluster's name.
    pub authority: Option<Rc<str>>,
    /// The full name of the service, such as `etcdserverpb.KV`.
    pub service: &'static str,
    /// The method, such as `Range`.
    pub method: &'static str,
    /// Metadata of the call.
    pub metadata: Vec<(&'static str, &'static str)>,
    /// The encoded message.
    pub message: Vec<u8>,
    /// How long Envoy waits for the answer.
    pub timeout: Duration,
}

/// A stream over gRPC, on which messages arrive until it ends. A VM has one at the most.
#[derive(Clone, PartialEq, Eq)]
pub struct GrpcStream {
    /// The Envoy cluster, which speaks HTTP/2.
    pub cluster: Rc<str>,
    /// The `:authority`; `None` for the cluster's name.
    pub authority: Option<Rc<str>>,
    /// The full name of the service, such as `etcdserverpb.Watch`.
    pub service: &'static str,
    /// The method, such as `Watch`.
    pub method: &'static str,
    /// Metadata of the stream.
    pub metadata: Vec<(&'static str, &'static str)>,
    /// The encoded message that is sent first, and the only one.
    pub message: Vec<u8>,
}

/// The driver's next action on the stream of its VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamAction {
    /// Open this stream. No stream is open.
    Open(GrpcStream),
    /// Cancel the stream. Nothing that still arrives on it counts.
    Cancel,
}

/// An event on the stream of a VM.
#[derive(Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// A message has arrived. It is empty if it was too long to be read.
    Message(Vec<u8>),
    /// The stream has ended, or could not be opened.
    Ended(StreamEnd),
}

/// The reason why a stream is not open any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// Envoy did not open it: no such cluster, no healthy endpoint, or too many requests.
    NotOpened,
    /// The other side, or the connection, ended it with this status.
    Closed(GrpcStatus),
}

/// The outcome of a [`Call`].
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// An upstream answered over HTTP.
    Http {
        /// The HTTP status.
        status: u16,
        /// True if the content type is JSON.
        json: bool,
        /// The whole body.
        body: Vec<u8>,
    },
    /// An upstream answered over gRPC, with a message or with a status other than `OK`. Envoy
    /// reports timeouts and failed connections as a status too.
    Grpc(Result<Vec<u8>, GrpcStatus>),
    /// No answer arrived: the call was refused, reset or timed out, or the cluster does not exist.
    Failed(CallFailure),
}

/// The status of a gRPC call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("gRPC status {0}")]
pub struct GrpcStatus(pub u32);

/// The reason why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// Envoy did not send the call: no such cluster, no healthy endpoint, or too many requests.
    #[error("the call could not be sent")]
    NotSent,
    /// The connection ended before the reply did, or the reply was too long.
    #[error("the reply was cut off")]
    CutOff,
}

/// The fate of a call whose caller leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenCallerLeaves {
    /// The call only asks. It is cancelled together with its task.
    Cancel,
    /// The call may change something, or other requests wait for it. The call and its task go on.
    GoOn,
}

// Header fields, bodies and messages hold tokens and credentials. `Debug` prints their names and
// lengths only.

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

impl fmt::Debug for GrpcStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("GrpcStream")
            .field("cluster", &self.cluster)
            .field("method", &format_args!("/{}/{}", self.service, self.method))
            .field("message", &redacted(&self.message))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StreamEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(message) => {
                formatter.debug_tuple("Message").field(&redacted(message)).finish()
            }
            Self::Ended(end) => formatter.debug_tuple("Ended").field(end).finish(),
        }
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

/// The driver's next action.
#[must_use]
pub enum Step<T> {
    /// Send this, then give the reply to [`Task::resume`].
    Call(Call, Task<T>),
    /// The task is finished.
    Done(T),
    /// The task stopped without a result: its next action was for a caller who has left.
    Stopped,
}

/// The state of a task after its driver ran it.
#[must_use]
pub enum Progress<T> {
    /// A call is under way; its reply belongs to [`Task::resume`].
    Waiting(Task<T>),
    /// The task is finished.
    Done(T),
    /// The task stopped without a result, as [`Step::Stopped`].
    Stopped,
}

impl<T> Step<T> {
    /// Runs the task until a call is under way or the task is finished. `send` sends a call. A call
    /// that cannot be sent fails at once.
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

/// The state that a task and its driver share.
struct Shared {
    call: Option<Call>,
    reply: Option<Reply>,
    when_caller_leaves: WhenCallerLeaves,
    caller_has_left: bool,
    traceparent: Option<String>,
}

/// The means of an `async fn` to reach the outside: the host, and calls.
#[derive(Clone)]
pub struct Context {
    host: Rc<dyn Host>,
    shared: Rc<RefCell<Shared>>,
}

impl Context {
    /// Returns the host.
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Sends a call that only asks, and waits for its reply. If the caller has left or leaves
    /// meanwhile, the task ends here.
    pub fn call(&self, call: Call) -> impl Future<Output = Reply> + use<> {
        self.wait_for(call, WhenCallerLeaves::Cancel)
    }

    /// Sends a call that may change something, and waits for its reply. The task goes on with the
    /// reply even if its caller has left.
    pub fn call_to_the_end(&self, call: Call) -> impl Future<Output = Reply> + use<> {
        self.wait_for(call, WhenCallerLeaves::GoOn)
    }

    /// Ends the task here if its caller has left. Await it before every action that cannot be
    /// undone.
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

/// A running `async fn` that has stopped at a call.
pub struct Task<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    shared: Rc<RefCell<Shared>>,
}

impl<T> Task<T> {
    /// Runs `begin` to its first call or to its end. Each of its HTTP calls carries `traceparent`,
    /// its place in a trace.
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

    /// Continues the task with the reply to its call.
    pub fn resume(self, reply: Reply) -> Step<T> {
        self.shared.borrow_mut().reply = Some(reply);
        self.advance()
    }

    /// Returns the fate of the current call if the caller leaves.
    pub fn when_caller_leaves(&self) -> WhenCallerLeaves {
        self.shared.borrow().when_caller_leaves
    }

    /// Notes that the caller has left. Returns the task if it must go on, or `None` if it has
    /// ended.
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
                // Without a call the task waits for a caller who has left.
                call.map_or(Step::Stopped, |call| Step::Call(call, self))
            }
        }
    }
}

#[cfg(test)]
mod tests;
