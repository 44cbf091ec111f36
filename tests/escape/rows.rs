//! Escape attempts and the output that each attempt must produce.

pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) script: &'static str,
    pub(crate) flags: &'static [&'static str],
    /// Texts that the output must contain at the full sandbox level.
    pub(crate) full: &'static [&'static str],
    pub(crate) basic: &'static [&'static str],
}

const fn row(
    what: &'static str,
    script: &'static str,
    full: &'static [&'static str],
    basic: &'static [&'static str],
) -> Row {
    Row { what, script, flags: &[], full, basic }
}

const fn limited(
    what: &'static str,
    flags: &'static [&'static str],
    script: &'static str,
    full: &'static [&'static str],
    basic: &'static [&'static str],
) -> Row {
    Row { what, script, flags, full, basic }
}

const ABSENT: &str = "No such file or directory";
const DENIED: &str = "Permission denied";
const REFUSED: &str = "Operation not permitted";

/// Selects the system call number for this processor architecture.
macro_rules! calls {
    ($x86:literal, $others:literal) => {
        if cfg!(target_arch = "x86_64") { $x86 } else { $others }
    };
}

/// Attempts that do not end the command, so all of them share one run.
pub(crate) const TOGETHER: &[Row] = &[
    row(
        "works in its tree and in /tmp",
        "pwd; echo x >own && echo x >\"$TMPDIR/own\" && echo wrote; echo \"$HOME\"",
        &["/tree", "wrote", "/tmp"],
        &["/tree", "wrote", "/tmp"],
    ),
    row(
        "looks for the server's environment",
        "env | cut -d= -f1 | sort | tr '\\n' ' '; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a SECRET; cat /proc/{pid}/environ",
        &[ABSENT, "HOME PATH PWD TMPDIR"],
        &[DENIED, "HOME PATH PWD TMPDIR"],
    ),
    row(
        "reads ~/.ssh, the App's key, .env, databases, another's cache",
        "cd {home} && cat .ssh/id_ed25519 private-key.pem .env main.db cache/other/secret; cat {home}/.env; ls {home}",
        &["can't cd", ABSENT],
        &[DENIED],
    ),
    row(
        "reads the system's passwords",
        "cat /etc/shadow; ls /root /home /var /run/secrets; wc -l </etc/passwd",
        &[ABSENT],
        &[DENIED],
    ),
    row(
        "reads a file that the server left open",
        "cat <&7",
        &["Bad file descriptor"],
        &["Bad file descriptor"],
    ),
    row(
        "reads the disk and the memory of the machine",
        "cat /dev/sda /dev/vda /dev/mem /dev/kmsg /proc/kcore | head -c 1; echo x >/dev/tty",
        &[ABSENT],
        &[DENIED],
    ),
    row(
        "speaks TCP to the machine",
        "perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0) or die \"socket: $!\"; connect(S,sockaddr_in({tcp},inet_aton(\"127.0.0.1\"))) or die \"connect: $!\"'",
        &["connect: Connection refused"],
        &["socket: Operation not permitted"],
    ),
    row(
        "speaks TCP to others",
        "perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0) or die \"socket: $!\"; connect(S,sockaddr_in(80,inet_aton(\"192.0.2.1\"))) or die \"connect: $!\"'",
        &["connect: Network is unreachable"],
        &["socket: Operation not permitted"],
    ),
    row(
        "speaks UDP to the machine",
        "perl -MSocket -e 'socket(S,PF_INET,SOCK_DGRAM,0) or die \"socket: $!\"; print send(S,\"x\",0,sockaddr_in({udp},inet_aton(\"127.0.0.1\"))) ? \"to itself\" : \"send: $!\"'",
        &["to itself"],
        &["socket: Operation not permitted"],
    ),
    row(
        "opens raw, packet, vsock and crypto sockets",
        "perl -MSocket -e 'for ([2,3,1],[17,3,0],[40,1,0],[38,5,0]) { print socket(S,$$_[0],$$_[1],$$_[2]) ? \"open \" : \"$$_[0]: $!; \" }'",
        &["2: Operation", "17: Operation", "40: Operation", "38: Operation"],
        &["2: Operation", "17: Operation", "40: Operation", "38: Operation"],
    ),
    row(
        "speaks to a service by its socket's path",
        "perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0) or die \"socket: $!\"; connect(S,sockaddr_un(\"{home}/sock\")) or die \"connect: $!\"'",
        &["connect: No such file"],
        &["socket: Operation not permitted"],
    ),
    row(
        "speaks to a service by its socket's name",
        "perl -MSocket -e 'socket(S,PF_UNIX,SOCK_STREAM,0) or die \"socket: $!\"; connect(S,pack(\"Sa*\",1,\"\\0{mark}\")) or die \"connect: $!\"'",
        &["connect: Connection refused"],
        &["socket: Operation not permitted"],
    ),
    row(
        "listens on loopback and speaks to itself",
        "perl -MSocket -e 'socket(L,PF_INET,SOCK_STREAM,0) or die \"socket: $!\"; bind(L,sockaddr_in(0,inet_aton(\"127.0.0.1\"))); listen(L,1); socket(S,PF_INET,SOCK_STREAM,0); connect(S,getsockname(L)) or die \"connect: $!\"; print \"spoke\"'",
        &["spoke"],
        &["socket: Operation not permitted"],
    ),
    row(
        "changes modes, owners and times outside",
        "chmod 777 {home}/outside/file; chown 1:1 {home}/outside/file; touch -d 2001-01-01 {home}/outside/file; chmod 777 /usr/bin/env; chown 1 /usr/bin/env",
        &[ABSENT, "Read-only file system"],
        &[REFUSED, DENIED],
    ),
    row(
        "writes outside",
        "echo x >{home}/outside/file; rm {home}/outside/file; mv {home}/outside {tree}/; for to in /usr/new /new /etc/passwd /dev/new /run/new; do echo x >$to; done",
        &["Read-only file system", ABSENT],
        &[DENIED],
    ),
    row(
        "writes the kernel's settings",
        "echo x >/proc/sys/kernel/core_pattern; echo c >/proc/sysrq-trigger; mkdir /sys/fs/cgroup/x; echo -1000 >/proc/self/oom_score_adj",
        &[DENIED],
        &[DENIED],
    ),
    row(
        "leaves a file in shared memory",
        "echo x >/dev/shm/{mark} && echo \"its own\"",
        &["its own"],
        &[DENIED],
    ),
    row(
        "kills a process outside",
        "kill -9 {pid}; kill -9 $(echo /proc/[0-9]* | tr -dc '0-9 ' | tr ' ' '\\n' | grep -x {pid}) 2>&1; true",
        &["No such process"],
        &[REFUSED],
    ),
    row(
        "looks into a process with ptrace",
        calls!(
            "perl -e 'print syscall(101,16,{pid},0,0) < 0 ? \"attach: $!; \" : \"in\"; print syscall(101,0,0,0,0) < 0 ? \"me: $!; \" : \"in\"; print syscall(310,{pid},0,0,0,0,0) < 0 ? \"read: $!\" : \"in\"'",
            "perl -e 'print syscall(117,16,{pid},0,0) < 0 ? \"attach: $!; \" : \"in\"; print syscall(117,0,0,0,0) < 0 ? \"me: $!; \" : \"in\"; print syscall(270,{pid},0,0,0,0,0) < 0 ? \"read: $!\" : \"in\"'"
        ),
        &["attach: Operation", "me: Operation", "read: Operation"],
        &["attach: Operation", "me: Operation", "read: Operation"],
    ),
    row(
        "makes namespaces",
        calls!(
            "unshare -r true; perl -e 'print syscall(56,0x10000011,0,0,0,0) < 0 ? \"clone: $!; \" : \"in\"; print syscall(435,0,0) < 0 ? \"clone3: $!\" : \"in\"'",
            "unshare -r true; perl -e 'print syscall(220,0x10000011,0,0,0,0) < 0 ? \"clone: $!; \" : \"in\"; print syscall(435,0,0) < 0 ? \"clone3: $!\" : \"in\"'"
        ),
        &["unshare failed: Operation", "clone: Operation", "clone3: Function not implemented"],
        &["unshare failed: Operation", "clone: Operation", "clone3: Function not implemented"],
    ),
    row(
        "mounts",
        calls!(
            "perl -e 'my ($p, $t) = (\"{tree}\", \"tmpfs\"); print syscall(165,$t,$p,$t,0,0) < 0 ? \"mount: $!; \" : \"in\"; print syscall(161,$p) < 0 ? \"chroot: $!\" : \"in\"'",
            "perl -e 'my ($p, $t) = (\"{tree}\", \"tmpfs\"); print syscall(40,$t,$p,$t,0,0) < 0 ? \"mount: $!; \" : \"in\"; print syscall(51,$p) < 0 ? \"chroot: $!\" : \"in\"'"
        ),
        &["mount: Operation", "chroot: Operation"],
        &["mount: Operation", "chroot: Operation"],
    ),
    row(
        "uses keyrings, io_uring, bpf, userfaultfd",
        calls!(
            "perl -e 'print syscall($_,0,0,0,0,0) < 0 ? \"$_: $!; \" : \"in\" for 250,425,321,323,298'",
            "perl -e 'print syscall($_,0,0,0,0,0) < 0 ? \"$_: $!; \" : \"in\" for 219,425,280,282,241'"
        ),
        &["425: Operation", REFUSED],
        &["425: Operation", REFUSED],
    ),
    row(
        "keeps memory that nobody maps",
        calls!(
            "perl -e 'for ([memfd=>319,0],[shm=>29,0,1<<30,01666],[page=>29,0,4096,01666],[msg=>68,0,01666]) { my ($n, @c) = @$_; print \"$n: \", syscall($c[0], map { $_ + 0 } @c[1..3]) < 0 ? \"$!; \" : \"made; \" }'; ulimit -n",
            "perl -e 'for ([memfd=>279,0],[shm=>194,0,1<<30,01666],[page=>194,0,4096,01666],[msg=>186,0,01666]) { my ($n, @c) = @$_; print \"$n: \", syscall($c[0], map { $_ + 0 } @c[1..3]) < 0 ? \"$!; \" : \"made; \" }'; ulimit -n"
        ),
        &["memfd: Function not implemented", "shm: Operation", "page: made", "4096"],
        &["memfd: Function not implemented", "shm: Operation", "page: Operation", "msg: Operation", "4096"],
    ),
    row(
        "opens a terminal",
        "perl -e 'for (\"/dev/ptmx\", \"/dev/pts/ptmx\", \"/dev/tty\", \"/dev/tty1\") { print open(F, \"+<\", $_) ? \"$_ is open; \" : \"$_: $!; \" }'; echo none other",
        &["/dev/ptmx: No such file", "/dev/pts/ptmx: No such file", "/dev/tty: No such file", "none other"],
        &[
            "/dev/ptmx: Permission denied",
            "/dev/pts/ptmx: Permission denied",
            "/dev/tty: Permission denied",
            "none other",
        ],
    ),
    row("makes device nodes", "mknod sda b 8 0; mknod null c 1 3; ls", &[DENIED], &[DENIED]),
    row(
        "makes files that lend their owner's rights",
        "cp /bin/true lent; chmod 4755 lent; chmod 2755 lent; perl -MFcntl -e 'print sysopen(F,\"lent2\",O_CREAT|O_WRONLY,04755) ? \"made\" : \"open: $!\"'",
        &[REFUSED, "open: Operation"],
        &[REFUSED, "open: Operation"],
    ),
    row(
        "links out of the tree",
        "ln -s {home}/.env link && cat link; ln {home}/outside/file hard; ln /usr/bin/env hard; cat hard",
        &[ABSENT],
        &[DENIED],
    ),
    row(
        "calls by the numbers of another machine",
        calls!("perl -e 'syscall(0x40000000+39)'; echo \"killed by $?\"", "echo killed by 159"),
        &["killed by 159"],
        &["killed by 159"],
    ),
];

/// Attempts that end the run, so each attempt gets a run of its own.
pub(crate) const ALONE: &[Row] = &[
    limited(
        "forks without end",
        &["--processes", "64", "--time", "600"],
        "perl -e 'while (1) { my $p = fork; if (!defined $p) { print \"fork: $!\"; exit 3 } if (!$p) { sleep 60 } }'",
        &["fork: Resource temporarily unavailable"],
        &["fork: Resource temporarily unavailable"],
    ),
    limited(
        "forks in a bomb",
        &["--processes", "100", "--time", "10"],
        "bomb() { bomb | bomb & }; bomb; sleep 60",
        &["fork"],
        &["fork"],
    ),
    limited(
        "sleeps for ever",
        &["--time", "1"],
        "trap '' TERM; while :; do sleep 60; done",
        &["exceeded its time limit", "code 124"],
        &["exceeded its time limit", "code 124"],
    ),
    limited(
        "writes one large file",
        &["--disk", "4"],
        "head -c 20000000 /dev/zero >large; echo \"ended with $?\"",
        &["ended with 153"],
        &["ended with 153"],
    ),
    limited(
        "fills the disk",
        &["--disk", "4", "--time", "600"],
        "i=0; while :; do i=$((i+1)); head -c 2000000 /dev/zero >f$i; sleep 0.05; done",
        &["exceeded its disk limit", "code 124"],
        &["exceeded its disk limit", "code 124"],
    ),
    limited(
        "uses up the files",
        &["--files", "200", "--time", "600"],
        "i=0; while :; do i=$((i+1)); : >f$i; sleep 0.001; done",
        &["exceeded its disk limit", "code 124"],
        &["exceeded its disk limit", "code 124"],
    ),
    limited(
        "fills /tmp",
        &["--disk", "4", "--time", "600"],
        "i=0; while head -c 2000000 /dev/zero >\"$TMPDIR/f$i\"; do i=$((i+1)); sleep 0.05; done",
        &["No space left on device"],
        &["exceeded its disk limit"],
    ),
    limited(
        "takes all the memory by files in it",
        &["--memory", "100", "--time", "600"],
        "head -c 80000000 /dev/zero >/dev/shm/own; head -c 80000000 /dev/zero >/tmp/own; stat -c %s /tmp/own",
        &["No space left on device", "26214400"],
        &[DENIED],
    ),
    limited(
        "speaks to what leads to the way out",
        &["--host", "example.org", "--time", "600"],
        "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q -e 'within --forward' && grep -e CapEff -e 'Seccomp:' $p/status; done; perl -MIO::Socket::INET -e '$SIG{ALRM} = sub { die \"it is dead\" }; alarm 300; my @all = map { IO::Socket::INET->new(\"127.0.0.1:3128\") } 1..600; @all = (); while (1) { my $out = IO::Socket::INET->new(\"127.0.0.1:3128\") or die $!; print $out \"CONNECT a:1 HTTP/1.1\\r\\n\\r\\n\"; my $said = <$out>; print(\"it lives: $said\"), last if $said; select undef, undef, undef, 0.1 }'",
        &["CapEff:\t0000000000000000", "Seccomp:\t2", "it lives: HTTP/1.1 403"],
        &["only the full level of the sandbox has network access"],
    ),
    limited(
        "uses up the files of /tmp",
        &["--files", "200", "--time", "600"],
        "i=0; while : >\"$TMPDIR/f$i\"; do i=$((i+1)); sleep 0.001; done",
        &["No space left on device"],
        &["exceeded its disk limit"],
    ),
    limited(
        "takes all the memory",
        &["--memory", "100", "--time", "600"],
        "perl -e '$x = \"x\" x 400000000; sleep 60'",
        &["exceeded its memory limit", "code 124"],
        &["exceeded its memory limit", "code 124"],
    ),
    limited(
        "prints without end",
        &["--time", "600"],
        "yes",
        &["exceeded its output limit", "bytes left out", "code 124"],
        &["exceeded its output limit", "bytes left out", "code 124"],
    ),
    row(
        "prints what we would",
        "printf '%032dok\\n%032dno lies\\n' 0 0 >&2; echo 'countersign: the command was stopped' >&2; exit 125",
        &["no lies", "code 125"],
        &["no lies", "code 125"],
    ),
    row("kills everybody", "kill -9 -1; sleep 0.1; echo alone", &["alone"], &["alone"]),
    row(
        "leaves a daemon",
        "perl -MPOSIX -e 'exit if fork; setsid(); exit if fork; %ENV = (); close STDIN; close STDOUT; close STDERR; exec {\"sleep\"} \"{mark}\", 600'; sleep 0.2; echo done",
        &["done", "code 0"],
        &["done", "code 0"],
    ),
    row("is not there", "exec /no/such/program", &["code 127"], &["code 127"]),
];
