"""Never imported by a check."""
