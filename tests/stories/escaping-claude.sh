#!/bin/sh
# Stands in for a Claude program that somebody took over: tries to get at what is the operator's, and dies. What came of
# it is left in its configuration directory, where the test has left it a token that it could not read itself.
[ "$1" = --version ] && { echo "2.1.329 (Claude Code)"; exit; }
cat > /dev/null
cd "$CLAUDE_CONFIG_DIR" && [ ! -e said ] || exit 1

ask() {
  perl -MIO::Socket::UNIX -MIO::Socket::INET -e '
    $SIG{PIPE} = "IGNORE";
    my ($where, $token) = @ARGV;
    my $peer = $where =~ /:/ ? IO::Socket::INET->new($where) : IO::Socket::UNIX->new($where);
    print("no way in\n"), exit unless $peer;
    print $peer "GET /runs?all=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer $token\r\nConnection: close\r\n\r\n";
    print scalar(<$peer>) // "no answer\n";' "$@"
}

attempt() {
  perl -MSocket -e "print(($1) ? 'a way in' : \$!{EPERM} ? 'no way in' : \$!)"
}

daemon() {
  (env -i setsid sleep 300 < /dev/null > /dev/null 2>&1 & echo $!)
}

{
  for own in ../token ../main.db ../../.env ../../private-key.pem; do
    cat "$own" > /dev/null 2>&1 && echo "$own was read"
  done
  chmod go+r ../token 2> /dev/null && echo "../token is open to others"
  echo "socket: $(ask ../control.sock none)"
  echo "socket, token: $(ask ../control.sock "$(cat leaked)")"
  echo "page: $(ask "$(cat page)" none)"
  echo "MPTCP: $(attempt 'socket(S, AF_INET, SOCK_STREAM, 262)')"
  echo "fast open: $(attempt 'socket(S, AF_INET, SOCK_STREAM, 0) && send(S, q(-), 0x20000000, pack_sockaddr_in(9, INADDR_LOOPBACK))')"
  echo "pair of datagrams: $(attempt 'socketpair(A, B, AF_UNIX, SOCK_DGRAM, PF_UNSPEC)')"
  echo "raw pair: $(attempt 'socketpair(A, B, AF_UNIX, SOCK_RAW, PF_UNSPEC)')"
  : > login
  echo "its own login, 600: $(chmod 600 login 2> /dev/null && echo done || echo refused)"
  early=$(daemon)
  while kill -0 "$early" 2> /dev/null; do sleep 0.1; done
  daemon > late
} > said.new
mv said.new said
kill -9 $$
