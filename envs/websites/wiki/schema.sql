CREATE TABLE users (
    name TEXT PRIMARY KEY,
    password TEXT NOT NULL,
    joined TEXT NOT NULL,
    about TEXT NOT NULL
);
CREATE TABLE pages (
    id INTEGER PRIMARY KEY,
    title TEXT NOT NULL UNIQUE COLLATE NOCASE,
    protected INTEGER NOT NULL DEFAULT 0
);
-- what a page was called before
CREATE TABLE old_titles (
    title TEXT PRIMARY KEY COLLATE NOCASE,
    page INTEGER NOT NULL REFERENCES pages(id)
);
-- a page's text is that of its last revision
CREATE TABLE revisions (
    id INTEGER PRIMARY KEY,
    page INTEGER NOT NULL REFERENCES pages(id),
    author TEXT NOT NULL REFERENCES users(name),
    day TEXT NOT NULL,
    summary TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX revisions_of_pages ON revisions(page, id);
CREATE TABLE comments (
    id INTEGER PRIMARY KEY,
    page INTEGER NOT NULL REFERENCES pages(id),
    author TEXT NOT NULL REFERENCES users(name),
    day TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE watches (
    user TEXT NOT NULL REFERENCES users(name),
    page INTEGER NOT NULL REFERENCES pages(id),
    PRIMARY KEY (user, page)
);
CREATE VIEW current AS
    SELECT pages.id, title, protected, text, day, author
    FROM pages JOIN revisions ON revisions.id = (SELECT max(id) FROM revisions WHERE page = pages.id);
