"""Diagnostics and plans as text, JSON, GitHub annotations, SARIF, trees and graphs: data in, text out."""
