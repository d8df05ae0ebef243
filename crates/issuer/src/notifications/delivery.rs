//! Sends a notice to a hook, at most three times within ten seconds.

use std::rc::Rc;
use std::time::Duration;

use super::{Line, Notice, PATIENCE, TRIES, Untold, Waiting, signature};
use crate::host::UnixTime;
use crate::metrics;
use crate::step::{Call, Context, HttpCall, Reply};
use crate::upstream::{Fault, Upstream};

/// The pause before the next try, for each try that has failed.
const PAUSE: Duration = Duration::from_secs(1);

impl Line {
    /// Tells the hook while a request waits. Every try but the last is repeated at once.
    pub(super) async fn tell(&self, context: &Context, notice: &Notice) -> Result<(), Untold> {
        let since = context.host().now();
        for _ in 0..TRIES {
            let left = PATIENCE.saturating_sub(context.host().now().since(since));
            if left.is_zero() {
                break;
            }
            if self.attempt(context, notice, left).await {
                return Ok(());
            }
        }
        give_up(context, notice);
        Err(Untold)
    }

    /// Sends a notice once, and puts it back into the queue if that failed.
    pub(super) async fn deliver(self: Rc<Self>, context: &Context, waiting: Waiting) {
        let Waiting { notice, tries, since, .. } = waiting;
        let now = context.host().now();
        let since = since.unwrap_or(now);
        let left = PATIENCE.saturating_sub(now.since(since));
        let is_told = !left.is_zero() && self.attempt(context, &notice, left).await;
        self.under_way.set(self.under_way.get().saturating_sub(1));
        if is_told {
            return;
        }
        let tries = tries.saturating_add(1);
        let due = context.host().now().after(PAUSE.saturating_mul(tries));
        if tries >= TRIES || due >= since.after(PATIENCE) {
            give_up(context, &notice);
            return;
        }
        let mut queue = self.waiting.borrow_mut();
        queue.push_front(Waiting { notice, tries, since: Some(since), due });
    }

    /// Sends a notice once. Returns true if the hook has taken it.
    async fn attempt(&self, context: &Context, notice: &Notice, left: Duration) -> bool {
        let host = context.host();
        let call = self.call(notice, host.now(), left);
        // A hook that was told must learn what came of it, even if the caller leaves meanwhile.
        let fault = match context.call_to_the_end(Call::Http(call)).await {
            Reply::Http { status: 200..=299, .. } => {
                host.count(metrics::NOTIFICATIONS_SENT.into());
                return true;
            }
            Reply::Http { status, .. } => Fault::Status(status),
            Reply::Grpc(_) => Fault::Malformed,
            Reply::Failed(failure) => failure.into(),
        };
        let _ = Upstream::Notification.failed(host, fault);
        false
    }

    fn call(&self, notice: &Notice, now: UnixTime, left: Duration) -> HttpCall {
        let id = notice.id.clone();
        let timestamp = now.secs().to_string();
        let signature =
            signature::sign(self.hook.secret.expose(), &id, &timestamp, notice.body.as_bytes());
        let headers = vec![
            ("content-type", "application/cloudevents+json".to_owned()),
            ("webhook-id", id),
            ("webhook-timestamp", timestamp),
            ("webhook-signature", signature),
        ];
        let call = self.hook.http_uri.call("POST", headers, notice.body.clone().into_bytes());
        HttpCall { timeout: call.timeout.min(left), ..call }
    }
}

fn give_up(context: &Context, notice: &Notice) {
    context.host().count(metrics::NOTIFICATIONS_FAILED.into());
    context.host().warn(&format!("notification failed: {notice}"));
}
