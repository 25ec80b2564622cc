-- Sessions are opened in rising order and closed once; what one does lies in between, only what it had begun
-- drains later. A rank is registered by one session at a time. An instance is sealed once, when all its ranks
-- are there, and only then served; it is closed once, after its last session, and with nothing held.
-- Once the shutdown has begun nothing is admitted. A process is released when no session of it is left.
WITH
opened AS (
    SELECT *, max(session) OVER (
        PARTITION BY stretch ORDER BY fact ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
    FROM session_opened
),
closes AS (SELECT stretch, session, min(fact) AS fact, min(seq) AS seq FROM session_closed GROUP BY ALL),
lives AS (SELECT stretch, session, min(fact) AS fact FROM opened GROUP BY ALL),
opening AS (
    SELECT stretch, seq, format('session {} is opened after session {}', session, highest) AS why FROM opened
    WHERE session <= highest
    UNION ALL
    SELECT l.stretch, l.seq, format('session {} is closed again', session)
    FROM session_closed l JOIN closes c USING (stretch, session) WHERE l.fact > c.fact
    UNION ALL
    SELECT c.stretch, c.seq, format('session {} is closed, and was never opened', session)
    FROM closes c JOIN stretches s USING (stretch) LEFT JOIN lives v USING (stretch, session)
    WHERE (s.whole AND v.fact IS NULL) OR v.fact > c.fact
),
-- Who says so: a process that registers again, the end of a process, or the connection.
closing_causes AS (
    SELECT c.stretch, c.seq,
        format('session {} is closed as {}, in a record of {}', session, c.cause, r.cause) AS why
    FROM session_closed c JOIN records r USING (stretch, seq)
    WHERE (c.cause = 'superseded') <> (r.cause = 'RegisterRank')
        OR (c.cause = 'process_gone') <> (r.cause = 'ReleaseProcess')
),
registered AS (
    SELECT r.*, c.fact AS closed_fact,
        row_number() OVER (PARTITION BY r.stretch, r.session ORDER BY r.fact) AS nth,
        lag(r.session) OVER (PARTITION BY r.stretch, r.instance, r.rank ORDER BY r.fact) AS session_before,
        lag(c.fact) OVER (PARTITION BY r.stretch, r.instance, r.rank ORDER BY r.fact) AS closed_before,
        first_value(r.world_size) OVER (PARTITION BY r.stretch,
            r.instance ORDER BY r.fact) AS first_world_size
    FROM rank_registered r LEFT JOIN closes c USING (stretch, session)
),
members AS (SELECT stretch, session, instance, rank, fact FROM registered WHERE nth = 1),
done AS (
    SELECT stretch, seq, fact, session, 'registers' AS what, instance FROM rank_registered
    UNION ALL SELECT stretch, seq, fact, session, 'opens a demand', instance FROM query_opened
    UNION ALL SELECT stretch, seq, fact, session, 'is given a hint', instance FROM hint_admitted
    UNION ALL SELECT stretch, seq, fact, session, 'has a hint skipped', instance FROM hint_skipped
    UNION ALL SELECT stretch, seq, fact, session, 'sends a hint', instance FROM hint_not_needed
    UNION ALL SELECT stretch, seq, fact, session, 'begins a restore', NULL FROM restore_begun
    UNION ALL SELECT stretch, any_value(seq), fact, session, 'joins a save', NULL FROM save_joined
    GROUP BY stretch, fact, session
    UNION ALL SELECT stretch, any_value(seq), fact, session, 'commits a save', NULL FROM copies_started
    GROUP BY stretch, fact, session
    UNION ALL SELECT stretch, seq, fact, session, 'reports a stage', NULL FROM stage_reported
),
doing AS (
    SELECT d.stretch, d.seq, format('session {} {}, and {}', d.session, d.what,
        if(v.fact IS NULL OR v.fact > d.fact, 'was not opened', 'is closed')) AS why
    FROM done d JOIN stretches s USING (stretch)
    LEFT JOIN lives v USING (stretch, session) LEFT JOIN closes c USING (stretch, session)
    WHERE (s.whole AND v.fact IS NULL) OR v.fact > d.fact OR c.fact < d.fact
    UNION ALL
    SELECT d.stretch, d.seq, format('session {} {} for instance {}, and belongs to {}', d.session, d.what,
        d.instance, coalesce(m.instance::VARCHAR, 'none'))
    FROM done d JOIN lives v USING (stretch, session) LEFT JOIN members m USING (stretch, session)
    WHERE d.instance IS NOT NULL AND m.instance IS DISTINCT FROM d.instance
),
registering AS (
    SELECT stretch, seq, format('session {} registers again', session) AS why FROM registered WHERE nth > 1
    UNION ALL
    SELECT stretch, seq,
        format('rank {} of instance {} is registered by session {}, session {} has it', rank, instance,
            session, session_before)
    FROM registered
    WHERE rank >= 0 AND session_before IS NOT NULL AND (closed_before IS NULL OR closed_before > fact)
    UNION ALL
    SELECT stretch, seq,
        format('rank {} of instance {} is registered for a world of {}, it has {}', rank, instance,
            world_size, first_world_size)
    FROM registered WHERE world_size <> first_world_size OR rank < -1 OR rank >= world_size
),
seals AS (SELECT stretch, instance, min(fact) AS fact, min(seq) AS seq FROM instance_sealed GROUP BY ALL),
present AS (
    SELECT e.stretch, e.instance, e.seq, max(r.world_size) AS world_size, count(DISTINCT r.rank) AS ranks
    FROM seals e JOIN registered r USING (stretch, instance)
    WHERE r.fact < e.fact AND r.rank >= 0 AND (r.closed_fact IS NULL OR r.closed_fact > e.fact)
    GROUP BY ALL
),
sealing AS (
    SELECT stretch, seq, format('instance {} is sealed again', instance) AS why
    FROM instance_sealed QUALIFY row_number() OVER (PARTITION BY stretch, instance ORDER BY fact) > 1
    UNION ALL
    SELECT e.stretch, e.seq,
        format('instance {} is sealed with {} of {} ranks', e.instance, coalesce(p.ranks, 0),
            coalesce(p.world_size, 0))
    FROM seals e JOIN stretches s USING (stretch) LEFT JOIN present p USING (stretch, instance)
    WHERE s.whole AND p.ranks IS DISTINCT FROM p.world_size
    UNION ALL
    SELECT d.stretch, d.seq, format('instance {} is served, and is not sealed', d.instance)
    FROM done d JOIN stretches s USING (stretch) LEFT JOIN seals e USING (stretch, instance)
    WHERE d.instance IS NOT NULL AND d.what <> 'registers'
        AND ((s.whole AND e.fact IS NULL) OR e.fact > d.fact)
),
ends AS (SELECT stretch, instance, min(fact) AS fact, min(seq) AS seq FROM instance_closed GROUP BY ALL),
used AS (
    SELECT stretch, seq, instance, 'has a session' AS what FROM (
        SELECT r.stretch, r.instance, coalesce(c.seq, 9223372036854775807) AS seq
        FROM rank_registered r LEFT JOIN closes c USING (stretch, session))
    UNION ALL
    SELECT stretch, seq, instance, 'has bytes reserved' FROM (
        SELECT stretch, operation, instance,
            if(bool_or(what = 'ended'), max(seq), 9223372036854775807) AS seq
        FROM reservation_levels GROUP BY ALL)
),
closing AS (
    SELECT stretch, seq, format('instance {} is closed again', instance) AS why
    FROM instance_closed QUALIFY row_number() OVER (PARTITION BY stretch, instance ORDER BY fact) > 1
    UNION ALL
    SELECT d.stretch, d.seq,
        format('session {} {} for instance {}, which is closed', d.session, d.what, d.instance)
    FROM done d JOIN ends e USING (stretch, instance) WHERE d.fact > e.fact
    UNION ALL
    SELECT DISTINCT e.stretch, e.seq, format('instance {} is closed, and {}', e.instance, u.what)
    FROM ends e JOIN used u USING (stretch, instance) WHERE u.seq > e.seq
),
shutdowns AS (SELECT stretch, min(fact) AS fact FROM shutdown_begun GROUP BY ALL),
admitting AS (
    SELECT d.stretch, d.seq, format('session {} {} after the shutdown has begun', d.session, d.what) AS why
    FROM done d JOIN shutdowns x USING (stretch)
    WHERE d.fact > x.fact AND d.what NOT IN ('reports a stage', 'begins a restore')
),
-- A process that is known to be gone has no session any more.
releasing AS (
    SELECT p.stretch, p.seq,
        format('process {} is released, and its session {} is open', p.process, o.session) AS why
    FROM process_released p JOIN session_opened o USING (stretch, process)
    LEFT JOIN closes c USING (stretch, session)
    WHERE o.fact < p.fact AND (c.seq IS NULL OR c.seq > p.seq)
)
FROM opening UNION ALL FROM closing_causes UNION ALL FROM doing UNION ALL FROM registering
UNION ALL FROM sealing UNION ALL FROM closing UNION ALL FROM admitting UNION ALL FROM releasing;
