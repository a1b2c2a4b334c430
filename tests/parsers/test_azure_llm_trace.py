"""Azure traces: how the releases write time, broken rows, and the published figures of the real files."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from parsers.format import Context, Head
from parsers.formats.azure_llm_trace import FORMAT, service_of
from parsers.hashing import PromptHasher
from parsers.records import REQUESTS

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def mapped(text: str, source: str = "AzureLLMInferenceTrace_conv.csv") -> pl.DataFrame:
    raw = pl.read_csv(text.encode(), infer_schema=False)
    raw = raw.with_columns(source_line=pl.int_range(2, raw.height + 2, dtype=pl.Int64))
    return FORMAT.map(raw, Context(source, PromptHasher(b"key")))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2023-11-16 18:17:03.9799600", datetime(2023, 11, 16, 18, 17, 3, 979_960, tzinfo=UTC)),
        ("2024-05-10 00:00:00.009930+00:00", datetime(2024, 5, 10, 0, 0, 0, 9_930, tzinfo=UTC)),
        ("2024-05-10 00:00:00+00:00", datetime(2024, 5, 10, tzinfo=UTC)),
        ("2024-10-15T23:59:59.5Z", datetime(2024, 10, 15, 23, 59, 59, 500_000, tzinfo=UTC)),
    ],
)
def test_times_of_every_release_are_utc(written, expected):
    row = mapped(f"{HEADER}{written},1,2\n").row(0, named=True)
    assert (row["started_at"], row["_reject"]) == (expected, None)


def test_what_the_trace_does_not_say_stays_unknown():
    row = REQUESTS.conform(mapped(f"{HEADER}2023-11-16 18:17:03.9799600,4808,0\n")).row(0, named=True)
    said = {name for name, value in row.items() if value is not None}
    counts = {"input_tokens", "output_tokens"}
    assert said == {"source_line", "started_at", "project", "status", "usage_origin", "flags"} | counts
    assert (row["input_tokens"], row["output_tokens"], row["status"]) == (4808, 0, "ok")
    assert row["flags"] == ["status_assumed"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2023-11-16,1,2", "TIMESTAMP is not an instant"),
        (",1,2", "TIMESTAMP is missing"),
        ("2023-11-16 18:17:03,12.5,2", "ContextTokens is not a whole number"),
        ("2023-11-16 18:17:03,,2", "ContextTokens is missing"),
        ("2023-11-16 18:17:03,1,two", "GeneratedTokens is not a whole number"),
        ("2023-11-16 18:17:03,1,", "GeneratedTokens is missing"),
    ],
)
def test_broken_rows_name_the_field(row, reason):
    assert mapped(f"{HEADER}{row}\n")["_reject"].to_list() == [reason]


def test_a_second_header_is_no_row():
    rows = mapped(f"{HEADER}2023-11-16 18:17:03,1,2\n{HEADER}")
    assert rows["_other"].to_list() == [False, True]


@pytest.mark.parametrize(
    ("source", "service"),
    [
        ("logs/AzureLLMInferenceTrace_code.csv", "code"),
        ("AzureLLMInferenceTrace_conv_1week.csv", "conv"),
        ("week.tar.gz!data/AzureLMMInferenceTrace_multimodal.csv", "multimodal"),
        ("code/renamed.csv", None),
        ("decoder.csv", None),
    ],
)
def test_the_service_is_in_the_file_name_only(source, service):
    assert service_of(source) == service
    assert mapped(f"{HEADER}2023-11-16 18:17:03,1,2\n", source)["project"].to_list() == [service]


def test_recognised_by_its_header_only():
    assert FORMAT.recognise(Head("x", HEADER.encode()))
    assert FORMAT.recognise(Head("x", b"\xef\xbb\xbfTIMESTAMP,NumImages,ContextTokens,GeneratedTokens\r\n"))
    assert not FORMAT.recognise(Head("AzureLLMInferenceTrace_code.csv", b"TIMESTAMP,ContextTokens\n"))
    assert not FORMAT.recognise(Head("x", b"Timestamp,Model,Request tokens,Response tokens\n"))


@pytest.mark.parametrize(
    ("service", "rows", "medians"), [("code", 8_819, (None, 13)), ("conv", 19_366, (1_020, 129))]
)
def test_published_rows_and_medians(shared, service, rows, medians):
    """Rows: the data set's notebook. Medians: Splitwise (ISCA'24), III-B (code prompts: rounded)."""
    path = shared / "data/azure2023" / f"AzureLLMInferenceTrace_{service}.csv"
    frame = mapped(path.read_text(), path.name)
    assert frame.height == rows
    assert frame["_reject"].null_count() == rows
    assert frame["output_tokens"].median() == medians[1]
    assert medians[0] in {None, frame["input_tokens"].median()}
    assert frame["started_at"].dt.date().unique().to_list() == [datetime(2023, 11, 16, tzinfo=UTC).date()]
