//! A network that drops packets, by iptables(8).

use std::process::{Command, Stdio};

use crate::skipped;

/// TCP connections of this machine that are cut off, until the drop. Neither side hears of it.
pub struct CutOff(Vec<[String; 2]>);

impl CutOff {
    /// Cuts off the connections with these ports, separated by white space; `None` where that is not
    /// possible, which is printed.
    pub fn ports(ports: &str) -> Option<Self> {
        let mut cut = Self(Vec::new());
        for port in ports.split_whitespace() {
            for option in ["--sport", "--dport"] {
                let rule = [option.to_owned(), port.to_owned()];
                if !filter("-I", &rule) {
                    skipped("packets cannot be dropped here (iptables)");
                    return None;
                }
                cut.0.push(rule);
            }
        }
        Some(cut)
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        for rule in &self.0 {
            filter("-D", rule);
        }
    }
}

fn filter(action: &str, rule: &[String; 2]) -> bool {
    let status = Command::new("iptables")
        .args(["-w", action, "INPUT", "-i", "lo", "-p", "tcp"])
        .args(rule)
        .args(["-j", "DROP"])
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
