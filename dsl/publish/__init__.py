"""What is written from the model: schemas, reference pages, resolved recipes, plans as JSON."""
