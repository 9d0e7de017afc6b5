// Package harness runs the real parts of a lapse installation for tests: nats-server and
// redis-server as processes of their own, the lapse binary, a processor inside the test,
// and a TCP proxy that a test can make fail. Nothing in it is a fake.
//
// Start with [StartNATS], [StartRedis], [StartLapse] and [StartProcessor]. A test can
// kill, stop, continue and start a server again: its port and its directory remain.
// [NewProxy] stands before any server. [Client] publishes writes, waits for outcomes and
// reads the streams. [Until] waits for a condition.
//
// The servers have the users and the permissions of deploy/: lapse and processors inside
// tests connect as lapse, and a client of a test is an operator. Package deployed starts
// everything in deploy/ with TLS. Package programs builds the programs.
//
// The harness guarantees:
//
//   - Every process dies with the test, and with the test binary, however that ends.
//   - Each server listens on 127.0.0.1, on a port that no other test binary of this
//     machine uses, and keeps it when it is started again.
//   - A test binary builds each program once, into a directory that [Main] removes.
//   - A test fails if a server has denied lapse anything.
//   - When a test fails, its log has the end of the log of each process.
package harness
