
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'rlock' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'rlock'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'rlock' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Hold the lock around a command')
            [CompletionResult]::new('acquire', 'acquire', [CompletionResultType]::ParameterValue, 'Take the lock and exit, printing the token')
            [CompletionResult]::new('renew', 'renew', [CompletionResultType]::ParameterValue, 'Extend a lock, if it is still the caller''s')
            [CompletionResult]::new('release', 'release', [CompletionResultType]::ParameterValue, 'Release a lock, if it is still the caller''s')
            [CompletionResult]::new('check', 'check', [CompletionResultType]::ParameterValue, 'Tell whether the lock is still the caller''s')
            [CompletionResult]::new('inspect', 'inspect', [CompletionResultType]::ParameterValue, 'Show which locks are held, and by which client')
            [CompletionResult]::new('break', 'break', [CompletionResultType]::ParameterValue, 'Take a lock away from its holder')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Tell whether the nodes are fit to hold locks')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Show every setting that is in force, and where it comes from')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print the completions for a shell')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Print a man page: rlock''s, or a subcommand''s')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'rlock;run' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name; repeated, all of these locks are held together')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name; repeated, all of these locks are held together')
            [CompletionResult]::new('--slots', '--slots', [CompletionResultType]::ParameterName, 'Let K runs hold the lock at a time, 1 to 1000; RLOCK_SLOT tells each its number')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Give up waiting after this; without it, wait for ever, as flock does')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Give up waiting after this; without it, wait for ever, as flock does')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit code when the lock is busy, 0 to 255')
            [CompletionResult]::new('--busy-code', '--busy-code', [CompletionResultType]::ParameterName, 'Exit code when the lock is busy, 0 to 255')
            [CompletionResult]::new('--note', '--note', [CompletionResultType]::ParameterName, 'Text for those who ask which client holds the lock (a CI job''s URL)')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'Lease length: the lock is free this long after its holder''s last renewal at the latest')
            [CompletionResult]::new('--lock-delay', '--lock-delay', [CompletionResultType]::ParameterName, 'Keep the lock for this long after a loss: what the command had asked others to do may still go on')
            [CompletionResult]::new('--as', '--as', [CompletionResultType]::ParameterName, 'Form of the stored lock: redisson is one that Redisson''s lock() respects and that wakes its waiters')
            [CompletionResult]::new('--order', '--order', [CompletionResultType]::ParameterName, 'Which waiter gets the lock next')
            [CompletionResult]::new('--drift', '--drift', [CompletionResultType]::ParameterName, 'Clock-rate error allowed for, as a fraction of the TTL')
            [CompletionResult]::new('--restart-guard', '--restart-guard', [CompletionResultType]::ParameterName, 'Ignore a server that restarted more recently than this: it may have forgotten locks')
            [CompletionResult]::new('--wait-replicas', '--wait-replicas', [CompletionResultType]::ParameterName, 'Count a grant or a renewal only once N replicas of the server have it')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Text put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key')
            [CompletionResult]::new('--cert-key', '--cert-key', [CompletionResultType]::ParameterName, 'The private key of --cert (a PEM file), which others must not be able to read')
            [CompletionResult]::new('--tls-server-name', '--tls-server-name', [CompletionResultType]::ParameterName, 'Name for which the certificate of each server must be valid, instead of the host of its address')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which others must not be able to read')
            [CompletionResult]::new('--sentinel-password-file', '--sentinel-password-file', [CompletionResultType]::ParameterName, 'Read the password for the sentinels from the first line of this file')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Read this configuration file alone; none: read no file')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Apply the settings of this profile of the configuration files')
            [CompletionResult]::new('-c', '-c', [CompletionResultType]::ParameterName, 'Run sh -c STRING instead of CMD')
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'Name of the command for other clients [default: the file name of the program or script]')
            [CompletionResult]::new('--hold-at-least', '--hold-at-least', [CompletionResultType]::ParameterName, 'Keep the lock for at least this long after the command''s start, though it ends sooner; rlock does not wait for that')
            [CompletionResult]::new('--once', '--once', [CompletionResultType]::ParameterName, 'Run the command once: for this long after it has exited with 0, others exit with 0 and do not run it')
            [CompletionResult]::new('--kill-after', '--kill-after', [CompletionResultType]::ParameterName, 'Time between the first signal and SIGKILL [default: a sixth of the TTL, at most 5s]')
            [CompletionResult]::new('--max-run', '--max-run', [CompletionResultType]::ParameterName, 'Stop the command after this, as timeout(1) does: exit 124, even if SIGKILL was needed')
            [CompletionResult]::new('--on-lost', '--on-lost', [CompletionResultType]::ParameterName, 'When the lock is lost: kill the command, or warn and let it go on, perhaps beside another, or reclaim the lock')
            [CompletionResult]::new('--signal', '--signal', [CompletionResultType]::ParameterName, 'First signal to the command when the lock is being lost or --max-run is over')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields')
            [CompletionResult]::new('--progress', '--progress', [CompletionResultType]::ParameterName, 'How to tell what takes longer than a second: one line that is redrawn, or plain lines')
            [CompletionResult]::new('--metrics-dir', '--metrics-dir', [CompletionResultType]::ParameterName, 'Write metrics to this directory, for the textfile collector of Prometheus'' node_exporter')
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Share the lock with other runs that give -s: no other kind of holder beside them')
            [CompletionResult]::new('--shared', '--shared', [CompletionResultType]::ParameterName, 'Share the lock with other runs that give -s: no other kind of holder beside them')
            [CompletionResult]::new('-x', '-x', [CompletionResultType]::ParameterName, 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]')
            [CompletionResult]::new('--exclusive', '--exclusive', [CompletionResultType]::ParameterName, 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Do not wait: the same as --wait 0')
            [CompletionResult]::new('--no-wait', '--no-wait', [CompletionResultType]::ParameterName, 'Do not wait: the same as --wait 0')
            [CompletionResult]::new('--supersede', '--supersede', [CompletionResultType]::ParameterName, 'End the waiters with --supersede that came before: they exit with 76. The holder is left alone')
            [CompletionResult]::new('--fsync', '--fsync', [CompletionResultType]::ParameterName, 'Count it only once it is on the disks of the server and of these replicas (Redis 7.2; appendonly yes)')
            [CompletionResult]::new('--replace', '--replace', [CompletionResultType]::ParameterName, 'Supersede, and end the run that holds the lock: its command is stopped, and it exits with 79')
            [CompletionResult]::new('--contain', '--contain', [CompletionResultType]::ParameterName, 'End every process that the command started, setsid or not, before the lock is released')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;acquire' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name; repeated, all of these locks are held together')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name; repeated, all of these locks are held together')
            [CompletionResult]::new('--slots', '--slots', [CompletionResultType]::ParameterName, 'Let K runs hold the lock at a time, 1 to 1000; RLOCK_SLOT tells each its number')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Give up waiting after this; without it, wait for ever, as flock does')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Give up waiting after this; without it, wait for ever, as flock does')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit code when the lock is busy, 0 to 255')
            [CompletionResult]::new('--busy-code', '--busy-code', [CompletionResultType]::ParameterName, 'Exit code when the lock is busy, 0 to 255')
            [CompletionResult]::new('--note', '--note', [CompletionResultType]::ParameterName, 'Text for those who ask which client holds the lock (a CI job''s URL)')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'Lease length: the lock is free this long after its holder''s last renewal at the latest')
            [CompletionResult]::new('--lock-delay', '--lock-delay', [CompletionResultType]::ParameterName, 'Keep the lock for this long after a loss: what the command had asked others to do may still go on')
            [CompletionResult]::new('--as', '--as', [CompletionResultType]::ParameterName, 'Form of the stored lock: redisson is one that Redisson''s lock() respects and that wakes its waiters')
            [CompletionResult]::new('--order', '--order', [CompletionResultType]::ParameterName, 'Which waiter gets the lock next')
            [CompletionResult]::new('--drift', '--drift', [CompletionResultType]::ParameterName, 'Clock-rate error allowed for, as a fraction of the TTL')
            [CompletionResult]::new('--restart-guard', '--restart-guard', [CompletionResultType]::ParameterName, 'Ignore a server that restarted more recently than this: it may have forgotten locks')
            [CompletionResult]::new('--wait-replicas', '--wait-replicas', [CompletionResultType]::ParameterName, 'Count a grant or a renewal only once N replicas of the server have it')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Text put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key')
            [CompletionResult]::new('--cert-key', '--cert-key', [CompletionResultType]::ParameterName, 'The private key of --cert (a PEM file), which others must not be able to read')
            [CompletionResult]::new('--tls-server-name', '--tls-server-name', [CompletionResultType]::ParameterName, 'Name for which the certificate of each server must be valid, instead of the host of its address')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which others must not be able to read')
            [CompletionResult]::new('--sentinel-password-file', '--sentinel-password-file', [CompletionResultType]::ParameterName, 'Read the password for the sentinels from the first line of this file')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Read this configuration file alone; none: read no file')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Apply the settings of this profile of the configuration files')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output: token, json or env')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields')
            [CompletionResult]::new('--progress', '--progress', [CompletionResultType]::ParameterName, 'How to tell what takes longer than a second: one line that is redrawn, or plain lines')
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Share the lock with other runs that give -s: no other kind of holder beside them')
            [CompletionResult]::new('--shared', '--shared', [CompletionResultType]::ParameterName, 'Share the lock with other runs that give -s: no other kind of holder beside them')
            [CompletionResult]::new('-x', '-x', [CompletionResultType]::ParameterName, 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]')
            [CompletionResult]::new('--exclusive', '--exclusive', [CompletionResultType]::ParameterName, 'Be the only holder, whatever RLOCK_SHARED and RLOCK_SLOTS say [default]')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Do not wait: the same as --wait 0')
            [CompletionResult]::new('--no-wait', '--no-wait', [CompletionResultType]::ParameterName, 'Do not wait: the same as --wait 0')
            [CompletionResult]::new('--supersede', '--supersede', [CompletionResultType]::ParameterName, 'End the waiters with --supersede that came before: they exit with 76. The holder is left alone')
            [CompletionResult]::new('--fsync', '--fsync', [CompletionResultType]::ParameterName, 'Count it only once it is on the disks of the server and of these replicas (Redis 7.2; appendonly yes)')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;renew' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken; repeated for several locks')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken; repeated for several locks')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'Proof that the lock is the caller''s, as acquire printed it or the command found it')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Text put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key')
            [CompletionResult]::new('--cert-key', '--cert-key', [CompletionResultType]::ParameterName, 'The private key of --cert (a PEM file), which others must not be able to read')
            [CompletionResult]::new('--tls-server-name', '--tls-server-name', [CompletionResultType]::ParameterName, 'Name for which the certificate of each server must be valid, instead of the host of its address')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which others must not be able to read')
            [CompletionResult]::new('--sentinel-password-file', '--sentinel-password-file', [CompletionResultType]::ParameterName, 'Read the password for the sentinels from the first line of this file')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Read this configuration file alone; none: read no file')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Apply the settings of this profile of the configuration files')
            [CompletionResult]::new('--fence', '--fence', [CompletionResultType]::ParameterName, 'The lock''s fence, for a server that has forgotten it; of several locks, a list as for --token')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'How long the lock is to last from now on [default: as long as it was taken for]')
            [CompletionResult]::new('--wait-replicas', '--wait-replicas', [CompletionResultType]::ParameterName, 'Count a grant or a renewal only once N replicas of the server have it')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields')
            [CompletionResult]::new('--progress', '--progress', [CompletionResultType]::ParameterName, 'How to tell what takes longer than a second: one line that is redrawn, or plain lines')
            [CompletionResult]::new('--fsync', '--fsync', [CompletionResultType]::ParameterName, 'Count it only once it is on the disks of the server and of these replicas (Redis 7.2; appendonly yes)')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;release' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken; repeated for several locks')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken; repeated for several locks')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'Proof that the lock is the caller''s, as acquire printed it or the command found it')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Text put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key')
            [CompletionResult]::new('--cert-key', '--cert-key', [CompletionResultType]::ParameterName, 'The private key of --cert (a PEM file), which others must not be able to read')
            [CompletionResult]::new('--tls-server-name', '--tls-server-name', [CompletionResultType]::ParameterName, 'Name for which the certificate of each server must be valid, instead of the host of its address')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which others must not be able to read')
            [CompletionResult]::new('--sentinel-password-file', '--sentinel-password-file', [CompletionResultType]::ParameterName, 'Read the password for the sentinels from the first line of this file')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Read this configuration file alone; none: read no file')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Apply the settings of this profile of the configuration files')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields')
            [CompletionResult]::new('--progress', '--progress', [CompletionResultType]::ParameterName, 'How to tell what takes longer than a second: one line that is redrawn, or plain lines')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;check' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken; repeated for several locks')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken; repeated for several locks')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'Proof that the lock is the caller''s, as acquire printed it or the command found it')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Text put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key')
            [CompletionResult]::new('--cert-key', '--cert-key', [CompletionResultType]::ParameterName, 'The private key of --cert (a PEM file), which others must not be able to read')
            [CompletionResult]::new('--tls-server-name', '--tls-server-name', [CompletionResultType]::ParameterName, 'Name for which the certificate of each server must be valid, instead of the host of its address')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which others must not be able to read')
            [CompletionResult]::new('--sentinel-password-file', '--sentinel-password-file', [CompletionResultType]::ParameterName, 'Read the password for the sentinels from the first line of this file')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Read this configuration file alone; none: read no file')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Apply the settings of this profile of the configuration files')
            [CompletionResult]::new('--fence', '--fence', [CompletionResultType]::ParameterName, 'Also require this fence; of several locks, a list as for --token')
            [CompletionResult]::new('--for', '--for', [CompletionResultType]::ParameterName, 'Also require that the lock stays the caller''s for this long without a renewal')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields')
            [CompletionResult]::new('--progress', '--progress', [CompletionResultType]::ParameterName, 'How to tell what takes longer than a second: one line that is redrawn, or plain lines')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;inspect' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'A lock''s name, even if it looks like a pattern or an option')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'A lock''s name, even if it looks like a pattern or an option')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Text put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key')
            [CompletionResult]::new('--cert-key', '--cert-key', [CompletionResultType]::ParameterName, 'The private key of --cert (a PEM file), which others must not be able to read')
            [CompletionResult]::new('--tls-server-name', '--tls-server-name', [CompletionResultType]::ParameterName, 'Name for which the certificate of each server must be valid, instead of the host of its address')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which others must not be able to read')
            [CompletionResult]::new('--sentinel-password-file', '--sentinel-password-file', [CompletionResultType]::ParameterName, 'Read the password for the sentinels from the first line of this file')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Read this configuration file alone; none: read no file')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Apply the settings of this profile of the configuration files')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Output: table, json (as --json) or openmetrics, gauges of locks and nodes for Prometheus [default: table]')
            [CompletionResult]::new('--watch', '--watch', [CompletionResultType]::ParameterName, 'Redraw every 2s, or at the given interval')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields')
            [CompletionResult]::new('--progress', '--progress', [CompletionResultType]::ParameterName, 'How to tell what takes longer than a second: one line that is redrawn, or plain lines')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print an array with one object a key instead of the table')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;break' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The name of the lock to break, even if it looks like an option')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The name of the lock to break, even if it looks like an option')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'Break the lock of this token alone')
            [CompletionResult]::new('--slot', '--slot', [CompletionResultType]::ParameterName, 'Break the lock of the holder of this slot alone')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Text put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key')
            [CompletionResult]::new('--cert-key', '--cert-key', [CompletionResultType]::ParameterName, 'The private key of --cert (a PEM file), which others must not be able to read')
            [CompletionResult]::new('--tls-server-name', '--tls-server-name', [CompletionResultType]::ParameterName, 'Name for which the certificate of each server must be valid, instead of the host of its address')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which others must not be able to read')
            [CompletionResult]::new('--sentinel-password-file', '--sentinel-password-file', [CompletionResultType]::ParameterName, 'Read the password for the sentinels from the first line of this file')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Read this configuration file alone; none: read no file')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Apply the settings of this profile of the configuration files')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields')
            [CompletionResult]::new('--progress', '--progress', [CompletionResultType]::ParameterName, 'How to tell what takes longer than a second: one line that is redrawn, or plain lines')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('--now', '--now', [CompletionResultType]::ParameterName, 'Delete the key at once: the holder''s command may run on, not alone, until its next renewal')
            [CompletionResult]::new('--foreign', '--foreign', [CompletionResultType]::ParameterName, 'Break also a value that rlock did not write, or a lock whose holder uses another number of nodes')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;doctor' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'A lock for these nodes: checks that the ACL allows its key, and makes the ACL line for it alone')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'A lock for these nodes: checks that the ACL allows its key, and makes the ACL line for it alone')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path, local')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Text put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, 50ms to 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--cert', '--cert', [CompletionResultType]::ParameterName, 'Show this certificate (a PEM file with its chain) to servers that ask for one; needs --cert-key')
            [CompletionResult]::new('--cert-key', '--cert-key', [CompletionResultType]::ParameterName, 'The private key of --cert (a PEM file), which others must not be able to read')
            [CompletionResult]::new('--tls-server-name', '--tls-server-name', [CompletionResultType]::ParameterName, 'Name for which the certificate of each server must be valid, instead of the host of its address')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which others must not be able to read')
            [CompletionResult]::new('--sentinel-password-file', '--sentinel-password-file', [CompletionResultType]::ParameterName, 'Read the password for the sentinels from the first line of this file')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Read this configuration file alone; none: read no file')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Apply the settings of this profile of the configuration files')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'The lease length you plan to use; nodes that are too slow for it are reported')
            [CompletionResult]::new('--restart-guard', '--restart-guard', [CompletionResultType]::ParameterName, 'The restart guard you plan to use, as for run')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields')
            [CompletionResult]::new('--progress', '--progress', [CompletionResultType]::ParameterName, 'How to tell what takes longer than a second: one line that is redrawn, or plain lines')
            [CompletionResult]::new('--acl', '--acl', [CompletionResultType]::ParameterName, 'Print the ACL line, which grants a user exactly the rights that rlock needs')
            [CompletionResult]::new('--try', '--try', [CompletionResultType]::ParameterName, 'Also take the lock rlock-doctor at each node, and give it back')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one object instead of the table')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;config' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'A lock: shows the settings that runs of it have; repeated, those of one run of all of them')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'A lock: shows the settings that runs of it have; repeated, those of one run of all of them')
            [CompletionResult]::new('--config', '--config', [CompletionResultType]::ParameterName, 'Read this configuration file alone; none: read no file')
            [CompletionResult]::new('--profile', '--profile', [CompletionResultType]::ParameterName, 'Apply the settings of this profile of the configuration files')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'Form of rlock''s lines: text, json, which prints each step too, or journal: entries of systemd''s journal with fields')
            [CompletionResult]::new('--progress', '--progress', [CompletionResultType]::ParameterName, 'How to tell what takes longer than a second: one line that is redrawn, or plain lines')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Check every section of the files instead, and print the names of the files')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print an array with one object a setting instead of the table')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'Print nothing when busy or waiting; failures still get their line')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Print each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;completions' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;man' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;help' {
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Hold the lock around a command')
            [CompletionResult]::new('acquire', 'acquire', [CompletionResultType]::ParameterValue, 'Take the lock and exit, printing the token')
            [CompletionResult]::new('renew', 'renew', [CompletionResultType]::ParameterValue, 'Extend a lock, if it is still the caller''s')
            [CompletionResult]::new('release', 'release', [CompletionResultType]::ParameterValue, 'Release a lock, if it is still the caller''s')
            [CompletionResult]::new('check', 'check', [CompletionResultType]::ParameterValue, 'Tell whether the lock is still the caller''s')
            [CompletionResult]::new('inspect', 'inspect', [CompletionResultType]::ParameterValue, 'Show which locks are held, and by which client')
            [CompletionResult]::new('break', 'break', [CompletionResultType]::ParameterValue, 'Take a lock away from its holder')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Tell whether the nodes are fit to hold locks')
            [CompletionResult]::new('config', 'config', [CompletionResultType]::ParameterValue, 'Show every setting that is in force, and where it comes from')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print the completions for a shell')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Print a man page: rlock''s, or a subcommand''s')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'rlock;help;run' {
            break
        }
        'rlock;help;acquire' {
            break
        }
        'rlock;help;renew' {
            break
        }
        'rlock;help;release' {
            break
        }
        'rlock;help;check' {
            break
        }
        'rlock;help;inspect' {
            break
        }
        'rlock;help;break' {
            break
        }
        'rlock;help;doctor' {
            break
        }
        'rlock;help;config' {
            break
        }
        'rlock;help;completions' {
            break
        }
        'rlock;help;man' {
            break
        }
        'rlock;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
