-- Every page that speculation had read is prepared at its own landing, once, and comes to one end: restored,
-- by the first successful GPU sync that names it, or unused, in the record in which its last cache, query,
-- lease or copy owner lets go. Until then it is pending: prepared = restored + unused + pending, at every
-- record.
--
-- All of it is recounted from reads, grants, cuts, leases, syncs and evictions, generation by generation.
WITH
-- Who started a read: the earliest demand or hint that still wanted it when it was submitted.
wants AS (
    SELECT r.stretch, r.read, arg_min(q.kind, q.fact) AS kind, bool_and(q.known) AS known
    FROM read_lives r JOIN query_pages q USING (stretch, read)
    WHERE q.fact < r.submitted_fact AND (q.let_go_fact IS NULL OR q.let_go_fact > r.submitted_fact)
    GROUP BY ALL
),
told AS (
    SELECT
        f.*, format('generation {}', f.generation) AS name, s.whole, c.judged,
        c.prepared_fact, c.restored_fact, c.unused_fact, c.synced_seq, c.released_seq,
        row_number() OVER (PARTITION BY f.stretch, f.generation, f.what ORDER BY f.fact) AS nth
    FROM buffer_uses f
    JOIN stretches s USING (stretch)
    LEFT JOIN cohorts c USING (stretch, generation)
    WHERE f.what IN ('prepared', 'restored', 'unused')
),
causes AS (
    SELECT c.stretch, c.generation,
        CASE
            WHEN i.seq IS NOT NULL THEN 'restart'
            WHEN c.inserted_seq IS NULL THEN 'replaced'
            WHEN c.evicted_for = 'cleanup' THEN 'cleanup'
            ELSE 'evicted'
        END AS cause
    FROM cohorts c LEFT JOIN incarnation_closed i ON i.stretch = c.stretch AND i.seq = c.released_seq
),
preparing AS (
    SELECT r.stretch, r.submitted_seq AS seq,
        format('read {} is submitted as {}, of those who want it the first is {}',
            r.read, r.origin, w.kind) AS why
    FROM read_lives r JOIN wants w USING (stretch, read) JOIN stretches s USING (stretch)
    WHERE (s.whole OR (w.known AND r.queued_fact IS NOT NULL)) AND r.origin::VARCHAR <> w.kind
    UNION ALL
    SELECT r.stretch, r.landed_seq,
        format('generation {} lands, read for a hint, and is not prepared', r.generation)
    FROM read_lives r ANTI JOIN told t
        ON t.stretch = r.stretch AND t.generation = r.generation AND t.seq = r.landed_seq
        AND t.what = 'prepared'
    WHERE r.origin = 'warm' AND r.generation IS NOT NULL AND r.landed_seq IS NOT NULL
    UNION ALL
    SELECT t.stretch, t.seq, format('{} is prepared, and no read for a hint lands in it', t.name)
    FROM told t ANTI JOIN read_lives r
        ON r.stretch = t.stretch AND r.generation = t.generation AND r.landed_seq = t.seq
        AND r.origin = 'warm'
    WHERE t.what = 'prepared' AND t.generation IS NOT NULL
),
-- Each outcome follows a landing, and nothing follows an outcome.
resolving AS (
    SELECT stretch, seq, format('buffer {} is {}, and was never allocated', buffer, what) AS why
    FROM told WHERE generation IS NULL AND whole
    UNION ALL
    SELECT stretch, seq, format('{} is {} again', name, what)
    FROM told WHERE nth > 1 AND generation IS NOT NULL
    UNION ALL
    SELECT stretch, seq, format('{} is {}, and was not prepared', name, what)
    FROM told
    WHERE what <> 'prepared' AND generation IS NOT NULL AND (prepared_fact IS NULL OR prepared_fact > fact)
    UNION ALL
    SELECT stretch, seq, format('{} is unused, and had been restored before', name)
    FROM told WHERE what = 'unused' AND restored_fact < fact
    UNION ALL
    SELECT stretch, seq, format('{} is restored, and had been unused before', name)
    FROM told WHERE what = 'restored' AND unused_fact < fact
),
restoring AS (
    SELECT stretch, seq, format('{} is restored, {}', name, coalesce(
        format('its first GPU sync is that of seq {}', synced_seq), 'and no GPU sync ever names it')) AS why
    FROM told WHERE what = 'restored' AND judged AND nth = 1 AND synced_seq IS DISTINCT FROM seq
    UNION ALL
    SELECT stretch, synced_seq,
        format('generation {} is named by its first GPU sync, and not restored', generation)
    FROM cohorts WHERE judged AND synced_seq IS NOT NULL AND restored_seq IS DISTINCT FROM synced_seq
),
letting_go AS (
    SELECT stretch, seq, format('{} is unused, {}', name, coalesce(
        format('its last owner lets go at seq {}', released_seq), 'and has an owner still')) AS why
    FROM told WHERE what = 'unused' AND judged AND nth = 1 AND released_seq IS DISTINCT FROM seq
    UNION ALL
    SELECT stretch, released_seq,
        format('the last owner of generation {} lets go, and it is not unused', generation)
    FROM cohorts
    WHERE judged AND released_seq IS NOT NULL AND unused_seq IS DISTINCT FROM released_seq
        AND (restored_seq IS NULL OR restored_seq > released_seq)
    UNION ALL
    SELECT t.stretch, t.seq, format('{} is unused because {}, it should be {}', t.name, t.unused_for, c.cause)
    FROM told t JOIN causes c USING (stretch, generation)
    WHERE t.what = 'unused' AND t.judged AND t.seq = t.released_seq AND t.unused_for::VARCHAR <> c.cause
)
FROM preparing UNION ALL FROM resolving UNION ALL FROM restoring UNION ALL FROM letting_go;
