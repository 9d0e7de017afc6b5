// Package redisconn connects a process to Redis: to one server, to a cluster, or to the master
// that Sentinels name. Call [Options.Check], then [Options.Connect].
//
//	url.go      reads the URLs
//	connect.go  makes the clients
//	limit.go    keeps a node that does not answer from delaying anything else
package redisconn
