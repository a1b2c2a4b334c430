"""The generic mapping file: what it reads and refuses, and that every error names file, key and remedy."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pytest

from parsers.errors import SiteConfigError
from parsers.format import Context, Head
from parsers.hashing import PromptHasher
from parsers.mapping import load_mapping
from parsers.readers import duckdb_structure
from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, REQUESTS

HASHER = PromptHasher(b"key")


@pytest.fixture
def load(tmp_path):
    """Write a mapping file and load it; without sections the text is the [columns]."""

    def write(text, kind="csv"):
        path = tmp_path / "our proxy.toml"
        path.write_text(
            text if "format =" in text else f'format = "{kind}"\n[columns]\nstarted_at = "ts"\n{text}'
        )
        return load_mapping(path)

    return write


def context(head="", **options):
    return Context("proxy.log", HASHER, options=options, head=head)


def from_csv(fmt, *rows, head="", **options):
    """Map CSV rows (dicts of text); `ts` is filled in where a row leaves it out."""
    rows = [{"ts": "1710000000"} | row for row in rows]
    raw = pl.DataFrame(rows, schema=dict.fromkeys(rows[0], pl.String), orient="row")
    raw = raw.with_columns(source_line=pl.int_range(2, raw.height + 2, dtype=pl.Int64))
    return fmt.map(raw, context(head, **options))


def from_json(fmt, tmp_path, *lines):
    """Read JSON lines by the format's structure, as the reader does, then map them."""
    text = "\n".join(json.dumps({"ts": "1710000000"} | line) for line in lines)
    (tmp_path / "log.jsonl").write_text(text)
    columns = {name: duckdb_structure(kind) for name, kind in fmt.structure.items()}
    arguments = f"format = 'newline_delimited', columns = {columns}"
    raw = duckdb.connect().sql(f"SELECT * FROM read_json('{tmp_path / 'log.jsonl'}', {arguments})").pl()
    raw = raw.with_columns(source_line=pl.int_range(1, raw.height + 1, dtype=pl.Int64))
    return fmt.map(raw, context(text))


def column(frame, name):
    return frame[name].to_list()


# ---- reading


def test_the_least_mapping_states_its_defaults(load):
    fmt = load('input_tokens = "prompt"\nteam = { value = "research" }')
    rows = from_csv(fmt, {"prompt": "12"}, {"prompt": ""})
    assert fmt.name == "mapping_our_proxy"
    assert column(rows, "started_at") == [datetime(2024, 3, 9, 16, tzinfo=UTC)] * 2
    assert column(rows, "input_tokens") == [12, None]
    assert column(rows, "usage_origin") == ["reported", "missing"]
    assert column(rows, "status") == ["ok", "ok"]
    assert column(rows, "flags") == [["status_assumed"]] * 2
    assert column(rows, "team") == ["research"] * 2
    assert column(rows, "_reject") == [None, None]
    assert column(rows, "_other") == [False, False]
    REQUESTS.conform(rows)


@pytest.mark.parametrize(
    ("name", "unit", "text", "expected"),
    [
        ("duration_ms", "s", "1.5", 1500.0),
        ("duration_ms", "min", "2", 120_000.0),
        ("ttft_ms", "us", "1500", 1.5),
        ("queue_ms", "ns", "2000000", 2.0),
        ("input_tokens", "k", "1.5", 1500),
        ("input_tokens", "M", "0.25", 250_000),
        ("input_tokens", "tokens", "7", 7),
        ("prompt_bytes", "KiB", "2", 2048),
        ("cost_reported", "usd", "0.000012345678", Decimal("0.000012345678")),
        ("cost_reported", "cents", "1.2e-05", Decimal("0.00000012")),
        ("cost_reported", "usd/500000", "25", Decimal("0.00005")),
    ],
)
def test_units_of_requests(load, name, unit, text, expected):
    rows = from_csv(load(f'{name} = {{ from = "x", unit = "{unit}" }}'), {"x": text})
    assert column(rows, name) == [pytest.approx(expected)] if isinstance(expected, float) else [expected]
    assert column(rows, "_reject") == [None]


@pytest.mark.parametrize(
    ("name", "unit", "text", "expected"),
    [
        ("power_w", "kW", "0.7", 700.0),
        ("energy_j", "Wh", "2", 7200.0),
        ("utilisation_ratio", "percent", "55", 0.55),
    ],
)
def test_units_of_devices(load, name, unit, text, expected):
    fmt = load(
        f"""
        format = "csv"
        table = "device_samples"
        [columns]
        at = "ts"
        device = {{ value = "gpu0" }}
        {name} = {{ from = "x", unit = "{unit}" }}
        """
    )
    rows = from_csv(fmt, {"x": text})
    assert fmt.target is DEVICE_SAMPLES
    assert column(rows, name) == [pytest.approx(expected)]
    assert column(DEVICE_SAMPLES.conform(rows), "device") == ["gpu0"]


def test_counts_given_in_thousands_are_flagged_as_rounded(load):
    rows = from_csv(load('input_tokens = { from = "x", unit = "k" }'), {"x": "1.5"}, {"x": ""})
    assert ["tokens_rounded" in flags for flags in column(rows, "flags")] == [True, False]


def test_the_currency_comes_with_the_unit(load):
    rows = from_csv(load('cost_reported = { from = "x", unit = "eur" }'), {"x": "1"}, {"x": ""})
    assert column(rows, "cost_currency") == ["EUR", None]
    mapped = load('cost_reported = "x"\ncost_currency = "c"')
    assert column(from_csv(mapped, {"x": "1", "c": "CHF"}), "cost_currency") == ["CHF"]


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ('"ts"', "1710000000123", "2024-03-09T16:00:00.123000+00:00"),
        ('"ts"', "2024-07-01 12:00:00", "2024-07-01T10:00:00+00:00"),
        ('{ from = "ts", unit = "%d.%m.%Y %H:%M:%S" }', "01.07.2024 12:00:00", "2024-07-01T10:00:00+00:00"),
        (
            '{ from = "ts", unit = "%d.%m.%Y %H:%M:%S.%f" }',
            "01.07.2024 12:00:00.25",
            "2024-07-01T10:00:00.250000+00:00",
        ),
        (
            '{ from = "ts", unit = "%d/%b/%Y:%H:%M:%S %z" }',
            "01/Jul/2024:12:00:00 -0700",
            "2024-07-01T19:00:00+00:00",
        ),
        ('{ from = "ts", unit = "s" }', "1710000000.5", "2024-03-09T16:00:00.500000+00:00"),
    ],
)
def test_instants(load, rule, text, expected):
    fmt = load(f'format = "csv"\n[clock]\ntimezone = "Europe/Berlin"\n[columns]\nstarted_at = {rule}')
    rows = from_csv(fmt, {"ts": text})
    assert (rows["started_at"][0].isoformat(), rows["_reject"][0]) == (expected, None)


def test_a_zone_is_taken_from_the_file_then_the_option_then_utc_with_a_flag(load):
    fmt = load('input_tokens = "n"')
    by_option = from_csv(fmt, {"ts": "2024-07-01 12:00:00", "n": "1"}, timezone="Europe/Berlin")
    assumed = from_csv(fmt, {"ts": "2024-07-01 12:00:00", "n": "1"}, {"ts": "2024-07-01 12:00:00Z", "n": "1"})
    assert [value.hour for value in column(by_option, "started_at")] == [10]
    assert [value.hour for value in column(assumed, "started_at")] == [12, 12]
    assert ["zone_assumed_utc" in flags for flags in column(assumed, "flags")] == [True, False]
    assert "zone_assumed_utc" not in column(by_option, "flags")[0]


def test_a_relative_clock_starts_in_2000_and_says_so(load):
    text = 'format = "csv"\n[clock]\nrelative = true\n[columns]\nstarted_at = { from = "ts", unit = "s" }'
    rows = from_csv(load(text), {"ts": "2.5"}, {"ts": "-1"})
    assert column(rows, "started_at") == [datetime(2000, 1, 1, 0, 0, 2, 500_000, tzinfo=UTC), None]
    assert "relative_clock" in column(rows, "flags")[0]
    assert column(rows, "_reject") == [None, "ts is not a time since the start in s"]
    assert load(text).semantics.clock == "relative"


def test_words_are_mapped_and_the_rest_by_default(load):
    fmt = load('status = { from = "code", map = { "200" = "ok", "" = "cancelled", default = "error" } }')
    rows = from_csv(fmt, *({"code": code} for code in ("200", "429", "", "ok")))
    assert column(rows, "status") == ["ok", "error", "cancelled", "error"]
    assert column(rows, "flags") == [[]] * 4


def test_without_default_an_unknown_word_of_a_closed_list_is_a_reject(load):
    rows = from_csv(
        load('status = { from = "s", map = { good = "ok" } }'), {"s": "good"}, {"s": "bad"}, {"s": ""}
    )
    assert column(rows, "_reject") == [None, "s is none of ok, error, cancelled", None]
    assert column(rows, "flags")[2] == ["status_assumed"]


def test_the_status_follows_from_the_http_status(load):
    rows = from_csv(
        load('http_status = "code"'), *({"code": code} for code in ("200", "302", "429", "499", "0", ""))
    )
    assert column(rows, "status") == ["ok", "ok", "error", "cancelled", "error", "ok"]
    assert column(rows, "flags") == [["status_from_http"]] * 5 + [["status_assumed"]]


def test_started_at_follows_from_end_and_duration(load):
    fmt = load('format = "csv"\n[columns]\nended_at = "ts"\nduration_ms = { from = "s", unit = "s" }')
    rows = from_csv(fmt, {"s": "1.5"}, {"s": ""})
    assert column(rows, "started_at") == [datetime(2024, 3, 9, 15, 59, 58, 500_000, tzinfo=UTC), None]
    assert "started_at_derived" in column(rows, "flags")[0]
    assert column(rows, "_reject") == [None, "started_at is missing"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("input_tokens", "12.5", "x is not a whole number"),
        ("duration_ms", "fast", "x is not a number"),
        ("cost_reported", "free", "x is not an amount"),
        ("stream", "maybe", "x is neither true nor false"),
        ("ended_at", "yesterday", "x is not an instant"),
        ("http_status", "99999999999", "x is not a whole number of 32 bits"),
        ("operation", "poem", "x is none of chat"),
    ],
)
def test_values_that_can_t_be_read_are_rejects_that_name_the_log_s_column(load, name, text, reason):
    unit = ', unit = "usd"' if name == "cost_reported" else ""
    rows = from_csv(load(f'{name} = {{ from = "x"{unit} }}'), {"x": text}, {"x": ""}, {"x": "-"})
    assert column(rows, "_reject")[0].startswith(reason)
    assert column(rows, "_reject")[1:] == [None, None]
    assert column(rows, name) == [None, None, None]


def test_a_row_without_its_time_is_a_reject(load):
    rows = from_csv(load('input_tokens = "n"'), {"ts": "", "n": "1"})
    assert column(rows, "_reject") == ["ts is missing"]


def test_numbers_as_written_in_german(load):
    text = """
        format = "csv"
        [numbers]
        decimal = ","
        thousands = "."
        [columns]
        started_at = "ts"
        input_tokens = "n"
        duration_ms = "ms"
        cost_reported = { from = "eur", unit = "eur" }
    """
    row = from_csv(load(text), {"n": "1.234", "ms": "1.234,5", "eur": "0,5"}).row(0, named=True)
    assert (row["input_tokens"], row["duration_ms"], row["cost_reported"]) == (1234, 1234.5, Decimal("0.5"))


def test_json_paths_lists_and_fields_that_some_records_lack(load, tmp_path):
    fmt = load(
        """
        input_tokens = "usage.prompt_tokens"
        output_tokens = { from = "usage.completion_tokens", optional = true }
        model_served = { from = ["gen_ai.model"] }
        tags = "tags"
        stream = "stream"
        """,
        "json_lines",
    )
    rows = from_json(
        fmt,
        tmp_path,
        {
            "usage": {"prompt_tokens": 5, "completion_tokens": 6},
            "gen_ai.model": "m",
            "tags": ["a", " "],
            "stream": True,
        },
        {"usage": {"prompt_tokens": "five"}, "stream": False},
        {"usage": None},
    )
    assert column(rows, "input_tokens") == [5, None, None]
    assert column(rows, "output_tokens") == [6, None, None]
    assert column(rows, "model_served") == ["m", None, None]
    assert column(rows, "tags") == [["a"], None, None]
    assert column(rows, "stream") == [True, False, None]
    assert column(rows, "_reject") == [None, "usage.prompt_tokens is not a whole number", None]


def test_typed_parquet(load, tmp_path):
    raw = pl.DataFrame(
        {
            "source_line": [1, 2],
            "at": pl.Series([datetime(2024, 7, 1, 12), None]),  # noqa: DTZ001 - naive as in the file
            "end": pl.Series([datetime(2024, 7, 1, 12, tzinfo=UTC)] * 2).dt.convert_time_zone("Asia/Tokyo"),
            "usage": [{"in": 5, "cost": 0.25}, {"in": None, "cost": 1e-7}],
            "ok": [True, None],
            "labels": [["x"], None],
        }
    )
    text = """
        format = "parquet"
        [clock]
        timezone = "Europe/Berlin"
        [columns]
        started_at = "at"
        ended_at = "end"
        input_tokens = "usage.in"
        cost_reported = { from = "usage.cost", unit = "usd" }
        stream = "ok"
        tags = "labels"
    """
    rows = load(text).map(raw, context())
    assert rows["started_at"][0] == datetime(2024, 7, 1, 10, tzinfo=UTC)
    assert column(rows, "ended_at") == [datetime(2024, 7, 1, 12, tzinfo=UTC)] * 2
    assert column(rows, "input_tokens") == [5, None]
    assert column(rows, "cost_reported") == [Decimal("0.25"), Decimal("0.0000001")]
    assert column(rows, "stream") == [True, None]
    assert column(rows, "tags") == [["x"], None]
    assert column(rows, "_reject") == [None, "at is missing"]
    with pytest.raises(SiteConfigError, match=r"columns\.input_tokens: 'usage' is an object"):
        load(text.replace("usage.in", "usage")).map(raw, context())


def test_a_date_is_the_start_of_its_day(load):
    raw = pl.DataFrame({"source_line": [1], "day": [date(2024, 7, 1)]})
    fmt = load('format = "parquet"\n[clock]\ntimezone = "Europe/Berlin"\n[columns]\nstarted_at = "day"')
    assert column(fmt.map(raw, context()), "started_at") == [datetime(2024, 6, 30, 22, tzinfo=UTC)]


def test_block_ids_are_hashed_and_counted(load):
    fmt = load('input_tokens = "n"\nprefix_hashes = { from = "b", separator = " ", block_tokens = 16 }')
    rows = from_csv(
        fmt,
        {"n": "40", "b": f"1 2 {2**64 - 1}"},
        {"n": "40", "b": "1 2 -1"},
        {"n": "900", "b": "1 2"},
        {"n": "40", "b": "1 x"},
        {"n": "40", "b": ""},
    )
    hashes = column(rows, "prefix_hashes")
    assert hashes[0] == hashes[1]
    assert not set(hashes[0]) & {1, 2, 2**64 - 1}
    assert column(rows, "prefix_token_counts") == [[16, 32, 40], [16, 32, 40], None, None, None]
    assert hashes[2:] == [None, None, None]
    assert ["block_size_mismatch" in flags for flags in column(rows, "flags")] == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert column(rows, "_reject")[3] == "b holds something that is not a whole number"


def test_an_engine_log_can_be_mapped(load):
    text = """
        format = "csv"
        table = "engine_samples"
        [columns]
        at = "ts"
        kv_usage_ratio = { from = "kv", unit = "percent" }
        generation_tokens_per_s = { from = "tps", unit = "k" }
        window_s = { from = "w", unit = "ms" }
    """
    row = ENGINE_SAMPLES.conform(from_csv(load(text), {"kv": "50", "tps": "1.5", "w": "500"})).row(
        0, named=True
    )
    assert (row["kv_usage_ratio"], row["generation_tokens_per_s"], row["window_s"]) == (0.5, 1500.0, 0.5)


def test_semantics_and_the_source_s_own_total_reach_the_normalising(load):
    fmt = load(
        'format = "csv"\n[semantics]\ncache_read = "outside"\nzero_means = "unknown"\n'
        '[columns]\nstarted_at = "ts"\ntotal_tokens = "total"'
    )
    assert (fmt.semantics.cache_read, fmt.semantics.reasoning, fmt.semantics.zero_means) == (
        "outside",
        "inside",
        "unknown",
    )
    assert column(from_csv(fmt, {"total": "9"}), "_total_tokens") == [9]


# ---- what may not be kept


def test_keys_are_hashed_and_hashes_are_kept(load):
    fmt = load('api_key_hash = "key"')
    rows = from_csv(fmt, {"key": "sk-secret"}, {"key": "sk-secret"}, {"key": ""})
    hashed = column(rows, "api_key_hash")
    assert hashed == [HASHER.digest("sk-secret")] * 2 + [None]
    assert column(
        from_csv(load('api_key_hash = { from = "key", hashed = true }'), {"key": "ab12"}), "api_key_hash"
    ) == ["ab12"]


def test_a_constant_key_is_hashed_too(load):
    rows = from_csv(load('api_key_hash = { value = "sk-secret" }\nteam = "t"'), {"t": "x"})
    assert column(rows, "api_key_hash") == [HASHER.digest("sk-secret")]


def test_addresses_lose_credentials_and_query(load):
    rows = from_csv(
        load('endpoint = "url"'),
        {"url": "https://user:pass@api.example.com/v1/chat?key=secret#x"},
        {"url": "/v1/chat?key=secret"},
    )
    assert column(rows, "endpoint") == ["https://api.example.com/v1/chat", "/v1/chat"]


def test_error_texts_are_withheld(load):
    rows = from_csv(
        load('error_kind = "e"'),
        {"e": "RateLimitError"},
        {"e": "the prompt 'my secret' is too long"},
        {"e": ""},
    )
    assert column(rows, "error_kind") == ["RateLimitError", None, None]
    assert ["error_text_withheld" in flags for flags in column(rows, "flags")] == [False, True, False]


# ---- recognising


def test_recognises_logs_that_have_its_columns(load, tmp_path):
    csv = load('input_tokens = "n"\nteam = { from = "t", optional = true }')
    assert csv.recognise(Head("x", b"a;ts;n\n1;2;3\n"))
    assert not csv.recognise(Head("x", b"a,ts\n1,2\n"))
    jsonl = load('input_tokens = "usage.n"', "json_lines")
    assert jsonl.recognise(Head("x", b'{"ts": 1, "usage": {"n": 2}}\n'))
    assert not jsonl.recognise(Head("x", b'{"ts": 1, "usage": 2}\n'))
    assert load('input_tokens = "n"', "parquet").recognise(Head("x", b"PAR1\0"))


# ---- errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("format = csv", r"our proxy\.toml: not valid TOML: .*line 1"),
        (
            'format = "xml"\n[columns]\na = "b"',
            r"key format: input should be 'csv', 'json_lines' or 'parquet'",
        ),
        ('[columns]\nstarted_at = "ts"\n# format =', "key format: the key is missing. Add format = "),
        ('format = "csv"\n[column]\na = "b"', r"key column: unknown key. Did you mean 'columns'\?"),
        (
            'format = "csv"\n[clock]\ntimezone = "Berlin"\n[columns]\na = "b"',
            "key clock.timezone: 'Berlin' is no time zone",
        ),
        ('format = "csv"\n[clock]\nzone = "UTC"\n[columns]\na = "b"', "key clock.zone: unknown key"),
        (
            'format = "csv"\n[semantics]\ncache_read = "in"\n[columns]\na = "b"',
            "key semantics.cache_read: input should be",
        ),
        (
            'format = "csv"\n[numbers]\ndecimal = ","\nthousands = ","\n[columns]\na = "b"',
            "key numbers: decimal and thousands",
        ),
        (
            'format = "csv"\n[columns]\ninput_tokens = "n"',
            r"key columns: started_at \(or ended_at and duration_ms\) must be",
        ),
        (
            'format = "csv"\ntable = "device_samples"\n[columns]\nat = "t"',
            "key columns: device must be mapped",
        ),
        (
            'input_token = "n"',
            r"columns.input_token: table requests has no column .* Did you mean 'input_tokens'\?",
        ),
        ('flags = "n"', "columns.flags: flags can't be mapped: it says"),
        (
            'prompt_hash = "n"',
            "columns.prompt_hash: prompt_hash can't be mapped: hashes of prompts are made here",
        ),
        ('team = { from = "t", units = "s" }', r"key columns.team.units: unknown key. Did you mean 'unit'\?"),
        ('team = { from = "t", value = "x" }', "columns.team: a column needs either `from` or `value`"),
        ("team = {}", "columns.team: a column needs either `from` or `value`"),
        ('team = ["a"]', "key columns.team: "),
        ('team = { from = ["a"] }', "columns.team: a list in `from` is a path into JSON"),
        ('team = { from = "t", unit = "s" }', "columns.team: 's' is no unit of team. Remove `unit`"),
        ('input_tokens = { from = "t", unit = "K" }', r"'K' is no unit of input_tokens. Did you mean 'k'\?"),
        ('ended_at = { from = "t", unit = "min" }', "'min' is no unit of an instant. Use auto, iso, s"),
        ('ended_at = { from = "t", unit = "%H:%M" }', "'%H:%M' (does not tell the whole date|is no pattern)"),
        ('ended_at = { from = "t", unit = "%Q" }', "'%Q' is no pattern that can be read"),
        ('cost_reported = "c"', 'columns.cost_reported: the currency is not said. Add unit = "usd"'),
        ('cost_reported = { from = "c", unit = "dollars" }', "'dollars' is no currency"),
        (
            'status = { from = "c", map = { a = "okay" } }',
            r"map leads to 'okay', which status can't be. Did you mean 'ok'\?",
        ),
        ('input_tokens = { from = "c", map = { a = 1 } }', "`map` is for columns of text"),
        (
            'input_tokens = { value = "many" }',
            "columns.input_tokens: the constant is wrong: input_tokens is not a whole",
        ),
        ('operation = { value = "poem" }', "columns.operation: the constant is wrong"),
        ('prefix_hashes = "b"', "`block_tokens` belongs to prefix_hashes"),
        ('team = { from = "t", block_tokens = 16 }', "`block_tokens` belongs to prefix_hashes"),
        ('team = { from = "t", hashed = true }', "`hashed` belongs to api_key_hash"),
        (
            'format = "csv"\n[clock]\nrelative = true\n[columns]\nstarted_at = "ts"',
            "with clock.relative a time needs its unit",
        ),
    ],
)
def test_a_wrong_file_is_one_line_that_names_file_key_and_remedy(load, text, expected):
    with pytest.raises(SiteConfigError, match=expected) as caught:
        load(text)
    assert "\n" not in str(caught.value)
    assert "our proxy.toml" in str(caught.value)


def test_an_absent_or_binary_mapping_file(tmp_path):
    with pytest.raises(SiteConfigError, match=r"none\.toml: the mapping file can't be read"):
        load_mapping(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SiteConfigError, match=r"binary\.toml: the mapping file can't be read"):
        load_mapping(tmp_path / "binary.toml")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(SiteConfigError, match="it is no file"):
            load_mapping(path)


def test_a_column_that_the_log_lacks_is_named_with_the_closest_one(load):
    with pytest.raises(SiteConfigError) as caught:
        from_csv(load('input_tokens = "prompt_tok"'), {"prompt_toks": "1"})
    text = str(caught.value)
    assert "key columns.input_tokens: proxy.log has no column 'prompt_tok' for input_tokens" in text
    assert "Did you mean 'prompt_toks'?" in text
    assert "optional = true" in text


def test_a_json_field_that_no_first_line_has_is_named_with_the_closest_one(load, tmp_path):
    fmt = load('input_tokens = "usage.promt_tokens"', "json_lines")
    with pytest.raises(
        SiteConfigError, match=r"no column 'usage.promt_tokens'.*Did you mean 'usage.prompt_tokens'"
    ):
        from_json(fmt, tmp_path, {"usage": {"prompt_tokens": 1}})


def test_a_field_can_t_be_a_value_and_an_object(load):
    with pytest.raises(SiteConfigError, match="is read as a value and as an object"):
        load('team = "usage"\ninput_tokens = "usage.n"', "json_lines")
    with pytest.raises(SiteConfigError, match="is read as a value and as an object"):
        load('input_tokens = "usage.n"\nteam = "usage"', "json_lines")


def test_an_optional_column_that_the_log_lacks_is_unknown(load):
    rows = from_csv(load('team = { from = "t", optional = true }\ninput_tokens = "n"'), {"n": "1"})
    assert column(rows, "team") == [None]
