CREATE TABLE orders (
    id       int PRIMARY KEY,
    item     text NOT NULL,
    quantity int NOT NULL,
    at       timestamptz NOT NULL
);
CREATE PUBLICATION shop_orders FOR TABLE orders;
