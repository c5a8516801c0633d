//! Signals that rlock forwards, and a command that stops: who gets the terminal, and who stops with
//! it.

use nix::sys::signal::Signal;

use super::{CaughtSignal, Continued, ExitStatus, Foreground, JobAction, Phase, Policy};

impl Policy {
    pub(super) fn caught(&mut self, caught: CaughtSignal) -> Vec<JobAction> {
        let CaughtSignal {
            signal,
            from_terminal,
        } = caught;
        match signal {
            // If rlock had suspended itself, `Resumed` has continued the command already. Without a
            // terminal it had not: the SIGCONT is for the command, as the SIGTSTP before it was.
            Signal::SIGCONT if std::mem::take(&mut self.tstp_forwarded) => {
                vec![JobAction::Continue]
            }
            Signal::SIGCONT => vec![],
            Signal::SIGTSTP => {
                self.tstp_forwarded = true;
                vec![JobAction::Send(signal)]
            }
            Signal::SIGWINCH | Signal::SIGUSR1 | Signal::SIGUSR2 => vec![JobAction::Send(signal)],
            _ => {
                if from_terminal {
                    self.interrupted = Some(signal);
                }
                self.last_forwarded = Some(signal);
                // As timeout(1) does: a stopped process acts on it only when it is continued.
                vec![JobAction::SendAndContinue(signal)]
            }
        }
    }

    pub(super) fn stopped(&mut self, signal: Signal, foreground: Foreground) -> Vec<JobAction> {
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        match (foreground, self.phase) {
            (Foreground::Rlock, Phase::Running | Phase::Stopping { .. }) if wants_terminal => {
                vec![JobAction::GiveTerminal, JobAction::Continue]
            }
            // The command got the terminal while it stopped for lack of it.
            (Foreground::Command, Phase::Running | Phase::Stopping { .. }) if wants_terminal => {
                vec![JobAction::Continue]
            }
            (Foreground::OtherJob, Phase::Running) if wants_terminal => {
                self.phase = Phase::Suspended {
                    gives_terminal: true,
                };
                vec![JobAction::SuspendJob(signal)]
            }
            // With SIGSTOP too, with which some editors stop themselves: only rlock can give the
            // terminal back to the shell.
            (Foreground::Command, Phase::Running) => {
                self.phase = Phase::Suspended {
                    gives_terminal: true,
                };
                vec![JobAction::SuspendJob(signal)]
            }
            (Foreground::Rlock | Foreground::OtherJob, Phase::Running)
                if signal == Signal::SIGTSTP =>
            {
                self.phase = Phase::Suspended {
                    gives_terminal: false,
                };
                vec![JobAction::Suspend(signal)]
            }
            // Stopped by kill(1), or without a terminal on which a user could say `fg`: rlock goes
            // on.
            _ => vec![],
        }
    }

    pub(super) fn resumed(
        &mut self,
        foreground: Foreground,
        continued: Continued,
    ) -> Vec<JobAction> {
        let Phase::Suspended { gives_terminal } = self.phase else {
            return vec![];
        };
        self.tstp_forwarded = false;
        self.phase = Phase::Running;
        match (foreground, gives_terminal) {
            (Foreground::Rlock, true) => vec![JobAction::GiveTerminal, JobAction::Continue],
            // Continued, the command would stop for the terminal again at once. SIGHUP and SIGCONT
            // are what the kernel sends to stopped jobs that become orphaned (setpgid(2)).
            (Foreground::OtherJob, true) if continued == Continued::NeverStopped => {
                vec![JobAction::SendAndContinue(Signal::SIGHUP)]
            }
            // In the background (`bg`) the terminal stays where it is.
            _ => vec![JobAction::Continue],
        }
    }

    /// Interrupts rlock's job if the terminal, in the command's hands, interrupted the command
    /// alone.
    pub(super) fn interrupted_by_terminal(
        &mut self,
        status: ExitStatus,
        foreground: Foreground,
    ) -> Vec<JobAction> {
        let by_terminal = [Signal::SIGINT, Signal::SIGQUIT]
            .into_iter()
            .find(|s| status == ExitStatus::Killed(*s as i32));
        match by_terminal {
            Some(signal) if foreground == Foreground::Command => {
                self.interrupted = Some(signal);
                vec![JobAction::InterruptJob(signal)]
            }
            _ => vec![],
        }
    }
}
