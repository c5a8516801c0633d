//! `rlock doctor`: tells whether nodes are fit to hold locks. Changes nothing, but for the lock of `--try`.

mod diagnosis;
mod durability;
mod local;
mod render;
mod rights;
mod trial;
mod watched;
mod writes;

use futures_util::future::join_all;

use super::nodes::{stores, warn_of_default_node};
use super::output::print;
use super::runtime::block_on;
use crate::cli::subcommands::DoctorArgs;
use crate::cli::{Sources, strange_variables};
use crate::exit::Outcome;
use crate::lock::key::Key;
use crate::lock::schedule::ScheduleOptions;
use crate::node::local::Survey;
use crate::node::place::Way;
use crate::node::redis::acl::{OF_CLUSTER, OF_DATABASE, acl_line, is_user};
use crate::report::Problem;
use crate::settings;
use crate::settings::token::{NODE_TIMEOUT, NodeSettings};
use diagnosis::{Level, Use};
use render::Report;

pub fn doctor(args: &DoctorArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let reach = NodeSettings::new(&args.nodes, sources)?;
    let keys = args.keys.iter().map(|name| settings::key(&args.nodes, name)).collect::<Result<Vec<_>, _>>()?;
    let options = ScheduleOptions { node_timeout: args.nodes.node_timeout, ..ScheduleOptions::new(args.ttl) };
    let schedule = settings::schedule(options)?;
    warn_of_default_node(&reach.place, reach.node_is_default, &args.output, None);
    let how = Use { schedule, options, guard: args.restart_guard };
    let own = args.tries.then(|| settings::key(&args.nodes, trial::NAME)).transpose()?;
    let servers = reach.place.servers();
    if let Some(way) = servers.iter().find(|way| !has_valid_user(way)) {
        return Err(Problem::InvalidUser { node: &way.to_string() }.failure().into());
    }
    let mut report = block_on(async { probed(&reach, &keys, own.as_ref(), &how).await })?;
    report.findings.extend(args.keys.iter().filter_map(|name| diagnosis::of_name(name)));
    report.findings.extend(strange_variables().iter().map(diagnosis::of_variable));
    print((if args.json { report.json() } else { report.text(args.acl) }).as_bytes())?;
    Ok(match diagnosis::verdict(&report.findings) {
        Level::Note => Outcome::Done,
        Level::Warn => Outcome::No,
        Level::Unfit(outcome) => outcome,
    })
}

/// Whether the user, if there is one, can stand in an ACL line that is pasted into a server.
fn has_valid_user(way: &Way) -> bool {
    way.user().is_none_or(is_user)
}

/// `own`: the lock that is taken and given back.
async fn probed(reach: &NodeSettings, keys: &[Key], own: Option<&Key>, how: &Use) -> anyhow::Result<Report> {
    // A slow node must show as slow, not as dead.
    let limit = reach.limit.max(NODE_TIMEOUT);
    let stores = stores(&reach.place, limit, 1)?;
    let term = how.schedule.term();
    let Some(probes) = stores.iter().map(|store| store.probe(keys)).collect::<Option<Vec<_>>>() else {
        let tried = trial::of_each(&stores, own, |_| true, term, limit).await;
        let chosen = reach.place.local().flatten();
        let survey = Survey::of(chosen).map_err(|why| Problem::Store { why }.failure())?;
        let findings = local::judge(&survey, tried.first().and_then(Option::as_ref));
        return Ok(Report::of_local(stores[0].name(), survey, findings));
    };
    let probes = join_all(probes).await;
    let trials = trial::of_each(&stores, own, |node| probes[node].is_ok(), term, limit).await;
    let findings = diagnosis::of(&probes, &trials, how);
    let servers = reach.place.servers();
    let user = servers.iter().find_map(Way::user);
    let of_database = if servers.iter().any(|way| way.db() > 0) { OF_DATABASE } else { &[] };
    let of_cluster = if servers.iter().any(|way| matches!(way, Way::Cluster(_))) { OF_CLUSTER } else { &[] };
    let acl = acl_line(user.unwrap_or("rlock"), keys, &[of_database, of_cluster].concat());
    let names = stores.iter().map(|store| store.name().to_owned()).collect();
    Ok(Report { names, probes, survey: None, findings, acl: Some(acl) })
}
