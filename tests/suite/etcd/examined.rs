//! `doctor` at a cluster that is not as it should be, and `--try`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use testkit::Port;

use super::{calls, leaves_nothing};
use crate::support::{Etcd, Finished, eventually, rlock_words};

fn doctor(node: &str, words: &[&str]) -> Finished {
    let all = [&["doctor"], words].concat();
    rlock_words(all).node(node).finish()
}

#[test]
fn a_lock_is_tried_and_nothing_is_left() {
    let Some(etcd) = Etcd::start(1) else { return };
    // An answer that is late would be asked for again.
    let patient = ["--ttl", "3s", "--node-timeout", "800ms"];
    let words = [&["--try", "-k", "job"], &patient[..]].concat();
    let tried = doctor(&etcd.url(), &words).code(1);
    let told = tried.stdout.join("\n");
    let election = "a lease of 3s may end while the members choose another leader";
    assert!(told.contains(election), "{told}");
    assert_eq!(calls(&etcd, 0, "LeaseGrant"), 1);
    leaves_nothing(&etcd);
}

/// Asks the member to raise its alarm of this number, over its gateway for HTTP/1.
fn raise_alarm(etcd: &Etcd, number: u8) {
    let body = format!("{{\"action\":1,\"memberID\":1,\"alarm\":{number}}}");
    let mut stream = TcpStream::connect(etcd.endpoint(0)).expect("etcd");
    let head = "POST /v3/maintenance/alarm HTTP/1.0\r\nContent-Length:";
    write!(stream, "{head} {}\r\n\r\n{body}", body.len()).expect("a request");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("an answer");
    assert!(page.contains("200 OK"), "{page}");
}

#[test]
fn alarms_are_told_and_cost_the_vote() {
    for (number, name) in [(1, "NOSPACE"), (2, "CORRUPT")] {
        let Some(etcd) = Etcd::start(1) else { return };
        raise_alarm(&etcd, number);
        let told = doctor(&etcd.url(), &[]).code(69).stdout.join("\n");
        assert!(told.contains(&format!("alarm:{name}")), "{told}");
    }
}

/// A proxy of etcd's, which answers keepalives by itself.
struct GrpcProxy(Child);

impl Drop for GrpcProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_proxy_is_told_from_a_member() {
    let Some(etcd) = Etcd::start(1) else { return };
    let port = Port::reserve().expect("a port");
    let proxy = Command::new("etcd")
        .args(["grpc-proxy", "start", "--endpoints", &etcd.endpoint(0)])
        .args(["--listen-addr", &format!("127.0.0.1:{}", port.number())])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _proxy = GrpcProxy(proxy.expect("etcd"));
    let node = format!("etcd://127.0.0.1:{}", port.number());
    eventually("the proxy answers", || {
        let told = doctor(&node, &[]);
        told.exited_with(78) && told.stdout.join("\n").contains("no etcd grpc-proxy")
    });
}
