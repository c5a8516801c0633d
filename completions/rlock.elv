
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
            cand acquire 'Take the lock and exit, printing the token'
            cand renew 'Extend a lock, if it is still the caller''s'
            cand release 'Give a lock back, if it is still the caller''s'
            cand check 'Tell whether the lock is still the caller''s'
            cand inspect 'Show who holds which lock'
            cand break 'Take a lock away from its holder'
            cand doctor 'Tell whether the nodes are fit to hold locks'
            cand completions 'Print the completions for a shell'
            cand man 'Print a man page: rlock''s, or a subcommand''s'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'rlock;run'= {
            cand -k 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too'
            cand --key 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file'
            cand --prefix 'Put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which must not be readable by others'
            cand --ttl 'Lease length: the lock passes on this long after its holder''s last renewal, at the latest'
            cand -w 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does'
            cand --wait 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does'
            cand -E 'Exit code when the lock is busy, 0 to 255'
            cand --busy-code 'Exit code when the lock is busy, 0 to 255'
            cand --order 'Who of those who wait has the lock next'
            cand --drift 'Clock-rate error allowed for, as a fraction of the TTL'
            cand --restart-guard 'A server that restarted a shorter time ago than this has perhaps forgotten locks and grants none; auto: 30s, or the longest TTL met for the key if that is more, with several nodes, and off with one. Where hosts use different TTLs for a key, give all of them the longest'
            cand --note 'Shown to those who ask who holds the lock (a CI job''s URL)'
            cand --kill-after 'Time between the first signal and SIGKILL, cut to what fits into the TTL when the lock is being lost; bare seconds are taken too [default: a sixth of the TTL, at most 5s]'
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
        &'rlock;acquire'= {
            cand -k 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too'
            cand --key 'The lock''s name; the Redis key is exactly this, so every other SET NX client is excluded too'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file'
            cand --prefix 'Put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which must not be readable by others'
            cand --ttl 'Lease length: the lock passes on this long after its holder''s last renewal, at the latest'
            cand -w 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does'
            cand --wait 'Give up waiting after this; bare seconds are taken too. Not given: wait for ever, as flock does'
            cand -E 'Exit code when the lock is busy, 0 to 255'
            cand --busy-code 'Exit code when the lock is busy, 0 to 255'
            cand --order 'Who of those who wait has the lock next'
            cand --drift 'Clock-rate error allowed for, as a fraction of the TTL'
            cand --restart-guard 'A server that restarted a shorter time ago than this has perhaps forgotten locks and grants none; auto: 30s, or the longest TTL met for the key if that is more, with several nodes, and off with one. Where hosts use different TTLs for a key, give all of them the longest'
            cand --note 'Shown to those who ask who holds the lock (a CI job''s URL)'
            cand --format 'What is printed: token; json (key, token, fence and the ttl_ms that are certainly left); or env, lines RLOCK_KEY=…, RLOCK_TOKEN=… and RLOCK_FENCE=… for a shell''s eval and for $GITHUB_ENV'
            cand --log 'How lines on stderr look; json tells each step as well'
            cand -n 'Do not wait: the same as --wait 0'
            cand --no-wait 'Do not wait: the same as --wait 0'
            cand -q 'No line for busy or waiting; failures still get theirs'
            cand --quiet 'No line for busy or waiting; failures still get theirs'
            cand -v 'Tell each step on stderr'
            cand --verbose 'Tell each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;renew'= {
            cand -k 'The lock''s name, as it was taken'
            cand --key 'The lock''s name, as it was taken'
            cand --token 'What proves that the lock is the caller''s, as acquire printed it or the command found it'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file'
            cand --prefix 'Put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which must not be readable by others'
            cand --fence 'The lock''s fence, so that a server that forgot it learns it again'
            cand --ttl 'How long the lock is to last from now on [default: as long as it was taken for]'
            cand --log 'How lines on stderr look; json tells each step as well'
            cand -q 'No line for busy or waiting; failures still get theirs'
            cand --quiet 'No line for busy or waiting; failures still get theirs'
            cand -v 'Tell each step on stderr'
            cand --verbose 'Tell each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;release'= {
            cand -k 'The lock''s name, as it was taken'
            cand --key 'The lock''s name, as it was taken'
            cand --token 'What proves that the lock is the caller''s, as acquire printed it or the command found it'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file'
            cand --prefix 'Put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which must not be readable by others'
            cand --log 'How lines on stderr look; json tells each step as well'
            cand -q 'No line for busy or waiting; failures still get theirs'
            cand --quiet 'No line for busy or waiting; failures still get theirs'
            cand -v 'Tell each step on stderr'
            cand --verbose 'Tell each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;check'= {
            cand -k 'The lock''s name, as it was taken'
            cand --key 'The lock''s name, as it was taken'
            cand --token 'What proves that the lock is the caller''s, as acquire printed it or the command found it'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file'
            cand --prefix 'Put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which must not be readable by others'
            cand --fence 'And it must have this fence'
            cand --for 'And it must stay the caller''s for at least this long without a renewal'
            cand --log 'How lines on stderr look; json tells each step as well'
            cand -q 'No line for busy or waiting; failures still get theirs'
            cand --quiet 'No line for busy or waiting; failures still get theirs'
            cand -v 'Tell each step on stderr'
            cand --verbose 'Tell each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;inspect'= {
            cand -k 'A lock''s name, whatever it looks like'
            cand --key 'A lock''s name, whatever it looks like'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file'
            cand --prefix 'Put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which must not be readable by others'
            cand --watch 'Look again and again, every 2s or as often as said, and redraw'
            cand --log 'How lines on stderr look; json tells each step as well'
            cand --json 'Print an array with one object a key instead of the table'
            cand -q 'No line for busy or waiting; failures still get theirs'
            cand --quiet 'No line for busy or waiting; failures still get theirs'
            cand -v 'Tell each step on stderr'
            cand --verbose 'Tell each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;break'= {
            cand -k 'The name of the lock to break, if it looks like an option'
            cand --key 'The name of the lock to break, if it looks like an option'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file'
            cand --prefix 'Put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which must not be readable by others'
            cand --log 'How lines on stderr look; json tells each step as well'
            cand -y 'Do not ask'
            cand --yes 'Do not ask'
            cand --now 'Delete the key at once: the holder''s command may run on until its next renewal, and not alone'
            cand --foreign 'Break what is at the key even if it is none of rlock''s, or a lock whose holder uses another number of nodes'
            cand -q 'No line for busy or waiting; failures still get theirs'
            cand --quiet 'No line for busy or waiting; failures still get theirs'
            cand -v 'Tell each step on stderr'
            cand --verbose 'Tell each step on stderr'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'rlock;doctor'= {
            cand -k 'A lock that the nodes are to hold: it is tried whether its key is allowed, and the ACL line is for it alone'
            cand --key 'A lock that the nodes are to hold: it is tried whether its key is allowed, and the ACL line is for it alone'
            cand --node 'Where the lock lives: redis://[user[:password]@]host[:port][/db], rediss://… (TLS), redis+unix:///path[?db=N], or local (flock on this machine), local:/dir. Repeated or separated by commas: the lock is held by a majority of 2 to 9 independent servers (Redlock). A password in a URL stands in ps: prefer RLOCK_PASSWORD, REDISCLI_AUTH or --password-file'
            cand --prefix 'Put before every key'
            cand --node-timeout 'Limit for each exchange with a node, connecting included [default: 5 % of the TTL, at least 50ms, at most 1s; without a TTL 1s]'
            cand --ca 'Trust this issuer (a PEM file) for rediss:// instead of the system''s'
            cand --password-file 'Read the password from the first line of this file, which must not be readable by others'
            cand --ttl 'Lease length that is to be used: are the nodes quick enough for it?'
            cand --restart-guard 'The restart guard that is to be used, as for run'
            cand --log 'How lines on stderr look; json tells each step as well'
            cand --json 'Print one object instead of the table'
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
            cand acquire 'Take the lock and exit, printing the token'
            cand renew 'Extend a lock, if it is still the caller''s'
            cand release 'Give a lock back, if it is still the caller''s'
            cand check 'Tell whether the lock is still the caller''s'
            cand inspect 'Show who holds which lock'
            cand break 'Take a lock away from its holder'
            cand doctor 'Tell whether the nodes are fit to hold locks'
            cand completions 'Print the completions for a shell'
            cand man 'Print a man page: rlock''s, or a subcommand''s'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'rlock;help;run'= {
        }
        &'rlock;help;acquire'= {
        }
        &'rlock;help;renew'= {
        }
        &'rlock;help;release'= {
        }
        &'rlock;help;check'= {
        }
        &'rlock;help;inspect'= {
        }
        &'rlock;help;break'= {
        }
        &'rlock;help;doctor'= {
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
