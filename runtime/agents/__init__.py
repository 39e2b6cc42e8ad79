"""Prompt formats and their parsers: how a model becomes an agent."""
