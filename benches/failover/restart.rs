//! Locks that a server without replicas loses when it is killed and comes back at once.

use anyhow::Result;

use testkit::Server;
use testkit::measure::table::aligned;

/// Limit of a WAITAOF, in ms.
const LIMIT: u64 = 3000;

/// A row of the table.
struct Case {
    name: &'static str,
    options: &'static [&'static str],
    /// Whether WAITAOF waits for the disk.
    waits: bool,
    /// Locks that may be lost, where that is known.
    aim: &'static str,
}

const CASES: [Case; 4] = [
    Case {
        name: "appendonly no",
        options: &[],
        waits: false,
        aim: "",
    },
    Case {
        name: "appendfsync everysec",
        options: &["--appendonly", "yes", "--appendfsync", "everysec"],
        waits: false,
        aim: "0",
    },
    Case {
        name: "appendfsync everysec, WAITAOF 1 0",
        options: &["--appendonly", "yes", "--appendfsync", "everysec"],
        waits: true,
        aim: "0",
    },
    Case {
        name: "appendfsync always",
        options: &["--appendonly", "yes", "--appendfsync", "always"],
        waits: false,
        aim: "0",
    },
];

/// Measures them, for `wanted` kills each.
pub(crate) fn report(wanted: usize) -> Result<()> {
    println!(
        "\nLocks lost of those acknowledged, {wanted} kills each, the server back with what it has on disk:\n"
    );
    let mut rows = vec![["", "acknowledged", "lost", "aim"].map(str::to_owned)];
    for case in &CASES {
        let mut server = Server::tcp(case.options);
        if case.waits && server.cli(&["COMMAND", "INFO", "WAITAOF"]).is_empty() {
            println!(
                "{}: skipped, since this server has no WAITAOF (Redis 7.2)",
                case.name
            );
            continue;
        }
        let mut lost = 0;
        for number in 0..wanted {
            let (key, mut connection) = (format!("lock-{number}"), server.connect());
            redis::cmd("SET")
                .arg(&key)
                .arg("token")
                .arg(&["NX", "PX", "600000"])
                .exec(&mut connection)?;
            if case.waits {
                redis::cmd("WAITAOF")
                    .arg(1)
                    .arg(0)
                    .arg(LIMIT)
                    .exec(&mut connection)?;
            }
            server.crash();
            server.come_back();
            lost += usize::from(server.cli(&["EXISTS", &key]) == "0");
        }
        rows.push([
            case.name.to_owned(),
            wanted.to_string(),
            lost.to_string(),
            case.aim.to_owned(),
        ]);
    }
    print!("{}", aligned(&rows));
    Ok(())
}
