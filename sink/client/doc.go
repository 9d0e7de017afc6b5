// Package client is the Go client of lapse, over NATS alone. Start with [Connect]:
//
//	c, err := client.Connect(client.Options{Server: "nats://127.0.0.1:4222"})
//
// [Client.Write] publishes a write, a configuration or a drop and waits for its outcome.
// [Client.Pipeline] publishes many at a time. [Client.Get], [Client.List], [Client.Count],
// [Client.Forecast], [Client.Config] and [Client.Collections] read. [Client.Watch] follows
// the expiry events and the rejections. [Client.Status] reports which streams and
// processes of lapse a NATS server has.
//
// An error for which errors.Is reports [ErrUnavailable] means that nobody answered, or
// not in time. A [ReadError] is an answer of lapse. A write that lapse refuses is no
// error: its [Result] has the status and the reason.
//
// The client uses only the wire contract of package wire. To write a client in another
// language, follow the same subjects, headers and bodies.
package client
