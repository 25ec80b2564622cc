-- A lease answers one demand, ends once for a cause that fits its demand's, and is released once: in the
-- record in which it has ended and no rank copies from it any more. Each rank of the instance begins at
-- most one restore, while the lease has not ended; its share ends once, by its sync, its stop, its session's
-- end or the end of its process, and only a stranded one ends again. All shares ended: the lease is consumed.
WITH
demands AS (
    SELECT q.stretch, q.operation, min(q.instance) AS instance FROM query_opened q GROUP BY ALL
),
worlds AS (
    SELECT stretch, instance, max(world_size) AS world_size FROM rank_registered WHERE rank >= 0 GROUP BY ALL
),
granted AS (
    SELECT g.*, w.world_size, row_number() OVER (PARTITION BY g.stretch, g.lease ORDER BY g.fact) AS nth,
        row_number() OVER (PARTITION BY g.stretch, g.operation ORDER BY g.fact) AS nth_of_operation,
        max(g.lease) OVER (PARTITION BY g.stretch ORDER BY g.fact
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
    FROM lease_granted g
    LEFT JOIN demands d USING (stretch, operation) LEFT JOIN worlds w USING (stretch, instance)
),
grants AS (SELECT * FROM granted WHERE nth = 1),
ends AS (
    SELECT stretch, lease, min(fact) AS fact, min(seq) AS seq, arg_min("end", fact)::VARCHAR AS cause,
        count(*) AS times
    FROM lease_ended GROUP BY ALL
),
releases AS (
    SELECT stretch, lease, min(fact) AS fact, min(seq) AS seq, count(*) AS times FROM lease_released
    GROUP BY ALL
),
begun AS (
    SELECT b.*, row_number() OVER (PARTITION BY b.stretch, b.lease, b.rank ORDER BY b.fact) AS nth
    FROM restore_begun b
),
shares AS (
    SELECT h.stretch, h.seq, h.fact, h.lease, h.rank, h.share::VARCHAR AS share,
        lag(h.share::VARCHAR) OVER (PARTITION BY h.stretch, h.lease, h.rank ORDER BY h.fact) AS share_before,
        b.fact AS begun_fact
    FROM share_ended h LEFT JOIN begun b
        ON b.stretch = h.stretch AND b.lease = h.lease AND b.rank = h.rank AND b.nth = 1
),
granting AS (
    SELECT stretch, seq, format('lease {} is granted after lease {}', lease, highest) AS why FROM granted
    WHERE lease <= highest
    UNION ALL
    SELECT stretch, seq, format('{} is given lease {}, and has one already', operation_name(operation), lease)
    FROM granted WHERE nth_of_operation > 1
),
ending AS (
    SELECT e.stretch, e.seq, format('lease {} ends, and was never granted', lease) AS why
    FROM lease_ended e JOIN stretches s USING (stretch) ANTI JOIN grants g USING (stretch, lease)
    WHERE s.whole
    UNION ALL
    SELECT l.stretch, l.seq, format('lease {} ends again', lease)
    FROM lease_ended l JOIN ends e USING (stretch, lease) WHERE l.fact > e.fact
    UNION ALL
    SELECT l.stretch, l.seq, format('lease {} is released again', lease)
    FROM lease_released l JOIN releases r USING (stretch, lease) WHERE l.fact > r.fact
    UNION ALL
    SELECT r.stretch, r.seq, format('lease {} is released, and has not ended', lease)
    FROM releases r JOIN stretches s USING (stretch) LEFT JOIN grants g USING (stretch, lease)
    LEFT JOIN ends e USING (stretch, lease)
    WHERE (e.fact IS NULL AND (s.whole OR g.fact IS NOT NULL)) OR e.fact > r.fact
),
-- Copies that hold the lease's pages: from the beginning of a restore to the end of its share.
holds AS (
    SELECT b.stretch, b.lease, b.fact AS begun_fact, b.rank,
        min(h.fact) FILTER (h.share <> 'stranded') AS let_go_fact,
        min(h.seq) FILTER (h.share <> 'stranded') AS let_go_seq
    FROM begun b LEFT JOIN shares h
        ON h.stretch = b.stretch AND h.lease = b.lease AND h.rank = b.rank AND h.fact > b.fact
    WHERE b.nth = 1
    GROUP BY ALL
),
copying AS (
    SELECT stretch, lease, count(*) FILTER (let_go_seq IS NULL) AS copying, max(let_go_seq) AS let_go_seq
    FROM holds GROUP BY ALL
),
held AS (
    SELECT g.stretch, g.lease, e.seq AS ended_seq, r.seq AS released_seq,
        coalesce(c.copying, 0) AS copying, greatest(e.seq, c.let_go_seq) AS free_seq
    FROM grants g LEFT JOIN ends e USING (stretch, lease) LEFT JOIN copying c USING (stretch, lease)
    LEFT JOIN releases r USING (stretch, lease)
),
releasing AS (
    SELECT stretch, released_seq AS seq, format('lease {} is released, and {}', lease,
        if(copying > 0, 'a rank still copies',
            format('the last that holds it lets go at seq {}', free_seq))) AS why
    FROM held
    WHERE released_seq IS NOT NULL AND ended_seq IS NOT NULL AND (copying > 0 OR released_seq < free_seq)
    UNION ALL
    SELECT stretch, free_seq, format('nothing holds lease {} any more, and it is not released', lease)
    FROM held WHERE ended_seq IS NOT NULL AND copying = 0 AND released_seq IS DISTINCT FROM free_seq
        AND (released_seq IS NULL OR released_seq > free_seq)
),
sharing AS (
    SELECT b.stretch, b.seq, format('rank {} begins to copy lease {} again', b.rank, b.lease) AS why
    FROM begun b WHERE nth > 1
    UNION ALL
    SELECT b.stretch, b.seq, format('rank {} begins to copy lease {}, {}', b.rank, b.lease, CASE
        WHEN g.fact IS NULL OR g.fact > b.fact THEN 'which was never granted'
        WHEN e.fact < b.fact THEN 'which has ended'
        WHEN b.rank NOT BETWEEN 0 AND g.world_size - 1 THEN format('its instance has {} ranks', g.world_size)
        ELSE 'its share has ended' END)
    FROM begun b JOIN stretches s USING (stretch)
    LEFT JOIN grants g USING (stretch, lease) LEFT JOIN ends e USING (stretch, lease)
    LEFT JOIN (SELECT stretch, lease, rank, min(fact) AS fact FROM share_ended
        GROUP BY ALL) h USING (stretch, lease, rank)
    WHERE (g.fact IS NULL AND s.whole) OR g.fact > b.fact OR e.fact < b.fact OR h.fact < b.fact
        OR b.rank NOT BETWEEN 0 AND g.world_size - 1
    UNION ALL
    SELECT h.stretch, h.seq, format('the share of rank {} in lease {} ends ({}), and was {} before',
        h.rank, h.lease, h.share, h.share_before)
    FROM shares h WHERE share_before IS NOT NULL AND (share_before <> 'stranded' OR share = 'stranded')
    UNION ALL
    SELECT h.stretch, h.seq,
        format('the share of rank {} in lease {} ends ({}), and it did not copy', h.rank, h.lease, h.share)
    FROM shares h JOIN grants g USING (stretch, lease)
    WHERE h.share IN ('synced', 'stranded') AND (h.begun_fact IS NULL OR h.begun_fact > h.fact)
),
-- Consumed: the share of every rank has ended; and so it ends in no other way.
counted AS (
    SELECT g.stretch, g.lease, g.world_size, e.seq, e.cause, s.whole,
        count(DISTINCT h.rank) FILTER (h.fact < e.fact) AS ended_shares,
        count(DISTINCT h.rank) AS all_ended_shares, max(h.seq) AS last_seq
    FROM grants g JOIN stretches s USING (stretch) LEFT JOIN ends e USING (stretch, lease)
    LEFT JOIN (FROM shares WHERE share <> 'stranded') h USING (stretch, lease)
    GROUP BY g.stretch, g.lease, g.world_size, e.seq, e.cause, s.whole
),
consuming AS (
    SELECT stretch, seq, format('lease {} is consumed, {} of {} ranks have let go of their share',
        lease, ended_shares, world_size) AS why
    FROM counted WHERE cause = 'consumed' AND ended_shares <> world_size
    UNION ALL
    SELECT stretch, last_seq,
        format('all {} ranks have let go of their share of lease {}, and it has not ended',
        world_size, lease)
    FROM counted WHERE all_ended_shares = world_size AND (seq IS NULL OR seq > last_seq)
)
FROM granting UNION ALL FROM ending UNION ALL FROM releasing UNION ALL FROM sharing UNION ALL FROM consuming;
