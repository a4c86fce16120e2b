-- The state file of the first release that has one. It stays as it is: later ones must open it.
CREATE TABLE run (
  run_id TEXT PRIMARY KEY,
  record TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE member (
  run_id TEXT NOT NULL,
  addr TEXT NOT NULL,
  pid INTEGER NOT NULL,
  local_id INTEGER NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (run_id, addr, pid, local_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE ended (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  record TEXT NOT NULL
) STRICT;
INSERT INTO run VALUES ('job', '{"settings":{"min_nodes":2,"max_nodes":2,"max_restarts":2,"scale_policy":"now","join_timeout_ns":600000000000,"last_call_timeout_ns":30000000000},"life":77,"round":4,"generation":1700000004,"highest_generation":1700000004,"had_round":true,"complete":true,"preparing":false,"draining":false,"closed":false,"restarts_used":1,"prepare_failures":0,"last_world":2,"store":{"addr":"10.0.0.1","port":29500}}');
INSERT INTO member VALUES ('job', '10.0.0.1', 11, 0, '{"name":{"addr":"10.0.0.1","pid":11,"local_id":0},"standing":"member","rank":0,"native":true,"instance":"one","local_world_size":1,"role":"default","spare":false,"hosts_rendezvous":false}');
INSERT INTO member VALUES ('job', '10.0.0.2', 12, 0, '{"name":{"addr":"10.0.0.2","pid":12,"local_id":0},"standing":"finished","rank":1,"native":true,"instance":"two","local_world_size":1,"role":"default","spare":false,"hosts_rendezvous":false}');
INSERT INTO ended (record) VALUES ('{"run_id":"old","ended_at":1700000000,"rounds":1,"generation":1699999999,"nodes":2,"restarts":0,"outcome":{"succeeded":true,"why":"every node has finished"}}');
PRAGMA application_id = 1836282994;
PRAGMA user_version = 1;
