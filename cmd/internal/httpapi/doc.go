// Package httpapi is the HTTP API of lapse: documents, collections and live events under /v1/, its description (OpenAPI
// 3.1) at /openapi.json, and that of the messages over NATS (AsyncAPI 3.0) at /asyncapi.json; tests hold both against
// real answers and messages. [New] makes it, and [API.Register] adds it to a server.
//
// Writes go over NATS, by package client, and reads go to Redis: a read by the NATS service of
// this process would cost a second round trip. Events come from package live. The headers are
// those of HTTP, and nothing here decides about documents: the log does, and lapse answers.
//
// A request passes through these files:
//
//	api.go          every route, origin, token (package access), names, limits; then the route's handler
//	documents.go    one document, and pages of them
//	query.go        documents by their values, and documents with some ids
//	collections.go  configurations, drops, lists, counts and forecasts
//	imports.go      many documents at once
//	streams.go      live events, warnings, rejections and changes (package live)
//	headers.go      If-Match, If-None-Match and Idempotency-Key
//	write.go        publishes, and turns an outcome into an answer: Prefer, the document in place of the outcome
//
// Package access makes the answers to requests that fail (RFC 9457), and limits what clients hold of
// the process.
//
// Every limit answers with a problem that names it. No answer allows a cache to keep a document
// without asking: a changed default counts at once.
package httpapi
