// Package console is the console of lapse in the browser, at / and under /console/. [New] makes
// it, and [Console.Register] adds it to a server.
//
// The pages are written by the server (package view), and every action is a form that is sent
// and answered with the next page to go to. A script of our own only adds what is live, and
// nothing is fetched from elsewhere.
//
// The console reads and writes by the HTTP API, in this process (gateway.go), with the token of the
// person who is signed in. So the API decides what a token may do, checks conditions, limits and
// counts. Only the state of the system and the consumers are not from the API: the console asks NATS for these. The console
// itself decides only what it shows. A cookie keeps the token (session.go): the
// server keeps nothing, and the token counts as long as the file of tokens has it.
//
// A request passes through these files:
//
//	routes.go      every route; package access finds the one of a request
//	console.go     headers, origin, token (signin.go); then the route's handler
//	overview.go    health, with what to do about each problem; figures of the last
//	               minutes, from the metrics of this process (figures.go); collections
//	collection.go  one collection, its documents and forecast (chart.go)
//	configure.go   the configuration, as a person chooses it (choice.go), with a preview; the drop
//	document.go    one document
//	change.go      create, edit, touch and delete; and a conflict
//	live.go        live events, due messages, warnings, rejections and changes
//	consumers.go   durable consumers, and dead letters
//	system.go      processes, shards and streams
//	failure.go     the page for what failed
package console
