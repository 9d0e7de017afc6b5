// Package service answers the reads as a NATS micro service named "lapse".
//
// [Start] subscribes to <prefix>.read.<verb>.> for each verb:
//
//	get.<collection>.<id>   the document's bytes; Lapse-Etag, Lapse-Ts, Lapse-Expires-At
//	list.<collection>       wire.ListRequest     → wire.ListReply
//	count.<collection>      nothing              → wire.CountReply
//	forecast.<collection>   wire.ForecastRequest → wire.ForecastReply
//	config.<collection>     nothing              → wire.Config
//
// An empty body asks for the defaults. An error is answered in the way of NATS
// services, with the headers Nats-Service-Error-Code and Nats-Service-Error: 400
// (a malformed name, body or limit; it says what is allowed), 404, 413 (the
// answer is larger than the server's maximum payload), 503 (the partition is
// being rebuilt, or Redis does not answer; try again) or 500.
//
// Every process serves all reads, and the server gives each request to one of
// them. Requests are answered side by side, at most [Options.Concurrency] of
// them at a time; those over it wait. None is dropped before the client
// library's own limit on messages that wait, and each has [Options.Timeout] from
// when its turn comes. A micro service counts its own statistics in its message
// loop, which here hands work on: what requests took and how many failed stands
// in the "data" of each endpoint's statistics.
//
// The flow: service.go (start, dispatch, stop) → request.go (subject and body)
// → endpoints.go (ask the [Reader]) → reply.go (encode, errors).
package service
