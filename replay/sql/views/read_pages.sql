-- read_pages: one row for each page that an operation waits for from the SSD.
--
-- stretch, operation, position   its key
-- kind            demand, or warm for a hint
-- name            the operation as in the timeline: session and ticket of its opener
-- part, page_index   the page's place in the query
-- read            that brings it, in `reads`
-- joined          another operation had started the read before
-- seq             the record that queued or joined it
-- waited_us       from there to the landing; null: it has not landed
-- landed_seq      the record in which it landed; null: it has not
-- let_go_seq      from here on the operation does not want it: a cut, its lease's release, its end
-- held            it owned the page from the landing on; hints own none
-- generation      of the buffer that it was read into
CREATE VIEW read_pages AS
SELECT q.stretch, q.operation, q.position, q.kind, o.name, q.part, q.page_index, q.read,
    r.queued_fact IS DISTINCT FROM q.fact AS joined, q.seq,
    (landed.at_ns - wanted.at_ns) // 1000 AS waited_us,
    r.landed_seq, q.let_go_seq, q.held, q.generation
FROM query_pages q
LEFT JOIN operations o ON o.stretch = q.stretch AND o.operation = q.operation AND o.kind = q.kind
LEFT JOIN read_lives r ON r.stretch = q.stretch AND r.read = q.read
LEFT JOIN records wanted ON wanted.stretch = q.stretch AND wanted.seq = q.seq
LEFT JOIN records landed ON landed.stretch = q.stretch AND landed.seq = r.landed_seq
WHERE q.tier = 'ssd';
