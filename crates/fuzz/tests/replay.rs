//! Tries the corpus in every run, and some thousand neighbours of it, others each time.
#![cfg(test)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use fastrand::Rng;
use fuzz::{TARGETS, Target, corpus};

/// The number of neighbours that each target tries.
const NEIGHBOURS: usize = 2_000;

/// The length of the longest input: longer ones find little more, and are slow.
const LONGEST: usize = 4096;

fn try_one(target: &Target, input: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    assert!(outcome.is_ok(), "{}: {}", target.name, input.escape_ascii());
}

/// One or a few changes, as a fuzzer makes them, with pieces of other inputs.
fn neighbour(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut input = rng.choice(inputs).unwrap().clone();
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..=input.len());
        let end = at + rng.usize(..=(input.len() - at).min(16));
        match rng.u8(..6) {
            0 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
            1 if at < input.len() => input[at] = rng.u8(..),
            2 => drop(input.drain(at..end)),
            3 => input.insert(at, *rng.choice(b"\0\"\\%&=+.:{}[],-019eE\n \xff").unwrap()),
            4 => {
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            _ => {
                let other = rng.choice(inputs).unwrap();
                let from = rng.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
    input.truncate(LONGEST);
    input
}

#[test]
fn the_corpus_and_its_neighbours_break_no_rule() {
    let seed =
        std::env::var("FUZZ_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("to try the same neighbours again: FUZZ_SEED={seed}");
    thread::scope(|scope| {
        let targets = TARGETS.iter().zip(0..).map(|(target, number)| {
            scope.spawn(move || {
                let inputs = corpus::read(target.name);
                assert!(!inputs.is_empty(), "{} has no corpus", target.name);
                inputs.iter().for_each(|input| try_one(target, input));
                let mut rng = Rng::with_seed(seed.wrapping_add(number));
                for _ in 0..NEIGHBOURS {
                    try_one(target, &neighbour(&mut rng, &inputs));
                }
            })
        });
        let targets: Vec<_> = targets.collect();
        targets.into_iter().for_each(|target| target.join().unwrap());
    });
}
