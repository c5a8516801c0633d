//! Generated requests for every command.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::pair::{Fault, Words};

/// The forms of requests: a letter stands for a choice of [`choices`], other words for themselves.
const FORMS: &[&str] = &[
    "GET k",
    "STRLEN k",
    "TYPE k",
    "PTTL k",
    "EXISTS k k",
    "DEL k k",
    "UNLINK k",
    "GETRANGE k i i",
    "GETRANGE k n n",
    "GETRANGE k n n",
    "SET k v",
    "SET k w",
    "SET k v O",
    "SET k v O O",
    "SET k v T e",
    "SET k v T e O",
    "PEXPIRE k e",
    "PEXPIREAT k e",
    "ZADD k s m",
    "ZADD k s m s m",
    "ZADD k Z s m",
    "ZADD k Z Z s m s m",
    "ZREM k m m",
    "ZRANGE k i i",
    "ZRANGE k n n",
    "ZRANGE k i i W",
    "ZRANGE k i i R",
    "ZRANGE k b b BYSCORE",
    "ZRANGE k b b BYSCORE REV WITHSCORES",
    "ZRANGE k b b BYSCORE LIMIT i i",
    "ZRANGE k i i LIMIT i i",
    "ZREVRANGE k i i",
    "ZREVRANGE k i i W",
    "ZRANGEBYSCORE k b b",
    "ZRANGEBYSCORE k b b WITHSCORES",
    "ZRANGEBYSCORE k b b LIMIT i i",
    "ZRANGEBYSCORE k b b W",
    "ZRANK k m",
    "ZCARD k",
    "ZSCORE k m",
    "HSET k m v",
    "HSET k m v m v",
    "HGET k m",
    "HMGET k m m",
    "HDEL k m m",
    "HLEN k",
    "HEXISTS k m",
    "HGETALL k",
    "PUBLISH c v",
    "PUBSUB NUMSUB c c",
    "PUBSUB FOO",
    "SUBSCRIBE c c",
    "UNSUBSCRIBE c",
    "UNSUBSCRIBE",
    "TIME",
    "PING",
    "PING v",
    "PING v v",
    "SELECT i",
    "AUTH v",
    "AUTH default v",
    "AUTH m v",
    "CLIENT SETINFO a b",
    "HELLO v",
    "EVAL return i",
    "FOO k i",
    "PEXPIRE k e E",
    "PEXPIRE k e E E",
];

fn choices(letter: &str) -> Option<&'static [&'static [u8]]> {
    Some(match letter {
        "k" => &[b"a", b"b", b"c"],
        "v" => &[
            b"",
            b"x",
            b"12",
            b"-3",
            b"a\r\n\0\xffb",
            b"a longer value, to be cut",
        ],
        "w" => &[b"a longer value, to be cut", b"0123456789"],
        "n" => &[b"0", b"1", b"2", b"4", b"-1", b"-2", b"-3", b"-5"],
        "m" => &[b"m", b"n", b"mm", b"m m", b"\xff"],
        "c" => &[b"c", b"d"],
        "i" => &[
            b"0",
            b"1",
            b"2",
            b"3",
            b"-1",
            b"-2",
            b"-3",
            b"5",
            b"100",
            b"-100",
            b"x",
            b"01",
            b"1.5",
            b" 1",
            b"-0",
            b"+1",
            b"9223372036854775807",
            b"-9223372036854775808",
            b"9223372036854775808",
        ],
        "e" => &[
            b"1000000000",
            b"2000000000",
            b"99999999999999",
            b"0",
            b"-1",
            b"x",
            b"9223372036854775807",
            b"",
        ],
        "s" => &[
            b"0",
            b"1",
            b"1",
            b"2",
            b"-1",
            b"0.5",
            b"1e3",
            b"inf",
            b"-inf",
            b"x",
            b"",
            b"nan",
            b"1e400",
            b"1700000000000000",
        ],
        "b" => &[
            b"0", b"1", b"(1", b"2", b"-inf", b"+inf", b"(x", b"0.5", b"(0.5", b"x",
        ],
        "O" => &[b"NX", b"XX", b"KEEPTTL", b"nx", b"FOO"],
        "T" => &[b"PX", b"EX", b"PXAT"],
        "Z" => &[b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR", b"ch"],
        "W" => &[b"WITHSCORES", b"withscores", b"FOO"],
        "R" => &[b"REV", b"rev"],
        "E" => &[b"NX", b"XX", b"GT", b"LT", b"FOO"],
        _ => return None,
    })
}

/// Scripts without arguments: what they return, and how they fail.
const SCRIPTS: &[&str] = &[
    "return 3.7",
    "return -3.7",
    "return {1,2.9,nil,3}",
    "return {ok='x y'}",
    "return {err='MY x'}",
    "return false",
    "return true",
    "return nil",
    "return {1,{2,'x',{}}}",
    "return {true,false,1}",
    "error('x')",
    "error({err='MY x'})",
    "local x = nil; return x.y",
    "return redis.call()",
    "return redis.call({})",
    "return redis.pcall()",
    "return redis.call('SET','a',1e20)",
    "return redis.call('SET','a',12)",
    "return tostring(0.1)",
    "x x",
    "return #KEYS",
    "return table.concat({1,2},',')",
    "return string.format('%.0f', 1e15)",
    "return unpack({1,2})",
    "return redis.call('FOO')",
    "\n\nreturn redis.call('GET')",
    "local t = redis.pcall('GET') return t.err ~= nil",
    "return redis.call('TYPE','a').ok",
    "redis.call('SET','a','1') redis.call('HGET','a','b')",
    "return type(redis.call('GET','none'))",
    "return 1e15 + 0.5",
    "local ok, e = pcall(redis.call, 'GET') return {tostring(ok), e}",
];

/// One step of a case.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Direct(Words),
    /// By a script, with redis.call.
    Call(Words),
    Pcall(Words),
    /// Both by one script, with redis.pcall.
    Both(Words, Words),
    Script(&'static str),
    Fault(Fault),
}

fn request() -> impl Strategy<Value = Words> {
    let form = select(FORMS).prop_flat_map(|form| {
        let word = |word: &'static str| match choices(word) {
            Some(choices) => select(choices).prop_map(<[u8]>::to_vec).boxed(),
            None => Just(word.as_bytes().to_vec()).boxed(),
        };
        form.split(' ').map(word).collect::<Vec<_>>()
    });
    // Now and then a word is missing.
    (form, 0..20u8).prop_map(|(mut words, chance)| {
        if chance == 0 {
            words.pop();
        } else if chance == 1 {
            words[0].make_ascii_lowercase();
        }
        words
    })
}

fn step() -> impl Strategy<Value = Step> {
    let faults = vec![
        Fault::OutOfMemory(true),
        Fault::OutOfMemory(false),
        Fault::Replica(true),
        Fault::Replica(false),
        Fault::DenyCommand("get"),
        Fault::DenyCommand("zadd"),
        Fault::DenyCommand("publish"),
        Fault::DenyChannels,
        Fault::AllowAll,
    ];
    prop_oneof![
        12 => request().prop_map(Step::Direct),
        6 => request().prop_map(Step::Call),
        3 => request().prop_map(Step::Pcall),
        3 => (request(), request()).prop_map(|(one, two)| Step::Both(one, two)),
        3 => select(SCRIPTS).prop_map(Step::Script),
        1 => select(faults).prop_map(Step::Fault),
    ]
}

/// The protocol of a case, and its steps with the client that takes each.
pub(super) fn case() -> impl Strategy<Value = (&'static str, Vec<(usize, Step)>)> {
    (select(vec!["2", "3"]), vec((0..2usize, step()), 1..40))
}

impl Step {
    /// Returns the request that a client makes; none for a fault.
    pub(super) fn request(&self) -> Option<Words> {
        let eval = |script: &str, args: &[&Words]| {
            let head = [b"EVAL".to_vec(), script.as_bytes().to_vec(), b"0".to_vec()];
            Some(
                head.into_iter()
                    .chain(args.iter().flat_map(|words| words.iter().cloned()))
                    .collect(),
            )
        };
        match self {
            Self::Direct(words) => Some(words.clone()),
            Self::Call(words) => eval("return redis.call(unpack(ARGV))", &[words]),
            Self::Pcall(words) => eval("return redis.pcall(unpack(ARGV))", &[words]),
            Self::Both(one, two) => {
                let count = vec![one.len().to_string().into_bytes()];
                let script = "local n = tonumber(ARGV[1]) + 1\n\
                    return {redis.pcall(unpack(ARGV, 2, n)), redis.pcall(unpack(ARGV, n + 1))}";
                eval(script, &[&count, one, two])
            }
            Self::Script(text) => eval(text, &[]),
            Self::Fault(_) => None,
        }
    }

    /// Whether versions other than the model's differ in more than words: options that they lack,
    /// or commands that they have.
    pub(super) fn is_of_the_models_version(&self) -> bool {
        let of = |words: &Words| {
            let upper: Vec<_> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
            let has = |word: &[u8]| upper.iter().skip(1).any(|other| other == word);
            match upper.first().map(Vec::as_slice) {
                Some(b"PEXPIRE" | b"PEXPIREAT") => upper.len() > 3,
                Some(b"CLIENT" | b"HELLO" | b"UNSUBSCRIBE") => true,
                Some(b"SET") => has(b"PXAT"),
                _ => false,
            }
        };
        match self {
            Self::Direct(words) | Self::Call(words) | Self::Pcall(words) => of(words),
            Self::Both(one, two) => of(one) || of(two),
            Self::Script(text) => {
                text.contains("1e20")
                    || text.contains("pcall(redis.call")
                    || text.contains("error({err")
            }
            Self::Fault(_) => false,
        }
    }
}
