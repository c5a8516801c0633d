//! Hostile servers, and programs that are no servers: no reply costs rlock more than one node
//! timeout and some memory, reaches a terminal raw, or starts a command.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Finished, Rlock, Server, rlock, rlock_words};

const TOKEN: &str = "6b29fc40-ca47-4067-b31d-00dd010662da";

/// Limit of the memory that rlock may map, in bytes: some 20 MB more than without a reply.
const MEMORY: u64 = 24 << 20;

/// Number of rlocks that run at once: most of them only wait for their timeouts.
const AT_ONCE: usize = 24;

/// Starts a server that answers each request with `answer`, on any number of connections, until
/// that fails.
fn server(
    answer: impl Fn(&[u8], &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("its address"));
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let answer = Arc::clone(&answer);
            stream.set_nodelay(true).expect("an option");
            std::thread::spawn(move || {
                let mut request = vec![0; 1 << 16];
                while let Ok(length @ 1..) = stream.read(&mut request) {
                    if answer(&request[..length], &mut stream).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

/// A way to answer every request.
#[derive(Clone, Copy)]
pub(crate) enum Says {
    /// This, and then silence.
    Once(&'static [u8]),
    /// This, and then the end of the connection.
    Last(&'static [u8]),
    /// The first, and then the second until the client reads no more.
    Forever(&'static [u8], &'static [u8]),
    /// One byte after another.
    Drip,
}

impl Says {
    fn to(self, stream: &mut TcpStream) -> io::Result<()> {
        match self {
            Self::Once(text) => stream.write_all(text),
            Self::Last(text) => stream
                .write_all(text)
                .and(Err(io::ErrorKind::ConnectionReset.into())),
            Self::Forever(first, then) => {
                stream.write_all(first)?;
                let many = then.repeat(8192 / then.len());
                loop {
                    stream.write_all(&many)?;
                }
            }
            Self::Drip => loop {
                stream.write_all(b"+")?;
                std::thread::sleep(Duration::from_millis(20));
            },
        }
    }
}

/// Replies, and the exit code of `run` for each.
const FLOODS: [(&str, Says, i32); 9] = [
    (
        "ESC in an error",
        Says::Once("-ERR \x1b[31mred\x1b[0m \u{202e}\r\n".as_bytes()),
        78,
    ),
    (
        "a bulk of 1 GB",
        Says::Forever(b"$1073741824\r\n", b"x"),
        69,
    ),
    ("a line without end", Says::Forever(b"+", b"y"), 69),
    (
        "many empty values",
        Says::Forever(b"*100000000\r\n", b"_\r\n"),
        69,
    ),
    (
        "many small arrays",
        Says::Forever(b"*100000000\r\n", b"*1\r\n:1\r\n"),
        69,
    ),
    ("arrays in arrays", Says::Forever(b"*1\r\n", b"*1\r\n"), 69),
    (
        "replies without a request",
        Says::Forever(b"+OK\r\n", b"+OK\r\n"),
        69,
    ),
    (
        "pushes without a subscription",
        Says::Forever(b">2\r\n+message\r\n+x\r\n", b">2\r\n+message\r\n+x\r\n"),
        69,
    ),
    ("a drip", Says::Drip, 69),
];

const MALFORMED: [(&str, Says, i32); 18] = [
    ("a negative length", Says::Once(b"$-7\r\n"), 69),
    ("a negative array", Says::Once(b"*-7\r\n"), 69),
    ("a negative map", Says::Once(b"%-7\r\n"), 69),
    ("a negative error", Says::Once(b"!-7\r\n"), 69),
    ("a negative text", Says::Once(b"=-7\r\n"), 69),
    ("a length that is none", Says::Once(b"$x\r\n"), 69),
    (
        "a length beyond all",
        Says::Once(b"$99999999999999999999\r\n"),
        69,
    ),
    (
        "a huge bulk that does not come",
        Says::Once(b"$9223372036854775807\r\nx"),
        69,
    ),
    ("a huge array", Says::Once(b"*9223372036854775807\r\n"), 69),
    (
        "a huge attribute",
        Says::Once(b"|9223372036854775807\r\n"),
        69,
    ),
    (
        "an attribute of an error",
        Says::Once(b"|1\r\n+a\r\n+b\r\n-ERR \x1b[2J\r\n"),
        69,
    ),
    (
        "no such type",
        Says::Once(b"?TTP/1.1 400 Bad Request\r\n\r\n"),
        69,
    ),
    (
        "a web page",
        Says::Once(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        78,
    ),
    (
        "a push that says nothing",
        Says::Once(b">0\r\n>1\r\n:1\r\n"),
        69,
    ),
    (
        "a word that no script says",
        Says::Once(b"*1\r\n$5\r\nmaybe\r\n"),
        69,
    ),
    (
        "a fence that is none",
        Says::Once(b"*2\r\n$7\r\ngranted\r\n$2\r\n-1\r\n"),
        69,
    ),
    ("closing in the middle", Says::Last(b"*2\r\n$7\r\ngra"), 69),
    ("closing at once", Says::Last(b""), 69),
];

/// A run that asks once.
pub(crate) const RUN: &[&str] = &["run", "--key", "job", "-n", "--", "echo", "ran"];

/// Every subcommand that asks a node, beside `run`.
pub(crate) const OTHERS: [&[&str]; 8] = [
    &["acquire", "--key", "job", "-n"],
    &["renew", "--key", "job", "--token", TOKEN],
    &["release", "--key", "job", "--token", TOKEN],
    &["check", "--key", "job", "--token", TOKEN],
    &["inspect", "job"],
    &["inspect"],
    &["break", "job", "--yes"],
    &["doctor", "--key", "job"],
];

/// Limits the memory of rlock: it fails if it maps more than [`MEMORY`].
fn frugal(rlock: Rlock) -> Rlock {
    rlock.with(|command| {
        let limit = libc::rlimit {
            rlim_cur: MEMORY,
            rlim_max: MEMORY,
        };
        let set = move || {
            // SAFETY: reads one rlimit from an address that lives through the call.
            if unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) } == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        };
        // SAFETY: one async-signal-safe call.
        unsafe { command.pre_exec(set) };
    })
}

/// Checks that a terminal acts on nothing in the output, and that no line is too long to be read.
fn is_clean(what: &str, finished: &Finished) {
    for line in finished
        .stderr
        .lines()
        .chain(finished.stdout.iter().map(String::as_str))
    {
        assert!(
            !line.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{what}: {line:?}"
        );
        assert!(line.len() < 3000, "{what}: {} bytes", line.len());
    }
}

/// Runs each of `commands` against each of these servers of a store with this scheme.
pub(crate) fn meet(
    scheme: &'static str,
    commands: &[&'static [&'static str]],
    servers: &[(&'static str, Says, i32)],
) {
    let pairs = commands.iter().flat_map(|words| {
        let with = move |&(what, says, code)| (*words, what, says, code);
        servers.iter().map(with)
    });
    let pairs: Vec<_> = pairs.collect();
    for some in pairs.chunks(AT_ONCE) {
        let met = some.iter().map(|&(words, what, says, code)| {
            std::thread::spawn(move || {
                let url = server(move |_, stream| says.to(stream));
                let url = url.replacen("redis", scheme, 1);
                let started = frugal(rlock_words(
                    words[..1]
                        .iter()
                        .chain(&["--node", &url, "--node-timeout", "3s"])
                        .chain(&words[1..]),
                ));
                let finished = started.finish();
                let what = format!("{what}, {}", words[0]);
                assert!(
                    finished.exited_with(code),
                    "{what}: {:?} {:?}",
                    finished.stdout,
                    finished.stderr
                );
                is_clean(&what, &finished);
                // Another node timeout would be over after six seconds.
                assert!(
                    finished.took < Duration::from_secs(6),
                    "{what}: {:?}",
                    finished.took
                );
                assert!(
                    words[0] != "run" || finished.stdout.is_empty(),
                    "{what}: the command ran"
                );
            })
        });
        for one in met.collect::<Vec<_>>() {
            one.join().expect("what was asserted");
        }
    }
}

#[test]
fn whatever_a_server_says_costs_a_run_one_timeout_and_starts_no_command() {
    meet("redis", &[RUN], &FLOODS);
    meet("redis", &[RUN], &MALFORMED);
}

#[test]
fn whatever_a_server_says_costs_the_other_commands_no_more() {
    meet("redis", &OTHERS, &FLOODS);
}

/// Starts a server that says that another client holds the lock, and `more`.
fn busy(
    more: impl Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let url = server(move |request, stream| {
        let is_said = |word: &[u8]| request.windows(word.len()).any(|window| window == word);
        if is_said(b"HELLO") {
            stream.write_all(b"%1\r\n+server\r\n+redis\r\n")?;
        }
        if is_said(b"SUBSCRIBE\r\n") {
            stream.write_all(b">3\r\n+subscribe\r\n$1\r\nx\r\n:1\r\n")?;
        }
        if is_said(b"EVALSHA") {
            counted.fetch_add(1, Ordering::Relaxed);
            stream.write_all(
                b"*3\r\n*5\r\n$4\r\nheld\r\n$6\r\nstring\r\n:1\r\n$1\r\nx\r\n:100000\r\n*0\r\n\
                  *3\r\n:0\r\n$16\r\n1700000000000000\r\n$0\r\n\r\n",
            )?;
            more(stream)?;
        }
        Ok(())
    });
    (url, attempts)
}

/// Starts a server whose SCAN never ends. Each step finds names of locks with `length` bytes each,
/// or none if that is 0. The server says that it has `size` keys.
fn endless(length: usize, size: i64) -> String {
    let steps = AtomicUsize::new(0);
    server(move |request, stream| {
        let is_said = |word: &[u8]| request.windows(word.len()).any(|window| window == word);
        if is_said(b"DBSIZE") {
            return write!(stream, ":{size}\r\n");
        }
        if !is_said(b"SCAN") {
            return stream.write_all(b"-ERR what\r\n");
        }
        let step = steps.fetch_add(1, Ordering::Relaxed);
        let name = |number: usize| {
            let key = format!("{step}-{number:0length$}");
            let name = format!("rlock:fence:{{{key}}}:{key}");
            format!("${}\r\n{name}\r\n", name.len())
        };
        let names: String = (0..if length == 0 { 0 } else { 1000 }).map(name).collect();
        let count = names.lines().count() / 2;
        let cursor = (step + 1).to_string();
        write!(
            stream,
            "*2\r\n${}\r\n{cursor}\r\n*{count}\r\n{names}",
            cursor.len()
        )
    })
}

#[test]
fn a_walk_through_keys_that_has_no_end_is_ended_with_little_memory_used() {
    let cases = [
        (0, 0, "SCAN comes to no end"),
        (0, 1_000_000, "SCAN comes to no end"),
        (8, i64::MAX, "its locks' names take over 4 MiB"),
        (900, i64::MAX, "its locks' names take over 4 MiB"),
    ];
    for (length, size, why) in cases {
        let url = endless(length, size);
        let finished = frugal(rlock_words(["inspect", "--node", &url, "--quiet"]))
            .finish()
            .code(69);
        is_clean("a walk", &finished);
        finished
            .said(&["cannot scan for locks", &url, why])
            .within(Duration::from_secs(20));
    }
}

/// Starts a server with 5000 locks, each with a holder and 32 waiters.
fn crowded() -> String {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let value = format!(
        "{TOKEN} {{\"host\":\"h\",\"note\":\"{}\"}}",
        "n".repeat(900)
    );
    let waiter = bulk(&format!("{TOKEN} {} 1 1700000000000", "h".repeat(60))) + &bulk("1");
    let (kind, head, waiters) = (
        bulk("held") + &bulk("string"),
        bulk(&value),
        waiter.repeat(32),
    );
    let (fence, last, now) = (bulk("1"), bulk(""), bulk("1700000000000"));
    let look = format!(
        "*7\r\n*5\r\n{kind}:{}\r\n{head}:30000\r\n*0\r\n{fence}*64\r\n{waiters}:0\r\n{last}{now}",
        value.len(),
    );
    server(move |request, stream| {
        let said = |word: &[u8]| {
            request
                .windows(word.len())
                .filter(|window| *window == word)
                .count()
        };
        if said(b"DBSIZE") > 0 {
            stream.write_all(b":5000\r\n")?;
        }
        if said(b"SCAN") > 0 {
            let names: String = (0..5000)
                .map(|number| bulk(&format!("rlock:fence:{{{number}}}:{number}")))
                .collect();
            write!(stream, "*2\r\n{}*5000\r\n{names}", bulk("0"))?;
        }
        stream.write_all(look.repeat(said(b"EVALSHA\r\n")).as_bytes())
    })
}

#[test]
fn locks_that_a_server_invents_are_looked_at_with_little_memory_used() {
    let url = crowded();
    let finished = frugal(rlock_words(["inspect", "--node", &url, "--quiet"]))
        .finish()
        .code(69);
    is_clean("locks", &finished);
    finished
        .said(&[
            "cannot observe all locks",
            &url,
            "its locks take over 8 MiB",
        ])
        .within(Duration::from_secs(20));
}

#[test]
fn a_node_whose_keys_have_no_end_does_not_hide_the_locks_of_the_others() {
    let servers = [Server::start(), Server::start()];
    let url = format!(
        "{},{},{}",
        servers[0].url(),
        servers[1].url(),
        endless(8, 0)
    );
    for server in &servers {
        server.cli(&[
            "SET",
            "job",
            &format!("{TOKEN} {{\"host\":\"web1\"}}"),
            "PX",
            "60000",
        ]);
        server.cli(&["SET", "rlock:fence:{job}:job", "1"]);
    }
    let shown = rlock_words(["inspect", "--node", &url])
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(
        shown.contains("job") && shown.contains("web1") && shown.contains("2/3"),
        "{shown}"
    );
}

const GO: &str = ">3\r\n+message\r\n$1\r\nx\r\n$2\r\ngo\r\n";

#[test]
fn a_waiter_that_is_told_to_go_without_end_does_not_try_without_end() {
    let told: [fn(&mut TcpStream) -> io::Result<()>; 2] = [
        |stream| stream.write_all(GO.as_bytes()),
        |stream| Says::Forever(GO.as_bytes(), GO.as_bytes()).to(stream),
    ];
    for more in told {
        let (url, attempts) = busy(more);
        let finished = frugal(rlock("job").node(&url).args(["--wait", "2"]))
            .command(["echo", "ran"])
            .code(75)
            .printed(&[]);
        is_clean("go", &finished);
        // Each attempt is a request to acquire and one to release.
        let attempts = attempts.load(Ordering::Relaxed);
        assert!(attempts < 100, "{attempts} requests in 2 s");
    }
}

/// A wait that is over long before a node timeout is.
const SOON_OVER: [&str; 6] = ["--wait", "1.5", "--ttl", "1m", "--node-timeout", "5s"];

#[test]
fn a_waiter_stands_what_is_said_on_the_connection_on_which_it_listens() {
    for (what, says, _) in FLOODS {
        let (url, _) = busy(move |stream| says.to(stream));
        let begin = Instant::now();
        let waits = frugal(rlock("job").node(&url).args(SOON_OVER));
        let finished = waits.command(["echo", "ran"]).printed(&[]);
        assert!(
            finished.exited_with(75) || finished.exited_with(69),
            "{what}: {:?}",
            finished.stderr
        );
        is_clean(what, &finished);
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "{what}: {:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn what_is_said_instead_of_a_greeting_costs_a_waiter_no_more() {
    for (what, says, _) in FLOODS {
        let (url, _) = busy(|_| Ok(()));
        let behind = url.trim_start_matches("redis://").to_owned();
        let front = server(move |request, stream| {
            if request.windows(5).any(|window| window == b"HELLO") {
                return says.to(stream);
            }
            // The first attempt, which does not listen, is answered.
            let mut to = TcpStream::connect(&behind)?;
            to.write_all(request)?;
            let mut reply = [0; 4096];
            let length = to.read(&mut reply)?;
            stream.write_all(&reply[..length])
        });
        let waits = frugal(rlock("job").node(&front).args(SOON_OVER));
        let finished = waits
            .command(["echo", "ran"])
            .printed(&[])
            .within(Duration::from_secs(5));
        assert!(
            finished.exited_with(75) || finished.exited_with(69),
            "{what}: {:?}",
            finished.stderr
        );
        is_clean(what, &finished);
    }
}

#[test]
fn a_server_that_repeats_the_password_is_quoted_without_it() {
    let password = "correct horse battery staple";
    for repeated in [password, "correct horse"] {
        let said = format!(
            "-BUSY unknown command, with args beginning with: '3' 'AUTH' 'default' '{repeated}\r\n"
        );
        for word in ["HELLO", "EVALSHA"] {
            let said = said.clone();
            let (behind, _) = busy(|_| Ok(()));
            let behind = behind.trim_start_matches("redis://").to_owned();
            let url = server(move |request, stream| {
                let has = |word: &str| {
                    request
                        .windows(word.len())
                        .any(|window| window == word.as_bytes())
                };
                if has(word) {
                    return stream.write_all(said.as_bytes());
                }
                if has("AUTH") {
                    return stream.write_all(b"+OK\r\n");
                }
                let mut to = TcpStream::connect(&behind)?;
                to.write_all(request)?;
                let mut reply = [0; 4096];
                let length = to.read(&mut reply)?;
                stream.write_all(&reply[..length])
            });
            let waits = rlock("job")
                .node(&url)
                .env("RLOCK_PASSWORD", password)
                .args(["-v", "--wait", "1.5"]);
            let finished = waits
                .command(["echo", "ran"])
                .printed(&[])
                .mentions(&["BUSY unknown command", "'***"]);
            assert!(
                !finished.stderr.contains("correct"),
                "{word}: {}",
                finished.stderr
            );
        }
    }
}

#[test]
fn doctor_calls_no_server_fit_that_gives_one_answer_to_whatever_it_is_asked() {
    for says in [
        ",nan\r\n",
        "+OK\r\n",
        ":1\r\n",
        "*2\r\n:1\r\n:5\r\n",
        "_\r\n",
    ] {
        let url = server(|_, stream| Says::Once(says.as_bytes()).to(stream));
        let told = rlock_words(["doctor"]).node(&url).finish().code(78);
        let told = told.stdout.join("\n");
        assert!(
            told.contains("cannot run rlock's scripts: unexpected reply"),
            "{says:?}: {told}"
        );
    }
}
