//! A contest: many callers want one token. Records every answer and judges them.

use std::time::Duration;

use testkit::client::{Answer, Client};
use testkit::gateway::{exchange_form, exchange_request, mint_request};

/// The outcome of one subject token.
pub(crate) struct Contest {
    pub token: String,
    /// The answers to all who wanted the token at the same time.
    pub told: Vec<Told>,
    /// The last answer to a caller who retried, if no caller got the token and some were asked to
    /// retry.
    pub at_last: Option<Told>,
}

/// The kinds of answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    /// 200: the access token.
    HereItIs,
    /// 400: the subject token was already used.
    Used,
    /// 503: the caller shall retry.
    ComeBack,
    /// Any other answer.
    Else(String),
}

impl Told {
    fn of(answer: &Answer) -> Self {
        match answer.status {
            200 if answer.member("access_token").is_some() => Self::HereItIs,
            400 if answer.member("error_description").as_deref()
                == Some("the subject token was already used") =>
            {
                Self::Used
            }
            _ if answer.is_unavailable() => Self::ComeBack,
            0 => Self::Else("nothing".into()),
            status => Self::Else(format!("{status} {}", String::from_utf8_lossy(&answer.body))),
        }
    }
}

/// All callers of a contest, each with a connection.
pub(crate) struct Contenders {
    backends: Vec<Client>,
    clients: Vec<Client>,
}

/// The pause before a retry.
pub(crate) const BACK_AFTER: Duration = Duration::from_millis(100);

impl Contenders {
    /// Opens `count` connections, through both Envoys in turn.
    pub(crate) fn new(envoys: &[std::net::SocketAddr; 2], count: usize) -> Self {
        let backends = envoys.iter().map(|address| Client::new(*address)).collect();
        let clients = (0..count).map(|index| Client::new(envoys[index % 2])).collect();
        Self { backends, clients }
    }

    /// Mints a token and has all callers exchange it. `note` is shown every answer. Returns `None`
    /// if the mint was refused.
    pub(crate) async fn contest(&mut self, note: &impl Fn(Step, &Answer)) -> Option<Contest> {
        let backend = fastrand::usize(..self.backends.len());
        let mint = mint_request("u-1").to_bytes();
        let minted = self.backends[backend].send(&mint).await;
        note(Step::Mint(backend), &minted);
        let Some(token) = minted.member("subjectToken").filter(|_| minted.status == 201) else {
            tokio::time::sleep(BACK_AFTER).await;
            return None;
        };
        let request = exchange_request(&exchange_form(&token)).to_bytes();
        let contend = async |(index, client): (usize, &mut Client)| {
            let answer = client.send(&request).await;
            note(Step::Exchange(index % 2), &answer);
            Told::of(&answer)
        };
        let told =
            futures_util::future::join_all(self.clients.iter_mut().enumerate().map(contend)).await;
        let mut contest = Contest { token, told, at_last: None };
        if contest.count(&Told::HereItIs) == 0 && contest.count(&Told::ComeBack) > 0 {
            contest.at_last = Some(self.come_back(&request, note).await);
        }
        Some(contest)
    }

    /// Presents the same token until the answer is not "retry".
    async fn come_back(&mut self, request: &[u8], note: &impl Fn(Step, &Answer)) -> Told {
        loop {
            tokio::time::sleep(BACK_AFTER).await;
            let index = fastrand::usize(..self.clients.len());
            let answer = self.clients[index].send(request).await;
            note(Step::Exchange(index % 2), &answer);
            let told = Told::of(&answer);
            if told != Told::ComeBack {
                return told;
            }
        }
    }
}

/// The request that an answer belongs to, and the number of the Envoy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Mint(usize),
    Exchange(usize),
}

impl Contest {
    pub(crate) fn count(&self, wanted: &Told) -> usize {
        self.told.iter().filter(|told| *told == wanted).count()
    }

    /// Returns what is wrong with the contest. `written` is the number of times that etcd says the
    /// record was written: once by the mint, once more by each spend. `unknown` is true if an
    /// Envoy's log says that the outcome of a spend is unknown.
    pub(crate) fn judge(&self, written: u64, unknown: bool) -> Result<(), String> {
        let last = self.at_last.iter();
        let wins = self.told.iter().chain(last).filter(|told| **told == Told::HereItIs).count();
        let strange =
            self.told.iter().chain(&self.at_last).find(|told| matches!(told, Told::Else(_)));
        if let Some(told) = strange {
            return Err(format!("a caller was told {told:?}"));
        }
        match (written, wins) {
            (0, _) => Err("it was handed out, and is not in etcd".into()),
            (1, 0) => Err("everybody is told no, and it is not spent".into()),
            (1, _) => Err("it is exchanged and not spent".into()),
            (2, 1) => Ok(()),
            (2, 0) if !unknown => {
                Err("it is spent, everybody was told no, and no Envoy knew of it".into())
            }
            (2, 0) if self.count(&Told::ComeBack) == 0 => {
                Err("it is spent while everybody was told no".into())
            }
            (2, 0) => Ok(()),
            (2, _) => Err("it is exchanged twice".into()),
            (_, _) => Err("it is spent twice".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Told::{ComeBack, Else, HereItIs, Used};
    use super::*;

    /// Shows that `judge` finds each kind of fault.
    #[test]
    fn a_contest_is_judged_by_every_answer_and_by_etcds_own_record() {
        let lost = || Else("400 unknown".into());
        #[rustfmt::skip]
        let cases = [
            (vec![HereItIs, Used, ComeBack], None,           2, false, Ok(())),
            (vec![Used, ComeBack],           Some(Used),     2, true,  Ok(())),
            (vec![ComeBack, ComeBack],       Some(HereItIs), 2, false, Ok(())),
            (vec![HereItIs, HereItIs],       None,           2, false, Err("it is exchanged twice")),
            (vec![HereItIs, ComeBack],       Some(HereItIs), 2, true,  Err("it is exchanged twice")),
            (vec![HereItIs, Used],           None,           3, false, Err("it is spent twice")),
            (vec![HereItIs, Used],           None,           1, false, Err("it is exchanged and not spent")),
            (vec![HereItIs, Used],           None,           0, false, Err("it was handed out, and is not in etcd")),
            (vec![Used, Used],               None,           1, false, Err("everybody is told no, and it is not spent")),
            (vec![Used, Used],               None,           2, true,  Err("it is spent while everybody was told no")),
            (vec![Used, ComeBack],           Some(Used),     2, false, Err("it is spent, everybody was told no, and no Envoy knew of it")),
            (vec![HereItIs, lost()],         None,           2, false, Err("a caller was told Else(\"400 unknown\")")),
            (vec![ComeBack, ComeBack],       Some(lost()),   2, true,  Err("a caller was told Else(\"400 unknown\")")),
        ];
        for (told, at_last, written, unknown, expected) in cases {
            let contest = Contest { token: String::new(), told, at_last };
            let judged = contest.judge(written, unknown);
            let case = format!("{:?} {:?}", contest.told, contest.at_last);
            assert_eq!(judged, expected.map_err(str::to_owned), "{case}");
        }
    }
}
