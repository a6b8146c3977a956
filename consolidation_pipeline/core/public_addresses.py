"""Which addresses are those of the public internet."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_Address = IPv4Address | IPv6Address

# Routable by their number, yet served by the cloud a machine stands in: Azure's host, and what else is metadata there.
_METADATA = (ip_network("168.63.129.16/32"), ip_network("192.0.0.0/24"))
_NAT64 = ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ip_network("2000::/3")


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet.

    Not private, loopback, link-local, shared, reserved, multicast, nor a cloud's metadata service; an IPv6 address that
    stands for an IPv4 one (mapped, 6to4, NAT64) is judged by that one.

    Raises:
        ValueError: ``address`` is no IP address.
    """
    found = _carried(ip_address(address))
    if isinstance(found, IPv6Address):
        return found.is_global and found in _GLOBAL_UNICAST
    return found.is_global and not found.is_multicast and not any(found in network for network in _METADATA)


def _carried(address: _Address) -> _Address:
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
