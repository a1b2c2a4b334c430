"""llama.cpp logs: recorded logs add up to what client and engine counted; tasks across chunks; hostile text."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.errors import SiteConfigError
from parsers.format import Context, Head
from parsers.formats.llamacpp_log import JSON, TEXT
from parsers.formats.llamacpp_response import FORMAT as RESPONSE
from parsers.llamacpp import EDGE_LINES, MOST_CARRIED
from parsers.records import REQUESTS
from parsers.sources import find_sources

STARTED = datetime(2026, 11, 30, 14, 10, 25, 500343, tzinfo=UTC)
ANSWERED_WITH_USAGE = 46
"""Of the client's 57 calls, one was killed; streams without include_usage show no usage."""
QUIET = ["0.00.000.000 I srv  update_slots: all slots are idle"] * EDGE_LINES
LOADED = "0.00.003.101 I srv    load_model: loading model '/m/tiny.gguf'"


def frame(lines, first=1):
    return pl.DataFrame(
        {"source_line": range(first, first + len(lines)), "line": lines},
        schema={"source_line": pl.Int64, "line": pl.String},
    )


def mapped(lines, chunk=None, **options):
    """All chunks of a log, mapped one after the other with one context."""
    context = Context("logs/server.log", None, options=options)
    raw, size = frame(lines), chunk or max(1, len(lines))
    parts = [TEXT.map(raw.slice(at, size), context) for at in range(0, raw.height, size)]
    whole = pl.concat(parts, how="diagonal_relaxed")
    last = TEXT.finish(context)
    given = whole.join(last, on="source_line", how="anti", maintain_order="left")
    return pl.concat([given, last], how="diagonal_relaxed").sort("source_line")


def rows(found):
    return found.filter(~pl.col("_other"))


def stamp(us):
    minutes, rest = divmod(us, 60_000_000)
    seconds, rest = divmod(rest, 1_000_000)
    return f"{minutes}.{seconds:02d}.{rest // 1000:03d}.{rest % 1000:03d}"


def slot_line(us, name, slot, task, text):
    return f"{stamp(us)} I slot {name:>12}: id {slot:2d} | task {task} | {text}"


def task_lines(us, slot, task, prompt, cached, output, ending):
    """A task's lines as (microsecond, text): ending is ok, cancelled or lost."""
    said = [
        (us, "launch_slot_", "processing task, is_child = 0"),
        (us + 1, "operator()", f"new prompt, n_ctx_slot = 4096, n_keep = 0, task.n_tokens = {prompt}"),
        (us + 2, "operator()", f"cached n_tokens = {cached}, memory_seq_rm [{cached}, end)"),
        (us + 50, "operator()", f"cached n_tokens = {prompt - 1}, memory_seq_rm [{prompt - 1}, end)"),
    ]
    end = us + 100 + output
    if ending == "ok":
        said += [
            (end, "print_timing", f"prompt eval time = {0.1:10.2f} ms / {prompt - cached:5d} tokens"),
            (end, "print_timing", f"       eval time = {0.02:10.2f} ms / {output:5d} tokens"),
            (
                end,
                "print_timing",
                f"      total time = {0.12:10.2f} ms / {prompt - cached + output:5d} tokens",
            ),
        ]
    lines = [(at, slot_line(at, name, slot, task, text)) for at, name, text in said]
    if ending == "cancelled":
        lines.append((end, f"{stamp(end)} W srv          stop: cancel task, id_task = {task}"))
    if ending != "lost":
        held = prompt + output - 1
        lines.append(
            (
                end + 1,
                slot_line(
                    end + 1, "release", slot, task, f"stop processing: n_tokens = {held}, truncated = 0"
                ),
            )
        )
    return lines


@pytest.fixture(scope="module")
def recorded(shared):
    folder = shared / "data/real/llamacpp"
    if not folder.is_dir():
        pytest.skip("the recorded llama.cpp logs are not in the shared folder")
    return folder


@pytest.fixture(scope="module")
def run_a(recorded):
    text = gzip.decompress((recorded / "runA.stdout.log.gz").read_bytes()).decode("utf-8", errors="replace")
    return text.removesuffix("\n").split("\n")


def tokens(found, status):
    chosen = found.filter(pl.col("status") == status)
    names = ("input_tokens", "cache_read_tokens", "output_tokens")
    return (chosen.height, *(chosen[name].sum() for name in names))


def test_run_a_adds_up_to_what_was_recorded(recorded, read_source, tmp_path):
    """56 completed: 9,294 uncached, 21,677 cached, 2,230 generated; one was killed with a prompt of 2,427."""
    source = find_sources([recorded / "runA.stdout.log.gz"])[0]
    result = read_source(source, tmp_path, fmt=TEXT)
    assert tokens(result.rows, "ok") == (56, 9_294 + 21_677, 21_677, 2_230)
    assert tokens(result.rows, "cancelled")[:3] == (1, 2_427, 0)
    assert (result.rows.height, result.rejects.height, result.lines) == (57, 0, 3_059)
    assert result.rows["model_served"].unique().to_list() == ["gemma-3-270m-q4_k_m"]


def test_run_c_holds_288_completed_tasks(recorded, read_source, tmp_path):
    """And three that were cancelled, and two prompts that were too long for their slot."""
    source = find_sources([recorded / "runC.log.jsonl.gz"])[0]
    result = read_source(source, tmp_path, fmt=JSON)
    assert tokens(result.rows, "ok") == (288, 10_910 + 91_046, 91_046, 13_932)
    assert tokens(result.rows, "cancelled")[0] == 3
    failed = result.rows.filter(pl.col("status") == "error")
    assert failed["error_kind"].to_list() == ["context_length_exceeded"] * 2
    assert result.lines == 29_590


def test_run_a_agrees_with_its_client_call_by_call(recorded, run_a):
    """Tokens and prompt times are the client's; a task starts just after the client sent its call."""
    client = [json.loads(line) for line in (recorded / "runA.client.jsonl").read_text().splitlines()]
    answered = [call for call in client if call["usage"] and call["timings"]]
    found = (
        rows(mapped(run_a, origin=STARTED.isoformat())).filter(pl.col("status") == "ok").sort("started_at")
    )
    ours = {
        (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"], row["ttft_ms"]): row
        for row in found.to_dicts()
    }
    for call in answered:
        usage, timings = call["usage"], call["timings"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        key = (usage["prompt_tokens"], cached, usage["completion_tokens"], round(timings["prompt_ms"], 2))
        late = ours[key]["started_at"] - datetime.fromtimestamp(call["t_start_epoch"], UTC)
        # The origin is when the process was called, some milliseconds before its clock began.
        assert timedelta(milliseconds=-20) <= late < timedelta(milliseconds=call["wall_ms"])
    assert len(answered) == ANSWERED_WITH_USAGE


@pytest.mark.parametrize("chunk", [1_000, 150])
def test_chunks_of_any_size_give_the_same_rows(run_a, chunk):
    whole, parts = rows(mapped(run_a)), mapped(run_a, chunk)
    assert parts["source_line"].to_list() == list(range(1, len(run_a) + 1))
    assert rows(parts).select(whole.columns).equals(whole)


@settings(max_examples=15, deadline=None)
@given(
    tasks=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(2, 3000),
            st.integers(1, 60),
            st.sampled_from(["ok", "ok", "cancelled", "lost"]),
        ),
        max_size=12,
    ),
    chunk=st.sampled_from([1, 2, 3, 7, 20, 1000]),
)
def test_interleaved_tasks_are_put_together_whatever_the_chunks(tasks, chunk):
    """Against the tasks that the log was written from: none is lost, merged or counted twice."""
    free, lines, expected = [0, 0, 0, 0], [], []
    for number, (slot, prompt, output, ending) in enumerate(tasks):
        at = max(free[slot], 1_000 * number // 4)
        cached = prompt // 3
        lines += task_lines(at, slot, number, prompt, cached, output, ending)
        free[slot] = at + 5_000
        expected.append((str(number), prompt, cached, None if ending == "lost" else output, ending))
    text = [line for _, line in sorted(lines, key=lambda pair: pair[0])]
    found = mapped([LOADED, *text], chunk)
    status = {"ok": "ok", "cancelled": "cancelled", "error": "lost"}
    names = ("request_id", "input_tokens", "cache_read_tokens", "output_tokens", "status")
    got = [(*row[:4], status[row[4]]) for row in rows(found).select(names).rows()] if tasks else []
    assert sorted(got, key=lambda row: int(row[0])) == expected
    assert found["source_line"].to_list() == list(range(1, len(text) + 2))


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_a_task_without_an_end_and_one_that_was_just_launched_have_a_line_each(chunk):
    launched = [slot_line(us, "launch_slot_", 0, us, "processing task, is_child = 0") for us in (1, 2)]
    found = rows(mapped([LOADED, *launched], chunk))
    assert found.select("source_line", "request_id", "error_kind").rows() == [
        (2, "1", "end_not_in_log"),
        (3, "2", "end_not_in_log"),
    ]


def test_what_waits_for_the_next_chunk_is_bounded():
    """A log that launches tasks for ever and ends none, in ever new slots."""
    context = Context("server.log", None)
    lines = [
        slot_line(n, "launch_slot_", n, n, "processing task, is_child = 0") for n in range(MOST_CARRIED + 50)
    ]
    TEXT.map(frame(lines), context)
    assert context.carried["events"].height == MOST_CARRIED


def test_reading_again_from_the_start_forgets_the_first_time():
    """A file that must be read strictly is mapped twice with one context."""
    lines = [LOADED, *(line for _, line in task_lines(5_000_000, 0, 1, 30, 10, 4, "ok")), *QUIET]
    context = Context("server.log", None)
    first, again = (rows(TEXT.map(frame(lines), context)) for _ in range(2))
    assert first.equals(again)
    assert first["output_tokens"].to_list() == [4]


def test_without_launch_and_prompt_lines_the_slot_length_gives_the_prompt():
    """At low verbosity only timings and the release are printed: prompt = slot length - generated + 1."""
    lines = [
        line
        for _, line in task_lines(5_000_000, 2, 9, 40, 25, 6, "ok")
        if "print_timing" in line or "release" in line
    ]
    row = rows(mapped([*lines, *QUIET])).row(0, named=True)
    assert (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"]) == (40, 25, 6)


def test_timings_alone_say_that_cached_tokens_are_missing_from_the_input():
    lines = [line for _, line in task_lines(5_000_000, 2, 9, 40, 25, 6, "ok") if "print_timing" in line]
    row = rows(mapped(lines)).row(0, named=True)
    assert (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"]) == (15, None, 6)
    assert "input_excludes_cached" in row["flags"]


def test_origin_sets_the_clock_and_a_wrong_one_is_named():
    lines = [LOADED, *(line for _, line in task_lines(5_000_000, 0, 1, 30, 10, 4, "ok")), *QUIET]
    row = rows(mapped(lines, origin="2026-03-02T10:00:00+01:00")).row(0, named=True)
    assert row["started_at"] == datetime(2026, 3, 2, 9, 0, 5, tzinfo=UTC)
    assert "relative_clock" not in row["flags"]
    with pytest.raises(SiteConfigError, match="option origin"):
        mapped(lines, origin="noon")


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.text(max_size=60) | st.sampled_from([LOADED, *(t for _, t in task_lines(1, 0, 1, 9, 3, 2, "ok"))]),
        max_size=20,
    ),
    st.data(),
)
def test_any_text_is_counted_and_breaks_nothing(lines, data):
    """Lines cut anywhere, in any order, with anything between them."""
    cut = [line[: data.draw(st.integers(0, len(line)))] for line in lines]
    found = mapped(cut or [""], chunk=data.draw(st.sampled_from([1, 5, 50])))
    assert found["source_line"].to_list() == list(range(1, len(cut or [""]) + 1))
    kept = rows(found)
    if not kept.is_empty():
        whole = kept.with_columns(source_format=pl.lit("x"), source_file=pl.lit("x"))
        assert not REQUESTS.problems(REQUESTS.conform(whole))


def test_other_logs_that_mention_llama_are_not_claimed():
    texts = [
        "INFO 03-01 10:00:00 [loggers.py:271] Engine 000: Avg prompt throughput: 1.0 tokens/s",
        '{"msg":"slot release: id  0 | task 1 | stop"}',
        "my notes: slot print_timing: id  0 | task 1 | total time = 3 ms",
        'time=2025-01-01T00:00:00.000Z level=INFO source=server.go:1 msg="llama runner started"',
    ]
    for text in texts:
        assert not TEXT.recognise(Head("x.log", text.encode()))
    assert not JSON.recognise(Head("x.jsonl", b'{"type":"log","time":1,"level":"info","msg":"hello"}\n'))


def test_response_timings_of_the_recorded_calls_give_the_recorded_tokens(recorded, read):
    """The client kept timings: as bodies they give the same tokens, and starts within the second of `created`."""
    lines = (recorded / "runA.client.jsonl").read_text().splitlines()
    calls = [call for call in map(json.loads, lines) if call["timings"] and "created" in call]
    bodies = [
        {"id": call["response_id"], "created": call["created"], "choices": [], "timings": call["timings"]}
        for call in calls
    ]
    found = read("".join(json.dumps(body) + "\n" for body in bodies), fmt=RESPONSE).rows
    assert found.height == len(calls) > 0
    for name, column in (("cache_n", "cache_read_tokens"), ("predicted_n", "output_tokens")):
        assert found[column].to_list() == [call["timings"][name] for call in calls]
    sent = pl.Series([call["t_start_epoch"] for call in calls])
    assert ((found["started_at"].dt.epoch("us") / 1e6) - sent).min() > -1.1


def test_a_damaged_line_of_two_tasks_is_one_row(read):
    """Line ends are gone: the end of one task and the launch of another stand on one line."""
    line = (
        "      total time =    6000.00 ms /    70 tokens "
        "slot launch_slot_: id  0 | task 276 | processing task prompt eval time =    1000.00 ms /    20 tokens"
    )
    result = read(line, "server.log", format_name="llamacpp_log")
    assert result.rows["source_line"].to_list() == [1]
    assert result.lines == 1
