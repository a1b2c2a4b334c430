"""Prometheus answers: the recorded counters, parts of a counter, repeated samples, values that are none."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import metrics
from parsers.format import Context, Head
from parsers.formats import prometheus_query_range as engines
from parsers.formats import prometheus_query_range_devices as devices
from parsers.hashing import PromptHasher
from parsers.parse import parse
from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES
from parsers.sources import Source, lay_down, read_head

BEGIN = 1_796_047_635


def read(path, work, fmt=engines.FORMAT):
    """(rows, rejects, other records) of a file, through the reader of the product."""
    source = Source(str(path), path)
    context = Context(source.name, PromptHasher(b"key"), head=read_head(source).text)
    chunks = list(parse(source, fmt, lay_down(source, work), context, work))
    rows, rejects = (pl.concat(getattr(chunk, what) for chunk in chunks) for what in ("rows", "rejects"))
    return rows, rejects, sum(chunk.other_lines for chunk in chunks)


def answer(*series):
    return {"status": "success", "data": {"resultType": "matrix", "result": list(series)}}


def series(values, **labels):
    return {"metric": labels, "values": values}


def increase(rows, column):
    """What a counter grew by, restarts included: the sum of its growths, and of what it has after falling."""
    values = rows.sort("at")[column].drop_nulls().to_list()
    return sum(now - before if now >= before else now for before, now in pairwise(values))


@pytest.fixture(scope="module")
def recorded(shared):
    folder = shared / "data/real/prometheus"
    if not folder.is_dir():
        pytest.skip("the recorded Prometheus answers are not in the shared folder")
    return folder


@pytest.mark.parametrize(
    ("file", "column", "grown"),
    [
        ("query_range_vllm_generation_tokens_total.json", "generation_tokens_total", 18_839),
        ("raw_matrix_vllm_generation_tokens_total.json", "generation_tokens_total", 18_839),
        ("query_range_vllm_prompt_tokens_total.json", "prompt_tokens_total", 205_141),
        ("query_range_vllm_prompt_tokens_cached_total.json", "cached_prompt_tokens_total", 188_768),
        ("query_range_vllm_prefix_cache_queries_total.json", "prefix_cache_queries_total", 205_141),
        ("query_range_vllm_prefix_cache_hits_total.json", "prefix_cache_hits_total", 188_768),
        ("query_range_vllm_estimated_flops_per_gpu_total.json", "flops_per_gpu_total", 908_017_634_304),
    ],
)
def test_recorded_counters_grow_by_what_the_engine_did(recorded, tmp_path, file, column, grown):
    """18,839 generated tokens are what the engine's log adds up to as well (test_vllm_log)."""
    rows, rejects, other = read(recorded / file, tmp_path)
    assert (increase(rows, column), rejects.height, other) == (grown, 0, 0)
    assert rows["instance"].unique().to_list() == ["127.0.0.1:8000"]


def test_finished_requests_are_one_counter_whatever_their_reason(recorded, tmp_path):
    path = recorded / "query_range_vllm_request_success_total.json"
    rows, _, other = read(path, tmp_path)
    expected = defaultdict(float)
    for part in json.loads(path.read_text())["data"]["result"]:
        for instant, value in part["values"]:
            expected[instant] += float(value)
    assert {
        at.timestamp(): total for at, total in rows.select("at", "requests_total").iter_rows()
    } == expected
    assert rows.height + other == sum(
        len(part["values"]) for part in json.loads(path.read_text())["data"]["result"]
    )


def test_an_answer_without_a_metric_name_is_counted_and_not_used(recorded, tmp_path):
    rows, rejects, other = read(recorded / "query_range_vllm_ttft_p95.json", tmp_path)
    assert (rows.height, rejects.height, other) == (0, 0, 92)


@settings(max_examples=25, deadline=None)
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(["stop", "length", "abort"]),
            st.sampled_from(["0", "1"]),
            st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), min_size=1, max_size=4),
        ),
        max_size=6,
    ),
)
def test_summed_parts_equal_a_plain_sum(tmp_path_factory, parts):
    """Per engine and instant the first value of each reason counts, once."""
    work = tmp_path_factory.mktemp("parts")
    expected, count = defaultdict(dict), 0
    result = []
    for reason, engine, values in parts:
        result.append(
            series(
                [[BEGIN + step, str(value)] for step, value in values],
                __name__="vllm:request_success_total",
                instance="a:1",
                engine=engine,
                finished_reason=reason,
            )
        )
        for step, value in values:
            expected[engine, BEGIN + step].setdefault(reason, value)
            count += 1
    path = work / "answer.json"
    path.write_text(json.dumps(answer(*result)))
    if not count:
        return
    rows, rejects, other = read(path, work)
    found = {
        ("1" if instance.endswith("/engine-1") else "0", at.timestamp()): total
        for instance, at, total in rows.select("instance", "at", "requests_total").iter_rows()
    }
    assert found == {key: sum(values.values()) for key, values in expected.items()}
    assert rows.height + rejects.height + other == count


def test_values_that_are_none_are_counted_and_those_that_are_no_numbers_rejected(tmp_path):
    path = tmp_path / "answer.json"
    values = [[BEGIN, "NaN"], [BEGIN + 1, "+Inf"], [BEGIN + 2, "x"], [BEGIN + 3, None], [BEGIN + 4, 7]]
    path.write_text(json.dumps(answer(series(values, __name__="vllm:num_requests_running"))))
    rows, rejects, other = read(path, tmp_path)
    assert (rows["running"].to_list(), rejects["source_line"].to_list(), other) == ([7.0], [3, 4], 2)


def test_many_samples_are_summed_across_the_readers_chunks(tmp_path):
    """Parts lie 70,000 samples apart: further than a chunk of the reader."""
    count, path = 70_000, tmp_path / "answer.json"
    labels = {"__name__": "vllm:request_success_total", "instance": "a:1"}
    both = [
        series([[BEGIN + step, "1"] for step in range(count)], finished_reason=reason, **labels)
        for reason in ("stop", "length")
    ]
    path.write_text(json.dumps(answer(*both)))
    rows, _, other = read(path, tmp_path)
    assert (rows["requests_total"].unique().to_list(), rows.height, other) == ([2.0], count, count)


def test_power_of_a_partitioned_device_counts_once_and_energy_is_in_joules(tmp_path):
    path = tmp_path / "answer.json"
    device = {"UUID": "GPU-a", "Hostname": "n1"}
    path.write_text(
        json.dumps(
            answer(
                *(
                    series(
                        [[BEGIN, "300"]],
                        __name__="DCGM_FI_DEV_POWER_USAGE",
                        GPU_I_ID=part,
                        pod=part,
                        **device,
                    )
                    for part in ("1", "2")
                ),
                series([[BEGIN, "7000"]], __name__="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", **device),
            )
        )
    )
    rows, _, other = read(path, tmp_path, devices.FORMAT)
    assert (rows["power_w"].sum(), rows["energy_j"].sum(), other) == (300.0, 7.0, 1)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("vllm:generation_tokens_total", ENGINE_SAMPLES.name),
        ("vllm:generation_tokens", ENGINE_SAMPLES.name),
        ("DCGM_FI_DEV_POWER_USAGE", DEVICE_SAMPLES.name),
        ("up", ENGINE_SAMPLES.name),
    ],
)
def test_an_answer_is_of_one_table(name, table):
    head = Head("x", json.dumps(answer(series([[BEGIN, "1"]], __name__=name))).encode())
    found = [fmt.target.name for fmt in (engines.FORMAT, devices.FORMAT) if fmt.recognise(head)]
    assert found == [table]


@pytest.mark.parametrize(
    "text",
    [
        '{"status":"success","data":{"resultType":"streams","result":[]}}',
        '{"object":"page","data":[{"result":[]}]}',
        '{"status":"error","errorType":"bad_data","error":"parse error"}',
        "vllm:num_requests_running 1\n",
    ],
)
def test_other_documents_are_not_claimed(text):
    head = Head("x", text.encode())
    assert not engines.FORMAT.recognise(head)
    assert not devices.FORMAT.recognise(head)


@pytest.mark.parametrize("table", [ENGINE_SAMPLES, DEVICE_SAMPLES])
def test_declared_metrics_fill_columns_of_the_contract_once_per_name(table):
    declared = metrics.METRICS[table.name]
    assert {metric.column for metric in declared} <= set(table.names)
    assert not metrics.declared(table.name).select("name", "kind").is_duplicated().any()


@pytest.mark.parametrize(
    ("server", "number", "instance"),
    [
        ("a:8000", None, "a:8000"),
        ("a:8000", "0", "a:8000"),
        ("a:8000", "000", "a:8000"),
        ("a:8000", "013", "a:8000/engine-13"),
        (None, "000", "engine-0"),
        (None, None, None),
    ],
)
def test_instances_of_one_server_do_not_mix(server, number, instance):
    frame = pl.DataFrame({"s": [server], "n": [number]}, schema={"s": pl.String, "n": pl.String})
    assert frame.select(metrics.engine_instance(pl.col("s"), pl.col("n"))).item() == instance


@pytest.mark.parametrize("indent", [None, 2])
def test_documents_are_read_in_pieces_however_they_are_laid_out(tmp_path, indent):
    """Labels that look like a series, several documents, an empty answer between them."""
    sly = '{"metric": {"x'
    part = {
        "metric": {"metric": "y", "__name__": "vllm:num_requests_running", "note": sly},
        "values": [[BEGIN, "1"]],
    }
    later = {"metric": part["metric"], "values": [[BEGIN + 15, "2"]]}
    path = tmp_path / "answer.json"
    documents = [answer(part, later), answer(), answer({"metric": {}, "value": [BEGIN, "9"]}, later)]
    path.write_text("\n".join(json.dumps(document, indent=indent) for document in documents))
    rows, rejects, other = read(path, tmp_path)
    assert (rows["running"].to_list(), rejects.height, other) == ([1.0, 2.0], 0, 2)


def test_a_cut_document_keeps_its_whole_series_and_a_damaged_one_is_refused_alone(tmp_path):
    labels = {"__name__": "vllm:num_requests_running"}
    parts = [series([[BEGIN + 15 * step, str(step)]], **labels) for step in range(3)]
    text = json.dumps(answer(*parts))
    path = tmp_path / "answer.json"
    path.write_text(text[: text.rindex("values") + 12])
    rows, rejects, _ = read(path, tmp_path)
    assert rows["running"].to_list() == [0.0, 1.0]
    assert rejects.select("source_line", "reason").rows() == [
        (3, "the JSON document is cut off or damaged here")
    ]
    path.write_text(text.replace('"1"]]}', '"1"]}'))
    rows, rejects, _ = read(path, tmp_path)
    assert rows["running"].to_list() == [0.0, 2.0]
    assert rejects.select("source_line", "reason").rows() == [(2, "the series is damaged JSON")]


@pytest.mark.slow
@pytest.mark.bench
def test_time_and_memory_grow_no_faster_than_the_document(tmp_path):
    """Series are cut out of the document: DuckDB needs ten times its size to read it whole."""

    def seconds(count):
        path = tmp_path / f"{count}.json"
        values = [[BEGIN + 15 * step, str(step)] for step in range(11_000)]
        labels = {"__name__": "vllm:generation_tokens_total"}
        path.write_text(
            json.dumps(answer(*(series(values, instance=f"a:{n}", **labels) for n in range(count))))
        )
        start = time.perf_counter()
        rows, rejects, other = read(path, tmp_path)
        assert (rows.height, rejects.height, other) == (11_000 * count, 0, 0)
        return time.perf_counter() - start

    seconds(10)
    assert seconds(300) < 3 * 5 * seconds(60)
