
use builtin;
use str;

set edit:completion:arg-completer[rlock] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'rlock'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'rlock'= {
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
            cand run 'Hold the lock around a command'
            cand completions 'Print the completions for a shell'
            cand man 'Print a man page: rlock''s, or a subcommand''s'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'rlock;run'= {
            cand -k 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too'
            cand --key 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file'
            cand --ttl 'Lease length: the lock passes on this long after its holder''s last renewal, at the latest'
            cand -w 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does'
            cand --wait 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does'
            cand -E 'Exit code when the lock is busy, 0 to 255'
            cand --busy-code 'Exit code when the lock is busy, 0 to 255'
            cand --order 'Who of those who wait has the lock next'
            cand --prefix 'Put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s]'
            cand --drift 'Clock-rate error allowed for, as a fraction of the TTL'
            cand --restart-guard 'A server that restarted a shorter time ago than this has perhaps forgotten locks and grants none; auto: 30s, or the longest TTL met for the key if that is more, with several nodes, and off with one. Where hosts use different TTLs for a key, give all of them the longest'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which must not be readable by others'
            cand --note 'Shown to those who ask who holds the lock (a CI job''s URL)'
            cand --kill-after 'Time between the first signal and SIGKILL when the lock is being lost or time is up; bare seconds are taken too [default: a sixth of the TTL, at most 5s]'
            cand --max-run 'Stop the command after this, as timeout(1) does: exit 124, also when SIGKILL was needed; bare seconds are taken too, 0 is for ever'
            cand --on-lost 'When the lock is lost: kill the command, or warn and let it go on (then somebody else may run it too)'
            cand --signal 'What to send first when the lock is being lost or time is up'
            cand -c 'Run sh -c STRING instead of CMD'
            cand --log 'How lines on stderr look; json tells each step as well'
            cand -n 'Do not wait: the same as --wait 0'
            cand --no-wait 'Do not wait: the same as --wait 0'
            cand --contain 'Nothing that the command started outlives the lock, setsid or not: when the command ends, the rest gets the first signal and, after --kill-after, SIGKILL'
            cand -q 'No line for busy or waiting; failures still get theirs'
            cand --quiet 'No line for busy or waiting; failures still get theirs'
            cand -v 'Tell each step on stderr'
            cand --verbose 'Tell each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;completions'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'rlock;man'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'rlock;help'= {
            cand run 'Hold the lock around a command'
            cand completions 'Print the completions for a shell'
            cand man 'Print a man page: rlock''s, or a subcommand''s'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'rlock;help;run'= {
        }
        &'rlock;help;completions'= {
        }
        &'rlock;help;man'= {
        }
        &'rlock;help;help'= {
        }
    ]
    $completions[$command]
}
