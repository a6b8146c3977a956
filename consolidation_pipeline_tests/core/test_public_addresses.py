"""Public and private IP addresses, in every notation that a webhook URL may use."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.public_addresses import is_public
from consolidation_pipeline_tests.hypothesis_examples import examples


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "172.15.255.255", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "198.18.0.1",
        "169.254.169.254",  # metadata of most clouds
        "100.100.100.200",  # of Alibaba
        "192.0.0.192",  # of Oracle
        "168.63.129.16",  # of Azure
        "fd00:ec2::254",  # of Amazon
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::127.0.0.1",
    ],
)
def test_private_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@given(st.ip_addresses(v=4))
@settings(deadline=None, max_examples=examples(50))
def test_embedded_ipv4_address_is_judged_itself(address: object) -> None:
    number = int(address)  # type: ignore[call-overload]
    assert is_public(f"::ffff:{address}") == is_public(f"64:ff9b::{address}") == is_public(str(address))
    assert is_public(f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1") == is_public(str(address))


def test_host_name_is_not_an_address() -> None:
    with pytest.raises(ValueError, match="localhost"):
        is_public("localhost")
