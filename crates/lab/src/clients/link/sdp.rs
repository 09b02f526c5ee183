//! Candidates in an SDP, rewritten or left out so that media goes by the link.

use std::net::SocketAddr;

/// The SDP with the address of each UDP candidate replaced by what `through` says for it; candidates
/// of TCP, and those that are no address (mDNS names), are left out: nothing may pass the link by.
pub fn rewrite(sdp: &str, mut through: impl FnMut(SocketAddr) -> Option<SocketAddr>) -> String {
    let mut out = String::with_capacity(sdp.len());
    for line in sdp.split_inclusive('\n') {
        let bare = line.trim_end_matches(['\r', '\n']);
        let Some(candidate) = bare.strip_prefix("a=candidate:") else {
            out.push_str(line);
            continue;
        };
        if let Some(new) = candidate_through(candidate, &mut through) {
            out.push_str("a=candidate:");
            out.push_str(&new);
            out.push_str(&line[bare.len()..]);
        }
    }
    out
}

/// An own SDP as a server gets it. Where a link stands before its person (`linked`), it has no candidates: the server would
/// send its checks there, past the link, and finds the address that checks come from.
pub fn told(sdp: &str, linked: bool) -> String {
    let candidate =
        |line: &str| line.starts_with("a=candidate:") || line.starts_with("a=end-of-candidates");
    sdp.split_inclusive('\n').filter(|line| !(linked && candidate(line))).collect()
}

/// foundation component transport priority address port … (RFC 8839 §5.1).
fn candidate_through(
    candidate: &str,
    through: &mut impl FnMut(SocketAddr) -> Option<SocketAddr>,
) -> Option<String> {
    let mut fields: Vec<String> = candidate.split_ascii_whitespace().map(str::to_owned).collect();
    if !fields.get(2)?.eq_ignore_ascii_case("udp") {
        return None;
    }
    let address = SocketAddr::new(fields.get(4)?.parse().ok()?, fields.get(5)?.parse().ok()?);
    let new = through(address)?;
    fields[4] = new.ip().to_string();
    fields[5] = new.port().to_string();
    Some(fields.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_goes_through_and_nothing_else_passes() {
        let sdp = "v=0\r\na=candidate:1 1 udp 2130706431 127.0.0.1 40000 typ host ufrag x\r\n\
                   a=candidate:2 1 TCP 1 127.0.0.1 40001 typ host tcptype passive\r\n\
                   a=candidate:3 1 UDP 5 ::1 40002 typ host\na=candidate:4 1 udp 1 x.local 9 typ host\r\n\
                   a=candidate:broken\r\na=end-of-candidates\r\n";
        let mut asked = Vec::new();
        let new = rewrite(sdp, |address| {
            asked.push(address);
            address.is_ipv4().then(|| "127.200.0.1:5000".parse().unwrap())
        });
        assert_eq!(asked.len(), 2);
        assert_eq!(
            new,
            "v=0\r\na=candidate:1 1 udp 2130706431 127.200.0.1 5000 typ host ufrag x\r\n\
             a=end-of-candidates\r\n"
        );
    }
}
