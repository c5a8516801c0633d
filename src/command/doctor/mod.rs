//! `rlock doctor`: tells whether nodes are fit to hold locks. Changes nothing, but for the lock of
//! `--try`.

mod checks;
mod report;
mod trial;

use futures_util::future::join_all;

use super::common::{block_on, print, stores, unfit_store};
use crate::cli::subcommands::DoctorArgs;
use crate::exit::{Failure, Outcome};
use crate::lock::key::Key;
use crate::lock::schedule::ScheduleOptions;
use crate::settings::{self, NODE_TIMEOUT, NodeSettings, Sources, strange_variables};
use crate::store::address::HostKind;
use crate::store::local::Survey;
use crate::store::redis::acl::{OF_CLUSTER, OF_DATABASE, acl_line, is_user};
use crate::store::redis::place::Way;
use crate::text::escape;
use crate::text::is_pattern;
use checks::{Finding, Level, Use};
use report::Report;

pub fn doctor(args: &DoctorArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let reach = NodeSettings::new(&args.nodes, sources)?;
    let keys = args
        .keys
        .iter()
        .map(|name| settings::key(&args.nodes, name))
        .collect::<Result<Vec<_>, _>>()?;
    let options = ScheduleOptions {
        node_timeout: args.nodes.node_timeout,
        ..ScheduleOptions::new(args.ttl)
    };
    let schedule = settings::schedule(options)?;
    let how = Use {
        schedule,
        options,
        guard: args.restart_guard,
    };
    let own = args
        .tries
        .then(|| settings::key(&args.nodes, trial::NAME))
        .transpose()?;
    // The user stands in the ACL line, which is pasted into a server.
    let is_odd = |way: &&Way| {
        way.remote
            .user
            .as_deref()
            .is_some_and(|user| !is_user(user))
    };
    if let Some(way) = reach.place.servers().iter().find(is_odd) {
        let why = format!("--node {way}: no server has a user with a blank or a control character");
        return Err(Failure::new(Outcome::Config, why).into());
    }
    let mut report = block_on(async { examined(&reach, &keys, own.as_ref(), &how).await })?;
    report.findings.extend(
        args.keys
            .iter()
            .filter(|name| is_pattern(name))
            .map(|name| {
                let what = format!(
                    "{} is taken as the name of one lock, and no pattern",
                    escape::text(name)
                );
                Finding::note(what, "for patterns see Rights in docs/redis.md")
            }),
    );
    let strange = strange_variables().into_iter();
    report.findings.extend(
        strange.map(|what| Finding::note(what, "it has no effect; see rlock doctor --help")),
    );
    print(
        (if args.json {
            report.json()
        } else {
            report.text(args.acl)
        })
        .as_bytes(),
    )?;
    Ok(match report.verdict() {
        Level::Note => Outcome::Done,
        Level::Warn => Outcome::No,
        Level::Unfit(outcome) => outcome,
    })
}

/// Examines the nodes. `own`: the lock that is taken and given back.
async fn examined(
    reach: &NodeSettings,
    keys: &[Key],
    own: Option<&Key>,
    how: &Use,
) -> anyhow::Result<Report> {
    // A slow node must show as slow, not as dead.
    let limit = reach.limit.max(NODE_TIMEOUT);
    let stores = stores(&reach.place, limit, 1, None)?;
    let probes = join_all(stores.iter().filter_map(|store| store.probe(keys))).await;
    let survey = match reach.place.local() {
        Some(chosen) => Some(Survey::of(chosen).map_err(unfit_store)?),
        None => None,
    };
    let mut findings = survey
        .as_ref()
        .map_or_else(|| checks::of_servers(&probes, how), checks::of_local);
    if let Some(own) = own {
        let answers = |(node, _): &(usize, _)| probes.get(*node).is_none_or(Result::is_ok);
        let stores_that_answer = stores.iter().enumerate().filter(answers);
        findings.extend(
            trial::findings(
                stores_that_answer,
                own,
                stores.len(),
                how.schedule.term(),
                limit,
            )
            .await,
        );
    }
    let servers = reach.place.servers();
    let user = servers
        .iter()
        .find_map(|way| way.remote.user.as_deref())
        .unwrap_or("rlock");
    let of_database = if servers.iter().any(|way| way.remote.db > 0) {
        OF_DATABASE
    } else {
        &[]
    };
    let is_cluster = servers
        .iter()
        .any(|way| way.remote.kind == HostKind::Member);
    let of_cluster = if is_cluster { OF_CLUSTER } else { &[] };
    let acl = survey
        .is_none()
        .then(|| acl_line(user, keys, &[of_database, of_cluster].concat()));
    let names = stores.iter().map(|store| store.name().to_owned()).collect();
    Ok(Report {
        names,
        probes,
        survey,
        findings,
        acl,
    })
}
