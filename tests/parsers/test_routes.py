"""Addresses are shown without what may be secret in them."""

from __future__ import annotations

import polars as pl
import pytest

from parsers import litellm, routes


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("https://u:p@h:8000/v1?key=s3cret&x=a\nb", "https://h:8000/v1"),
        ("https://h/v1#s3cret\r\nb", "https://h/v1"),
        ("https://h/v1\n?key=s3cret", "https://h/v1\n"),
        ("https://u:s3@cret@h/v1", "https://h/v1"),
        ("u:s3cret@h/v1", "h/v1"),
        ("//u:s3cret@h/v1", "//h/v1"),
        ("https://h/models/m@001", "https://h/models/m@001"),
        ("/v1/m@001:generate?key=s3cret", "/v1/m@001:generate"),
        (None, None),
    ],
)
def test_credentials_query_and_fragment_go_whatever_is_in_them(address, seen):
    frame = pl.DataFrame({"address": [address]}, schema={"address": pl.String})
    for endpoint in (routes.endpoint, litellm.endpoint):
        assert frame.select(endpoint(pl.col("address"))).item() == seen
