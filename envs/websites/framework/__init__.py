"""What every site is built from: hosts, routes, pages, and rows of its data; it knows no site and no task."""
