"""Forms: what requests may say. They refuse unknown fields; moments in them are datetimes, spans are seconds."""
