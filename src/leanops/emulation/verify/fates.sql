-- What must have become of every message of a topic. Given: ledger (a row each time a message was sent), sent (the
-- first of each message), raw (a row for every row of RAW, with the batch that read it), curated_run (number,
-- source_from, source_to).

-- Every message once; the order of versions is (last_us, sent_us, message_id).
CREATE TABLE message AS
SELECT message_id, kind, key, rule, is_dead, is_fallback OR is_ahead AS is_fallback, failures, changed,
       map_keys(extra) AS added, sent_us, coalesce('key:' || key, 'message:' || message_id) AS record_key,
       CASE WHEN is_ahead THEN sent_us ELSE coalesce(version_us, sent_us) END AS last_us,
       coalesce(period, strftime(make_timestamp(sent_us), '%Y-%m')) AS month
FROM (
    -- Whether a version is more than a day ahead depends on the publish time, which Pub/Sub gives itself.
    SELECT sent.*, coalesce(sent.publish_us, landed.publish_us) AS sent_us,
           coalesce(version_us > sent_us + 86_400_000_000, false) AS is_ahead
    FROM sent LEFT JOIN (SELECT message_id, min(publish_us) AS publish_us FROM raw GROUP BY ALL) landed
    USING (message_id)
);

-- The events of each batch, copies of one together.
CREATE TABLE arrival AS
SELECT record_key, batch, message_id, copies, first_ms,
       dense_rank() OVER (PARTITION BY record_key ORDER BY last_us, sent_us, message_id) AS version
FROM (
    SELECT batch, message_id, count(*) AS copies, min(ingestion_ms) AS first_ms
    FROM raw WHERE batch IS NOT NULL GROUP BY ALL
) JOIN message USING (message_id)
WHERE rule IS NULL;

-- What a batch does to a key: `before` is the version it finds.
CREATE TABLE step AS
SELECT record_key, batch, max(version) AS newest, sum(copies) AS copies, count(*) AS messages, min(first_ms) AS seen_ms,
       max(max(version)) OVER earlier AS before
FROM arrival GROUP BY record_key, batch
WINDOW earlier AS (PARTITION BY record_key ORDER BY batch ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING);

-- The versions that were current for a time.
CREATE TABLE won AS
SELECT record_key, batch, version, message_id, first_ms,
       min(seen_ms) OVER (PARTITION BY record_key ORDER BY batch) AS first_seen_ms, before IS NULL AS is_first
FROM step JOIN arrival USING (record_key, batch)
WHERE version = newest AND newest > coalesce(before, 0);

CREATE TABLE standardized_count AS
SELECT r.batch, r.read, coalesce(inserted, 0) AS inserted, coalesce(updated, 0) AS updated,
       coalesce(duplicates, 0) AS duplicates, coalesce(superseded, 0) AS superseded, r.parse_errors,
       r.version_fallback, r.missing_keys
FROM (
    SELECT batch, count(*) AS read, count(*) FILTER (rule IS NOT NULL) AS parse_errors,
           count(*) FILTER (rule IS NULL AND is_fallback) AS version_fallback,
           count(*) FILTER (rule IS NULL AND key IS NULL) AS missing_keys
    FROM raw JOIN message USING (message_id) WHERE batch IS NOT NULL GROUP BY ALL
) r LEFT JOIN (
    SELECT batch, count(*) FILTER (is_newer AND before IS NULL) AS inserted,
           count(*) FILTER (is_newer AND before IS NOT NULL) AS updated,
           sum(s.copies - messages + known) AS duplicates, sum(messages - known - is_newer::INT) AS superseded
    FROM (
        SELECT step.*, newest > coalesce(before, 0) AS is_newer, (a.version IS NOT NULL)::INT AS known
        FROM step LEFT JOIN arrival a
        ON a.record_key = step.record_key AND a.batch = step.batch AND a.version = step.before
    ) s GROUP BY ALL
) USING (batch);

CREATE TABLE standardized_row AS
SELECT DISTINCT ON (record_key) record_key, message_id, first_ms, first_seen_ms, batch
FROM won ORDER BY record_key, batch DESC;

-- Every version once, with the batch of Standardized that brought it, and the batch of Curated that read that one.
CREATE TABLE version AS
SELECT v.*, number
FROM (
    SELECT record_key, version, message_id, month, failures, len(failures) = 0 AS is_valid, min(batch) AS batch,
           arg_min(first_ms, batch) AS first_ms
    FROM arrival JOIN message USING (message_id, record_key) GROUP BY ALL
) v LEFT JOIN curated_run ON batch > coalesce(source_from, 0) AND batch <= source_to;

-- What a batch of Curated does to a key: `held` and `kept` are the versions it holds before and after, always the newest
-- valid one; `newest` is the one in Standardized, which the batch reads if it came since the last one.
CREATE TABLE look AS
SELECT DISTINCT ON (record_key, number) l.*, w.version AS newest, w.first_seen_ms, w.batch > coalesce(r.source_from, 0)
       AS is_read
FROM (
    SELECT record_key, number, max(best) OVER earlier AS held, greatest(max(best) OVER earlier, best) AS kept
    FROM (
        SELECT record_key, number, max(CASE WHEN is_valid THEN version END) AS best
        FROM version WHERE number IS NOT NULL GROUP BY ALL
    )
    WINDOW earlier AS (PARTITION BY record_key ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
) l JOIN curated_run r USING (number) JOIN won w ON w.record_key = l.record_key AND w.batch <= r.source_to
ORDER BY record_key, number, w.batch DESC;

-- A batch of Standardized with nothing but copies leaves nothing to read.
CREATE TABLE curated_count AS
SELECT number AS batch, count(*) FILTER (is_read) AS read, count(*) FILTER (is_read AND is_good AND held IS NULL)
       AS inserted, count(*) FILTER (is_read AND is_good AND held IS NOT NULL) AS updated, 0 AS unchanged,
       count(*) FILTER (is_read AND NOT is_good) AS errors,
       count(*) FILTER (is_read AND NOT is_good AND kept IS NOT NULL) AS behind,
       count(*) FILTER (month <> old_month) AS cross_period, count(*) FILTER (is_change AND NOT is_good) AS kept_older,
       count(*) FILTER (is_change AND NOT is_good AND held IS NOT NULL) AS replaced_older,
       count(*) FILTER (month <> old_month AND abs(months(month) - months(old_month)) > 1) AS late_corrections,
       count(*) FILTER (is_read AND len(list_filter(failures, lambda f: f LIKE 'cde_missing %')) > 0) AS cde_missing
FROM (
    SELECT l.*, kept IS NOT DISTINCT FROM newest AS is_good, kept IS NOT NULL AND kept IS DISTINCT FROM held AS is_change,
           k.month, h.month AS old_month, n.failures
    FROM look l LEFT JOIN version k ON k.record_key = l.record_key AND k.version = kept
    LEFT JOIN version h ON h.record_key = l.record_key AND h.version = held
    LEFT JOIN version n ON n.record_key = l.record_key AND n.version = newest
) RIGHT JOIN curated_run USING (number)
GROUP BY ALL;

-- The newest valid version of each key, however it came.
CREATE TABLE curated_row AS
SELECT DISTINCT ON (record_key) v.record_key, v.message_id, v.first_ms, l.first_seen_ms, number AS batch
FROM version v JOIN look l USING (record_key, number) WHERE is_valid ORDER BY record_key, version DESC;

-- Every version that was judged and is invalid: the newest one, and those before it down to the one that is valid.
CREATE TABLE error_row AS
SELECT message_id, v.record_key, failures, first_ms, number AS batch
FROM version v JOIN look l USING (record_key, number) WHERE NOT is_valid AND version > coalesce(kept, 0);

-- The newest version of a key is invalid, and Curated keeps an older one.
CREATE TABLE behind_key AS
SELECT s.record_key, s.message_id FROM standardized_row s JOIN curated_row c USING (record_key)
WHERE s.message_id <> c.message_id;

-- One word for what became of each message; on its way is what the next batch of its layer will read.
CREATE TABLE fate AS
SELECT message_id, m.kind,
       CASE WHEN is_dead THEN 'dead letter' WHEN r.message_id IS NULL THEN 'on its way'
            WHEN rule IS NOT NULL THEN 'parse error' WHEN e.message_id IS NOT NULL THEN 'quarantined'
            WHEN c.message_id IS NOT NULL THEN 'curated' WHEN s.message_id IS NOT NULL THEN 'on its way'
            ELSE 'superseded' END AS fate
FROM message m LEFT JOIN (SELECT DISTINCT message_id FROM raw WHERE batch IS NOT NULL) r USING (message_id)
LEFT JOIN error_row e USING (message_id) LEFT JOIN curated_row c USING (message_id)
LEFT JOIN standardized_row s USING (message_id);
