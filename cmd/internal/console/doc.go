// Package console is the console of lapse in the browser, at / and under /console/. [New] makes
// it, and [Console.Register] adds it to a server.
//
// The server writes the pages (pages.go), and every action is a form that is sent
// and answered with the next page to go to. A script of our own only adds what is live, and
// nothing is fetched from elsewhere.
//
// The console reads and writes by the HTTP API, in this process (gateway.go), with the token of the person who is
// signed in. So the API decides what a token may do, checks conditions, limits and counts. A few things the API does
// not have: the state of the system and the consumers, which the console asks NATS for by package client; single events
// and the last ones, which it takes from package live; and the figures, which are the metrics of this process. The
// console itself decides only what it shows. A cookie keeps the token (signin.go): the server keeps nothing, and the
// token counts as long as the file of tokens has it.
//
// A request passes through these files:
//
//	console.go     every route, headers, origin, token (signin.go); then the route's handler
//	overview.go    health, with what to do about each problem; figures of the last
//	               minutes, from the metrics of this process (figures.go, history.go); collections; examples.go
//	collection.go  one collection, its documents, queries and forecast (chart.go); the drop
//	configure.go   the configuration, as a person chooses it (settings.go), with a preview
//	document.go    one document (text.go)
//	change.go      create, edit, touch and delete; and a conflict
//	live.go        live events, due messages, warnings, rejections and changes
//	consumers.go   durable consumers, and dead letters
//	system.go      processes, shards and streams
//	failure.go     the page for what failed
//	pages.go       templates, style sheet and scripts, all embedded; figures and instants for people (format.go)
package console
