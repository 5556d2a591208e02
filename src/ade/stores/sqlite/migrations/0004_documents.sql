-- Documents: people, rules and settings, each whole under a kind and an id.

CREATE TABLE document (
    kind       TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    version    INTEGER NOT NULL CHECK (version > 0),
    expires_at INTEGER,  -- wall time: from then on it is not there
    body       TEXT    NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE INDEX document_end ON document (expires_at) WHERE expires_at IS NOT NULL;

-- The highest version of a kind that went with its document. New documents begin above it, so none ever comes again.
CREATE TABLE document_mark (
    kind    TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;

-- How often somebody may try: when all of it is free again, in microseconds of steady time.
CREATE TABLE document_rate (
    key     TEXT PRIMARY KEY,
    full_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX document_rate_full ON document_rate (full_at);
