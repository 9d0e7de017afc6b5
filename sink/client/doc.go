// Package client is the Go client of lapse, over NATS alone. Start with [Connect] and [Open]:
//
//	c, err := client.Connect(client.Options{Server: "nats://127.0.0.1:4222"})
//	orders, err := client.Open[Order](c, "orders")
//	_, err = orders.Configure(ctx, client.Config{DefaultTTL: time.Hour})
//	_, err = orders.Upsert(ctx, "42", Order{Item: "tea"})
//
// A [Collection] writes and reads documents of one type. [Collection.Query] finds them by their values.
// [Collection.Batch] writes many of them. [Collection.OnExpired] hands each expiry event to one of the processes that
// ask for it under one name, [Collection.OnExpiring] does that for warnings, and [Collection.OnRejected] for
// rejections. [Collection.Schedule] creates a message that is delivered at its time, to [Collection.OnDue].
// [Client.Watch] follows events without such a name, for one process. [Client.Ordered] keeps the order of each
// document's messages. Package clienttest runs a lapse for tests.
//
// # Errors
//
// Test errors with errors.Is:
//
//	ErrNotFound ErrExists ErrPrecondition   lapse says so
//	ErrNoIndex ErrIndexMade                 no index serves the query, or it is still being made
//	ErrRejected                             lapse has not applied the message, whatever the reason
//	ErrInvalid                              an argument is wrong, and nothing was sent
//	ErrUnknownOutcome                       the write may have taken effect, or will
//	ErrUnavailable                          otherwise: nobody has answered, and nothing took effect
//	ErrDenied                               the NATS server does not permit it
//
// A [RejectedError] has the code and the reason of lapse. After an [ErrUnknownOutcome], repeat
// the write with the same [MessageID], or read the document.
//
// # Lost connections and time limits
//
// Each exchange ends after Options.Timeout, or when its context is done. The client connects
// again for as long as it is open. While there is no connection, or lapse is starting, a call waits within
// its time limit. What then:
//
//   - A read has changed nothing: repeat it.
//   - A write that was not sent is an [ErrUnavailable]. A write that was sent waits on: if the
//     connection comes back, its outcome may still come. Otherwise it is an
//     [ErrUnknownOutcome].
//   - A batch goes on. The writes that were in flight end like other writes.
//   - OnExpired, OnDue, OnExpiring, OnRejected and Watch go on where they were.
//
// # Without types
//
// [Client] has the messages of lapse as they are on the wire: [Client.Write] publishes a write, a configuration or a
// drop and waits for its outcome, [Client.Publish] only until it is durable, [Client.Pipeline] publishes many at a
// time; [Client.Get], [Client.List], [Client.Query], [Client.Count], [Client.Forecast], [Client.Config] and
// [Client.Collections] read; [Client.Status] reports which streams and processes of lapse a NATS server has. There, a
// write that lapse refuses is no error: its [Result] has the status and the reason; and an answer of the read service
// that it cannot give a result is a [ReadError].
//
// The client uses only the wire contract of package wire. To write a client in another
// language, follow the same subjects, headers and bodies.
package client
