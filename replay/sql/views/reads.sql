-- reads: one row for each page read from the SSD, from the queue to its end.
--
-- stretch, read    its key
-- operation        demand or hint that queued it
-- position         of the page among those that the operation goes on with
-- page             the page's number; null: the read was queued before this stretch of the log begins
-- queued_seq       the record that queued it; null likewise
-- submitted_seq    the record that handed it to the device; from there on it ends by completion only
-- origin           demand or warm: who was first of those that still wanted it, when it was submitted
-- foreground       a demand waited for it, so it may have used the reserved part of the bytes in flight
-- slot, buffer     where from, and where to
-- generation       of the buffer that it was submitted with
-- ended_seq        the record that it landed, failed or was dropped in; null: it is under way
-- ended            whole (it landed), no_room or unwanted (it was dropped), or what was wrong with it
-- read_bytes       as the device told
-- elapsed_us       from submission to completion, as the store measured it
-- queued_at_ns, ended_at_ns   on the manager's clock
CREATE VIEW reads AS
SELECT r.stretch, r.read, q.operation, q.position, r.page, r.queued_seq, r.submitted_seq,
    r.origin, r.foreground, r.slot, r.buffer, r.generation,
    coalesce(r.ended_seq, r.dropped_seq) AS ended_seq,
    coalesce(r.outcome, CASE WHEN r.no_room THEN 'no_room' WHEN NOT r.no_room THEN 'unwanted' END) AS ended,
    r.read_bytes, l.elapsed_us, began.at_ns AS queued_at_ns, over.at_ns AS ended_at_ns
FROM read_lives r
LEFT JOIN reads_queued q ON q.stretch = r.stretch AND q.read = r.read AND q.fact = r.queued_fact
LEFT JOIN reads_landed l ON l.stretch = r.stretch AND l.read = r.read AND l.fact = r.landed_fact
LEFT JOIN records began ON began.stretch = r.stretch AND began.seq = r.queued_seq
LEFT JOIN records over ON over.stretch = r.stretch AND over.seq = coalesce(r.ended_seq, r.dropped_seq);
