// Package service answers the reads as a NATS micro service named "lapse".
//
// [Start] subscribes to <prefix>.read.<verb>.> for each verb, and to
// <prefix>.read.collections:
//
//	get.<collection>.<id>   the document's bytes; Lapse-Etag, Lapse-Ts, Lapse-Expires-At
//	list.<collection>       wire.ListRequest     → wire.ListReply
//	query.<collection>      wire.QueryRequest    → wire.QueryReply
//	count.<collection>      nothing              → wire.CountReply
//	forecast.<collection>   wire.ForecastRequest → wire.ForecastReply
//	config.<collection>     nothing              → wire.Config
//	collections             wire.CollectionsRequest → wire.CollectionsReply
//	settled.<collection>    nothing              → wire.SettledReply
//
// An empty body asks for the defaults. An error has the headers of NATS services,
// Nats-Service-Error-Code and Nats-Service-Error: 400 (a malformed name, body or limit; it says
// what is allowed), 404, 413 (the answer is larger than the server's maximum payload), 503 (a
// shard is being rebuilt, or Redis holds something that lapse did not store or does not
// answer) or 500.
//
// Every process serves all reads, and the NATS server gives each request to one of them. A
// process answers at most [Options.Concurrency] requests at a time; further ones wait. None is
// dropped before the client library's own limit on waiting messages, and each has
// [Options.Timeout] from the moment at which the service begins to answer it. The service's
// statistics count each request. Its metadata names the prefix, as there may be services for
// several.
//
// The flow: service.go (start, dispatch, stop), protocol.go (subscriptions, PING, INFO,
// STATS) → endpoints.go (read the request, ask the [Reader]) → reply.go (encode, errors).
package service
