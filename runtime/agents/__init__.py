"""How a model becomes an agent: prompt formats, each with a strict parser."""
