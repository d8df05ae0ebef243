//! Token requests: a request that the gateway would read as an exchange never reaches it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use serde_json::Value;
use testkit::Findings;
use testkit::configuration::{Configuration, ORDERS};
use testkit::gateway::{ACCESS_TOKEN, EXCHANGE_GRANT, IDENTITY_GATEWAY, in_front_of};
use testkit::http::{Answer, Request};
use testkit::server::{Reply, Server};

use crate::{Client, Plan, Provider, in_parallel};

/// Another grant of the gateway, which the filter does not know.
const ANOTHER_GRANT: &str = "urn:example:another";

/// A token request.
struct Case {
    content_types: Vec<Vec<u8>>,
    body: Vec<u8>,
    /// True if the body may be in an encoding in which ASCII is not ASCII.
    foreign_charset: bool,
    /// True if the case was made from an exchange.
    exchange: bool,
}

/// The gateway's reading of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reading {
    /// An exchange of these subject tokens.
    Exchange(Vec<String>),
    Another,
    Refused,
}

impl Reading {
    fn of(answer: Option<&Answer>) -> Self {
        let body = answer.map_or(&[][..], |answer| &answer.body);
        let read: Value = serde_json::from_slice(body).unwrap_or_default();
        match (&read["exchange"], &read["another"]) {
            (Value::Array(tokens), _) => {
                Self::Exchange(tokens.iter().map(|token| token.as_str().unwrap().into()).collect())
            }
            (_, Value::Bool(true)) => Self::Another,
            _ => Self::Refused,
        }
    }
}

/// The gateway, and its readings so far, by `x-case`.
struct Gateway {
    service: Server,
    readings: Arc<Mutex<HashMap<String, Reading>>>,
}

impl Gateway {
    fn before(provider: &Provider) -> Self {
        let readings = Arc::new(Mutex::new(HashMap::new()));
        let service = Server::start(IDENTITY_GATEWAY);
        let noted = Arc::clone(&readings);
        let client = Mutex::new(Client::of(provider.address));
        service.answer(move |asked| {
            let mut request = Request::post(&asked.target).body(asked.body.clone());
            request.headers = asked.headers.clone();
            let reading = Reading::of(client.lock().unwrap().send(&request).as_ref());
            noted.lock().unwrap().insert(asked.header("x-case").unwrap().to_owned(), reading);
            Reply::status(200)
        });
        Self { service, readings }
    }

    /// Returns the gateway's reading of a case, if the case reached it.
    fn reading(&self, case: &str) -> Option<Reading> {
        self.readings.lock().unwrap().get(case).cloned()
    }
}

#[test]
fn no_form_that_the_gateway_reads_as_an_exchange_reaches_it() {
    let plan = Plan::new();
    let provider = Provider::start();
    let gateway = Gateway::before(&provider);
    let refusing = in_front_of(&[&gateway.service], &Configuration::default()).start();
    let passing = Configuration::default().with("/foreign_subject_tokens", "pass_through");
    let passing = in_front_of(&[&gateway.service], &passing).start();

    let cases = plan.inputs(generate);
    let clients = || {
        [provider.address, refusing.address("gateway"), passing.address("gateway")].map(Client::of)
    };
    let alone = in_parallel(&cases, clients, |[direct, refusing, passing], number, case| {
        refusing.send(&case.request(&format!("refuse-{number}")));
        passing.send(&case.request(&format!("pass_through-{number}")));
        Reading::of(direct.send(&case.request("direct")).as_ref())
    });

    let mut findings = Findings::default();
    let (mut exchanges, mut others) = (0, 0);
    for (number, (case, alone)) in cases.iter().zip(alone).enumerate() {
        let refused = gateway.reading(&format!("refuse-{number}"));
        let passed = gateway.reading(&format!("pass_through-{number}"));
        if let Some(Reading::Exchange(_)) = &refused {
            findings.add(format!("refuse: case {number} got through as an exchange: {case}"));
        }
        if let Some(Reading::Exchange(tokens)) = &passed
            && tokens.iter().any(|token| token.starts_with("sub_"))
        {
            findings.add(format!("pass_through: case {number} carries a token like ours: {case}"));
        }
        exchanges += usize::from(matches!(alone, Reading::Exchange(_)));
        // The filter refuses no more than it must: a request that both read as another grant
        // passes.
        if alone == Reading::Another && case.must_pass() {
            others += 1;
            for (mode, reading) in [("refuse", refused), ("pass_through", passed)] {
                if reading != Some(Reading::Another) {
                    findings.add(format!(
                        "{mode}: case {number} is another grant, and did not pass: {case}"
                    ));
                }
            }
        }
    }
    println!("{exchanges} exchanges and {others} other requests to the gateway, of {}", plan.count);
    // Without the filter some cases are exchanges to the gateway, and some are another grant.
    assert!(exchanges > plan.count / 10, "only {exchanges} are exchanges to the gateway");
    assert!(others > plan.count / 20, "only {others} are another grant to the gateway");
}

impl Case {
    fn request(&self, name: &str) -> Request {
        let mut request = Request::post("/oidc/token").header("x-case", name);
        for content_type in &self.content_types {
            request = request.header("content-type", content_type);
        }
        request.body(self.body.clone())
    }

    /// Returns true if no reader could see an exchange in it. Envoy joins two content types into
    /// one, which is not a form's.
    fn must_pass(&self) -> bool {
        !self.exchange && !self.foreign_charset && self.content_types.len() < 2
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for content_type in &self.content_types {
            write!(f, "content-type: {}; ", content_type.escape_ascii())?;
        }
        let head = &self.body[..self.body.len().min(700)];
        write!(f, "{} bytes: {}", self.body.len(), head.escape_ascii())
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Makes a correct request with up to three mistakes.
fn generate(random: &mut Rng) -> Case {
    let exchange = random.u8(..4) > 0;
    let grant = if exchange { EXCHANGE_GRANT } else { ANOTHER_GRANT };
    let subject_token = subject_token(random);
    let mut pairs: Pairs = vec![
        (b"grant_type".into(), grant.into()),
        (b"client_id".into(), b"support-console".into()),
        (b"subject_token".into(), subject_token),
        (b"subject_token_type".into(), ACCESS_TOKEN.into()),
        (b"scope".into(), b"orders:read".into()),
        (b"resource".into(), ORDERS.into()),
    ];
    // Keeps some of the pairs: the first two are enough for the request to be read at all.
    pairs.truncate(random.usize(2..=6));
    if random.bool() {
        random.shuffle(&mut pairs);
    }
    let mut separator: &[u8] = b"&";
    let mut before = Vec::new();
    for _ in 0..random.u8(..4) {
        match random.u8(..24) {
            0..6 => mutate_text(random, &mut pairs),
            6 => {
                separator = random
                    .choice([&b";"[..], b"&amp;", b"&&", b"\n&", b"&\r\n", b",", b"&;"])
                    .unwrap()
            }
            7 | 8 => {
                let twice = random.choice(pairs.clone()).unwrap();
                let at = random.usize(..=pairs.len());
                pairs.insert(at, twice);
            }
            9 | 10 => {
                let values: [&[u8]; 6] = [
                    EXCHANGE_GRANT.as_bytes(),
                    ANOTHER_GRANT.as_bytes(),
                    b"",
                    b"password",
                    b"sub_second",
                    b"eyJ.eyJ.",
                ];
                let name: &[u8] = random.choice([&b"grant_type"[..], b"subject_token"]).unwrap();
                let at = random.usize(..=pairs.len());
                // An addition may only turn a request into an exchange if it is one already.
                let values = if exchange { &values[..] } else { &values[1..] };
                pairs.insert(at, (name.into(), random.choice(values).unwrap().to_vec()));
            }
            11 => {
                let (name, _) = pick(random, &mut pairs);
                let suffixes: [&[u8]; 6] = [b"[]", b"[0]", b"[a]", b"%5B%5D", b".0", b"[a][b]"];
                name.extend_from_slice(random.choice(suffixes).unwrap());
            }
            12 => {
                let (name, _) = pick(random, &mut pairs);
                *name = [b"a[", &name[..], b"]"].concat();
            }
            13 => {
                let empties: [(&[u8], &[u8]); 3] = [(b"", b""), (b"", b"x"), (b"x", b"")];
                let (name, value) = random.choice(empties).unwrap();
                let at = random.usize(..=pairs.len());
                pairs.insert(at, (name.into(), value.into()));
            }
            14 => before.extend_from_slice(
                random
                    .choice([
                        &b"\xef\xbb\xbf"[..],
                        b"%EF%BB%BF",
                        b"?",
                        b"\0",
                        b"\r\n",
                        b" ",
                        b"&",
                        b"+",
                    ])
                    .unwrap(),
            ),
            15 | 16 => before.extend(padding(random)),
            17 => {
                pairs.extend((0..random.usize(985..1005)).map(|_| (b"x".to_vec(), b"y".to_vec())))
            }
            _ => {}
        }
    }
    let mut body = before;
    for (index, (name, value)) in pairs.iter().enumerate() {
        if index > 0 {
            body.extend_from_slice(separator);
        }
        body.extend_from_slice(name);
        // An empty value may stand without the equals sign.
        if !(value.is_empty() && random.bool()) {
            body.push(b'=');
            body.extend_from_slice(value);
        }
    }
    let (body, charset) = encode(random, body);
    let content_types = content_types(random, charset);
    // Reads the charset that the request names, whether or not the name is valid.
    let foreign_charset = content_types.iter().any(|content_type| {
        let text = String::from_utf8_lossy(content_type).to_ascii_lowercase();
        text.split("charset").skip(1).any(|rest| {
            let value = rest.trim_start_matches(['*', ' ', '\t', '=', '"', '\'']);
            let known = ["utf-8", "utf8", "us-ascii", "iso-8859-1", "latin1", "windows-1252"];
            !known.iter().any(|known| value.starts_with(known))
        })
    });
    Case { content_types, body, foreign_charset, exchange }
}

fn subject_token(random: &mut Rng) -> Vec<u8> {
    let secret: String = (0..43).map(|_| random.alphanumeric()).collect();
    match random.u8(..12) {
        0 => Vec::new(),
        1 => b"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ1In0.c2ln".into(),
        2 => format!("SUB_{secret}").into(),
        3 => format!("+sub_{secret}").into(),
        4 => format!("sub_{secret}%").into(),
        5 => format!("sub_{secret}%ff").into(),
        6 => format!("sub_{secret}\u{e9}").into(),
        _ => format!("sub_{secret}").into(),
    }
}

fn pick<'p>(random: &mut Rng, pairs: &'p mut Pairs) -> &'p mut (Vec<u8>, Vec<u8>) {
    // Half of all mistakes concern `grant_type`, which decides.
    let decisive =
        pairs.iter().position(|(name, _)| name == b"grant_type").filter(|_| random.bool());
    let index = decisive.unwrap_or_else(|| random.usize(..pairs.len()));
    &mut pairs[index]
}

/// Writes a name or a value in another way that some reader takes for the same.
fn mutate_text(random: &mut Rng, pairs: &mut Pairs) {
    let kind = random.u8(..16);
    let place = random.usize(..);
    let (digits, bits) = (random.bool(), random.u64(..));
    let (name, value) = pick(random, pairs);
    let text = if random.bool() { name } else { value };
    let at = place % (text.len() + 1);
    let escaped = |byte: u8| if digits { format!("%{byte:02x}") } else { format!("%{byte:02X}") };
    let splice =
        |text: &mut Vec<u8>, piece: &[u8]| drop(text.splice(at..at, piece.iter().copied()));
    match kind {
        // Percent-encoding, of some bytes or of all.
        0..=3 => {
            let bits = if kind == 0 { u64::MAX } else { bits };
            let encoded = text.iter().enumerate().flat_map(|(index, &byte)| {
                // Bytes that are encoded already are left alone: double encoding is another case,
                // below.
                let plain = byte != b'%' && !text[index.saturating_sub(2)..index].contains(&b'%');
                if plain && bits >> (index % 64) & 1 == 1 {
                    escaped(byte).into_bytes()
                } else {
                    vec![byte]
                }
            });
            *text = encoded.collect();
        }
        4 => splice(text, b"+"),
        5 => splice(text, b" "),
        6 => splice(text, b"\0"),
        7 => splice(text, b"%00"),
        8 => splice(text, [&b"%"[..], b"%2", b"%zz", b"%u0067", b"%%", b"%+5"][place % 6]),
        9 => splice(text, [&b"\r\n"[..], b"\n", b"%0d%0a", b"\t", b"\x0b"][place % 5]),
        // An ASCII character in two bytes, in three, and in its full-width form.
        10..=12 => {
            let Some(&byte) = text.get(at) else { return };
            let long = match kind {
                10 => vec![0xc0 | byte >> 6, 0x80 | byte & 0x3f],
                11 => vec![0xe0, 0x80 | byte >> 6, 0x80 | byte & 0x3f],
                _ => {
                    char::from_u32(0xfee0 + u32::from(byte)).unwrap_or('?').to_string().into_bytes()
                }
            };
            let long = if digits {
                long.into_iter().flat_map(|byte| escaped(byte).into_bytes()).collect()
            } else {
                long
            };
            text.splice(at..at + 1, long);
        }
        13 => text.make_ascii_uppercase(),
        14 => {
            let twice = text
                .iter()
                .flat_map(|&byte| if byte == b'_' { b"%255F".to_vec() } else { vec![byte] });
            *text = twice.collect();
        }
        _ => splice(text, "\u{200b}".as_bytes()),
    }
}

/// Makes a long prefix, up to the lengths that the gateway and the filter read.
fn padding(random: &mut Rng) -> Vec<u8> {
    const SHORT: usize = 300;
    let length = match random.u8(..6) {
        0 => random.usize(1..2000),
        1 => random.usize(50_000..56 * 1024 - SHORT),
        2 => 56 * 1024 - random.usize(..2 * SHORT),
        3 => 64 * 1024 - random.usize(..2 * SHORT),
        4 => 64 * 1024 + random.usize(..SHORT),
        _ => random.usize(..1000),
    };
    match random.u8(..4) {
        0 => vec![b'&'; length],
        1 => [b"p=".to_vec(), vec![b'a'; length], b"&".to_vec()].concat(),
        2 => b"%41=%42&".iter().copied().cycle().take(length / 8 * 8).collect(),
        _ => b"a&".iter().copied().cycle().take(length / 2 * 2).collect(),
    }
}

/// Returns the body in some encoding, and the name of that encoding.
fn encode(random: &mut Rng, body: Vec<u8>) -> (Vec<u8>, Option<&'static str>) {
    let utf16 = |body: &[u8], bytes: fn(u16) -> [u8; 2]| {
        String::from_utf8_lossy(body).encode_utf16().flat_map(bytes).collect::<Vec<_>>()
    };
    let mut with_mark =
        |mark: &[u8], body| if random.bool() { [mark.to_vec(), body].concat() } else { body };
    match random_kind(&body) {
        0 => (with_mark(b"\xff\xfe", utf16(&body, u16::to_le_bytes)), Some("utf-16le")),
        1 => (with_mark(b"\xfe\xff", utf16(&body, u16::to_be_bytes)), Some("utf-16be")),
        2 => {
            let wide = body.iter().flat_map(|&byte| u32::from(byte).to_le_bytes()).collect();
            (with_mark(b"\xff\xfe\0\0", wide), Some("utf-32le"))
        }
        // An escape sequence that switches to ASCII where the text is ASCII already. It is not a
        // character.
        3 | 4 => {
            let mut body = body;
            let at = random.usize(..=body.len().min(80));
            body.splice(at..at, *b"\x1b(B");
            (body, Some("iso-2022-jp"))
        }
        5 => (
            body,
            Some(
                random
                    .choice([
                        "gb18030",
                        "shift_jis",
                        "euc-kr",
                        "big5",
                        "koi8-r",
                        "x-user-defined",
                        "utf-7",
                        "ibm037",
                    ])
                    .unwrap(),
            ),
        ),
        6 => (
            body,
            Some(random.choice(["iso-8859-1", "us-ascii", "windows-1252", "latin1"]).unwrap()),
        ),
        7 => (body, Some("utf-8")),
        _ => (body, None),
    }
}

/// Returns a number that depends on the body only, so that encodings do not depend on each other.
fn random_kind(body: &[u8]) -> u32 {
    body.iter().fold(17_u32, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 24
}

fn content_types(random: &mut Rng, charset: Option<&'static str>) -> Vec<Vec<u8>> {
    const FORM: &str = "application/x-www-form-urlencoded";
    if let Some(charset) = charset {
        let quoted: String = charset.chars().flat_map(|character| ['\\', character]).collect();
        let one = match random.u8(..12) {
            0 => format!("{FORM};charset={}", charset.to_uppercase()),
            1 => format!("{FORM}; charset=\"{charset}\""),
            2 => format!("{FORM}; charset=\"{quoted}\""),
            3 => format!("{FORM}; charset = {charset}"),
            4 => format!("{FORM}; charset=utf-8; charset={charset}"),
            5 => format!("{FORM}; charset={charset}; charset=utf-8"),
            6 => format!("{FORM}; a=\"; charset=utf-8\"; CharSet={charset}"),
            7 => format!("{FORM} ; x=y; charset={charset} "),
            8 => FORM.into(),
            _ => format!("{FORM}; charset={charset}"),
        };
        return vec![one.into_bytes()];
    }
    let one: Vec<u8> = match random.u8(..80) {
        0 => "APPLICATION/X-WWW-FORM-URLENCODED".into(),
        1 => "Application/x-www-Form-urlencoded; Charset=UTF-8".into(),
        2 => format!("{FORM};").into(),
        3 => format!("{FORM} ;;;").into(),
        4 => format!("\t{FORM}\t; a=b").into(),
        5 => format!("{FORM}; charset").into(),
        6 => format!("{FORM}; a=\"").into(),
        7 => [FORM.as_bytes(), b"\xa0"].concat(),
        8 => [FORM.as_bytes(), b"\xa0; charset=utf-8"].concat(),
        9 => "text/plain".into(),
        10 => "multipart/form-data; boundary=a".into(),
        11 => "application/json".into(),
        12 => format!("{FORM}, text/plain").into(),
        13 => format!("text/plain, {FORM}").into(),
        14 => format!("{FORM},{FORM}").into(),
        15 => format!("{FORM}+x").into(),
        16 => "application/*".into(),
        17 => "*/*".into(),
        18 => "x-www-form-urlencoded".into(),
        19 => "urlencoded".into(),
        20 => return Vec::new(),
        21 => return vec![FORM.into(), "text/plain".into()],
        22 => return vec!["text/plain".into(), FORM.into()],
        23 => return vec![FORM.into(), FORM.into()],
        24 => Vec::new(),
        25 => format!("{FORM}\x0b").into(),
        26 => format!("\"{FORM}\"").into(),
        27 => "application/x-www-form-urlencode\u{17f}".into(),
        _ => FORM.into(),
    };
    vec![one]
}
