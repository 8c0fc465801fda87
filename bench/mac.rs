//! What a tag costs: candidates for the MAC of a datagram, at the sizes datagrams have.
//!
//! `cargo bench --bench mac -- [--json] [--quick]`. Every candidate is run in turn, again and again, so that a disturbed
//! moment hits all of them; a run is short (a hundred tags), so that most runs are not interrupted; the figure is the
//! median of the runs, beside the spread from the first to the third quartile.
//!
//! **Why.** `wire::auth` chooses by these figures. **Not here**: MACs that need C or special instructions.

use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

/// A datagram's length: a bare header, a small batch, a large one, a full Ethernet packet.
const SIZES: [usize; 4] = [64, 256, 1024, 1472];
const KEY: [u8; 32] = [7; 32];

/// One way to make a tag, folded to a word so that all are used alike.
struct Candidate {
    name: &'static str,
    tag: fn(&[u8]) -> u64,
}

const CANDIDATES: [Candidate; 5] = [
    Candidate { name: "floor_xor", tag: xor },
    Candidate { name: "siphash_2_4_128", tag: siphash_2_4 },
    Candidate { name: "siphash_1_3_128", tag: siphash_1_3 },
    Candidate { name: "blake3_keyed", tag: blake3_keyed },
    Candidate { name: "wire_auth", tag: wire_auth },
];

/// The floor: reading every byte once.
fn xor(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let last = rest.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
    words.iter().fold(last, |sum, word| sum ^ u64::from_le_bytes(*word))
}

fn half_key() -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&KEY[..16]);
    half
}

fn siphash_2_4(bytes: &[u8]) -> u64 {
    let tag = siphasher::sip128::SipHasher24::new_with_key(&half_key()).hash(bytes);
    tag.h1 ^ tag.h2
}

fn siphash_1_3(bytes: &[u8]) -> u64 {
    let tag = siphasher::sip128::SipHasher13::new_with_key(&half_key()).hash(bytes);
    tag.h1 ^ tag.h2
}

fn blake3_keyed(bytes: &[u8]) -> u64 {
    xor(&blake3::keyed_hash(&KEY, bytes).as_bytes()[..16])
}

/// What the wire really calls, to see that nothing is lost on the way.
fn wire_auth(bytes: &[u8]) -> u64 {
    xor(&ordain::wire::auth::tag(&ordain::wire::auth::PeerKey::from_bytes(KEY), bytes))
}

/// First quartile, median, third quartile of one candidate at one size, in ns a tag.
struct Figure {
    size: usize,
    name: &'static str,
    quartiles_ns: [f64; 3],
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures with the host's clock")]
fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds a tag in one run of `rounds`; every input differs from the one before.
fn run(candidate: &Candidate, input: &mut [u8], rounds: u32) -> f64 {
    let start = now();
    let mut sum = 0;
    for round in 0..rounds {
        input[..4].copy_from_slice(&round.to_le_bytes());
        sum ^= (candidate.tag)(black_box(input));
    }
    black_box(sum);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
}

fn measure(runs: usize, rounds: u32) -> Vec<Figure> {
    let mut figures = Vec::new();
    for size in SIZES {
        let mut input = vec![0x5a; size];
        let mut samples: Vec<Vec<f64>> = CANDIDATES.iter().map(|_| Vec::new()).collect();
        for _ in 0..runs {
            for (candidate, samples) in CANDIDATES.iter().zip(&mut samples) {
                samples.push(run(candidate, &mut input, rounds));
            }
        }
        for (candidate, mut samples) in CANDIDATES.iter().zip(samples) {
            samples.sort_by(f64::total_cmp);
            let at = |quarter: usize| samples[(samples.len() - 1) * quarter / 4];
            figures.push(Figure { size, name: candidate.name, quartiles_ns: [at(1), at(2), at(3)] });
        }
    }
    figures
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = std::process::Command::new(program).args(arguments).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn json(figures: &[Figure]) -> serde_json::Value {
    let figures: Vec<_> = figures
        .iter()
        .map(|figure| {
            let [low, median, high] = figure.quartiles_ns;
            serde_json::json!({
                "bytes": figure.size, "mac": figure.name, "median_ns": median, "q1_ns": low, "q3_ns": high,
            })
        })
        .collect();
    serde_json::json!({
        "schema": 1,
        "bench": "mac",
        "commit": output_of("git", &["rev-parse", "HEAD"]),
        "kernel": output_of("uname", &["-r"]),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "engine": "none",
        "waiting": "none",
        "floor": "floor_xor: every byte read once",
        "tags": figures,
    })
}

fn table(figures: &[Figure]) -> String {
    let head = format!("{:<18}{:>8}{:>12}{:>20}\n", "mac", "bytes", "median ns", "quartiles ns");
    figures.iter().fold(head, |text, Figure { size, name, quartiles_ns: [low, median, high] }| {
        text + &format!("{name:<18}{size:>8}{median:>12.1}{:>20}\n", format!("{low:.1} .. {high:.1}"))
    })
}

fn main() -> std::io::Result<()> {
    let flag = |name: &str| std::env::args().any(|argument| argument == name);
    let (runs, rounds) = if flag("--quick") { (801, 100) } else { (8_001, 100) };
    let figures = measure(runs, rounds);
    let text = if flag("--json") { format!("{}\n", json(&figures)) } else { table(&figures) };
    std::io::stdout().lock().write_all(text.as_bytes())
}
