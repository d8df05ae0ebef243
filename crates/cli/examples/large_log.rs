//! Writes a large log, as Envoy does with envoy.yaml, for measurements of `report`:
//!
//!     cargo run --release -p impersonation-filter-cli --example large_log -- 2000 2 > large.log
//!
//! The first number is the size in megabytes, the second the percentage of lines that are about
//! impersonations. Each impersonation has a mint, an exchange and twenty calls.

use std::io::{self, BufWriter, Write as _};

const START: u64 = 21 * 3600;

fn time(line: u64) -> String {
    let seconds = START.wrapping_add(line / 1000);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("2026-11-22T{hour:02}:{minute:02}:{second:02}.{:03}Z", line % 1000)
}

fn main() -> io::Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|number| number.parse::<u64>().ok());
    let megabytes = numbers.next().unwrap_or(100);
    let share = numbers.next().unwrap_or(2);
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let (mut written, mut line, mut ours) = (0_usize, 0_u64, 0_u64);
    let size = usize::try_from(megabytes.saturating_mul(1_000_000)).unwrap_or(usize::MAX);
    while written < size {
        let time = time(line);
        let request = format!("{line:08x}-1569-468f-937f-acc22d574a5d");
        // One percent of the lines more, whenever the remainder reaches it.
        let text = if line.wrapping_mul(share) % 100 < share {
            let (id, step) = (ours / 22, ours % 22);
            ours = ours.wrapping_add(1);
            let txn = format!("{id:028x}");
            let (user, actor) = (id % 1000, id % 50);
            let facts = format!(
                r#""actor_id":"agent-{actor}","caller":"integrator-backend","client_id":"support-portal","event":"token_exchange.succeeded","jti":"-qIkfHuCpt02CeV-MzBCnEXWP5OP7QOdS8loywD6","resource":"http://127.0.0.1:10000/orders","scope":"orders:read","subject_token_id":"{txn}","user_id":"user-{user}""#
            );
            match step {
                0 => format!(
                    r#"{{"client_address":"127.0.0.1","details":"","duration_ms":7,"flags":"-","impersonation":{{"caller":"integrator-backend","event":"subject_token.created","subject_token_id":"{txn}","user_id":"user-{user}"}},"method":"POST","path":"/api/subject-tokens","request_id":"{request}","status":201,"time":"{time}"}}"#
                ),
                1 => format!(
                    r#"{{"client_address":"127.0.0.1","details":"","duration_ms":3,"flags":"-","impersonation":{{{facts}}},"method":"POST","path":"/oidc/token","request_id":"{request}","status":200,"time":"{time}"}}"#
                ),
                _ => format!(
                    r#"{{"client_address":"127.0.0.1","details":"via_upstream","duration_ms":4,"flags":"-","guard":"allowed: default","method":"GET","path":"/orders/{line}","request_id":"{request}","status":200,"time":"{time}","token":{{"act":"agent-{actor}","jti":"ElJnrN1XlU3yuRukmDWT-UXWP5OP7QOdS8loywHf","sub":"user-{user}","txn":"{txn}"}},"upstream":"127.0.0.1:46529"}}"#
                ),
            }
        } else {
            format!(
                r#"{{"client_address":"203.0.113.7","details":"via_upstream","duration_ms":4,"flags":"-","method":"GET","path":"/orders/{line}","request_id":"{request}","status":200,"time":"{time}","token":{{"jti":"ElJnrN1XlU3yuRukmDWT-UXWP5OP7QOdS8loywHf","sub":"user-7"}},"upstream":"127.0.0.1:46529"}}"#
            )
        };
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")?;
        written = written.saturating_add(text.len()).saturating_add(1);
        line = line.wrapping_add(1);
    }
    out.flush()
}
