//! Where a program that is started later can listen.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use tokio::net::TcpSocket;

/// An address of this machine that nobody who asks the system for any address is given, as long as the socket is kept. Whoever
/// names it can listen there.
///
/// # Errors
/// When the system has none left.
pub fn reserved_address() -> io::Result<(SocketAddr, TcpSocket)> {
    let socket = TcpSocket::new_v4()?;
    // Listeners of std, tokio, Go and Postgres say the same; then one that is bound and does not listen is in nobody's way.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    Ok((socket.local_addr()?, socket))
}
