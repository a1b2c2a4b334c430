"""SQL that says which rows of a day are doubles, and which belong to one call.

Belongs here: statements over two narrow temporary tables, so that the wide rows are read once. Does not belong here: when
they run and what is written (`facts.py`).

    near      source_format, file_rank, source_line, record, at; of calls also priority, gateway, call, request,
              request_id, call_id, operation, failed, served, input_tokens, output_tokens, start_us, end_us
    keyless   source_format, file_rank, source_line, at, content: rows without a record_key of files that may overlap;
              content is a hash of all columns but the place in the file

Both give `(source_format, file_rank, source_line, at)` or `(file_rank, source_line, attempt, retry_of)`.
"""

from __future__ import annotations

_SAME_RECORD = """
WITH repeated AS (
    SELECT record FROM near WHERE record IS NOT NULL GROUP BY record HAVING count(*) > 1
),
placed AS (
    SELECT source_format, file_rank, source_line, "at",
           row_number() OVER (PARTITION BY record ORDER BY {order}) AS place
    FROM near WHERE record IN (SELECT record FROM repeated)
)
SELECT source_format, file_rank, source_line, "at" FROM placed WHERE place > 1
"""
SAME_RECORD = _SAME_RECORD.format(order='output_tokens DESC NULLS LAST, "at", file_rank, source_line')
"""Rows of one format with one record_key, but for the one with the most output, then the earliest: a copy that was taken
while the answer still came holds less of it.
"""
SAME_BUCKET = _SAME_RECORD.format(order="file_rank DESC, source_line DESC")
"""Sums with one record_key, whatever format read them, but for the last: a sum grows until it is settled."""

SECOND_EXPORT = """
WITH best AS (
    SELECT gateway, min(priority) AS priority FROM near GROUP BY gateway HAVING min(priority) < max(priority)
),
first_export AS (
    SELECT n.call, n.request, n.failed FROM near n JOIN best b ON n.gateway = b.gateway AND n.priority = b.priority
)
SELECT n.source_format, n.file_rank, n.source_line, n."at"
FROM near n JOIN best b ON n.gateway = b.gateway AND n.priority > b.priority
WHERE (n.call, n.failed) IN (SELECT (call, failed) FROM first_export WHERE call IS NOT NULL)
   OR (n.request, n.failed) IN (SELECT (request, failed) FROM first_export WHERE request IS NOT NULL)
"""
"""Rows of a gateway's second export whose call and outcome are in its first."""

OVERLAP = """
WITH numbered AS (
    SELECT source_format, file_rank, source_line, "at", content,
           row_number() OVER (PARTITION BY source_format, content, file_rank ORDER BY source_line) AS nth
    FROM keyless
),
shared AS (
    SELECT o.file_rank AS older, n.file_rank AS newer, n.source_line, n."at", n.source_format
    FROM numbered o JOIN numbered n
      ON o.source_format = n.source_format AND o.content = n.content AND o.nth = n.nth AND o.file_rank < n.file_rank
),
spans AS (
    SELECT file_rank, min("at") AS first_at, max("at") AS last_at FROM keyless GROUP BY file_rank
),
pairs AS (
    SELECT s.older, s.newer, count(*) AS equal_rows,
           max(greatest(o.first_at, n.first_at)) AS first_at, max(least(o.last_at, n.last_at)) AS last_at
    FROM shared s JOIN spans o ON o.file_rank = s.older JOIN spans n ON n.file_rank = s.newer
    GROUP BY s.older, s.newer
),
overlapping AS (
    SELECT p.older, p.newer
    FROM pairs p JOIN keyless k
      ON k.file_rank IN (p.older, p.newer) AND k."at" BETWEEN p.first_at AND p.last_at
    GROUP BY p.older, p.newer
    HAVING max(p.equal_rows) = least(
        sum(CASE WHEN k.file_rank = p.older THEN 1 ELSE 0 END), sum(CASE WHEN k.file_rank = p.newer THEN 1 ELSE 0 END))
)
SELECT DISTINCT s.source_format, s.newer AS file_rank, s.source_line, s."at"
FROM shared s JOIN overlapping p ON s.older = p.older AND s.newer = p.newer
"""
"""Rows without a key that an older file has too. Two files overlap if, of the stretch that both cover, every row of one
is in the other: single rows that happen to be equal (coarse clocks, idle meters of two hosts) do not make an overlap.
"""

NOTHING = """
SELECT '' AS source_format, 0 AS file_rank, 0 AS source_line, CAST(NULL AS TIMESTAMPTZ) AS "at" WHERE false
"""
"""No doubles."""

BRIDGED = """
SELECT source_format, file_rank, source_line, "at" FROM near
WHERE served AND operation = 'responses' AND (call, input_tokens, output_tokens) IN (
    SELECT (call, input_tokens, output_tokens) FROM near WHERE served AND operation = 'chat' AND call IS NOT NULL
)
"""
"""Served /v1/responses rows that are the outside of a chat completion with a row of its own: a gateway reaches models
without a Responses API through a bridge and logs both ends, with one call id and equal counts.
"""

LIVE_CALLS = """
SELECT n.source_format, n.file_rank, n.source_line, n.start_us, n.end_us, n.input_tokens, n.output_tokens,
       n.gateway, n.request_id, n.call_id
FROM near n ANTI JOIN doubles d USING (file_rank, source_line)
"""
"""Calls that are no doubles so far."""

OTHER_HOPS = """
INSERT INTO doubles
SELECT n.source_format, n.file_rank, n.source_line, n."at"
FROM near n JOIN elsewhere e USING (file_rank, source_line)
"""
"""Makes the rows of the frame `elsewhere` doubles."""

ATTEMPTS = """
CREATE TEMP TABLE attempts AS
WITH live AS (
    SELECT n.* FROM near n ANTI JOIN doubles d USING (file_rank, source_line) WHERE call IS NOT NULL
),
several AS (
    SELECT call FROM live GROUP BY call HAVING count(*) > 1
)
SELECT file_rank, source_line,
       row_number() OVER (PARTITION BY call ORDER BY "at", file_rank, source_line) AS attempt,
       lag(request_id) OVER (PARTITION BY call ORDER BY "at", file_rank, source_line) AS retry_of
FROM live WHERE call IN (SELECT call FROM several)
"""
