-- A rank's copy holds the lease's pages from the beginning of its restore to its sync, its stated stop or the
-- confirmed end of its process; a session's end and an unknown outcome only strand it. Each end of a share
-- has its reason in the same record, and each reason ends the shares that it concerns.
WITH
begun AS (
    SELECT b.stretch, b.lease, b.rank, b.session, b.fact, o.process, o.end_observable
    FROM restore_begun b LEFT JOIN session_opened o USING (stretch, session)
    QUALIFY row_number() OVER (PARTITION BY b.stretch, b.lease, b.rank ORDER BY b.fact) = 1
),
ended AS (
    SELECT h.stretch, h.seq, h.fact, h.lease, h.rank, h.share::VARCHAR AS share, b.session, b.process,
        b.end_observable,
        b.fact IS NOT NULL AND b.fact < h.fact AS is_begun,
        s.whole OR (l.fact IS NOT NULL AND (b.fact IS NULL OR b.process IS NOT NULL)) AS known,
        lag(h.share::VARCHAR) OVER (PARTITION BY h.stretch, h.lease, h.rank ORDER BY h.fact) AS share_before
    FROM share_ended h JOIN stretches s USING (stretch)
    LEFT JOIN begun b USING (stretch, lease, rank) LEFT JOIN lease_granted l USING (stretch, lease)
),
reasons AS (
    SELECT e.*, r.cause, g.fact AS sync_fact, f.stopped, c.fact AS closed_fact, p.fact AS released_fact,
        p.by_operator
    FROM ended e JOIN records r USING (stretch, seq)
    LEFT JOIN gpu_synced g ON g.stretch = e.stretch AND g.seq = e.seq AND g.lease = e.lease
        AND g.rank = e.rank
    LEFT JOIN sync_failed f ON f.stretch = e.stretch AND f.seq = e.seq AND f.lease = e.lease
        AND f.rank = e.rank
    LEFT JOIN session_closed c ON c.stretch = e.stretch AND c.seq = e.seq AND c.session = e.session
    LEFT JOIN process_released p ON p.stretch = e.stretch AND p.seq = e.seq AND p.process = e.process
),
ending AS (
    SELECT stretch, seq, format('the share of rank {} in lease {} is {}, and {}', rank, lease, share, CASE
        WHEN share = 'synced' THEN 'no sync of it is reported'
        WHEN share = 'stranded' THEN 'neither has its session closed nor is its outcome unknown'
        WHEN is_begun THEN 'its copy was not reported to have ended'
        ELSE format('the record is that of {}', cause) END) AS why
    FROM reasons
    WHERE known AND NOT CASE
        WHEN share = 'synced' THEN is_begun AND sync_fact IS NOT NULL
        WHEN share = 'stranded' THEN is_begun AND (closed_fact IS NOT NULL OR stopped IS FALSE)
        WHEN share = 'released' AND is_begun THEN stopped IS TRUE
        WHEN share = 'released' THEN cause = 'ReleaseLease'
        WHEN share = 'lost' AND is_begun THEN released_fact IS NOT NULL
        ELSE cause IN ('CloseSession', 'ReleaseProcess', 'RegisterRank', 'BeginShutdown',
            'CloseIncarnation') END
    UNION ALL
    SELECT stretch, seq,
        format('process {} cannot be seen to end; the copy of rank {} for lease {} is lost without an operator',
            process, rank, lease)
    FROM reasons WHERE share = 'lost' AND is_begun AND end_observable IS FALSE AND by_operator IS FALSE
),
stranded AS (SELECT stretch, lease, rank, min(seq) AS seq FROM ended WHERE share = 'stranded' GROUP BY ALL),
-- The other way round; what is stranded may be reported as unknown again.
reported AS (
    SELECT g.stretch, g.seq, g.lease, g.rank, 'synced' AS share FROM gpu_synced g
    UNION ALL SELECT stretch, seq, lease, rank, if(stopped, 'released', 'stranded') FROM sync_failed
),
reporting AS (
    SELECT r.stretch, r.seq,
        format('rank {} reports on lease {}, and its share is not {}', r.rank, r.lease, r.share) AS why
    FROM reported r ANTI JOIN ended e USING (stretch, seq, lease, rank, share)
    LEFT JOIN stranded t USING (stretch, lease, rank)
    WHERE r.share <> 'stranded' OR t.seq IS NULL OR t.seq > r.seq
),
running AS (
    SELECT b.stretch, b.lease, b.rank, b.session, b.process, b.fact,
        min(e.seq) AS let_go_seq, min(e.seq) FILTER (e.share <> 'stranded') AS free_seq
    FROM begun b LEFT JOIN ended e
        ON e.stretch = b.stretch AND e.lease = b.lease AND e.rank = b.rank AND e.fact > b.fact
    GROUP BY ALL
),
leaving AS (
    SELECT c.stretch, c.seq,
        format('session {} is closed, and nothing becomes of its copy of lease {}', c.session, b.lease) AS why
    FROM session_closed c JOIN running b USING (stretch, session)
    WHERE b.fact < c.fact AND (b.let_go_seq IS NULL OR b.let_go_seq > c.seq)
    UNION ALL
    SELECT p.stretch, p.seq,
        format('process {} is gone, and its copy of lease {} still holds', p.process, b.lease)
    FROM process_released p JOIN running b USING (stretch, process)
    WHERE b.fact < p.fact AND (b.free_seq IS NULL OR b.free_seq > p.seq)
)
FROM ending UNION ALL FROM reporting UNION ALL FROM leaving;
