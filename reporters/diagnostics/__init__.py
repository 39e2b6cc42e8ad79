"""Diagnostics as text, JSON, GitHub annotations and SARIF."""
