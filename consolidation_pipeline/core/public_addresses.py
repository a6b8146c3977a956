"""IP addresses of the public internet."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_Address = IPv4Address | IPv6Address

# Cloud metadata services with routable addresses, such as that of Azure's host.
_METADATA = (ip_network("168.63.129.16/32"), ip_network("192.0.0.0/24"))
_NAT64 = ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ip_network("2000::/3")


def is_public(address: str) -> bool:
    """Return True if an IP address belongs to the public internet.

    Private, loopback, link-local, shared, reserved and multicast addresses and metadata services of clouds do not. For
    an IPv6 address that holds an IPv4 address (mapped, 6to4, NAT64), the IPv4 address decides.

    Raises:
        ValueError: ``address`` is not an IP address.
    """
    found = _embedded_ipv4(ip_address(address))
    if isinstance(found, IPv6Address):
        return found.is_global and found in _GLOBAL_UNICAST
    return found.is_global and not found.is_multicast and not any(found in network for network in _METADATA)


def _embedded_ipv4(address: _Address) -> _Address:
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
