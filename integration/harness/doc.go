// Package harness runs the real parts of a lapse installation for tests: a
// nats-server and a redis-server as processes of their own, the lapse binary,
// a processor inside the test, and a TCP proxy that misbehaves on demand.
// Nothing in it is a fake.
//
// Start at [StartNATS], [StartRedis], [StartLapse] and [StartProcessor]. What
// a server keeps (its directory and its port) outlives its process, so that it
// can be killed, stopped, continued and started again; [NewProxy] stands before
// any of them. [Until] waits for a condition, [Client] publishes writes and
// waits for their outcomes, [Events] reads what was said.
//
// It guarantees:
//
//   - Every process dies with the test, and with the test binary, however that ends.
//   - Everything listens on 127.0.0.1, on a port that no other test binary of
//     this machine uses, and keeps it over restarts.
//   - Binaries are built once per test binary, into a directory that [Main] removes.
//   - When a test fails, the end of each process's log is in the test's.
package harness
