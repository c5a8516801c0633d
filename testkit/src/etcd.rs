//! An etcd cluster of a test's own, on loopback ports, with its data in a temporary directory.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::processes::{self, signal};
use crate::program::clean;
use crate::{Certificates, Port, Proxy, eventually, eventually_within, held_while, skipped};

/// Longest time until all members know a leader, on a machine where dozens of processes are ready to
/// run.
const ELECTION: Duration = Duration::from_secs(90);

/// Ports that a member has: for clients, and for other members.
struct Ports {
    client: Port,
    peer: Port,
}

/// A cluster that runs until the drop.
pub struct Etcd {
    dir: TempDir,
    members: Vec<Member>,
    /// Options for clients: the certificates of a cluster with TLS.
    options: Vec<String>,
    scheme: &'static str,
    lines: Option<Lines>,
}

/// A member of a cluster.
struct Member {
    ports: Ports,
    words: Vec<String>,
    process: Option<Child>,
}

/// The lines between members. Those of one member can be cut.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Ends>>);

#[derive(Default)]
struct Ends {
    /// The process of each member.
    processes: Vec<Option<u32>>,
    /// The member that is cut off.
    cut_off: Option<usize>,
}

impl Lines {
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the line by which the others reach the member `to`, which listens on `port`. Returns
    /// its port.
    fn open(&self, to: usize, port: u16) -> u16 {
        let lines = self.clone();
        let delays = move |client: SocketAddr| {
            let (from, lines) = (lines.member_at(client.port()), lines.clone());
            held_while(move || lines.are_cut(from, to))
        };
        Proxy::open(Ipv4Addr::LOCALHOST, port, delays)
            .expect("a proxy")
            .port()
    }

    fn are_cut(&self, from: Option<usize>, to: usize) -> bool {
        let cut_off = self.ends().cut_off;
        cut_off.is_some() && (from == cut_off) != (Some(to) == cut_off)
    }

    /// Returns the member whose process has a connection from `port`.
    fn member_at(&self, port: u16) -> Option<usize> {
        let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
        let end = format!(":{port:04X}");
        let sockets = table.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, ..] = fields[..] else {
                return None;
            };
            local
                .ends_with(&end)
                .then(|| format!("socket:[{}]", fields.get(9).unwrap_or(&"")))
        });
        let sockets: Vec<String> = sockets.collect();
        let is_its = |process: &Option<u32>| {
            let open = process.and_then(|id| std::fs::read_dir(format!("/proc/{id}/fd")).ok());
            open.into_iter().flatten().flatten().any(|file| {
                let target = std::fs::read_link(file.path()).unwrap_or_default();
                sockets.iter().any(|socket| target == Path::new(socket))
            })
        };
        self.ends().processes.iter().position(is_its)
    }
}

impl Etcd {
    /// Starts a cluster; `None` where etcd is not installed, which is printed.
    /// With `TEST_INTEROP=required` a missing etcd is a failure.
    pub fn start(count: usize) -> Option<Self> {
        Self::start_with(count, &[])
    }

    /// The same with lines between the members that can be cut.
    pub fn apart(count: usize) -> Option<Self> {
        Self::with(&vec![None; count], None, &[], Some(Lines::default()))
    }

    /// The same where clients reach the members at each address of the machine.
    pub fn apart_for_all(count: usize) -> Option<Self> {
        Self::at(
            Ipv4Addr::UNSPECIFIED,
            &vec![None; count],
            None,
            &[],
            Some(Lines::default()),
        )
    }

    /// The same with these options for each member.
    pub fn start_with(count: usize, options: &[&str]) -> Option<Self> {
        Self::with(&vec![None; count], None, options, None)
    }

    /// The same with a member for each of `dirs`, which has its data there.
    pub fn on(dirs: &[PathBuf]) -> Option<Self> {
        let dirs: Vec<_> = dirs.iter().cloned().map(Some).collect();
        Self::with(&dirs, None, &[], None)
    }

    /// The same with TLS, where clients must show a certificate.
    pub fn tls(certificates: &Certificates) -> Option<Self> {
        Self::with(&[None], Some(certificates), &[], None)
    }

    fn with(
        dirs: &[Option<PathBuf>],
        certificates: Option<&Certificates>,
        options: &[&str],
        lines: Option<Lines>,
    ) -> Option<Self> {
        Self::at(Ipv4Addr::LOCALHOST, dirs, certificates, options, lines)
    }

    fn at(
        listened: Ipv4Addr,
        dirs: &[Option<PathBuf>],
        certificates: Option<&Certificates>,
        options: &[&str],
        lines: Option<Lines>,
    ) -> Option<Self> {
        let count = dirs.len();
        let is_installed = ["etcd", "etcdctl"]
            .iter()
            .all(|program| clean(program).arg("--help").output().is_ok());
        if !is_installed {
            assert!(
                std::env::var_os("TEST_INTEROP").is_none_or(|value| value != "required"),
                "etcd and etcdctl are needed"
            );
            skipped("etcd is not installed (Debian's etcd-server and etcd-client)");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let scheme = if certificates.is_some() {
            "https"
        } else {
            "http"
        };
        let ports: Vec<Ports> = (0..count)
            .map(|_| Ports {
                client: Port::reserve().expect("a port"),
                peer: Port::reserve().expect("a port"),
            })
            .collect();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        // The others know the member by the end of its line.
        let known: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(index, ports)| {
                let port = ports.peer.number();
                url(lines.as_ref().map_or(port, |lines| lines.open(index, port)))
            })
            .collect();
        let cluster: Vec<String> = known
            .iter()
            .enumerate()
            .map(|(index, url)| format!("m{index}={url}"))
            .collect();
        let cluster = cluster.join(",");
        let tls = |names: [&str; 3]| -> Vec<String> {
            let Some(certificates) = certificates else {
                return Vec::new();
            };
            let files = ["ca.pem", "server.pem", "server.key"];
            let word = |(name, file): (&str, &str)| {
                format!("--{name}={}", certificates.file(file).display())
            };
            names.into_iter().zip(files).map(word).collect()
        };
        let members = ports.into_iter().enumerate().map(|(index, ports)| {
            let client = |at| format!("{scheme}://{at}:{}", ports.client.number());
            let own = || dir.path().join(format!("m{index}"));
            let data = dirs[index].clone().unwrap_or_else(own);
            let mut words = vec![
                format!("--name=m{index}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={}", client(listened)),
                format!("--advertise-client-urls={}", client(Ipv4Addr::LOCALHOST)),
                format!("--listen-peer-urls={}", url(ports.peer.number())),
                format!("--initial-advertise-peer-urls={}", known[index]),
                format!("--initial-cluster={cluster}"),
                "--logger=zap".to_owned(),
            ];
            words.extend(options.iter().map(|&option| option.to_owned()));
            words.extend(tls(["trusted-ca-file", "cert-file", "key-file"]));
            if certificates.is_some() {
                words.push("--client-cert-auth".to_owned());
            }
            Member {
                ports,
                words,
                process: None,
            }
        });
        let mut all = Self {
            members: members.collect(),
            options: tls(["cacert", "cert", "key"]),
            dir,
            scheme: if certificates.is_some() {
                "etcds"
            } else {
                "etcd"
            },
            lines,
        };
        (0..count).for_each(|member| all.begin(member));
        all.settle();
        Some(all)
    }

    fn begin(&mut self, member: usize) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log(member))
            .expect("a log");
        let there = &mut self.members[member];
        let process = clean("etcd")
            .args(&there.words)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd");
        if let Some(lines) = &self.lines {
            let mut ends = lines.ends();
            let count = ends.processes.len().max(member + 1);
            ends.processes.resize(count, None);
            ends.processes[member] = Some(process.id());
        }
        there.process = Some(process);
    }

    fn log(&self, member: usize) -> PathBuf {
        self.dir.path().join(format!("m{member}.log"))
    }

    /// Waits until each member that runs can read through a leader.
    pub fn settle(&self) {
        for member in 0..self.members.len() {
            if self.members[member].process.is_some() {
                let url = self.endpoint(member);
                eventually_within(ELECTION, "etcd answers", || {
                    self.try_ctl(&url, &["get", "settled"]).is_ok()
                });
            }
        }
    }

    /// Returns the cluster's address.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = (0..self.members.len())
            .map(|member| self.endpoint(member))
            .collect();
        format!("{}://{}", self.scheme, hosts.join(","))
    }

    /// Returns the address of one member alone.
    pub fn url_of(&self, member: usize) -> String {
        format!("{}://{}", self.scheme, self.endpoint(member))
    }

    /// Returns host and port of a member.
    pub fn endpoint(&self, member: usize) -> String {
        format!("127.0.0.1:{}", self.port(member))
    }

    /// Returns the port of a member.
    pub fn port(&self, member: usize) -> u16 {
        self.members[member].ports.client.number()
    }

    /// Returns etcdctl, for all members.
    pub fn client(&self) -> std::process::Command {
        let hosts: Vec<String> = (0..self.members.len())
            .map(|member| self.endpoint(member))
            .collect();
        self.client_of(&hosts.join(","))
    }

    fn client_of(&self, hosts: &str) -> std::process::Command {
        let mut command = clean("etcdctl");
        command.env("ETCDCTL_API", "3");
        let scheme = if self.scheme == "etcds" {
            "https://"
        } else {
            ""
        };
        let hosts: Vec<String> = hosts
            .split(',')
            .map(|host| format!("{scheme}{host}"))
            .collect();
        command.arg(format!("--endpoints={}", hosts.join(",")));
        command.args(&self.options);
        command
    }

    /// Returns what etcdctl prints.
    pub fn ctl(&self, words: &[&str]) -> String {
        let output = self.client().args(words).output().expect("etcdctl");
        assert!(
            output.status.success(),
            "etcdctl {words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn try_ctl(&self, hosts: &str, words: &[&str]) -> Result<(), ()> {
        let output = self
            .client_of(hosts)
            .arg("--command-timeout=1s")
            .args(words)
            .output();
        let output = output.expect("etcdctl");
        output.status.success().then_some(()).ok_or(())
    }

    /// Returns the keys that there are, of entries and all else.
    pub fn keys(&self) -> Vec<String> {
        let listed = self.ctl(&["get", "", "--prefix", "--keys-only"]);
        let lines = listed.lines().filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }

    /// Returns these fields of a member's status, if it answers.
    fn status<const N: usize>(&self, member: usize, fields: [&str; N]) -> [Option<String>; N] {
        let status = self
            .client_of(&self.endpoint(member))
            .args([
                "endpoint",
                "status",
                "--write-out=fields",
                "--command-timeout=1s",
            ])
            .output()
            .expect("etcdctl");
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        fields.map(|field| {
            let begin = format!("\"{field}\"");
            let line = text.lines().find(|line| line.starts_with(&begin))?;
            Some(line.split(':').next_back()?.trim().to_owned())
        })
    }

    /// Lets another member lead, if it can be asked.
    pub fn move_leader(&self, from: usize, to: usize) {
        let [id] = self.status(to, ["MemberID"]);
        if let Some(id) = id.and_then(|id| id.parse::<u64>().ok()) {
            let words = ["move-leader", &format!("{id:x}")];
            let _ = self.try_ctl(&self.endpoint(from), &words);
        }
    }

    /// Returns the member that leads.
    pub fn leader(&self) -> usize {
        let is_leader = |member: &usize| {
            let [leader, own] = self.status(*member, ["Leader", "MemberID"]);
            leader.is_some() && leader == own
        };
        let mut found = None;
        eventually("a leader", || {
            found = (0..self.members.len())
                .filter(|member| self.members[*member].process.is_some())
                .find(is_leader);
            found.is_some()
        });
        found.expect("a leader")
    }

    fn pid(&self, member: usize) -> i32 {
        let process = self.members[member].process.as_ref();
        process.expect("a member that runs").id().cast_signed()
    }

    /// Stops a member (SIGSTOP): the kernel still accepts connections.
    pub fn freeze(&self, member: usize) {
        processes::freeze(self.pid(member));
    }

    /// Continues a member.
    pub fn thaw(&self, member: usize) {
        signal(self.pid(member), Signal::SIGCONT);
    }

    /// Cuts the lines between a member and the others. Clients still reach it.
    pub fn cut_off(&self, member: usize) {
        self.lines().ends().cut_off = Some(member);
    }

    /// Mends the lines. What was held up there arrives.
    pub fn mend(&self) {
        self.lines().ends().cut_off = None;
    }

    fn lines(&self) -> &Lines {
        self.lines.as_ref().expect("a cluster with lines")
    }

    /// Kills a member. Its data stay.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut process) = self.members[member].process.take() {
            process.kill().expect("a member to kill");
            process.wait().expect("its end");
        }
    }

    /// Starts a member again.
    pub fn come_back(&mut self, member: usize) {
        self.begin(member);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
    }
}
