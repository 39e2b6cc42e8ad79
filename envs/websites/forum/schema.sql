-- A board of links and discussions. Times are text, `2026-03-02 09:30`, so that they sort as they read.

CREATE TABLE member (
  name TEXT PRIMARY KEY,
  password TEXT NOT NULL,
  biography TEXT NOT NULL,
  joined TEXT NOT NULL
);
CREATE TABLE board (
  name TEXT PRIMARY KEY,
  title TEXT NOT NULL,
  description TEXT NOT NULL,
  sidebar TEXT NOT NULL,
  founder TEXT NOT NULL REFERENCES member,
  created TEXT NOT NULL
);
CREATE TABLE subscription (
  member TEXT NOT NULL REFERENCES member,
  board TEXT NOT NULL REFERENCES board,
  PRIMARY KEY (member, board)
);
CREATE TABLE post (
  id INTEGER PRIMARY KEY,
  board TEXT NOT NULL REFERENCES board,
  author TEXT NOT NULL REFERENCES member,
  title TEXT NOT NULL,
  url TEXT NOT NULL,           -- empty where it is a text
  body TEXT NOT NULL,
  created TEXT NOT NULL,
  edited TEXT NOT NULL         -- empty where it never was
);
CREATE INDEX post_board ON post (board);
CREATE TABLE comment (
  id INTEGER PRIMARY KEY,
  post INTEGER NOT NULL REFERENCES post,
  parent INTEGER REFERENCES comment,
  author TEXT NOT NULL REFERENCES member,
  body TEXT NOT NULL,
  created TEXT NOT NULL,
  edited TEXT NOT NULL,
  deleted INTEGER NOT NULL     -- what has replies stays as an empty place
);
CREATE INDEX comment_post ON comment (post);
CREATE TABLE vote (
  member TEXT NOT NULL REFERENCES member,
  kind TEXT NOT NULL CHECK (kind IN ('post', 'comment')),
  thing INTEGER NOT NULL,
  value INTEGER NOT NULL CHECK (value IN (1, -1)),
  PRIMARY KEY (kind, thing, member)
) WITHOUT ROWID;
CREATE TABLE block (
  member TEXT NOT NULL REFERENCES member,
  blocked TEXT NOT NULL REFERENCES member,
  PRIMARY KEY (member, blocked)
);
CREATE TABLE message (
  id INTEGER PRIMARY KEY,
  sender TEXT NOT NULL REFERENCES member,
  recipient TEXT NOT NULL REFERENCES member,
  body TEXT NOT NULL,
  created TEXT NOT NULL
);

CREATE VIEW scored_post AS
SELECT post.*,
  coalesce((SELECT sum(value) FROM vote WHERE kind = 'post' AND thing = post.id), 0) AS score,
  (SELECT count(*) FROM comment WHERE comment.post = post.id AND NOT deleted) AS comments
FROM post;
CREATE VIEW scored_comment AS
SELECT comment.*,
  coalesce((SELECT sum(value) FROM vote WHERE kind = 'comment' AND thing = comment.id), 0) AS score
FROM comment;
