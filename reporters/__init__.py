"""How findings and plans are shown: text for people, JSON, GitHub and SARIF for machines, trees and graphs of plans."""
