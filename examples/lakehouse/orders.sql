INSERT INTO orders VALUES (1, 'tea', 2, '2026-03-01 09:00Z'), (2, 'cup', 1, '2026-03-01 09:30Z');
INSERT INTO orders VALUES (3, 'cup', 4, '2026-03-01 10:00Z');
UPDATE orders SET quantity = 3, at = '2026-03-01 13:00Z' WHERE id = 1;
INSERT INTO orders VALUES (4, 'tea', 1, '2026-03-01 13:30Z');
UPDATE orders SET quantity = 0, at = '2026-03-01 14:00Z' WHERE id = 3;
