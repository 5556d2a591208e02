-- Keep the version of a document that is gone.
INSERT INTO document_mark (kind, version) VALUES (:kind, :version)
    ON CONFLICT (kind) DO UPDATE SET version = max(version, excluded.version)
