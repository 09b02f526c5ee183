//! Own addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The own address that reaches `target`; that of the loopback where there is none.
///
/// # Errors
/// No own address reaches it.
pub(crate) fn local_ip(target: Option<SocketAddr>) -> io::Result<IpAddr> {
    let any: IpAddr = match target {
        None => return Ok(Ipv4Addr::LOCALHOST.into()),
        Some(address) if address.ip().is_loopback() => return Ok(address.ip()),
        Some(SocketAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
        Some(SocketAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(target.unwrap_or_else(|| SocketAddr::from((any, 9))))?;
    Ok(probe.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_reaches_a_target() {
        assert!(local_ip(None).unwrap().is_loopback());
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 7880));
        assert_eq!(local_ip(Some(v6)).unwrap(), v6.ip());
        let v4 = SocketAddr::from(([127, 0, 0, 2], 7880));
        assert_eq!(local_ip(Some(v4)).unwrap(), v4.ip());
    }
}
