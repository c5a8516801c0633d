
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
            [CompletionResult]::new('release', 'release', [CompletionResultType]::ParameterValue, 'Give a lock back, if it is still the caller''s')
            [CompletionResult]::new('check', 'check', [CompletionResultType]::ParameterValue, 'Tell whether the lock is still the caller''s')
            [CompletionResult]::new('inspect', 'inspect', [CompletionResultType]::ParameterValue, 'Show who holds which lock')
            [CompletionResult]::new('break', 'break', [CompletionResultType]::ParameterValue, 'Take a lock away from its holder')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Tell whether the nodes are fit to hold locks')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Print the completions for a shell')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Print a man page: rlock''s, or a subcommand''s')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'rlock;run' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which must not be readable by others')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'Lease length: the lock passes on this long after its holder''s last renewal, at the latest')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit code when the lock is busy, 0 to 255')
            [CompletionResult]::new('--busy-code', '--busy-code', [CompletionResultType]::ParameterName, 'Exit code when the lock is busy, 0 to 255')
            [CompletionResult]::new('--order', '--order', [CompletionResultType]::ParameterName, 'Who of those who wait has the lock next')
            [CompletionResult]::new('--drift', '--drift', [CompletionResultType]::ParameterName, 'Clock-rate error allowed for, as a fraction of the TTL')
            [CompletionResult]::new('--restart-guard', '--restart-guard', [CompletionResultType]::ParameterName, 'A server that restarted a shorter time ago than this has perhaps forgotten locks and grants none; auto: 30s, or the longest TTL met for the key if that is more, with several nodes, and off with one. Where hosts use different TTLs for a key, give all of them the longest')
            [CompletionResult]::new('--note', '--note', [CompletionResultType]::ParameterName, 'Shown to those who ask who holds the lock (a CI job''s URL)')
            [CompletionResult]::new('--kill-after', '--kill-after', [CompletionResultType]::ParameterName, 'Time between the first signal and SIGKILL, cut to what fits into the TTL when the lock is being lost; bare seconds are taken too [default: a sixth of the TTL, at most 5s]')
            [CompletionResult]::new('--max-run', '--max-run', [CompletionResultType]::ParameterName, 'Stop the command after this, as timeout(1) does: exit 124, also when SIGKILL was needed; bare seconds are taken too, 0 is for ever')
            [CompletionResult]::new('--on-lost', '--on-lost', [CompletionResultType]::ParameterName, 'When the lock is lost: kill the command, or warn and let it go on (then somebody else may run it too)')
            [CompletionResult]::new('--signal', '--signal', [CompletionResultType]::ParameterName, 'What to send first when the lock is being lost or time is up')
            [CompletionResult]::new('-c', '-c', [CompletionResultType]::ParameterName, 'Run sh -c STRING instead of CMD')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'How lines on stderr look; json tells each step as well')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Do not wait: the same as --wait 0')
            [CompletionResult]::new('--no-wait', '--no-wait', [CompletionResultType]::ParameterName, 'Do not wait: the same as --wait 0')
            [CompletionResult]::new('--contain', '--contain', [CompletionResultType]::ParameterName, 'Nothing that the command started outlives the lock, setsid or not: when the command ends, the rest gets the first signal and, after --kill-after, SIGKILL')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;acquire' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which must not be readable by others')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'Lease length: the lock passes on this long after its holder''s last renewal, at the latest')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does')
            [CompletionResult]::new('-E', '-E ', [CompletionResultType]::ParameterName, 'Exit code when the lock is busy, 0 to 255')
            [CompletionResult]::new('--busy-code', '--busy-code', [CompletionResultType]::ParameterName, 'Exit code when the lock is busy, 0 to 255')
            [CompletionResult]::new('--order', '--order', [CompletionResultType]::ParameterName, 'Who of those who wait has the lock next')
            [CompletionResult]::new('--drift', '--drift', [CompletionResultType]::ParameterName, 'Clock-rate error allowed for, as a fraction of the TTL')
            [CompletionResult]::new('--restart-guard', '--restart-guard', [CompletionResultType]::ParameterName, 'A server that restarted a shorter time ago than this has perhaps forgotten locks and grants none; auto: 30s, or the longest TTL met for the key if that is more, with several nodes, and off with one. Where hosts use different TTLs for a key, give all of them the longest')
            [CompletionResult]::new('--note', '--note', [CompletionResultType]::ParameterName, 'Shown to those who ask who holds the lock (a CI job''s URL)')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'What is printed: token; json (key, token, fence and the ttl_ms that are certainly left); or env, lines RLOCK_KEY=…, RLOCK_TOKEN=… and RLOCK_FENCE=… for a shell''s eval and for $GITHUB_ENV')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'How lines on stderr look; json tells each step as well')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Do not wait: the same as --wait 0')
            [CompletionResult]::new('--no-wait', '--no-wait', [CompletionResultType]::ParameterName, 'Do not wait: the same as --wait 0')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;renew' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'What proves that the lock is the caller''s, as acquire printed it or the command found it')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which must not be readable by others')
            [CompletionResult]::new('--fence', '--fence', [CompletionResultType]::ParameterName, 'The lock''s fence, so that a server that forgot it learns it again')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'How long the lock is to last from now on [default: as long as it was taken for]')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'How lines on stderr look; json tells each step as well')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;release' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'What proves that the lock is the caller''s, as acquire printed it or the command found it')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which must not be readable by others')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'How lines on stderr look; json tells each step as well')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;check' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The lock''s name, as it was taken')
            [CompletionResult]::new('--token', '--token', [CompletionResultType]::ParameterName, 'What proves that the lock is the caller''s, as acquire printed it or the command found it')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which must not be readable by others')
            [CompletionResult]::new('--fence', '--fence', [CompletionResultType]::ParameterName, 'And it must have this fence')
            [CompletionResult]::new('--for', '--for', [CompletionResultType]::ParameterName, 'And it must stay the caller''s for at least this long without a renewal')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'How lines on stderr look; json tells each step as well')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;inspect' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'A lock''s name, whatever it looks like')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'A lock''s name, whatever it looks like')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which must not be readable by others')
            [CompletionResult]::new('--watch', '--watch', [CompletionResultType]::ParameterName, 'Look again and again, every 2s or as often as said, and redraw')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'How lines on stderr look; json tells each step as well')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print an array with one object a key instead of the table')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;break' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'The name of the lock to break, if it looks like an option')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'The name of the lock to break, if it looks like an option')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which must not be readable by others')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'How lines on stderr look; json tells each step as well')
            [CompletionResult]::new('-y', '-y', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('--yes', '--yes', [CompletionResultType]::ParameterName, 'Do not ask')
            [CompletionResult]::new('--now', '--now', [CompletionResultType]::ParameterName, 'Delete the key at once: the holder''s command may run on until its next renewal, and not alone')
            [CompletionResult]::new('--foreign', '--foreign', [CompletionResultType]::ParameterName, 'Break what is at the key even if it is none of rlock''s, or a lock whose holder uses another number of nodes')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;doctor' {
            [CompletionResult]::new('-k', '-k', [CompletionResultType]::ParameterName, 'A lock that the nodes are to hold: it is tried whether its key is allowed, and the ACL line is for it alone')
            [CompletionResult]::new('--key', '--key', [CompletionResultType]::ParameterName, 'A lock that the nodes are to hold: it is tried whether its key is allowed, and the ACL line is for it alone')
            [CompletionResult]::new('--node', '--node', [CompletionResultType]::ParameterName, 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file')
            [CompletionResult]::new('--prefix', '--prefix', [CompletionResultType]::ParameterName, 'Put before every key')
            [CompletionResult]::new('--node-timeout', '--node-timeout', [CompletionResultType]::ParameterName, 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]')
            [CompletionResult]::new('--ca', '--ca', [CompletionResultType]::ParameterName, 'Trust this issuer (a PEM file) for rediss:// instead of the system''s')
            [CompletionResult]::new('--password-file', '--password-file', [CompletionResultType]::ParameterName, 'Read the password from the first line of this file, which must not be readable by others')
            [CompletionResult]::new('--ttl', '--ttl', [CompletionResultType]::ParameterName, 'Lease length that is to be used: are the nodes quick enough for it?')
            [CompletionResult]::new('--restart-guard', '--restart-guard', [CompletionResultType]::ParameterName, 'The restart guard that is to be used, as for run')
            [CompletionResult]::new('--log', '--log', [CompletionResultType]::ParameterName, 'How lines on stderr look; json tells each step as well')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one object instead of the table')
            [CompletionResult]::new('-q', '-q', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('--quiet', '--quiet', [CompletionResultType]::ParameterName, 'No line for busy or waiting; failures still get theirs')
            [CompletionResult]::new('-v', '-v', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('--verbose', '--verbose', [CompletionResultType]::ParameterName, 'Tell each step on stderr')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'rlock;completions' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'rlock;man' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'rlock;help' {
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Hold the lock around a command')
            [CompletionResult]::new('acquire', 'acquire', [CompletionResultType]::ParameterValue, 'Take the lock and exit, printing the token')
            [CompletionResult]::new('renew', 'renew', [CompletionResultType]::ParameterValue, 'Extend a lock, if it is still the caller''s')
            [CompletionResult]::new('release', 'release', [CompletionResultType]::ParameterValue, 'Give a lock back, if it is still the caller''s')
            [CompletionResult]::new('check', 'check', [CompletionResultType]::ParameterValue, 'Tell whether the lock is still the caller''s')
            [CompletionResult]::new('inspect', 'inspect', [CompletionResultType]::ParameterValue, 'Show who holds which lock')
            [CompletionResult]::new('break', 'break', [CompletionResultType]::ParameterValue, 'Take a lock away from its holder')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Tell whether the nodes are fit to hold locks')
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
