"""`tokenworks replay` as a user runs it."""

from __future__ import annotations

import json

import pytest

from pipelines import cli

FLAGS = ("--model", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "NVIDIA H100 80GB HBM3")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """An Azure trace: two minutes of calls, a second apart."""
    path = tmp_path_factory.mktemp("trace") / "AzureLLMInferenceTrace_conv.csv"
    rows = [f"2023-11-16 18:{15 + s // 60}:{s % 60:02}.0000000,{500 + s},{20 + s % 7}" for s in range(120)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    return path


def test_a_trace_and_a_machine_give_percentiles(command, trace, tmp_path):
    """Words on the terminal, the same figures as JSON in a folder."""
    ran = command("replay", trace, *FLAGS, "--replicas", "2", "--out", tmp_path)
    assert ran.code == 0, ran.err
    first, counts, header, ttft, *_ = ran.out.splitlines()
    assert first == "Llama 3.1 8B: Llama 3.1 8B on 2 x H100 SXM5 80GB (2 replicas, TP1, bf16); simulated"
    assert counts.startswith("  120 calls of 120 replayed")
    assert header.split() == ["mean", "p50", "p90", "p95", "p99", "max"]
    assert ttft.startswith("  TTFT  ")
    (told,) = json.loads((tmp_path / "replay.json").read_text())["replays"]
    assert told["calls"] == {"replayed": 120, "measured": 120, "refused": 0}
    assert told["slo"]["holds"] is True
    assert told["goodput"]["ratio"] == 1.0
    assert 0 < told["ttft_ms"]["p50"] < told["ttft_ms"]["p95"]
    assert told["machines"][0]["output_tokens"] == sum(20 + s % 7 for s in range(120))
    assert told["energy"]["power_w_mean"] > 0
    assert len(told["kv_tokens"]) == 100


def test_a_window_is_measured_and_what_comes_before_is_warm_up(command, trace):
    """The calls of the minute before are replayed, too."""
    window = "2023-11-16T18:16:00Z..2023-11-16T18:17:00Z"
    ran = command("replay", trace, *FLAGS, "--window", window, "--json")
    (told,) = json.loads(ran.out)["replays"]
    assert told["calls"] == {"replayed": 120, "measured": 60, "refused": 0}
    ran = command("replay", trace, *FLAGS, "--window", window, "--warm-up-s", "10", "--json")
    (told,) = json.loads(ran.out)["replays"]
    assert told["calls"] == {"replayed": 70, "measured": 60, "refused": 0}


@pytest.mark.slow
def test_an_audits_data_folder_is_a_trace(command, trace, tmp_path):
    """Facts that were built are not built again; prefill and decode apart, and a fleet's pools."""
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(
        '[[pools]]\nname = "chat"\nmodels = ["*"]\narchitecture = "Llama 3.1 8B"\n'
        'accelerator = "H100 SXM5 80GB"\naccelerators = 3\n'
    )
    kept = tmp_path / "kept"
    made = command("audit", trace, "--out", kept)
    assert made.code == 0, made.err
    trace_text = command("replay", kept, "--fleet", fleet, "--prefill-replicas", "1").out
    assert trace_text.startswith("chat: Llama 3.1 8B on 3 x H100 SXM5 80GB")
    assert "prefill: utilisation" in trace_text
    assert "decode: utilisation" in trace_text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 5, "Give --fleet FILE, or --model and --gpu"),
        (("--model", "llama-9", "--gpu", "h100"), 5, "--model: no architecture is called 'llama-9'"),
        (("--model", "llama-3.1-8b", "--gpu", "h900"), 5, "--gpu: no accelerator is called 'h900'"),
        (("--model", "llama-3.1-405b", "--gpu", "h100"), 5, "does not fit on H100"),
        ((*FLAGS, "--prefill-replicas", "1"), 5, "none is left for decode"),
        ((*FLAGS, "--window", "2025-01-01..2025-01-02"), 6, "it holds no call"),
        (
            (*FLAGS, "--replicas", "2", "--prefill-replicas", "1", "--concurrency", "4"),
            5,
            "moments of their own",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(trace, arguments, code, said, capsys):
    """Exit code, and what to do."""
    with pytest.raises(SystemExit) as ended:
        cli.app(["replay", str(trace), *arguments], standalone_mode=False)
    told = capsys.readouterr()
    assert ended.value.code == code
    assert said in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
