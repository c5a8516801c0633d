//! Tables that rlock cannot use, or uses with a word: collations and policies.

use crate::sql::{HOLD, job};
use crate::support::{Database, Postgres, rlock, rlock_words};

fn doctor(server: &Postgres) -> crate::support::Finished {
    rlock_words(["doctor"]).node(&server.url()).finish()
}

#[test]
fn a_column_that_takes_two_names_for_one_is_refused() {
    let Some(server) = Postgres::start() else {
        return;
    };
    server.sql("CREATE COLLATION folds (provider = icu, locale = 'und-u-ks-level2', deterministic = false)");
    for (column, size) in [("name", 64), ("locked_by", 255)] {
        for kind in [
            format!("varchar({size}) COLLATE folds"),
            format!("char({size})"),
        ] {
            server.sql(&format!("ALTER TABLE shedlock ALTER {column} TYPE {kind}"));
            let refused = job(&server).sh("true").code(78);
            refused.said(&["which takes two texts for one", column]);
            doctor(&server).code(78);
        }
        let plain = format!("ALTER TABLE shedlock ALTER {column} TYPE varchar({size})");
        server.sql(&format!("{plain} COLLATE \"C\""));
    }
    let _held = job(&server).hold(HOLD);
    let other = rlock("JOB").node(&server.url()).args(["-n"]);
    other.sh("true").code(0).silent();
}

#[test]
fn a_row_that_a_policy_hides_is_told_with_its_remedy() {
    let Some(server) = Postgres::start() else {
        return;
    };
    job(&server).sh("true").code(0);
    server.sql("ALTER TABLE shedlock ENABLE ROW LEVEL SECURITY");
    let remedy = "a policy for all rows";
    job(&server).sh("true").code(77).said(&["42501", remedy]);
    let seen = doctor(&server).code(0).stdout.join("\n");
    assert!(seen.contains("row level security is on"), "{seen}");
    server.sql("CREATE POLICY adds ON shedlock FOR INSERT TO rlock WITH CHECK (true)");
    let hidden = job(&server).sh("true").code(78);
    hidden.said(&["is hidden by a policy", remedy]);
    server.sql("CREATE POLICY rlock ON shedlock TO rlock USING (true)");
    job(&server).sh("true").code(0).silent();
}
