"""Finding, unpacking and laying down sources: all packings give the same bytes, nothing escapes, damage is said."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import io
import lzma
import os
import socket
import tarfile
import zipfile
from pathlib import Path

import pytest

from parsers import archives, sources
from parsers import packing as packings
from parsers.archives import MAX_MEMBERS
from parsers.errors import NothingToAuditError, UnreadableSourceError
from parsers.live import Live
from parsers.sources import find_sources, lay_down, read_head

DATA = b"".join(b'{"line": %d, "text": "some words"}\n' % n for n in range(2000))


def zstd(data):
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKED = {
    "plain": lambda data: data,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
    "two gz streams": lambda data: gzip.compress(data[:1000]) + gzip.compress(data[1000:]),
    "two xz streams": lambda data: lzma.compress(data[:1000]) + lzma.compress(data[1000:]),
    "two bz2 streams": lambda data: bz2.compress(data[:1000]) + bz2.compress(data[1000:]),
    "two zst frames": lambda data: zstd(data[:1000]) + zstd(data[1000:]),
}


def only(path):
    (source,) = find_sources([path])
    return source


def content(source, work):
    work.mkdir(exist_ok=True)
    laid = lay_down(source, work)
    return laid.path.read_bytes(), laid


@pytest.mark.parametrize("packing", PACKED)
def test_every_packing_gives_the_same_bytes_and_hash(tmp_path, packing):
    """The name does not matter: what a file is packed in shows in its first bytes."""
    path = tmp_path / "log"
    path.write_bytes(PACKED[packing](DATA))
    data, laid = content(only(path), tmp_path / "work")
    assert data == DATA
    assert (laid.sha256, laid.size_bytes, laid.newlines) == (
        hashlib.sha256(DATA).hexdigest(),
        len(DATA),
        2000,
    )
    assert (laid.ends_open, laid.has_long_lines, laid.has_quotes, laid.problem) == (False, False, True, None)
    assert (laid.path == path) == (packing == "plain")
    assert DATA.startswith(read_head(only(path)).data)


def tar(members, compression=""):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{compression}") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


ARCHIVES = {
    "tar": tar,
    "tar.gz": lambda members: tar(members, "gz"),
    "tar.xz": lambda members: tar(members, "xz"),
    "tar.bz2": lambda members: tar(members, "bz2"),
    "zip": zipped,
}
MEMBERS = [
    ("b.jsonl", DATA),
    ("a/a.jsonl.gz", gzip.compress(b"packed twice\n")),
    ("../../escaped.log", b"outside\n"),
    ("/absolute.log", b"absolute\n"),
    ("a/.hidden", b"hidden\n"),
    ("__MACOSX/._b.jsonl", b"junk"),
    ("empty", b""),
]


@pytest.mark.parametrize("kind", ARCHIVES)
def test_members_of_archives_are_streams_and_never_files(tmp_path, kind):
    """Names that climb out or are absolute are only names; hidden members are left out."""
    path = tmp_path / "in" / f"logs.{kind}"
    path.parent.mkdir()
    path.write_bytes(ARCHIVES[kind](MEMBERS))
    found = {source.name.split("!")[1]: source for source in find_sources([path])}
    assert set(found) == {"b.jsonl", "a/a.jsonl.gz", "../../escaped.log", "/absolute.log", "empty"}
    contents = {name: content(source, tmp_path / "work")[0] for name, source in found.items()}
    assert contents["b.jsonl"] == DATA
    assert contents["a/a.jsonl.gz"] == b"packed twice\n"
    assert contents["../../escaped.log"] == b"outside\n"
    assert contents["/absolute.log"] == b"absolute\n"
    assert contents["empty"] == b""
    assert sorted(p.name for p in tmp_path.rglob("*") if not p.name.endswith(".spool")) == sorted(
        [
            "in",
            f"logs.{kind}",
            "work",
        ]
    )
    assert not Path("/absolute.log").exists()


def test_archives_in_archives_are_read_and_no_member_beside_them_is_lost(tmp_path):
    """A zip at the end of a tar made the whole a zip, for its table of contents is looked for at the end."""
    inner = {kind: pack([("log", kind.encode())]) for kind, pack in ARCHIVES.items()}
    deep = tar([("x.zip", zipped([("y.tar.gz", tar([("z.log.gz", gzip.compress(b"deep"))], "gz"))]))])
    beside = [("a.log", b"first"), *inner.items(), ("deep", deep), ("last.zip", zipped([("log", b"last")]))]
    expected = {"a.log": b"first", "last.zip!log": b"last", "deep!x.zip!y.tar.gz!z.log.gz": b"deep"}
    expected |= {f"{kind}!log": kind.encode() for kind in ARCHIVES}
    for kind, pack in ARCHIVES.items():
        path = tmp_path / f"bundle.{kind}"
        path.write_bytes(pack(beside))
        found = {source.name.split("!", 1)[1]: source for source in find_sources([path])}
        assert {name: content(source, tmp_path / "w")[0] for name, source in found.items()} == expected


def test_archives_in_archives_are_unpacked_once_and_bounded(tmp_path, monkeypatch):
    parts = [(f"{n}.zip", zipped([(f"m{m}", b"%d %d" % (n, m)) for m in range(5)])) for n in range(5)]
    (tmp_path / "logs.tar.gz").write_bytes(tar(parts, "gz"))
    unpacked = []
    real = archives._decompressed
    monkeypatch.setattr(
        archives, "_decompressed", lambda at, within: unpacked.append(within) or real(at, within)
    )
    found = find_sources([tmp_path / "logs.tar.gz"])
    assert [read_head(source).data for source in found] == [
        b"%d %d" % (n, m) for n in range(5) for m in range(5)
    ]
    assert len(unpacked) == 1 + 2 * len(parts)
    nested = zipped([("log", b"x\n")])
    for _ in range(archives.MAX_NESTING):
        nested = zipped([("in.zip", nested)])
    (tmp_path / "deep.zip").write_bytes(nested)
    assert "more than 4 archives" in only(tmp_path / "deep.zip").problem
    monkeypatch.setattr(archives, "MAX_MEMBERS", 24)
    (refused,) = find_sources([tmp_path / "logs.tar.gz"])
    assert "members: unpack it" in refused.problem


def test_what_is_packed_more_than_once_is_read_and_an_office_file_is_named(tmp_path):
    for pack in PACKED.values():
        (tmp_path / "a").write_bytes(gzip.compress(gzip.compress(pack(DATA))))
        assert content(only(tmp_path / "a"), tmp_path / "w")[0] == DATA
    (tmp_path / "a").write_bytes(gzip.compress(zipped([("log", DATA)])))
    assert content(only(tmp_path / "a"), tmp_path / "w")[0] == DATA
    (tmp_path / "a").write_bytes(zipped([("[Content_Types].xml", b""), ("xl/workbook.xml", b"")]))
    assert "save the sheet as CSV" in only(tmp_path / "a").problem


def test_of_a_name_that_is_in_a_tar_twice_the_last_counts(tmp_path):
    path = tmp_path / "logs.tar"
    path.write_bytes(tar([("a", b"old\n"), ("b", b"b\n"), ("a", b"new\n")]))
    assert [content(source, tmp_path / "w")[0] for source in find_sources([path])] == [b"new\n", b"b\n"]


def test_links_and_devices_in_a_tar_are_left_out(tmp_path):
    path = tmp_path / "logs.tar"
    with tarfile.open(path, "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo(f"member{kind!r}")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        archive.addfile(tarfile.TarInfo("real"))
    assert [source.member.name for source in find_sources([path])] == ["real"]


@pytest.mark.parametrize("packing", ["gz", "xz", "bz2", "zst"])
def test_a_cut_file_gives_what_was_before_the_cut_and_says_so(tmp_path, packing):
    # A block of bzip2 holds 900 KB: none of it comes out before its end.
    whole = PACKED[packing](os.urandom(1_200_000).hex().encode())
    path = tmp_path / "log"
    path.write_bytes(whole[: len(whole) // 2])
    data, laid = content(only(path), tmp_path / "work")
    assert laid.problem is not None
    assert laid.problem.startswith(f"the data is cut off or damaged after {len(data):,} bytes")
    assert laid.size_bytes == len(data) >= 200_000
    assert read_head(only(path)).data == data[: len(read_head(only(path)).data)]


@pytest.mark.parametrize("kind", ["tar", "tar.gz"])
def test_a_cut_archive_gives_its_members_up_to_the_cut(tmp_path, kind):
    """It is a source of its own with the problem, so that what is missing is not missed."""
    members = [(f"m{n}", os.urandom(200_000)) for n in range(4)]
    whole = ARCHIVES[kind](members)
    path = tmp_path / "logs"
    path.write_bytes(whole[: len(whole) * 5 // 8])
    found = find_sources([path])
    assert [source.member and source.member.name for source in found] == [None, "m0", "m1", "m2"]
    assert "cut off or damaged" in found[0].problem
    with pytest.raises(UnreadableSourceError, match="some members are missing"):
        read_head(found[0])
    assert content(found[2], tmp_path / "work")[0] == members[1][1]
    assert content(found[3], tmp_path / "work")[1].problem is not None


def test_an_encrypted_or_damaged_zip_member_is_an_error_of_that_member(tmp_path):
    path = tmp_path / "logs.zip"
    data = bytearray(zipped([("a.log", b"text\n"), ("b.log", b"other text\n")]))
    for mark, flag_at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + flag_at] |= 1
    path.write_bytes(bytes(data))
    locked, other = find_sources([path])
    with pytest.raises(UnreadableSourceError, match="encrypted"):
        read_head(locked)
    assert content(other, tmp_path / "work")[0] == b"other text\n"


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz"])
def test_a_file_that_is_damaged_from_its_start_is_not_called_empty(tmp_path, packing):
    path = tmp_path / "a"
    path.write_bytes(PACKED[packing](DATA)[:12])
    with pytest.raises(UnreadableSourceError, match=r"/a: .*damaged from its start"):
        read_head(*find_sources([path]))


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    assert MAX_MEMBERS == 100_000
    monkeypatch.setattr("parsers.archives.MAX_MEMBERS", 3)
    (tmp_path / "logs.zip").write_bytes(zipped([(str(n), b"") for n in range(4)]))
    assert "more than 3 members" in only(tmp_path / "logs.zip").problem


def test_members_of_a_packed_tar_are_unpacked_once_and_not_once_each(tmp_path, monkeypatch):
    """To unpack the archive again for each member takes quadratic time."""
    path = tmp_path / "logs.tar.xz"
    path.write_bytes(tar([(f"m{n:03}", b"%d\n" % n) for n in range(200)], "xz"))
    unpacked = []
    real = archives._decompressed
    monkeypatch.setattr(archives, "_decompressed", lambda at, within: unpacked.append(at) or real(at, within))
    found = find_sources([path])
    assert [read_head(source).data for source in found] == [b"%d\n" % n for n in range(200)]
    assert content(found[7], tmp_path / "work")[0] == b"7\n"
    assert unpacked == [path]


def test_folders_are_walked_without_hidden_files_and_links_to_files_are_followed(tmp_path):
    (tmp_path / "in/sub/.git").mkdir(parents=True)
    (tmp_path / "out.log").write_bytes(b"out\n")
    for name in ("b.log", "sub/a.log", ".hidden", "sub/.git/config"):
        (tmp_path / "in" / name).write_bytes(name.encode())
    (tmp_path / "in/link.log").symlink_to(tmp_path / "out.log")
    (tmp_path / "in/broken.log").symlink_to(tmp_path / "nowhere")
    (tmp_path / "in/loop").symlink_to(tmp_path / "in")
    names = [Path(source.name).relative_to(tmp_path).as_posix() for source in find_sources([tmp_path / "in"])]
    assert names == ["in/b.log", "in/link.log", "in/sub/a.log"]
    assert [source.name for source in find_sources([tmp_path / "in/.hidden"])] == [
        str(tmp_path / "in/.hidden")
    ]


def test_globs_and_repeated_paths(tmp_path):
    for name in ("a.log", "b.log", "c.txt"):
        (tmp_path / name).write_bytes(b"x\n")
    found = find_sources([tmp_path / "*.log", tmp_path / "b.log", tmp_path])
    assert [Path(source.name).name for source in found] == ["a.log", "b.log", "c.txt"]
    (tmp_path / "[x].log").write_bytes(b"x\n")
    assert len(find_sources([tmp_path / "[x].log"])) == 1


def test_what_is_not_there_is_said_in_one_line(tmp_path):
    with pytest.raises(UnreadableSourceError, match="no such file or folder"):
        find_sources([tmp_path / "none.log"])
    with pytest.raises(UnreadableSourceError, match="no such file or folder"):
        find_sources([tmp_path / "*.none"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingToAuditError, match="no files found"):
        find_sources([tmp_path / "empty"])


def test_a_file_that_vanished_is_unreadable(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x\n")
    source = only(path)
    path.unlink()
    for use in (read_head, lambda gone: lay_down(gone, tmp_path)):
        with pytest.raises(UnreadableSourceError, match=r"can't be read \(No such file or directory\)"):
            use(source)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_and_folders_without_permission_are_named(tmp_path):
    (tmp_path / "in/closed").mkdir(parents=True)
    (tmp_path / "in/secret.log").write_bytes(b"x\n")
    (tmp_path / "in/secret.log").chmod(0)
    (tmp_path / "in/closed").chmod(0)
    closed, secret = find_sources([tmp_path / "in"])
    (tmp_path / "in/closed").chmod(0o700)
    assert "can't be listed" in closed.problem
    with pytest.raises(UnreadableSourceError, match="Permission denied"):
        read_head(secret)


def test_a_folder_that_can_not_be_listed_is_a_source_with_the_problem(tmp_path, monkeypatch):
    (tmp_path / "a.log").write_bytes(b"x\n")

    def walk(top, onerror):
        onerror(PermissionError(13, "Permission denied", str(Path(top) / "closed")))
        yield str(top), [], ["a.log"]

    monkeypatch.setattr(sources.os, "walk", walk)
    found = find_sources([tmp_path])
    assert [source.problem for source in found] == [None, "the folder can't be listed (Permission denied)"]


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert only(tmp_path / "pipe").problem == "it is neither a file nor a folder"


@pytest.mark.parametrize(
    ("data", "newlines", "ends_open", "blank"),
    [
        (b"", 0, False, False),
        (b"a", 0, True, False),
        (b"a\n", 1, False, False),
        (b"a\n\nb", 2, True, True),
        (b" a\n", 1, False, True),
        (b"a\n\tb\n", 2, False, True),
        (b"\r\na\n", 2, False, True),
        (b"a\n\n", 2, False, True),
    ],
)
def test_lines_are_counted(tmp_path, data, newlines, ends_open, blank):
    """`may_have_blank_lines` may be true without cause, but never false without."""
    path = tmp_path / "log"
    path.write_bytes(data)
    laid = lay_down(only(path), tmp_path)
    assert (laid.newlines, laid.ends_open, laid.may_have_blank_lines) == (newlines, ends_open, blank)


def test_the_head_holds_the_first_line_whole(tmp_path):
    """A first line of a megabyte, as agents' requests are, must be recognised; an endless one is cut."""
    path = tmp_path / "log"
    path.write_bytes(b"x" * (1 << 20) + b"\nsecond\n")
    head = read_head(only(path))
    assert head.lines[0] == "x" * (1 << 20)
    path.write_bytes(b"x" * (20 << 20))
    assert (
        sources.MAX_HEAD_BYTES
        <= len(read_head(only(path)).data)
        <= sources.MAX_HEAD_BYTES + sources.HEAD_BYTES
    )
    path.write_bytes(b"y\n" * (1 << 20))
    assert len(read_head(only(path)).data) == sources.HEAD_BYTES


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_text_in_utf_16_is_laid_down_in_utf_8(codec, tmp_path):
    """As Excel and PowerShell write it; a character is not torn where a piece ends."""
    text = "a\r\n" + "\U0001f600 \u2028 b\n" * 30_000
    path = tmp_path / "log.csv"
    path.write_bytes(("\ufeff" + text).encode(codec) + b"\x00")
    source = find_sources([path])[0]
    laid = lay_down(source, tmp_path)
    assert laid.path.read_text(encoding="utf-8").removesuffix("\ufffd") == text.replace("\r\n", "\n")
    assert (laid.newlines, laid.problem) == (30_001, None)
    assert read_head(source).lines[0] == "a"


def zeros(packing, size):
    """So many zeros, packed piece by piece; the pieces are streams one after another."""
    piece = PACKED[packing](bytes(1 << 20))
    return piece * (size >> 20)


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz", "zst"])
def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path, monkeypatch, packing):
    """More than it may become, and beyond what is free: told, with what to do."""
    assert (packings.FREE_BYTES, packings.MOST_EXPANSION) == (1 << 30, 500)
    monkeypatch.setattr(packings, "FREE_BYTES", 2 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(zeros(packing, 64 << 20))
    with pytest.raises(
        UnreadableSourceError, match=r"more than 500 times its size.*unpack it and give the folder"
    ):
        content(only(path), tmp_path / "work")
    assert sum(spool.stat().st_size for spool in (tmp_path / "work").iterdir()) <= 16 << 20
    path.write_bytes(PACKED[packing](os.urandom(4 << 20)))
    assert content(only(path), tmp_path / "work")[1].problem is None


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.bz2"])
def test_a_bomb_in_an_archive_is_refused_and_the_others_are_read(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(packings, "FREE_BYTES", 2 << 20)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bomb").write_bytes(ARCHIVES[kind]([("a", bytes(32 << 20)), ("b", b"b\n")]))
    (tmp_path / "in" / "log").write_bytes(b"x\n")
    bomb, *rest = find_sources([tmp_path / "in"])
    with pytest.raises(UnreadableSourceError, match="more than 500 times its size"):
        read_head(bomb)
    assert content(rest[-1], tmp_path / "work")[0] == b"x\n"


def test_a_packed_member_may_not_grow_out_of_proportion_either(tmp_path, monkeypatch):
    monkeypatch.setattr(packings, "FREE_BYTES", 2 << 20)
    path = tmp_path / "logs.zip"
    path.write_bytes(zipped([("a.gz", zeros("gz", 24 << 20))]))
    with pytest.raises(UnreadableSourceError, match="more than 500 times its size"):
        content(only(path), tmp_path / "work")


def test_what_is_packed_is_bounded_in_all_and_what_is_plain_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_UNPACKED_BYTES", 1000)
    (tmp_path / "log").write_bytes(DATA)
    assert content(only(tmp_path / "log"), tmp_path / "work")[1].problem is None
    (tmp_path / "log").write_bytes(gzip.compress(DATA))
    assert "larger than 1,000 bytes" in content(only(tmp_path / "log"), tmp_path / "work")[1].problem


def test_tars_are_unpacked_beside_the_data_and_a_full_disk_is_not_blamed_on_them(tmp_path, monkeypatch):
    path = tmp_path / "logs.tar.gz"
    path.write_bytes(tar([("a", b"a\n")], "gz"))
    seen = []
    real = packings.tempfile.TemporaryFile
    monkeypatch.setattr(
        packings.tempfile, "TemporaryFile", lambda **given: seen.append(given["dir"]) or real(**given)
    )
    find_sources([path], Live(tmp_path / "home" / "work"))
    assert seen == [tmp_path / "home" / "work"]

    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packings.tempfile, "TemporaryFile", full)
    path.write_bytes(tar([("b", b"other\n")], "gz"))
    with pytest.raises(OSError, match="No space left"):
        find_sources([path])


def test_a_fault_of_the_medium_is_told_as_what_it_is(tmp_path):
    """`/proc/self/mem` answers as a broken disk does."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("no such file here")
    with pytest.raises(UnreadableSourceError, match="Input/output error"):
        read_head(only("/proc/self/mem"))


def test_odd_names_and_odd_files_are_found_or_told(tmp_path):
    names = [b"new\nline.log", b"\xff\xfe.log", b"-dash.log", b"a b.log", "\u202egol.exe".encode()]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"x\n")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    (tmp_path / "self").symlink_to(tmp_path / "self")
    found = find_sources([tmp_path])
    assert sorted(os.fsencode(source.path.name) for source in found) == sorted(names)
    assert [read_head(source).data for source in found] == [b"x\n"] * len(names)
    with pytest.raises(UnreadableSourceError, match="no such file"):
        find_sources([tmp_path / "self"])
    assert only("/dev/zero").problem == "it is neither a file nor a folder"


def test_a_file_that_goes_while_its_folder_is_listed_is_told(tmp_path, monkeypatch):
    (tmp_path / "a.log").write_bytes(b"x\n")
    (tmp_path / "b.log").write_bytes(b"x\n")
    real = Path.is_file
    monkeypatch.setattr(
        Path, "is_file", lambda path: real(path) and (path.name != "a.log" or not path.unlink())
    )
    gone, there = find_sources([tmp_path])
    assert gone.problem == "can't be looked at (No such file or directory)"
    assert there.problem is None


@pytest.mark.slow
def test_a_hundred_gigabytes_of_zeros_are_refused_after_one(tmp_path):
    path = tmp_path / "bomb.gz"
    piece = gzip.compress(bytes(64 << 20))
    with path.open("wb") as out:
        for _ in range(1600):
            out.write(piece)
    with pytest.raises(UnreadableSourceError, match="more than 500 times its size"):
        content(only(path), tmp_path / "work")
    assert sum(spool.stat().st_size for spool in (tmp_path / "work").iterdir()) <= (1 << 30) + packings.BLOCK
