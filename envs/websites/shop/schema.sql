-- Money is in cents; days are ISO dates, moments 'YYYY-MM-DD HH:MM'.

CREATE TABLE category (
  id INTEGER PRIMARY KEY,
  slug TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL
);

CREATE TABLE product (
  id INTEGER PRIMARY KEY,
  sku TEXT NOT NULL UNIQUE,
  category_id INTEGER NOT NULL REFERENCES category(id),
  name TEXT NOT NULL,
  maker TEXT NOT NULL,
  material TEXT NOT NULL,
  description TEXT NOT NULL,
  price INTEGER NOT NULL,
  stock INTEGER NOT NULL,
  enabled INTEGER NOT NULL DEFAULT 1,
  created TEXT NOT NULL
);

CREATE TABLE choice (
  product_id INTEGER NOT NULL REFERENCES product(id),
  name TEXT NOT NULL,
  position INTEGER NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (product_id, position)
);

CREATE TABLE customer (
  id INTEGER PRIMARY KEY,
  email TEXT NOT NULL UNIQUE,
  password TEXT NOT NULL,
  first TEXT NOT NULL,
  last TEXT NOT NULL,
  phone TEXT NOT NULL,
  tier TEXT NOT NULL,
  newsletter INTEGER NOT NULL,
  since TEXT NOT NULL
);

CREATE TABLE address (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customer(id),
  name TEXT NOT NULL,
  street TEXT NOT NULL,
  city TEXT NOT NULL,
  region TEXT NOT NULL,
  postcode TEXT NOT NULL,
  phone TEXT NOT NULL,
  main INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE review (
  id INTEGER PRIMARY KEY,
  product_id INTEGER NOT NULL REFERENCES product(id),
  nickname TEXT NOT NULL,
  stars INTEGER NOT NULL,
  title TEXT NOT NULL,
  body TEXT NOT NULL,
  written TEXT NOT NULL,
  status TEXT NOT NULL
);

-- no customer: whoever is not logged in
CREATE TABLE basket (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER REFERENCES customer(id),
  product_id INTEGER NOT NULL REFERENCES product(id),
  option TEXT NOT NULL,
  quantity INTEGER NOT NULL
);

CREATE TABLE basket_code (
  customer_id INTEGER PRIMARY KEY,
  code TEXT NOT NULL
);

CREATE TABLE wish (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customer(id),
  product_id INTEGER NOT NULL REFERENCES product(id),
  UNIQUE (customer_id, product_id)
);

CREATE TABLE shipping (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  days TEXT NOT NULL,
  price INTEGER NOT NULL
);

CREATE TABLE rule (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  code TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  amount INTEGER NOT NULL,
  minimum INTEGER NOT NULL,
  starts TEXT NOT NULL,
  ends TEXT NOT NULL,
  active INTEGER NOT NULL
);

CREATE TABLE purchase (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customer(id),
  placed TEXT NOT NULL,
  status TEXT NOT NULL,
  name TEXT NOT NULL,
  street TEXT NOT NULL,
  city TEXT NOT NULL,
  region TEXT NOT NULL,
  postcode TEXT NOT NULL,
  phone TEXT NOT NULL,
  method TEXT NOT NULL,
  postage INTEGER NOT NULL,
  payment TEXT NOT NULL,
  code TEXT NOT NULL DEFAULT '',
  discount INTEGER NOT NULL DEFAULT 0
);

-- no key to the product: what was bought stays written down when that is deleted
CREATE TABLE line (
  id INTEGER PRIMARY KEY,
  purchase_id INTEGER NOT NULL REFERENCES purchase(id),
  sku TEXT NOT NULL,
  name TEXT NOT NULL,
  option TEXT NOT NULL,
  price INTEGER NOT NULL,
  quantity INTEGER NOT NULL
);
CREATE INDEX line_of ON line (purchase_id);

CREATE TABLE invoice (
  id INTEGER PRIMARY KEY,
  purchase_id INTEGER NOT NULL UNIQUE REFERENCES purchase(id),
  made TEXT NOT NULL
);

CREATE TABLE shipment (
  id INTEGER PRIMARY KEY,
  purchase_id INTEGER NOT NULL UNIQUE REFERENCES purchase(id),
  carrier TEXT NOT NULL,
  tracking TEXT NOT NULL,
  sent TEXT NOT NULL,
  delivered TEXT
);

CREATE TABLE remark (
  id INTEGER PRIMARY KEY,
  purchase_id INTEGER NOT NULL REFERENCES purchase(id),
  body TEXT NOT NULL,
  made TEXT NOT NULL,
  told INTEGER NOT NULL
);

CREATE TABLE term (
  id INTEGER PRIMARY KEY,
  words TEXT NOT NULL UNIQUE,
  results INTEGER NOT NULL,
  uses INTEGER NOT NULL
);

CREATE TABLE page (
  id INTEGER PRIMARY KEY,
  slug TEXT NOT NULL UNIQUE,
  title TEXT NOT NULL,
  body TEXT NOT NULL,
  enabled INTEGER NOT NULL
);

CREATE TABLE message (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  email TEXT NOT NULL,
  subject TEXT NOT NULL,
  body TEXT NOT NULL,
  sent TEXT NOT NULL
);

-- said once, on the next page of the host
CREATE TABLE notice (
  host TEXT PRIMARY KEY,
  text TEXT NOT NULL
);

CREATE VIEW bill AS
SELECT purchase.*, customer.email, customer.first || ' ' || customer.last AS customer,
       sum(line.price * line.quantity) AS goods, sum(line.quantity) AS items,
       sum(line.price * line.quantity) + purchase.postage - purchase.discount AS total
FROM purchase JOIN customer ON customer.id = purchase.customer_id JOIN line ON line.purchase_id = purchase.id
GROUP BY purchase.id;

CREATE VIEW goods AS
SELECT product.*, category.name AS category, category.slug AS category_slug,
       (SELECT count(*) FROM review WHERE product_id = product.id AND status = 'approved') AS reviews,
       (SELECT avg(stars) FROM review WHERE product_id = product.id AND status = 'approved') AS rating
FROM product JOIN category ON category.id = product.category_id;
