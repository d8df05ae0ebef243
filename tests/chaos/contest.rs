//! One token, and many who want it: what each was told, and what is wrong with that.

use std::time::Duration;

use testkit::client::{Answer, Client};
use testkit::gateway::{exchange_form, exchange_request, mint_request};

/// What became of one subject token.
pub(crate) struct Contest {
    pub token: String,
    /// What everybody was told who wanted it at the same time.
    pub told: Vec<Told>,
    /// What whoever came back was told at last, where nobody had it and somebody was asked to come back.
    pub at_last: Option<Told>,
}

/// The answers that there are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    /// 200.
    HereItIs,
    /// 400: already used.
    Used,
    /// 503.
    ComeBack,
    /// Whatever else.
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

/// Everybody who takes part, each with a connection. What the answers took is counted in `seen`.
pub(crate) struct Contenders {
    backends: Vec<Client>,
    clients: Vec<Client>,
}

/// How long to wait where somebody is asked to come back.
const BACK_AFTER: Duration = Duration::from_millis(100);

impl Contenders {
    /// So many, through the Envoys in turn.
    pub(crate) fn new(envoys: &[std::net::SocketAddr; 2], count: usize) -> Self {
        let backends = envoys.iter().map(|address| Client::new(*address)).collect();
        let clients = (0..count).map(|index| Client::new(envoys[index % 2])).collect();
        Self { backends, clients }
    }

    /// Mints a token and has all contend for it. `note` is shown every answer. `None` where the mint was refused.
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

    /// The same token, until there is another answer than to come back.
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

/// What an answer is to, and which Envoy it is from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Mint(usize),
    Exchange(usize),
}

impl Contest {
    pub(crate) fn count(&self, wanted: &Told) -> usize {
        self.told.iter().filter(|told| *told == wanted).count()
    }

    /// What is wrong with it. `written` is how often etcd says that its record was written: once by the mint, once
    /// more by each spend. `unknown` is whether an Envoy has written down that it does not know what came of a spend.
    pub(crate) fn judge(&self, written: u64, unknown: bool) -> Result<(), String> {
        let last = self.at_last.iter();
        let wins = self.told.iter().chain(last).filter(|told| **told == Told::HereItIs).count();
        let strange =
            self.told.iter().chain(&self.at_last).find(|told| matches!(told, Told::Else(_)));
        if let Some(told) = strange {
            return Err(format!("somebody is told {told:?}"));
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

    /// A run that finds nothing means something.
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
            (vec![HereItIs, lost()],         None,           2, false, Err("somebody is told Else(\"400 unknown\")")),
            (vec![ComeBack, ComeBack],       Some(lost()),   2, true,  Err("somebody is told Else(\"400 unknown\")")),
        ];
        for (told, at_last, written, unknown, expected) in cases {
            let contest = Contest { token: String::new(), told, at_last };
            let judged = contest.judge(written, unknown);
            let case = format!("{:?} {:?}", contest.told, contest.at_last);
            assert_eq!(judged, expected.map_err(str::to_owned), "{case}");
        }
    }
}
