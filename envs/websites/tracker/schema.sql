-- A host of projects: issues, merge requests, files and commits. Days and times are text that sorts as it reads.

CREATE TABLE person (
  username TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  password TEXT NOT NULL,
  status TEXT NOT NULL,
  bio TEXT NOT NULL,
  location TEXT NOT NULL,
  joined TEXT NOT NULL
);
CREATE TABLE team (
  path TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  created TEXT NOT NULL
);
CREATE TABLE team_member (
  team TEXT NOT NULL REFERENCES team,
  username TEXT NOT NULL REFERENCES person,
  role TEXT NOT NULL,
  PRIMARY KEY (team, username)
);
CREATE TABLE project (
  id INTEGER PRIMARY KEY,
  space TEXT NOT NULL,         -- of a team or a person
  path TEXT NOT NULL,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  visibility TEXT NOT NULL CHECK (visibility IN ('public', 'internal', 'private')),
  created TEXT NOT NULL,
  forked_from INTEGER REFERENCES project,
  UNIQUE (space, path)
);
CREATE TABLE project_member (
  project INTEGER NOT NULL REFERENCES project,
  username TEXT NOT NULL REFERENCES person,
  role TEXT NOT NULL,
  PRIMARY KEY (project, username)
);
CREATE TABLE star (
  project INTEGER NOT NULL REFERENCES project,
  username TEXT NOT NULL REFERENCES person,
  PRIMARY KEY (project, username)
);
CREATE TABLE label (
  id INTEGER PRIMARY KEY,
  project INTEGER NOT NULL REFERENCES project,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  UNIQUE (project, name)
);
CREATE TABLE milestone (
  id INTEGER PRIMARY KEY,
  project INTEGER NOT NULL REFERENCES project,
  title TEXT NOT NULL,
  description TEXT NOT NULL,
  start TEXT NOT NULL,
  due TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
  UNIQUE (project, title)
);
CREATE TABLE item (
  id INTEGER PRIMARY KEY,
  project INTEGER NOT NULL REFERENCES project,
  kind TEXT NOT NULL CHECK (kind IN ('issue', 'merge')),
  number INTEGER NOT NULL,
  title TEXT NOT NULL,
  description TEXT NOT NULL,
  author TEXT NOT NULL REFERENCES person,
  assignee TEXT REFERENCES person,
  reviewer TEXT REFERENCES person,
  milestone INTEGER REFERENCES milestone,
  state TEXT NOT NULL CHECK (state IN ('open', 'closed', 'merged')),
  due TEXT NOT NULL,
  source TEXT NOT NULL,        -- branches of a merge request
  target TEXT NOT NULL,
  created TEXT NOT NULL,
  UNIQUE (project, kind, number)
);
CREATE TABLE item_label (
  item INTEGER NOT NULL REFERENCES item,
  label INTEGER NOT NULL REFERENCES label,
  PRIMARY KEY (item, label)
);
CREATE TABLE note (
  id INTEGER PRIMARY KEY,
  item INTEGER NOT NULL REFERENCES item,
  author TEXT NOT NULL REFERENCES person,
  body TEXT NOT NULL,
  created TEXT NOT NULL
);
CREATE INDEX note_item ON note (item);
CREATE TABLE approval (
  item INTEGER NOT NULL REFERENCES item,
  username TEXT NOT NULL REFERENCES person,
  PRIMARY KEY (item, username)
);
CREATE TABLE edit (
  item INTEGER NOT NULL REFERENCES item,
  path TEXT NOT NULL,
  old TEXT NOT NULL,           -- a line of the file; empty where one is added at its end
  new TEXT NOT NULL
);
CREATE TABLE file (
  project INTEGER NOT NULL REFERENCES project,
  path TEXT NOT NULL,
  content TEXT NOT NULL,
  PRIMARY KEY (project, path)
);
CREATE TABLE revision (
  sha TEXT NOT NULL,
  project INTEGER NOT NULL REFERENCES project,
  author TEXT NOT NULL REFERENCES person,
  title TEXT NOT NULL,
  path TEXT NOT NULL,          -- of the file that was changed
  created TEXT NOT NULL,
  PRIMARY KEY (project, sha)
);
CREATE TABLE branch (
  project INTEGER NOT NULL REFERENCES project,
  name TEXT NOT NULL,
  PRIMARY KEY (project, name)
);
CREATE TABLE todo (
  id INTEGER PRIMARY KEY,
  username TEXT NOT NULL REFERENCES person,
  item INTEGER NOT NULL REFERENCES item,
  author TEXT NOT NULL REFERENCES person,
  reason TEXT NOT NULL,
  created TEXT NOT NULL,
  done INTEGER NOT NULL
);
