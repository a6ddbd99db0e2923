//! Which addresses are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How far an address reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Globally reachable (the IANA special-purpose registries list no exception).
    Public,
    /// Loopback, private use, unique local, carrier-grade NAT: dialled only where the authority means it.
    Private,
    /// Link-local, metadata services included: dialled only where the authority names the address itself.
    LinkLocal,
    /// Never dialled: unspecified, multicast, broadcast, documentation, reserved.
    Never,
}

/// The reach of an address, with IPv4 addresses inside of IPv6 ones (mapped, NAT64, 6to4) taken out first.
pub fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    let [a, b, c, _] = address.octets();
    // A cloud's metadata service among its private addresses: named by itself or not at all.
    if address == Ipv4Addr::new(100, 100, 100, 200) {
        return Reach::LinkLocal;
    }
    match (a, b, c) {
        (127 | 10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => Reach::Private,
        (169, 254, _) => Reach::LinkLocal,
        (0 | 224..=255, ..) | (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => {
            Reach::Never
        }
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        reach_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Private,
        // Mapped, and the deprecated compatible form, which covers the unspecified address too.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] => embedded(high, low),
        // NAT64, well-known prefix.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // NAT64, local use: what is behind it is not known.
        [0x64, 0xff9b, 1, ..] => Reach::Private,
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Metadata services of two large clouds stand at unique local addresses.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => Reach::LinkLocal,
        [first, ..] if first & 0xfe00 == 0xfc00 => Reach::Private,
        [first, ..] if first & 0xffc0 == 0xfe80 => Reach::LinkLocal,
        // Site-local, deprecated.
        [first, ..] if first & 0xffc0 == 0xfec0 => Reach::Private,
        // Protocol assignments (Teredo among them) and documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => Reach::Never,
        [0x3fff, second, ..] if second < 0x1000 => Reach::Never,
        [first, ..] if first & 0xe000 == 0x2000 => Reach::Public,
        _ => Reach::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public() {
        let cases = [
            (
                Reach::Public,
                vec![
                    "1.1.1.1",
                    "93.184.216.34",
                    "100.63.0.1",
                    "172.32.0.1",
                    "2606:4700::1111",
                    "::ffff:1.1.1.1",
                    "64:ff9b::1.1.1.1",
                ],
            ),
            (
                Reach::Private,
                vec![
                    "127.0.0.1",
                    "127.8.8.8",
                    "10.0.0.1",
                    "172.16.0.1",
                    "172.31.255.255",
                    "192.168.1.1",
                    "100.64.0.1",
                    "::1",
                    "::ffff:127.0.0.1",
                    "::ffff:10.0.0.1",
                    "64:ff9b::7f00:1",
                    "64:ff9b:1::1",
                    "2002:7f00:1::",
                    "fd12::1",
                    "fc00::1",
                    "fec0::1",
                    "::127.0.0.1",
                ],
            ),
            (
                Reach::LinkLocal,
                vec![
                    "169.254.169.254",
                    "169.254.0.1",
                    "fe80::1",
                    "::ffff:169.254.169.254",
                    "fd00:ec2::254",
                    "fd20:ce::254",
                    "100.100.100.200",
                    "64:ff9b::a9fe:a9fe",
                ],
            ),
            (
                Reach::Never,
                vec![
                    "0.0.0.0",
                    "0.1.2.3",
                    "::",
                    "224.0.0.1",
                    "255.255.255.255",
                    "240.0.0.1",
                    "192.0.2.1",
                    "198.18.0.1",
                    "203.0.113.9",
                    "ff02::1",
                    "2001:db8::1",
                    "2001::1",
                    "3fff::1",
                    "100::1",
                    "4000::1",
                ],
            ),
        ];
        for (wanted, addresses) in cases {
            for text in addresses {
                assert_eq!(reach(text.parse().unwrap()), wanted, "{text}");
            }
        }
    }
}
