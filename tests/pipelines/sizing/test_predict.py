"""Tables of serving points: names, layouts, what a row can't tell, and files that stay as they were."""

from __future__ import annotations

import csv
import json

import polars as pl
import pytest

from pipelines.sizing.points import precision_of, read_points
from pipelines.sizing.predict import PREDICTED, predict
from pipelines.sizing.predict_files import predict_csv
from warehouse.catalogue import models
from warehouse.model_config import read_model_config

LATENCY = {
    "id": "a_c64_x",
    "backend": "vllm",
    "model_path": "meta-llama/Llama-3.1-70B",
    "system": "h200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "512",
    "batch_size": "64",
    "tp_size": "4",
    "pp_size": "1",
    "attention_dp_size": "1",
    "moe_tp_size": "4",
    "moe_ep_size": "1",
}
ENERGY = {
    "task": "lm-arena-chat",
    "model": "Qwen/Qwen3-14B",
    "gpu": "H100",
    "num_gpus": "1",
    "max_num_seqs": "64",
    "precision": "bfloat16",
    "avg_out_len": "600",
}


def one(row, **changed):
    return predict(pl.DataFrame([row | changed], infer_schema_length=None)).row(0, named=True)


@pytest.mark.parametrize("row", [LATENCY, ENERGY])
def test_both_tables_are_predicted_with_intervals(row):
    found = one(row)
    for name, unit in (("tpot", "ms"), ("ttft", "ms"), ("power", "w")):
        low, mean, high = (found[f"{name}{part}_{unit}"] for part in ("_low", "", "_high"))
        assert 0 < low < mean < high
    assert found["output_tokens_per_s"] > 0
    assert found["note"] == ""


def test_measured_columns_are_not_looked_at():
    told = LATENCY | {
        "silicon_tpot_ms": "1",
        "silicon_ttft_ms": "1",
        "silicon_data_source": "silicon_concurrency=9",
    }
    assert one(told) == one(LATENCY)
    assert one(ENERGY | {"avg_power_w": "1", "out_tok_s": "1", "j_per_out_token": "1"}) == one(ENERGY)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_path": "nobody/Model-7B"}, "no architecture is called 'nobody/Model-7B'"),
        ({"model_path": ""}, "names no model"),
        ({"system": "h900"}, "no accelerator is called 'h900'"),
        ({"precision": "fp3"}, "no precision is called 'fp3'"),
        ({"system": "a100_sxm"}, "has no known peak at fp8"),
        ({"isl": "abc"}, "input length"),
        ({"osl": "0"}, "output length"),
        ({"batch_size": "inf"}, "batch or concurrency"),
        ({"tp_size": "1", "system": "l4"}, "the weights at fp8 need"),
        ({"tp_size": "1.5"}, "no whole number"),
    ],
)
def test_a_row_that_cannot_be_predicted_is_empty_and_says_why(changed, said):
    found = one(LATENCY, **changed)
    assert said in found.pop("note")
    assert set(found.values()) == {None}


@pytest.mark.parametrize("spelling", ["h200_sxm", "NVIDIA H200", "H200 SXM", "h200"])
def test_systems_are_found_in_any_spelling(spelling):
    assert one(LATENCY, system=spelling) == one(LATENCY)


def test_precision_comes_from_the_row_else_the_name_else_the_published_weights():
    rows = pl.DataFrame(
        [
            LATENCY | {"precision": given, "model_path": name}
            for given, name in (
                ("fp8_block", "Qwen3-32B"),
                (None, "Qwen/Qwen3-32B-FP8"),
                (None, "Qwen3-32B"),
                (None, "openai/gpt-oss-120b"),
            )
        ],
        infer_schema_length=None,
    )
    # MXFP4 needs units for 4-bit floats, which an H200 lacks: it multiplies at 16 bits.
    assert read_points(rows)["precision"].to_list() == ["fp8", "fp8", "bf16", "int4"]
    assert precision_of("nvfp4") == "fp4"
    assert precision_of("w4a16") == "int4"


def test_squared_layouts_are_read_as_the_group_that_was_timed():
    rows = pl.DataFrame(
        [
            LATENCY | {"tp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8"},
            LATENCY
            | {
                "tp_size": "1",
                "attention_dp_size": "64",
                "moe_tp_size": "8",
                "moe_ep_size": "8",
                "batch_size": "1",
            },
            LATENCY | {"tp_size": "4", "attention_dp_size": "4", "moe_tp_size": "1", "moe_ep_size": "16"},
        ]
    )
    told = read_points(rows).select("tensor_parallel", "attention_dp", "sequences").rows()
    assert told == [(8, 1, 64), (1, 8, 64), (1, 4, 256)]


def test_decode_workers_stand_for_a_disaggregated_row():
    apart = {
        "mode": "disagg",
        "batch_size": None,
        "tp_size": None,
        "attention_dp_size": None,
        "decode_batch_size": "16",
        "decode_num_workers": "4",
        "decode_tp_size": "8",
        "decode_attention_dp_size": "1",
    }
    told = read_points(pl.DataFrame([LATENCY | apart], infer_schema_length=None)).row(0, named=True)
    assert (told["tensor_parallel"], told["sequences"], told["series"]) == (8, 16, "disaggregated")
    unknown = apart | {"decode_batch_size": None, "decode_num_workers": None}
    told = read_points(pl.DataFrame([LATENCY | unknown], infer_schema_length=None)).row(0, named=True)
    assert told["sequences"] == 64


def test_given_cells_are_written_back_unchanged(tmp_path):
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    rows = [[*LATENCY.values(), "=cmd()"], ["x" * 200_000, "?", "é\n", "h200"], ["1"] * 40, []]
    with source.open("w", newline="") as stream:
        csv.writer(stream).writerows([[*LATENCY, "own"], *rows])
    assert predict_csv(source, target) == (3, 1)
    with target.open(newline="") as stream:
        csv.field_size_limit(10**7)
        header, *written = list(csv.reader(stream))
    assert header == [*LATENCY, "own", *PREDICTED, "note"]
    assert written[0][: len(rows[0])] == rows[0]
    assert written[1][:4] == rows[1]
    assert "more cells than the header" in "".join(written[2])


def test_a_hostile_name_is_quoted_as_one_printable_line():
    said = one(LATENCY, model_path="=1+1\n\x1b[31m" + "x" * 500)["note"]
    assert said.startswith("not predicted")
    assert said.isprintable()
    assert len(said) < 200


def test_an_architecture_comes_from_a_checkpoints_config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "hidden_size": 5120,
                "num_hidden_layers": 64,
                "num_attention_heads": 64,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "intermediate_size": 25600,
                "vocab_size": 151936,
                "torch_dtype": "bfloat16",
            }
        )
    )
    model, known = read_model_config(path, "mine"), models()["Qwen3 32B"]
    assert (model.params, model.kv_bytes_per_token()) == (known.params, known.kv_bytes_per_token())
    rows = pl.DataFrame([LATENCY | {"model_path": name} for name in ("mine", "Qwen3-32B")])
    found = predict(rows, {"mine": model})
    assert found["tpot_ms"].n_unique() == 1
    assert found["tpot_ms"].null_count() == 0
